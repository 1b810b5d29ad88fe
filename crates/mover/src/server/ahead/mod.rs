//! Small files, several under way on one session: commands go out before earlier ones are answered.
//!
//! A small file costs round trips: a port, a connection, the reply, the size, the rename. A server that answers commands in
//! their order can be sent those of the next files meanwhile. Directly, the server names one port after another, and each
//! connection takes two round trips. To a gateway we name our own ports, all at once, and no round trip is left.

mod exchange;
pub(super) mod ports;

use std::{collections::VecDeque, time::Duration};

use tokio::{task::JoinSet, time::Instant};

pub use self::exchange::{Content, Done, Upload};
use self::{
    exchange::{Clearance, Exchange, Moved},
    ports::Port,
};
use super::{ServerError, Session};
use crate::fence::Fence;

/// Files under way on a session.
pub struct Ahead<'a> {
    session: &'a mut Session,
    ways: Ways,
    /// Most ports of ours that are open at a time.
    ports_max: usize,
    exchanges: VecDeque<Exchange>,
    /// Data connections, and the exchanges that they are of.
    moving: JoinSet<(u64, Moved)>,
    /// Is asked before each rename.
    fence: Option<Fence>,
    /// The question that is being answered, for all files that were complete when it was asked.
    asking: JoinSet<bool>,
    /// When the server last said something, or data ended.
    heard_at: Instant,
}

/// A file, and what came of it.
pub(crate) type Settled = (u64, Result<Done, ServerError>);

/// Who names ports for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ways {
    /// The server, one after another.
    Theirs,
    /// We, as many as we like.
    Ours,
}

impl Session {
    /// Most small files that are of use at a time; one if the server does not take commands ahead.
    pub fn depth(&self) -> usize {
        match (self.is_sequential, self.dial.is_behind_gateway()) {
            (false, _) => 1,
            (true, true) => FILES_TO_GATEWAY_MAX,
            (true, false) => FILES_TO_SERVER_MAX,
        }
    }

    /// Who should name ports, if `ours` have not been found to be out of reach.
    pub fn ways(&self, ours_may_be_reached: bool) -> Ways {
        let is_near = self.dial.is_behind_gateway() && ours_may_be_reached;
        match self.dial.is_active || is_near {
            true => Ways::Ours,
            false => Ways::Theirs,
        }
    }

    /// Whether the server is known to take commands ahead, and to have a data port for us.
    pub fn takes_ahead(&self) -> bool {
        self.is_sequential && self.has_met
    }
}

impl<'a> Ahead<'a> {
    /// No file is under way yet. Of our own ports no more than `ports_max` are open at a time, and one at least.
    pub fn new(session: &'a mut Session, ways: Ways, ports_max: usize) -> Self {
        Self {
            session,
            ways,
            ports_max: ports_max.min(FILES_TO_GATEWAY_MAX),
            exchanges: VecDeque::new(),
            moving: JoinSet::new(),
            fence: None,
            asking: JoinSet::new(),
            heard_at: Instant::now(),
        }
    }

    /// Asks `fence` before each rename.
    pub fn behind(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence;
        self
    }

    /// Whether another file of `bytes` may be begun.
    pub fn has_room(&self, bytes: u64) -> bool {
        let exchanges = &self.exchanges;
        let has_turn = match self.ways {
            // A rename comes in front of the next transfer, so that it waits for one at most.
            Ways::Theirs => self.moving_count() < MOVING_MAX,
            Ways::Ours => exchanges.len() < self.ports_max,
        };
        let under_way: u64 = exchanges.iter().map(Exchange::bytes).sum();
        exchanges.is_empty() || has_turn && under_way + bytes <= BYTES_MAX
    }

    /// Files that are moving, or wait for their turn to move.
    fn moving_count(&self) -> usize {
        self.exchanges.iter().filter(|it| it.moves()).count()
    }

    /// Whether no file is under way.
    pub fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }

    /// Who names ports.
    pub fn ways(&self) -> Ways {
        self.ways
    }

    /// Begins an upload; `id` names it in what [`next`](Self::next) returns.
    ///
    /// # Errors
    /// [`ServerError`] if a path cannot be sent, or no port can be opened.
    pub async fn store(&mut self, id: u64, upload: Upload) -> Result<(), ServerError> {
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
    /// As of [`store`](Self::store).
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

    /// A port of ours, unless the server names one.
    async fn port(&mut self) -> Result<Option<Port>, ServerError> {
        match self.ways {
            Ways::Theirs => Ok(None),
            Ways::Ours => {
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

    /// The next file that is done, or has failed; `None` where another one may be begun before. Waits forever if none is under
    /// way. Cancelling loses nothing.
    ///
    /// # Errors
    /// The file whose turn it was and a [`ServerError`], if the session is of no more use: all files under way have to begin
    /// anew.
    pub async fn next(&mut self) -> Result<Option<Settled>, (u64, ServerError)> {
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
            let patience = self.session.dial.patience;
            let silent = self.heard_at + patience;
            tokio::select! {
                received = receive(self.session) => received.map_err(|it| (first, it))?,
                Some(moved) = self.moving.join_next() => {
                    // One that was cancelled is of a file that has failed.
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
                    return Err((first, ServerError::Stalled(patience)));
                }
            }
            self.heard_at = Instant::now();
        }
    }

    /// Asks for all files that are complete. One that becomes so meanwhile waits for the next question.
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

    /// Takes note of what has arrived. The first file that has ended leaves.
    fn advance(&mut self) -> Option<Settled> {
        for at in 0..self.exchanges.len() {
            let exchange = &mut self.exchanges[at];
            if let Some(result) = exchange.advance(self.session, &mut self.moving) {
                let exchange = self.exchanges.remove(at).expect("it is there");
                let id = exchange.id();
                let result = match (result, exchange.into_port()) {
                    // The gateway has connected, and so has a stranger with its address: whose bytes were they?
                    (Ok(_), Some(port)) if !ports::nobody_waits(&port) => {
                        Err(ServerError::Unreached)
                    }
                    (Ok(done), Some(port)) => {
                        self.session.free_again(port);
                        Ok(done)
                    }
                    // Of a file that has failed, the gateway may still connect.
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

/// Files under way to a gateway. An upload takes two round trips: at 200 ms they are 320 files a second on each connection.
const FILES_TO_GATEWAY_MAX: usize = 128;

/// Files under way to a server that names ports: one that moves, the next, and one that is renamed.
const FILES_TO_SERVER_MAX: usize = MOVING_MAX + 1;

/// Transfers that a server that names ports is asked for at a time: it names the port of the second when the first has ended.
const MOVING_MAX: usize = 2;

/// Bytes under way on a session.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// How long a gateway takes to connect to a port of ours, at most.
const MEETING_PATIENCE: Duration = Duration::from_secs(10);
