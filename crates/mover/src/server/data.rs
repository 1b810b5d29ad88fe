//! Data connections to an FTP server. In passive mode, the mover connects to a port of the server.
//! In active mode, the server connects to a port of the mover.

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
    tls::{ConnectionKind, Connector, Leg},
};
use tokio::{net::TcpListener, time::timeout};

use super::{Dial, ServerError, Session, control::PendingReply};

/// A data connection that was requested from the server.
pub(super) enum DataRequest {
    /// Passive mode: the mover connects to the port that the server names in its reply.
    Passive {
        /// Form of the command and of its reply.
        form: PassiveForm,
        /// The command that requested the data connection.
        sent: PendingReply,
    },
    /// Active mode: the server connects to `listener`.
    Active {
        /// Listening port of the mover.
        listener: Arc<Listener>,
        /// The command that requested the data connection.
        sent: PendingReply,
    },
}

/// Origin of a data connection, after the server has accepted the request.
pub(super) enum DataOrigin {
    /// The server is listening at this address.
    At(SocketAddr),
    /// The server connects to this listener.
    Here(Arc<Listener>),
}

/// Parameters with which a session's data connections are opened. They are separate from the
/// session, so that the session can send commands meanwhile.
#[derive(Clone)]
pub(super) struct DataDial {
    dial: Arc<Dial>,
    /// TLS connector for data connections. `None` if data connections are not encrypted.
    connector: Option<Connector>,
    server: IpAddr,
}

impl Session {
    /// Requests the data port of a download that will begin soon. The request is sent together with
    /// the next command, which avoids one round trip. The function does nothing in active mode, at
    /// a gateway, or if the server does not accept pipelined commands.
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

    /// Removes and returns the data port that was requested in advance. Returns `None` if no port
    /// was requested. Also returns `None` if the server may have closed the port, because the
    /// request is old.
    pub(super) fn take_port_ahead(&mut self) -> Option<DataRequest> {
        let (asked, at) = self.port_ahead.take()?;
        if at.elapsed() < PORT_AHEAD_MAX {
            return Some(asked);
        }
        self.control.disregard(asked.sent());
        None
    }

    /// Requests a data connection. The command is sent when a caller next waits for a reply.
    pub(super) async fn ask_for_data(&mut self) -> Result<DataRequest, ServerError> {
        if self.dial.is_active {
            let listener = self.listen().await.map_err(ServerError::Data)?;
            self.ask_for_active(Arc::new(listener))
        } else {
            self.ask_for_passive()
        }
    }

    /// Requests a data connection in passive mode, to a port of the server.
    pub(super) fn ask_for_passive(&mut self) -> Result<DataRequest, ServerError> {
        if let Some((asked, _)) = self.port_ahead.take() {
            // The new request makes the server close the earlier port.
            self.control.disregard(asked.sent());
        }
        let form = self.passive;
        let verb = match form {
            PassiveForm::Pasv => "PASV",
            PassiveForm::Epsv | PassiveForm::Lpsv => "EPSV",
        };
        let sent = self.control.send(verb, b"")?;
        Ok(DataRequest::Passive { form, sent })
    }

    /// Opens a listening port of the mover.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(super) async fn listen(&self) -> io::Result<Listener> {
        if let Some(network) = self.dial.network() {
            return network.listen().map(Listener::from);
        }
        let listener = TcpListener::bind(SocketAddr::new(self.local().ip(), 0)).await;
        listener.map(Listener::from)
    }

    /// Requests a data connection in active mode, to a port of the mover.
    pub(super) fn ask_for_active(
        &mut self,
        listener: Arc<Listener>,
    ) -> Result<DataRequest, ServerError> {
        let at = listener.local_addr().map_err(ServerError::Data)?;
        // All servers support PORT. An IPv6 address fits only into EPRT.
        let (form, verb) = match at.ip().to_canonical().is_ipv4() {
            true => (ActiveForm::Port, "PORT"),
            false => (ActiveForm::Eprt, "EPRT"),
        };
        let line = active_line(form, at).expect("the form fits the address");
        let argument = line.split_once(' ').map_or("", |(_, argument)| argument);
        let sent = self.control.send(verb, argument.as_bytes())?;
        Ok(DataRequest::Active { listener, sent })
    }

    /// Returns the origin of the data connection, according to the server's reply to the request.
    pub(super) fn meeting(
        &self,
        asked: DataRequest,
        reply: Reply,
    ) -> Result<DataOrigin, ServerError> {
        let sent = asked.sent();
        if !reply.is_completed() {
            return Err(sent.refused(reply));
        }
        match asked {
            DataRequest::Active { listener, .. } => Ok(DataOrigin::Here(listener)),
            DataRequest::Passive { form, .. } => {
                let line = reply.lines().last().map_or(&b""[..], Vec::as_slice);
                let port = announced_port(form, line);
                // Another address in the reply is ignored (RFC 2577 section 3).
                let at = port.map(|port| SocketAddr::new(self.control.peer().ip(), port));
                at.map(DataOrigin::At).ok_or(ServerError::NoPort(reply))
            }
        }
    }

    /// Returns a [`DataDial`] that opens data connections for this session.
    pub(super) fn data_dial(&self) -> DataDial {
        DataDial {
            dial: self.dial.clone(),
            connector: self.connector.clone().filter(|_| !self.data_is_plain),
            server: self.control.peer().ip(),
        }
    }
}

impl DataRequest {
    /// Returns the command that requested the data connection.
    pub(super) fn sent(&self) -> PendingReply {
        match self {
            Self::Passive { sent, .. } | Self::Active { sent, .. } => *sent,
        }
    }
}

impl DataDial {
    /// Returns the longest permitted time without progress.
    pub(super) fn stall_max(&self) -> Duration {
        self.dial.stall_max
    }

    /// Returns whether the user has selected active mode.
    pub(super) fn is_active(&self) -> bool {
        self.dial.is_active
    }

    /// Opens a data connection without TLS.
    ///
    /// # Errors
    /// [`ServerError::Data`] if no connection is established.
    pub(super) async fn connect(&self, meeting: DataOrigin) -> Result<Connection, ServerError> {
        let connection = match meeting {
            DataOrigin::At(at) => self.dial.connect_to(at).await,
            DataOrigin::Here(listener) => self.accept(&listener).await,
        };
        connection.map_err(ServerError::Data)
    }

    /// Starts TLS on a data connection, if the session encrypts data. The caller must have sent the
    /// transfer command, because servers answer the handshake only after that command.
    ///
    /// # Errors
    /// [`ServerError::Tls`] if the handshake fails.
    pub(super) async fn secure(&self, connection: Connection) -> Result<Leg, ServerError> {
        match &self.connector {
            Some(connector) => {
                self.dial
                    .handshake(connector, connection, ConnectionKind::Data)
                    .await
            }
            None => Ok(Leg::plain(connection)),
        }
    }

    /// Opens a data connection. Uses TLS if the session encrypts data.
    ///
    /// # Errors
    /// [`ServerError`] if no connection is established.
    pub(super) async fn open(&self, meeting: DataOrigin) -> Result<Leg, ServerError> {
        let connection = self.connect(meeting).await?;
        self.secure(connection).await
    }

    async fn accept(&self, listener: &Listener) -> io::Result<Connection> {
        let accepting = timeout(self.dial.reply_timeout, async {
            loop {
                let (connection, from) = listener.accept().await?;
                // A connection is ignored if it does not come from the server's address.
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

/// Time for which a data port counts as open after the mover has requested the port in advance.
const PORT_AHEAD_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use net::pipe::PipeNetwork;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;
    use crate::server::{GatewayListener, Route};

    /// Creates a session with a simulated gateway in this process. The gateway accepts every
    /// command.
    async fn session(network: &PipeNetwork) -> Session {
        let listener = network.listen().expect("a port");
        let at = listener.local_addr();
        tokio::spawn(async move {
            let mut control = BufReader::new(listener.accept().await);
            let mut reply = &b"220 hello\r\n"[..];
            while control.write_all(reply).await.is_ok() {
                if control.read_line(&mut String::new()).await.unwrap_or(0) == 0 {
                    return;
                }
                reply = b"230 yes\r\n";
            }
        });
        let dial = Dial {
            route: Route::Gateway(GatewayListener {
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
        let dialled = data.connect(DataOrigin::At(at)).await.expect("a listener");
        let accepted = data.connect(DataOrigin::Here(port)).await.expect("a pipe");
        assert_eq!(dialled.network(), Some(&network));
        assert_eq!(
            accepted.peer_addr().expect("a pipe"),
            dialled.local_addr().expect("a pipe")
        );
        // The listener of the port was dropped before.
        let refused = data.connect(DataOrigin::At(at)).await;
        let Err(ServerError::Data(error)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn an_absent_gateway_within_the_process_is_reported_with_its_address() {
        let network = PipeNetwork::new();
        let mut dial = Dial::clone(&session(&network).await.dial);
        if let Route::Gateway(listener) = &mut dial.route {
            listener.network = Some(PipeNetwork::new());
        }
        let refused = Session::open(&dial).await.err().expect("nobody listens");
        assert!(matches!(refused, ServerError::Connect { .. }), "{refused}");
    }
}
