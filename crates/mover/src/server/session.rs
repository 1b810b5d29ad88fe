//! A session: logged in, in binary mode, with what the server can do known.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use ftp::{
    address::PassiveForm,
    client::{Features, Reply},
};
use net::tls::{Connector, Kind, Leg, Mode};
use tokio::time::timeout;

use super::{
    Dial, ServerError,
    ahead::ports::Ports,
    control::{Control, Sent},
    data::Asked,
};

/// A control connection on which transfers can begin.
pub struct Session {
    pub(super) control: Control,
    pub(super) dial: Arc<Dial>,
    /// For data connections; `None` without TLS.
    pub(super) connector: Option<Connector>,
    /// What the server offers.
    pub(super) features: Features,
    /// How it is asked for a data port.
    pub(super) passive: PassiveForm,
    /// Data is not protected.
    pub(super) data_is_plain: bool,
    /// A data connection has come about.
    pub(super) has_met: bool,
    /// A port for the next transfer, which the server was asked for ahead, and when.
    pub(super) port_ahead: Option<(Asked, Instant)>,
    /// A transfer has begun, and the server has not said how it ended.
    pub(super) is_moving: bool,
    /// What has been asked in front of an upload: that the old file be removed, and what is left of it.
    pub(super) in_front: Option<(Sent, [Sent; 2])>,
    /// What has been asked behind a transfer: the facts of its file.
    pub(super) behind: Option<[Sent; 2]>,
    /// The server ends data under TLS as TLS wants it.
    pub(super) says_goodbye: bool,
    /// The directory of the log-in, once it has been asked for.
    pub(super) home: Option<Vec<u8>>,
    /// Answers commands in their order, those behind a running transfer after its end.
    pub(super) is_sequential: bool,
    /// Reads commands that come during a download after it, as vsftpd does.
    pub(super) is_idle_reader: bool,
    /// Has answered `SIZE`.
    pub(super) tells_size: bool,
    /// May take `MDTM TIME NAME` as a change.
    pub(super) sets_time_by_mdtm: bool,
    /// Leaves out names with a leading dot, unless `LIST -a` asks for them.
    pub(super) lists_hidden_by_option: bool,
    /// Those at which small files come.
    pub(super) ports: Ports,
    local: SocketAddr,
}

impl Session {
    /// Connects, and logs in.
    ///
    /// # Errors
    /// [`ServerError`] with what the server refused.
    pub async fn open(dial: &Dial) -> Result<Self, ServerError> {
        let connector = dial.tls().map(|mode| dial.connector(mode)).transpose()?;
        // A server without TLS 1.2 is asked once more.
        let newer = |error: &ServerError| match (&connector, error) {
            (Some(connector), ServerError::Tls { source, .. }) => {
                connector.in_place_of_tls12(source)
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
            (Some(connector), Some(Mode::Implicit)) => {
                dial.handshake(connector, connection, Kind::Control).await?
            }
            _ => Leg::plain(connection),
        };
        let mut control = Control::new(leg, (peer, dial.whom()), dial.patience);
        let greeting = greet(&mut control).await?;
        if let (Some(connector), Some(Mode::Explicit)) = (&connector, tls) {
            let reply = control.ask("AUTH", b"TLS").await?;
            if !reply.is_completed() {
                return Err(ServerError::NoTls(reply));
            }
            control = control
                .upgrade(async |plain| dial.handshake(connector, plain, Kind::Control).await)
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

    /// Whether the server has told the size of a file before.
    pub fn tells_size(&self) -> bool {
        self.tells_size
    }

    /// Whether transfers can begin in the midst of a file.
    pub fn restarts(&self) -> bool {
        self.features.restart
    }

    /// Whether another command can be sent: no transfer was left before its end.
    pub fn is_usable(&self) -> bool {
        !self.is_moving
    }

    /// Whether nothing is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_usable() && self.control.is_at_rest()
    }

    /// Whether the server has not ended the connection, as far as is known here or, with `asks`, at the server.
    pub async fn is_alive(&mut self, asks: bool) -> bool {
        match asks {
            true => self.control.ask("NOOP", b"").await.is_ok(),
            false => {
                let ended = timeout(Duration::ZERO, self.control.until_lost()).await;
                ended.is_err()
            }
        }
    }

    /// Whether commands may be sent behind any others, a log-in or a running transfer among them: a gateway keeps them until
    /// their turn.
    pub(super) fn takes_any_ahead(&self) -> bool {
        self.is_sequential && self.dial.is_behind_gateway()
    }

    /// Our address on the control connection.
    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns when the server ends the connection, or says that it will. Cancelling loses nothing.
    pub async fn until_lost(&mut self) {
        self.control.until_lost().await;
    }

    /// Says goodbye, and does not wait for an answer for long.
    pub async fn close(mut self) {
        // The server may have gone before.
        if self.control.send("QUIT", b"").is_ok() {
            let _ = self.control.flush().await;
        }
    }

    /// Says goodbye, and waits until the server has room for another connection.
    pub(super) async fn leave(mut self) {
        self.hang_up().await;
    }

    /// Closes a connection that is of no further use, and waits until the server has room for another one.
    pub(crate) async fn hang_up(&mut self) {
        self.is_moving = true;
        let ending = async {
            // A server that still has to answer reads nothing else before.
            if self.control.is_at_rest()
                && let Ok(quit) = self.control.send("QUIT", b"")
            {
                // Some servers ignore it, and others wait for our end.
                let _ = timeout(QUIT_TIMEOUT, self.control.last(quit)).await;
            }
            self.control.end().await;
        };
        // A server that does not end the connection keeps its room.
        let _ = timeout(LEAVE_PATIENCE, ending).await;
        self.control.close();
    }

    /// What is known of a server by its greeting. Of others nothing is assumed.
    fn recognise(&mut self, greeting: &Reply) {
        let says = |word: &str| {
            let mut lines = greeting.lines().iter();
            lines.any(|line| String::from_utf8_lossy(line).contains(word))
        };
        let is_by_processes = says("vsFTPd") || says("ProFTPD") || says("Pure-FTPd");
        // Pure-FTPd reads what comes during a transfer, looks for an ABOR, and answers all else by 500. The far gateway sends
        // a server one command at a time.
        if says("vsFTPd") || says("ProFTPD") || says("Longhaul gateway") {
            self.is_sequential = true;
            self.control.pipeline();
        }
        self.is_idle_reader = says("vsFTPd");
        self.lists_hidden_by_option = is_by_processes;
    }
}

async fn greet(control: &mut Control) -> Result<Reply, ServerError> {
    let reply = control.last(Control::GREETING).await?;
    if reply.is_completed() {
        Ok(reply)
    } else {
        // 421 is told by the connection itself; some servers say 500 or 530 where they are full.
        Err(ServerError::Full(reply))
    }
}

/// Longest wait for the answer to `QUIT`: longer than a round trip by satellite.
const QUIT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a server takes to end a connection, at most.
const LEAVE_PATIENCE: Duration = Duration::from_secs(2);
