//! FTP session: a control connection that is logged in and in binary mode. The session stores the
//! server's features.

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
    /// TLS connector for data connections. `None` if the session does not use TLS.
    pub(super) connector: Option<Connector>,
    /// Features that the server offers.
    pub(super) features: Features,
    /// Form of the command that requests a data port in passive mode.
    pub(super) passive: PassiveForm,
    /// Whether data connections use plain text, without TLS.
    pub(super) data_is_plain: bool,
    /// Whether any data connection of the session has been established.
    pub(super) has_met: bool,
    /// Data port that was requested in advance for the next transfer, and the time of the request.
    pub(super) port_ahead: Option<(DataRequest, Instant)>,
    /// Whether a transfer has begun and its final reply has not arrived.
    pub(super) is_moving: bool,
    /// Commands that precede an upload: the deletion of the old file, and two queries that show
    /// whether the old file is gone.
    pub(super) in_front: Option<(PendingReply, [PendingReply; 2])>,
    /// Queries for the size and the time of a file. They are sent after the transfer command.
    pub(super) behind: Option<[PendingReply; 2]>,
    /// Whether the server ends TLS correctly (with close_notify) on data connections.
    pub(super) says_goodbye: bool,
    /// The login directory. `None` if it was not queried yet.
    pub(super) home: Option<Vec<u8>>,
    /// Whether the server processes commands in order. If commands arrive during a transfer, such a
    /// server processes them after the transfer has ended.
    pub(super) is_sequential: bool,
    /// Whether the server, like vsftpd, reads no commands during a download. Commands sent during
    /// the download are read after its end.
    pub(super) is_idle_reader: bool,
    /// Whether the server has ever replied to `SIZE` with a size.
    pub(super) tells_size: bool,
    /// Whether the server may accept `MDTM TIME NAME` as a command to set the modification time.
    pub(super) sets_time_by_mdtm: bool,
    /// Whether only the command `LIST -a` makes the server list names that begin with a dot.
    pub(super) lists_hidden_by_option: bool,
    /// Listening ports that are open for the data connections of small files.
    pub(super) ports: Ports,
    local: SocketAddr,
}

impl Session {
    /// Connects to the server and logs in.
    ///
    /// # Errors
    /// [`ServerError`] if the server cannot be reached or refuses the log-in.
    pub async fn open(dial: &Dial) -> Result<Self, ServerError> {
        let connector = dial.tls().map(|mode| dial.connector(mode)).transpose()?;
        // If a server does not support TLS 1.2, the mover connects again with a newer version of
        // TLS.
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
        let mut control = ControlConnection::new(leg, (peer, dial.describe()), dial.reply_timeout);
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

    /// Returns whether the server has reported the size of any file before.
    pub fn tells_size(&self) -> bool {
        self.tells_size
    }

    /// Returns whether the server can start transfers in the middle of a file.
    pub fn restarts(&self) -> bool {
        self.features.restart
    }

    /// Returns whether further commands can be sent. After an aborted transfer, no commands can be
    /// sent.
    pub fn is_usable(&self) -> bool {
        !self.is_moving
    }

    /// Returns true if no command and no transfer is in progress.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_usable() && self.control.is_at_rest()
    }

    /// Returns whether the connection to the server is still open. If `asks` is true, the function
    /// sends `NOOP` and waits for the reply.
    pub async fn is_alive(&mut self, asks: bool) -> bool {
        match asks {
            true => self.control.ask("NOOP", b"").await.is_ok(),
            false => {
                let ended = timeout(Duration::ZERO, self.control.until_lost()).await;
                ended.is_err()
            }
        }
    }

    /// Returns whether commands may be sent at any time, even during a log-in or a transfer. A
    /// gateway queues such commands.
    pub(super) fn takes_any_ahead(&self) -> bool {
        self.is_sequential && self.dial.is_behind_gateway()
    }

    /// Returns the mover's address on the control connection.
    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Waits until the server closes the connection, or until it announces the end of the
    /// connection. This method is cancel safe.
    pub async fn until_lost(&mut self) {
        self.control.until_lost().await;
    }

    /// Sends `QUIT` without waiting for the reply, and closes the connection.
    pub async fn close(mut self) {
        // The server may already have disconnected.
        if self.control.send("QUIT", b"").is_ok() {
            let _ = self.control.flush().await;
        }
    }

    /// Sends `QUIT`, and waits until the server can accept another connection.
    pub(super) async fn leave(mut self) {
        self.hang_up().await;
    }

    /// Closes the connection, and waits until the server can accept another connection. The session
    /// is unusable afterwards.
    pub(crate) async fn hang_up(&mut self) {
        self.is_moving = true;
        let ending = async {
            // A server that has not replied to an earlier command does not read `QUIT` yet.
            if self.control.is_at_rest()
                && let Ok(quit) = self.control.send("QUIT", b"")
            {
                // Some servers ignore `QUIT`. Other servers wait until the mover has closed its
                // side.
                let _ = timeout(QUIT_TIMEOUT, self.control.last(quit)).await;
            }
            self.control.end().await;
        };
        // If the server does not close the connection in time, it still counts the connection as
        // open.
        let _ = timeout(LEAVE_TIMEOUT, ending).await;
        self.control.close();
    }

    /// Recognises a server by its greeting, and sets the properties of that server. For an unknown
    /// server, no special properties are assumed.
    fn recognise(&mut self, greeting: &Reply) {
        let says = |word: &str| {
            let mut lines = greeting.lines().iter();
            lines.any(|line| String::from_utf8_lossy(line).contains(word))
        };
        let is_by_processes = says("vsFTPd") || says("ProFTPD") || says("Pure-FTPd");
        // Pure-FTPd is not in this list. During a transfer it accepts only ABOR, and answers all
        // other commands with 500. The far gateway sends only one command at a time to a server.
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
        // `ControlConnection` has already handled code 421. Some full servers reply 500 or 530.
        Err(ServerError::Full(reply))
    }
}

/// Longest time to wait for the reply to `QUIT`. The value exceeds the round-trip time of a
/// satellite path.
const QUIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest time to wait until a server has closed its side of a connection.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
