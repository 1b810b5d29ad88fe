//! Pipelining of small files: several files are in progress on one session. Commands are sent
//! before the replies to earlier commands have arrived.
//!
//! A small file needs round trips for a port, a connection, the reply, the size and the rename. If
//! the server processes commands in order, the mover can send the commands of the next files during
//! these round trips.
//!
//! Without a gateway, the server names one port after another, and each data connection takes two
//! round trips. With a gateway, the mover announces its own ports, all at once. The files then wait
//! for no further round trip.

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

/// Files in progress on a session.
pub struct Pipeline<'a> {
    session: &'a mut Session,
    port_owner: PortOwner,
    /// Maximum number of the mover's listening ports that are open at the same time.
    ports_max: usize,
    exchanges: VecDeque<Exchange>,
    /// Tasks of data connections. Each task returns the number of its exchange.
    moving: JoinSet<(u64, DataResult)>,
    /// The fence. The pipeline queries it before each rename, to check that no other process has
    /// taken over the job.
    fence: Option<Fence>,
    /// The fence query in progress. The query serves all files that were complete when it began.
    asking: JoinSet<bool>,
    /// Time of the last event: a reply of the server, or the end of a data connection.
    heard_at: Instant,
}

/// Number of a file, and the result for the file.
pub(crate) type FileResult = (u64, Result<CompletedFile, ServerError>);

/// The peer that listens for data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortOwner {
    /// The server listens (passive mode). It names one port after another.
    Theirs,
    /// The mover listens (active mode). The mover can announce any number of ports.
    Ours,
}

impl Session {
    /// Returns the largest useful number of small files in progress at the same time. Returns 1 if
    /// the server does not accept pipelined commands.
    pub fn depth(&self) -> usize {
        match (self.is_sequential, self.dial.is_behind_gateway()) {
            (false, _) => 1,
            (true, true) => FILES_TO_GATEWAY_MAX,
            (true, false) => FILES_TO_SERVER_MAX,
        }
    }

    /// Returns the peer that listens for data connections. The mover listens in active mode, or if
    /// a gateway can reach its ports. In all other cases the server listens.
    pub fn port_owner(&self, ours_may_be_reached: bool) -> PortOwner {
        let is_near = self.dial.is_behind_gateway() && ours_may_be_reached;
        match self.dial.is_active || is_near {
            true => PortOwner::Ours,
            false => PortOwner::Theirs,
        }
    }

    /// Returns whether two facts are known: the server processes commands in order, and data
    /// connections can be established.
    pub fn takes_ahead(&self) -> bool {
        self.is_sequential && self.has_met
    }
}

impl<'a> Pipeline<'a> {
    /// Creates an empty pipeline for a session. The mover opens at most `ports_max` listening ports
    /// at the same time. If `ports_max` is 0, the mover opens one port.
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

    /// Sets the fence that the pipeline queries before each rename.
    pub fn behind(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence;
        self
    }

    /// Returns whether another file of `bytes` bytes may be started.
    pub fn has_room(&self, bytes: u64) -> bool {
        let exchanges = &self.exchanges;
        let has_turn = match self.port_owner {
            // The number of requested transfers is limited, so that the rename of a file waits for
            // at most one transfer.
            PortOwner::Theirs => self.moving_count() < MOVING_MAX,
            PortOwner::Ours => exchanges.len() < self.ports_max,
        };
        let under_way: u64 = exchanges.iter().map(Exchange::bytes).sum();
        exchanges.is_empty() || has_turn && under_way + bytes <= BYTES_MAX
    }

    /// Returns the number of files whose transfer is waiting or in progress.
    fn moving_count(&self) -> usize {
        self.exchanges.iter().filter(|it| it.moves()).count()
    }

    /// Returns true if no file is in progress.
    pub fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }

    /// Returns the peer that listens for data connections.
    pub fn port_owner(&self) -> PortOwner {
        self.port_owner
    }

    /// Starts an upload. [`next`](Self::next) later returns the result together with `id`.
    ///
    /// # Errors
    /// [`ServerError`] if a path cannot be sent, or if no port can be opened.
    pub async fn store(&mut self, id: u64, upload: SmallUpload) -> Result<(), ServerError> {
        let port = self.port().await?;
        let mut exchange = Exchange::store(self.session, port, id, upload).await?;
        if self.fence.is_some() {
            exchange.clearance = Clearance::Missing;
        }
        self.begin(exchange)
    }

    /// Starts a download of a file that has `size_bytes` bytes. [`next`](Self::next) later returns
    /// the result together with `id`.
    ///
    /// # Errors
    /// [`ServerError`] if a path cannot be sent, or if no port can be opened.
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

    /// Returns a listening port of the mover. Returns `None` if the server listens for data
    /// connections.
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

    /// Waits for the next file that completes or fails, and returns it. Returns `None` if a
    /// transfer ends before that, because the pipeline may then have room for another file. Waits
    /// forever if no file is in progress. This method is cancel safe.
    ///
    /// # Errors
    /// The number of the first file in progress and a [`ServerError`], if the session is unusable.
    /// All files in progress must start again.
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
                    // If the task was aborted, its file has already failed.
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

    /// Queries the fence for all uploads that are complete. An upload that completes during the
    /// query waits for the next query.
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

    /// Processes the replies that have arrived. Removes and returns the first file that has
    /// completed or failed.
    fn advance(&mut self) -> Option<FileResult> {
        for at in 0..self.exchanges.len() {
            let exchange = &mut self.exchanges[at];
            if let Some(result) = exchange.advance(self.session, &mut self.moving) {
                let exchange = self.exchanges.remove(at).expect("it is there");
                let id = exchange.id();
                let result = match (result, exchange.into_port()) {
                    // Besides the gateway, a stranger with the gateway's address has connected. It
                    // is uncertain which of the two connections moved the bytes.
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

/// Maximum number of files in progress on a session with a gateway. An upload takes two round
/// trips. At a round-trip time of 200 ms, each session can upload 320 files per second.
const FILES_TO_GATEWAY_MAX: usize = 128;

/// Maximum number of files in progress on a session in passive mode. One file is being transferred,
/// one is next, and one is being renamed.
const FILES_TO_SERVER_MAX: usize = MOVING_MAX + 1;

/// Maximum number of transfers requested from a server in passive mode. The server names the port
/// for the second transfer when the first transfer has ended.
const MOVING_MAX: usize = 2;

/// Maximum total size of the files in progress on a session, in bytes.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Longest time to wait until a gateway connects to the mover's port.
const MEETING_TIMEOUT: Duration = Duration::from_secs(10);
