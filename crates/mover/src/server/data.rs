//! How a data connection comes about: we connect to a port that the server names, or the server connects to one of ours.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use ftp::{
    address::{ActiveForm, PassiveForm, active_line, announced_port},
    client::Reply,
};
use net::tls::{Connector, Kind, Leg};
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::{Dial, ServerError, Session, control::Sent};

/// A data connection that has been asked for.
pub(super) enum Asked {
    /// We connect when the server has named a port.
    Passive {
        /// The form of its answer.
        form: PassiveForm,
        /// The command.
        sent: Sent,
    },
    /// The server connects to `listener`.
    Active {
        /// Where.
        listener: Arc<TcpListener>,
        /// The command.
        sent: Sent,
    },
}

/// Where a data connection comes from, once the server has agreed to it.
pub(super) enum Meeting {
    /// The server listens there.
    At(SocketAddr),
    /// The server connects to us.
    Here(Arc<TcpListener>),
}

/// Opens data connections of a session; the session is free meanwhile.
#[derive(Clone)]
pub(super) struct DataDial {
    dial: Arc<Dial>,
    /// `None` where data is not protected.
    connector: Option<Connector>,
    server: IpAddr,
}

impl Session {
    /// Asks for the port of a download that is about to begin, together with the next command: this saves a round trip. Does
    /// nothing where the server takes one command at a time.
    ///
    /// # Errors
    /// [`ServerError`] if the command cannot be sent.
    pub fn ask_ahead_for_data(&mut self) -> Result<(), ServerError> {
        let is_direct = !self.dial.is_active && !self.dial.is_behind_gateway();
        if self.is_sequential && is_direct && self.is_usable() {
            let asked = self.ask_for_passive()?;
            self.port_ahead = Some((asked, Instant::now()));
        }
        Ok(())
    }

    /// The port that was asked for ahead, unless it was so long ago that the server may have closed it.
    pub(super) fn take_port_ahead(&mut self) -> Option<Asked> {
        let (asked, at) = self.port_ahead.take()?;
        if at.elapsed() < PORT_AHEAD_MAX {
            return Some(asked);
        }
        self.control.disregard(asked.sent());
        None
    }

    /// Asks for a data connection. The next wait for a reply sends the command.
    pub(super) async fn ask_for_data(&mut self) -> Result<Asked, ServerError> {
        if self.dial.is_active {
            let listener = self.listen().await.map_err(ServerError::Data)?;
            self.ask_for_active(Arc::new(listener))
        } else {
            self.ask_for_passive()
        }
    }

    /// Asks for a data connection to a port of the server's.
    pub(super) fn ask_for_passive(&mut self) -> Result<Asked, ServerError> {
        if let Some((asked, _)) = self.port_ahead.take() {
            // The server closes it.
            self.control.disregard(asked.sent());
        }
        let form = self.passive;
        let verb = match form {
            PassiveForm::Pasv => "PASV",
            PassiveForm::Epsv | PassiveForm::Lpsv => "EPSV",
        };
        let sent = self.control.send(verb, b"")?;
        Ok(Asked::Passive { form, sent })
    }

    /// Opens a port of ours.
    ///
    /// # Errors
    /// That of the system.
    pub(super) async fn listen(&self) -> io::Result<TcpListener> {
        TcpListener::bind(SocketAddr::new(self.local().ip(), 0)).await
    }

    /// Asks for a data connection to a port of ours.
    pub(super) fn ask_for_active(
        &mut self,
        listener: Arc<TcpListener>,
    ) -> Result<Asked, ServerError> {
        let at = listener.local_addr().map_err(ServerError::Data)?;
        // PORT is what all servers know; an IPv6 address fits in EPRT alone.
        let (form, verb) = match at.ip().to_canonical().is_ipv4() {
            true => (ActiveForm::Port, "PORT"),
            false => (ActiveForm::Eprt, "EPRT"),
        };
        let line = active_line(form, at).expect("the form fits the address");
        let argument = line.split_once(' ').map_or("", |(_, argument)| argument);
        let sent = self.control.send(verb, argument.as_bytes())?;
        Ok(Asked::Active { listener, sent })
    }

    /// Where the connection comes from, by the answer to what was asked.
    pub(super) fn meeting(&self, asked: Asked, reply: Reply) -> Result<Meeting, ServerError> {
        let sent = asked.sent();
        if !reply.is_completed() {
            return Err(sent.refused(reply));
        }
        match asked {
            Asked::Active { listener, .. } => Ok(Meeting::Here(listener)),
            Asked::Passive { form, .. } => {
                let line = reply.lines().last().map_or(&b""[..], Vec::as_slice);
                let port = announced_port(form, line);
                // Never to another address that the reply may name (RFC 2577 section 3).
                let at = port.map(|port| SocketAddr::new(self.control.peer().ip(), port));
                at.map(Meeting::At).ok_or(ServerError::NoPort(reply))
            }
        }
    }

    /// What opens this session's data connections.
    pub(super) fn data_dial(&self) -> DataDial {
        DataDial {
            dial: self.dial.clone(),
            connector: self.connector.clone().filter(|_| !self.data_is_plain),
            server: self.control.peer().ip(),
        }
    }
}

impl Asked {
    /// The command that has asked.
    pub(super) fn sent(&self) -> Sent {
        match self {
            Self::Passive { sent, .. } | Self::Active { sent, .. } => *sent,
        }
    }
}

impl DataDial {
    /// Longest time in which nothing moves.
    pub(super) fn stall_max(&self) -> Duration {
        self.dial.stall_max
    }

    /// Whether the user wants servers to connect to us.
    pub(super) fn is_active(&self) -> bool {
        self.dial.is_active
    }

    /// The TCP connection of a meeting.
    ///
    /// # Errors
    /// [`ServerError::Data`] if none comes about.
    pub(super) async fn connect(&self, meeting: Meeting) -> Result<TcpStream, ServerError> {
        let tcp = match meeting {
            Meeting::At(at) => self.dial.connect_to(at).await,
            Meeting::Here(listener) => self.accept(&listener).await,
        };
        tcp.map_err(ServerError::Data)
    }

    /// Adds TLS, where the session protects data. The server must have been told the transfer: it answers a handshake no
    /// sooner.
    ///
    /// # Errors
    /// [`ServerError::Tls`] if the handshake fails.
    pub(super) async fn secure(&self, tcp: TcpStream) -> Result<Leg, ServerError> {
        match &self.connector {
            Some(connector) => self.dial.handshake(connector, tcp, Kind::Data).await,
            None => Ok(Leg::plain(tcp)),
        }
    }

    /// The connection of a meeting, with its TLS.
    ///
    /// # Errors
    /// [`ServerError`] if none comes about.
    pub(super) async fn open(&self, meeting: Meeting) -> Result<Leg, ServerError> {
        let tcp = self.connect(meeting).await?;
        self.secure(tcp).await
    }

    async fn accept(&self, listener: &TcpListener) -> io::Result<TcpStream> {
        let accepting = timeout(self.dial.patience, async {
            loop {
                let (tcp, from) = listener.accept().await?;
                // A stranger who found the port first.
                if from.ip().to_canonical() == self.server.to_canonical() {
                    return Ok::<_, io::Error>(tcp);
                }
            }
        });
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the server did not connect");
        let tcp = accepting.await.map_err(late).flatten()?;
        tcp.set_nodelay(true)?;
        Ok(tcp)
    }
}

/// How long a port that was asked for ahead is taken to be open.
const PORT_AHEAD_MAX: Duration = Duration::from_secs(10);
