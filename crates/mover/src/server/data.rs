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
use net::{
    Connection, Listener,
    tls::{Connector, Kind, Leg},
};
use tokio::{net::TcpListener, time::timeout};

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
        listener: Arc<Listener>,
        /// The command.
        sent: Sent,
    },
}

/// Where a data connection comes from, once the server has agreed to it.
pub(super) enum Meeting {
    /// The server listens there.
    At(SocketAddr),
    /// The server connects to us.
    Here(Arc<Listener>),
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
    pub(super) async fn listen(&self) -> io::Result<Listener> {
        if let Some(network) = self.dial.network() {
            return network.listen().map(Listener::from);
        }
        let listener = TcpListener::bind(SocketAddr::new(self.local().ip(), 0)).await;
        listener.map(Listener::from)
    }

    /// Asks for a data connection to a port of ours.
    pub(super) fn ask_for_active(&mut self, listener: Arc<Listener>) -> Result<Asked, ServerError> {
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

    /// The connection of a meeting, without TLS.
    ///
    /// # Errors
    /// [`ServerError::Data`] if none comes about.
    pub(super) async fn connect(&self, meeting: Meeting) -> Result<Connection, ServerError> {
        let connection = match meeting {
            Meeting::At(at) => self.dial.connect_to(at).await,
            Meeting::Here(listener) => self.accept(&listener).await,
        };
        connection.map_err(ServerError::Data)
    }

    /// Adds TLS, where the session protects data. The server must have been told the transfer: it answers a handshake no
    /// sooner.
    ///
    /// # Errors
    /// [`ServerError::Tls`] if the handshake fails.
    pub(super) async fn secure(&self, connection: Connection) -> Result<Leg, ServerError> {
        match &self.connector {
            Some(connector) => self.dial.handshake(connector, connection, Kind::Data).await,
            None => Ok(Leg::plain(connection)),
        }
    }

    /// The connection of a meeting, with its TLS.
    ///
    /// # Errors
    /// [`ServerError`] if none comes about.
    pub(super) async fn open(&self, meeting: Meeting) -> Result<Leg, ServerError> {
        let connection = self.connect(meeting).await?;
        self.secure(connection).await
    }

    async fn accept(&self, listener: &Listener) -> io::Result<Connection> {
        let accepting = timeout(self.dial.patience, async {
            loop {
                let (connection, from) = listener.accept().await?;
                // A stranger who found the port first.
                if from.ip().to_canonical() == self.server.to_canonical() {
                    return Ok::<_, io::Error>(connection);
                }
            }
        });
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the server did not connect");
        let connection = accepting.await.map_err(late).flatten()?;
        if let Some(tcp) = connection.tcp() {
            tcp.set_nodelay(true)?;
        }
        Ok(connection)
    }
}

/// How long a port that was asked for ahead is taken to be open.
const PORT_AHEAD_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use net::pipe::PipeNetwork;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;
    use crate::server::{Door, Route};

    /// A session with a gateway in this process that says yes to everything.
    async fn session(network: &PipeNetwork) -> Session {
        let door = network.listen().expect("a port");
        let at = door.local_addr();
        tokio::spawn(async move {
            let mut control = BufReader::new(door.accept().await);
            let mut reply = &b"220 hello\r\n"[..];
            while control.write_all(reply).await.is_ok() {
                if control.read_line(&mut String::new()).await.unwrap_or(0) == 0 {
                    return;
                }
                reply = b"230 yes\r\n";
            }
        });
        let dial = Dial {
            route: Route::Gateway(Door {
                host: at.ip().to_string(),
                port: at.port(),
                has_tls: true,
                is_ours: true,
                network: Some(network.clone()),
            }),
            ..Dial::for_tests(at)
        };
        Session::open(&dial).await.expect("a session")
    }

    #[tokio::test]
    async fn a_session_within_the_process_has_its_data_connections_there_too() {
        let network = PipeNetwork::new();
        let session = session(&network).await;
        let data = session.data_dial();
        let port = Arc::new(session.listen().await.expect("a port"));
        let at = port.local_addr().expect("a port");
        let dialled = data.connect(Meeting::At(at)).await.expect("a listener");
        let accepted = data.connect(Meeting::Here(port)).await.expect("a pipe");
        assert_eq!(dialled.network(), Some(&network));
        assert_eq!(
            accepted.peer_addr().expect("a pipe"),
            dialled.local_addr().expect("a pipe")
        );
        // The port was dropped.
        let refused = data.connect(Meeting::At(at)).await;
        let Err(ServerError::Data(error)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn an_absent_gateway_within_the_process_is_reported_with_its_address() {
        let network = PipeNetwork::new();
        let mut dial = Dial::clone(&session(&network).await.dial);
        if let Route::Gateway(door) = &mut dial.route {
            door.network = Some(PipeNetwork::new());
        }
        let refused = Session::open(&dial).await.err().expect("nobody listens");
        assert!(matches!(refused, ServerError::Connect { .. }), "{refused}");
    }
}
