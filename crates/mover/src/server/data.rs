//! How a data connection comes about: we connect to a port that the server names, or the server connects to one of ours.

use std::{io, net::SocketAddr};

use ftp::address::{ActiveForm, PassiveForm, active_line, announced_port};
use gateway::tls::{Kind, Leg};
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::{ServerError, Session, control::Sent};

/// A data connection that has been asked for.
pub(super) enum Data {
    /// We connect when the server has named a port.
    Passive { form: PassiveForm, sent: Sent },
    /// The server connects to `listener`.
    Active { listener: TcpListener, sent: Sent },
}

impl Session {
    /// Asks for a data connection. The next wait for a reply sends the command.
    pub(super) async fn ask_for_data(&mut self) -> Result<Data, ServerError> {
        if self.dial.is_active {
            return self.ask_for_active().await;
        }
        let form = self.passive;
        let verb = match form {
            PassiveForm::Pasv => "PASV",
            PassiveForm::Epsv | PassiveForm::Lpsv => "EPSV",
        };
        let sent = self.control.send(verb, b"")?;
        Ok(Data::Passive { form, sent })
    }

    async fn ask_for_active(&mut self) -> Result<Data, ServerError> {
        let at = SocketAddr::new(self.local().ip(), 0);
        let listener = TcpListener::bind(at).await.map_err(ServerError::Data)?;
        let at = listener.local_addr().map_err(ServerError::Data)?;
        // PORT is what all servers know; an IPv6 address fits in EPRT alone.
        let (form, verb) = match at.ip().to_canonical().is_ipv4() {
            true => (ActiveForm::Port, "PORT"),
            false => (ActiveForm::Eprt, "EPRT"),
        };
        let line = active_line(form, at).expect("the form fits the address");
        let argument = line.split_once(' ').map_or("", |(_, argument)| argument);
        let sent = self.control.send(verb, argument.as_bytes())?;
        Ok(Data::Active { listener, sent })
    }

    /// The TCP connection, once the server has agreed to it. `None` if it does not know `EPSV`: from now on it is asked
    /// by `PASV`.
    pub(super) async fn connect_data(
        &mut self,
        data: Data,
    ) -> Result<Option<Pending>, ServerError> {
        match data {
            Data::Active { listener, sent } => {
                self.control.done(sent).await?;
                Ok(Some(Pending::Listener(listener)))
            }
            Data::Passive { form, sent } => {
                let reply = self.control.last(sent).await?;
                let is_ipv4 = self.control.peer().ip().to_canonical().is_ipv4();
                if !reply.is_completed() {
                    // 5yz: not known, or not allowed.
                    if form == PassiveForm::Epsv && is_ipv4 && !reply.is_temporary() {
                        self.passive = PassiveForm::Pasv;
                        return Ok(None);
                    }
                    return Err(sent.refused(reply));
                }
                let line = reply.lines().last().map_or(&b""[..], Vec::as_slice);
                let Some(port) = announced_port(form, line) else {
                    return Err(ServerError::NoPort(reply));
                };
                // Never to another address that the reply may name (RFC 2577 section 3).
                let at = SocketAddr::new(self.control.peer().ip(), port);
                let tcp = self.dial.connect_to(at).await;
                Ok(Some(Pending::Connected(tcp.map_err(ServerError::Data)?)))
            }
        }
    }

    /// The data connection with its TLS. The server must have been told the transfer: it connects, and answers a
    /// handshake, no sooner.
    pub(super) async fn open_data(&mut self, pending: Pending) -> Result<Leg, ServerError> {
        let tcp = match pending {
            Pending::Connected(tcp) => tcp,
            Pending::Listener(listener) => self.accept(&listener).await?,
        };
        match &self.connector {
            Some(connector) if !self.data_is_plain => {
                self.dial.handshake(connector, tcp, Kind::Data).await
            }
            _ => Ok(Leg::plain(tcp)),
        }
    }

    async fn accept(&mut self, listener: &TcpListener) -> Result<TcpStream, ServerError> {
        let server = self.control.peer().ip();
        let accepting = timeout(self.dial.patience, async {
            loop {
                let (tcp, from) = listener.accept().await?;
                // A stranger who found the port first.
                if from.ip().to_canonical() == server.to_canonical() {
                    return Ok::<_, io::Error>(tcp);
                }
            }
        });
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the server did not connect");
        let tcp = accepting.await.map_err(late).flatten();
        let tcp = tcp.map_err(ServerError::Data)?;
        tcp.set_nodelay(true).map_err(ServerError::Data)?;
        Ok(tcp)
    }
}

/// A data connection on its way.
pub(super) enum Pending {
    Connected(TcpStream),
    Listener(TcpListener),
}
