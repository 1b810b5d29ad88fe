//! Pipelined small files, several at a time on one session: commands are sent before earlier ones
//! are answered.
//!
//! A small file takes round trips for a port, a connection, the reply, the size and the rename. If
//! the server answers commands in order, the commands of the next files can be sent meanwhile.
//!
//! Without a gateway, the server names one port after another, and each connection takes two round
//! trips. With a gateway, the mover names its own ports, all at once, so that no round trip is
//! left.

mod exchange;
pub(super) mod ports;

use std::{collections::VecDeque, time::Duration};

use tokio::{task::JoinSet, time::Instant};

pub use self::exchange::{CompletedFile, DownloadedContent, SmallUpload};
use self::{
    exchange::{Clearance, DataResult, Exchange},
    ports::Port,
};
use super::{ServerError, Session};
use crate::fence::Fence;

/// Running files of a session.
pub struct Pipeline<'a> {
    session: &'a mut Session,
    port_owner: PortOwner,
    /// Maximum number of listening ports of this side that are open at a time.
    ports_max: usize,
    exchanges: VecDeque<Exchange>,
    /// Data connections, with the ids of their exchanges.
    moving: JoinSet<(u64, DataResult)>,
    /// Check before each rename.
    fence: Option<Fence>,
    /// The running query of the fence, for all files that were complete at its start.
    asking: JoinSet<bool>,
    /// Time of the server's last reply, or of the last end of a data connection.
    heard_at: Instant,
}

/// A file, and its result.
pub(crate) type FileResult = (u64, Result<CompletedFile, ServerError>);

/// Owner of the ports for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortOwner {
    /// The server, which names them one after another.
    Theirs,
    /// This side, which names any number.
    Ours,
}

impl Session {
    /// Returns the most small files that are useful at a time. One if the server does not accept
    /// pipelined commands.
    pub fn depth(&self) -> usize {
        match (self.is_sequential, self.dial.is_behind_gateway()) {
            (false, _) => 1,
            (true, true) => FILES_TO_GATEWAY_MAX,
            (true, false) => FILES_TO_SERVER_MAX,
        }
    }

    /// Returns the owner of the ports: this side in active mode, or at a gateway to which it is
    /// reachable, else the server.
    pub fn port_owner(&self, ours_may_be_reached: bool) -> PortOwner {
        let is_near = self.dial.is_behind_gateway() && ours_may_be_reached;
        match self.dial.is_active || is_near {
            true => PortOwner::Ours,
            false => PortOwner::Theirs,
        }
    }

    /// Whether the server is known to accept pipelined commands, and to offer a reachable data
    /// port.
    pub fn takes_ahead(&self) -> bool {
        self.is_sequential && self.has_met
    }
}

impl<'a> Pipeline<'a> {
    /// Creates the pipeline of a session, without files. At most `ports_max` listening ports of
    /// this side are open at a time, and at least one.
    pub fn new(session: &'a mut Session, port_owner: PortOwner, ports_max: usize) -> Self {
        Self {
            session,
            port_owner,
            ports_max: ports_max.min(FILES_TO_GATEWAY_MAX),
            exchanges: VecDeque::new(),
            moving: JoinSet::new(),
            fence: None,
            asking: JoinSet::new(),
            heard_at: Instant::now(),
        }
    }

    /// Queries `fence` before each rename.
    pub fn behind(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence;
        self
    }

    /// Whether another file of `bytes` may be begun.
    pub fn has_room(&self, bytes: u64) -> bool {
        let exchanges = &self.exchanges;
        let has_turn = match self.port_owner {
            // A rename precedes the next transfer, so that it waits for one at most.
            PortOwner::Theirs => self.moving_count() < MOVING_MAX,
            PortOwner::Ours => exchanges.len() < self.ports_max,
        };
        let under_way: u64 = exchanges.iter().map(Exchange::bytes).sum();
        exchanges.is_empty() || has_turn && under_way + bytes <= BYTES_MAX
    }

    /// Returns the number of files that are moving, or that wait to move.
    fn moving_count(&self) -> usize {
        self.exchanges.iter().filter(|it| it.moves()).count()
    }

    /// Whether no file is running.
    pub fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }

    /// Returns the owner of the ports.
    pub fn port_owner(&self) -> PortOwner {
        self.port_owner
    }

    /// Begins an upload. [`next`](Self::next) returns its result with `id`.
    ///
    /// # Errors
    /// [`ServerError`] if a path cannot be sent, or no port can be opened.
    pub async fn store(&mut self, id: u64, upload: SmallUpload) -> Result<(), ServerError> {
        let port = self.port().await?;
        let mut exchange = Exchange::store(self.session, port, id, upload).await?;
        if self.fence.is_some() {
            exchange.clearance = Clearance::Missing;
        }
        self.begin(exchange)
    }

    /// Begins a download of a file that has `size_bytes`.
    ///
    /// # Errors
    /// The errors of [`store`](Self::store).
    pub async fn retrieve(
        &mut self,
        id: u64,
        path: &[u8],
        size_bytes: u64,
    ) -> Result<(), ServerError> {
        let port = self.port().await?;
        let exchange = Exchange::retrieve(self.session, port, id, path, size_bytes).await?;
        self.begin(exchange)
    }

    /// Returns a listening port of this side, unless the server names the port.
    async fn port(&mut self) -> Result<Option<Port>, ServerError> {
        match self.port_owner {
            PortOwner::Theirs => Ok(None),
            PortOwner::Ours => {
                let port = self.session.free_port().await;
                port.map(Some).map_err(ServerError::Data)
            }
        }
    }

    fn begin(&mut self, mut exchange: Exchange) -> Result<(), ServerError> {
        if self.exchanges.is_empty() {
            self.heard_at = Instant::now();
        }
        exchange.meet(self.session, &mut self.moving);
        self.exchanges.push_back(exchange);
        Ok(())
    }

    /// Returns the next file that is done or has failed. `None` if another file may be begun
    /// before. Waits forever if no file is running. Safe to cancel.
    ///
    /// # Errors
    /// The file in progress and a [`ServerError`], if the session is unusable. All running files
    /// have to start again.
    pub async fn next(&mut self) -> Result<Option<FileResult>, (u64, ServerError)> {
        loop {
            let moving_count = self.moving_count();
            let ended = self.advance();
            if ended.is_some() || self.moving_count() < moving_count {
                return Ok(ended);
            }
            self.ask();
            let Some(first) = self.exchanges.front().map(Exchange::id) else {
                std::future::pending::<()>().await;
                continue;
            };
            let reply_timeout = self.session.dial.reply_timeout;
            let silent = self.heard_at + reply_timeout;
            tokio::select! {
                received = receive(self.session) => received.map_err(|it| (first, it))?,
                Some(moved) = self.moving.join_next() => {
                    // An aborted data connection belongs to a failed file.
                    if let Ok((id, moved)) = moved
                        && let Some(exchange) = self.exchanges.iter_mut().find(|it| it.id() == id)
                    {
                        exchange.moved(moved);
                    }
                }
                Some(answered) = self.asking.join_next() => {
                    let clearance = match answered {
                        Ok(true) => Clearance::Given,
                        _ => Clearance::Refused,
                    };
                    let asked = |it: &&mut Exchange| it.clearance == Clearance::Asked;
                    for exchange in self.exchanges.iter_mut().filter(asked) {
                        exchange.clearance = clearance;
                    }
                }
                () = tokio::time::sleep_until(silent), if self.asking.is_empty() => {
                    return Err((first, ServerError::Stalled(reply_timeout)));
                }
            }
            self.heard_at = Instant::now();
        }
    }

    /// Queries the fence for all complete files. A file that is completed meanwhile waits for the
    /// next query.
    fn ask(&mut self) {
        let due = |it: &&mut Exchange| it.clearance == Clearance::Due;
        let Some(fence) = self.fence.clone().filter(|_| self.asking.is_empty()) else {
            return;
        };
        let mut is_due = false;
        for exchange in self.exchanges.iter_mut().filter(due) {
            exchange.clearance = Clearance::Asked;
            is_due = true;
        }
        if is_due {
            self.asking.spawn(async move { fence.allows().await });
        }
    }

    /// Processes arrived replies. Removes and returns the first file that has ended.
    fn advance(&mut self) -> Option<FileResult> {
        for at in 0..self.exchanges.len() {
            let exchange = &mut self.exchanges[at];
            if let Some(result) = exchange.advance(self.session, &mut self.moving) {
                let exchange = self.exchanges.remove(at).expect("it is there");
                let id = exchange.id();
                let result = match (result, exchange.into_port()) {
                    // The gateway has connected, and so has a stranger with its address. The owner
                    // of the bytes is uncertain.
                    (Ok(_), Some(port)) if !ports::nobody_waits(&port) => {
                        Err(ServerError::Unreached)
                    }
                    (Ok(done), Some(port)) => {
                        self.session.free_again(port);
                        Ok(done)
                    }
                    // The gateway may still connect for a failed file, so its port is not used
                    // again.
                    (result, _) => result,
                };
                return Some((id, result));
            }
        }
        None
    }
}

async fn receive(session: &mut Session) -> Result<(), ServerError> {
    session.control.flush().await?;
    session.control.receive().await
}

/// Maximum number of running files of a session with a gateway. An upload takes two round trips, so
/// 200 ms permit 320 files a second on each connection.
const FILES_TO_GATEWAY_MAX: usize = 128;

/// Maximum number of running files of a session with a server that names ports: one moves, one is
/// next, and one is renamed.
const FILES_TO_SERVER_MAX: usize = MOVING_MAX + 1;

/// Maximum number of transfers requested at a time from a server that names ports. It names the
/// port of the second one when the first has ended.
const MOVING_MAX: usize = 2;

/// Maximum number of running bytes of a session.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Longest time in which a gateway connects to a port of this side.
const MEETING_TIMEOUT: Duration = Duration::from_secs(10);
