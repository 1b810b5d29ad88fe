//! Session: logged in, in binary mode, with the server's features known.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use ftp::{
    address::PassiveForm,
    client::{Features, Reply},
};
use net::tls::{ConnectionKind, Connector, Leg, TlsStart};
use tokio::time::timeout;

use super::{
    Dial, ServerError,
    control::{ControlConnection, PendingReply},
    data::DataRequest,
    pipeline::ports::Ports,
};

/// A control connection that is ready for transfers.
pub struct Session {
    pub(super) control: ControlConnection,
    pub(super) dial: Arc<Dial>,
    /// TLS of data connections. `None` without TLS.
    pub(super) connector: Option<Connector>,
    /// Features that the server offers.
    pub(super) features: Features,
    /// Form of the request for a data port.
    pub(super) passive: PassiveForm,
    /// Whether data is unprotected.
    pub(super) data_is_plain: bool,
    /// Whether a data connection has been established.
    pub(super) has_met: bool,
    /// Port for the next transfer, requested in advance, and the time of the request.
    pub(super) port_ahead: Option<(DataRequest, Instant)>,
    /// Whether a transfer has begun, and the server has not reported its end.
    pub(super) is_moving: bool,
    /// Pending commands before an upload: the removal of the old file, and a query for its remains.
    pub(super) in_front: Option<(PendingReply, [PendingReply; 2])>,
    /// Pending query after a transfer, for the attributes of its file.
    pub(super) behind: Option<[PendingReply; 2]>,
    /// Whether the server ends TLS properly on data connections.
    pub(super) says_goodbye: bool,
    /// The directory of the log-in, once it was queried.
    pub(super) home: Option<Vec<u8>>,
    /// Whether the server answers commands in order, and those during a transfer after its end.
    pub(super) is_sequential: bool,
    /// Whether the server reads commands that arrive during a download only after it, as vsftpd
    /// does.
    pub(super) is_idle_reader: bool,
    /// Whether the server has answered `SIZE`.
    pub(super) tells_size: bool,
    /// Whether the server may accept `MDTM TIME NAME` as a change.
    pub(super) sets_time_by_mdtm: bool,
    /// Whether the server omits names with a leading dot, unless `LIST -a` requests them.
    pub(super) lists_hidden_by_option: bool,
    /// Listening ports on which small files arrive.
    pub(super) ports: Ports,
    local: SocketAddr,
}

impl Session {
    /// Connects, and logs in.
    ///
    /// # Errors
    /// [`ServerError`] with the server's refusal.
    pub async fn open(dial: &Dial) -> Result<Self, ServerError> {
        let connector = dial.tls().map(|mode| dial.connector(mode)).transpose()?;
        // A server without TLS 1.2 is connected once more, with a newer version.
        let newer = |error: &ServerError| match (&connector, error) {
            (Some(connector), ServerError::Tls { source, .. }) => {
                connector.fallback_for_tls12(source)
            }
            _ => None,
        };
        match Self::open_with(dial, connector.clone()).await {
            Err(error) => match newer(&error) {
                Some(newer) => Self::open_with(dial, Some(newer)).await,
                None => Err(error),
            },
            opened => opened,
        }
    }

    async fn open_with(dial: &Dial, connector: Option<Connector>) -> Result<Self, ServerError> {
        let connection = dial.connect().await?;
        let unusable = |source| ServerError::Data(source);
        let local = connection.local_addr().map_err(unusable)?;
        let peer = connection.peer_addr().map_err(unusable)?;
        let tls = dial.tls();
        let leg = match (&connector, tls) {
            (Some(connector), Some(TlsStart::Implicit)) => {
                dial.handshake(connector, connection, ConnectionKind::Control)
                    .await?
            }
            _ => Leg::plain(connection),
        };
        let mut control = ControlConnection::new(leg, (peer, dial.whom()), dial.reply_timeout);
        let greeting = greet(&mut control).await?;
        if let (Some(connector), Some(TlsStart::Explicit)) = (&connector, tls) {
            let reply = control.ask("AUTH", b"TLS").await?;
            if !reply.is_completed() {
                return Err(ServerError::NoTls(reply));
            }
            control = control
                .upgrade(async |plain| {
                    dial.handshake(connector, plain, ConnectionKind::Control)
                        .await
                })
                .await?;
        }
        let mut session = Self {
            control,
            dial: Arc::new(dial.clone()),
            connector,
            features: Features::default(),
            passive: PassiveForm::Epsv,
            data_is_plain: true,
            has_met: false,
            port_ahead: None,
            is_moving: false,
            in_front: None,
            behind: None,
            says_goodbye: false,
            home: None,
            is_sequential: false,
            is_idle_reader: false,
            tells_size: false,
            sets_time_by_mdtm: false,
            lists_hidden_by_option: false,
            ports: Ports::new(),
            local,
        };
        session.recognise(&greeting);
        match session.begin().await {
            Ok(()) => Ok(session),
            Err(error) => Err(dial.explain(error, &greeting)),
        }
    }

    /// Whether the server has reported the size of a file before.
    pub fn tells_size(&self) -> bool {
        self.tells_size
    }

    /// Whether transfers can begin within a file.
    pub fn restarts(&self) -> bool {
        self.features.restart
    }

    /// Whether another command can be sent, since no transfer was aborted.
    pub fn is_usable(&self) -> bool {
        !self.is_moving
    }

    /// Whether no command or transfer is running.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_usable() && self.control.is_at_rest()
    }

    /// Whether the server still has the connection open. With `asks`, the server itself is queried.
    pub async fn is_alive(&mut self, asks: bool) -> bool {
        match asks {
            true => self.control.ask("NOOP", b"").await.is_ok(),
            false => {
                let ended = timeout(Duration::ZERO, self.control.until_lost()).await;
                ended.is_err()
            }
        }
    }

    /// Whether commands may be sent after any others, even during a log-in or a transfer. A gateway
    /// keeps them until their turn.
    pub(super) fn takes_any_ahead(&self) -> bool {
        self.is_sequential && self.dial.is_behind_gateway()
    }

    /// Returns this side's address on the control connection.
    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Waits until the server ends the connection, or announces its end. Safe to cancel.
    pub async fn until_lost(&mut self) {
        self.control.until_lost().await;
    }

    /// Sends `QUIT`, and does not wait for the reply.
    pub async fn close(mut self) {
        // The server may have disconnected before.
        if self.control.send("QUIT", b"").is_ok() {
            let _ = self.control.flush().await;
        }
    }

    /// Sends `QUIT`, and waits until the server can accept another connection.
    pub(super) async fn leave(mut self) {
        self.hang_up().await;
    }

    /// Closes an unusable connection, and waits until the server can accept another one.
    pub(crate) async fn hang_up(&mut self) {
        self.is_moving = true;
        let ending = async {
            // A server with an unanswered command reads no other command first.
            if self.control.is_at_rest()
                && let Ok(quit) = self.control.send("QUIT", b"")
            {
                // Some servers ignore it, and others wait for the end of this side.
                let _ = timeout(QUIT_TIMEOUT, self.control.last(quit)).await;
            }
            self.control.end().await;
        };
        // A server that does not end the connection stays occupied.
        let _ = timeout(LEAVE_TIMEOUT, ending).await;
        self.control.close();
    }

    /// Recognises a server by its greeting. Without recognition, no feature is assumed.
    fn recognise(&mut self, greeting: &Reply) {
        let says = |word: &str| {
            let mut lines = greeting.lines().iter();
            lines.any(|line| String::from_utf8_lossy(line).contains(word))
        };
        let is_by_processes = says("vsFTPd") || says("ProFTPD") || says("Pure-FTPd");
        // Pure-FTPd reads commands during a transfer, searches them for ABOR, and answers all
        // others by 500. The far gateway sends a server one command at a time.
        if says("vsFTPd") || says("ProFTPD") || says("Longhaul gateway") {
            self.is_sequential = true;
            self.control.pipeline();
        }
        self.is_idle_reader = says("vsFTPd");
        self.lists_hidden_by_option = is_by_processes;
    }
}

async fn greet(control: &mut ControlConnection) -> Result<Reply, ServerError> {
    let reply = control.last(ControlConnection::GREETING).await?;
    if reply.is_completed() {
        Ok(reply)
    } else {
        // The connection itself reports 421. Some full servers reply 500 or 530.
        Err(ServerError::Full(reply))
    }
}

/// Longest wait for the reply to `QUIT`, which exceeds a round trip by satellite.
const QUIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest time in which a server ends a connection.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
