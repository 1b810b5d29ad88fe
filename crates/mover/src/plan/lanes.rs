//! Lanes: parallel connections, up to the number that the servers accept.

use std::time::{Duration, Instant};

/// State of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LaneState<T> {
    /// The lane has no connection.
    Closed,
    /// The lane connects.
    Opening,
    /// The lane is connected.
    Open(LaneLoad<T>),
}

/// Work of a connected lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LaneLoad<T> {
    /// Tasks, the oldest first. A lane without tasks waits for work.
    pub(super) work: Vec<T>,
    /// Maximum number of small files that the lane moves at a time.
    pub(super) depth: usize,
}

/// All lanes of a job.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    lanes: Vec<LaneState<T>>,
    /// Maximum number of open lanes. Fewer than all lanes once a server has refused one.
    open_max: usize,
    /// Time before which no lane is opened.
    not_before: Option<Instant>,
    /// Failures to open a lane since a lane last finished a task.
    failures: u32,
    /// Failures of this kind while no lane was connected.
    failures_alone: u32,
    /// Whether a lane has ever been connected, which shows that the credentials are right.
    has_opened: bool,
    /// Time of the last change of `open_max`, while it is below its maximum.
    limited_at: Option<Instant>,
}

impl<T> Lanes<T> {
    pub(super) fn new(count: usize) -> Self {
        assert!(count > 0, "somebody has to do the work");
        Self {
            lanes: (0..count).map(|_| LaneState::Closed).collect(),
            open_max: count,
            not_before: None,
            failures: 0,
            failures_alone: 0,
            has_opened: false,
            limited_at: None,
        }
    }

    /// Returns a lane that waits for work.
    pub(super) fn idle(&self) -> Option<usize> {
        let is_idle =
            |it: &LaneState<T>| matches!(it, LaneState::Open(load) if load.work.is_empty());
        self.lanes.iter().position(is_idle)
    }

    /// Returns the lane with the least work. It must have room, and only quick tasks.
    pub(super) fn with_room(&self, is_quick: impl Fn(&T) -> bool) -> Option<usize> {
        let loads = self
            .lanes
            .iter()
            .enumerate()
            .filter_map(|(at, it)| match it {
                LaneState::Open(load) => Some((at, load)),
                _ => None,
            });
        let roomy = loads
            .filter(|(_, load)| load.work.len() < load.depth && load.work.iter().all(&is_quick));
        let least = roomy.min_by_key(|(_, load)| load.work.len());
        least.map(|(at, _)| at)
    }

    /// Gives work to a connected lane.
    pub(super) fn give(&mut self, lane: usize, work: T) {
        match &mut self.lanes[lane] {
            LaneState::Open(load) => load.work.push(work),
            LaneState::Closed | LaneState::Opening => {
                unreachable!("only a connected lane is given work")
            }
        }
    }

    /// Returns the task of a lane that satisfies `is_it`.
    pub(super) fn find(&self, lane: usize, is_it: impl Fn(&T) -> bool) -> Option<&T> {
        match &self.lanes[lane] {
            LaneState::Open(load) => load.work.iter().find(|it| is_it(it)),
            LaneState::Closed | LaneState::Opening => None,
        }
    }

    /// Takes the task that satisfies `is_it` from a lane.
    pub(super) fn take(&mut self, lane: usize, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let LaneState::Open(load) = &mut self.lanes[lane] else {
            return None;
        };
        let at = load.work.iter().position(is_it)?;
        Some(load.work.remove(at))
    }

    /// Records that a lane has lost its connection. Returns its work.
    pub(super) fn close(&mut self, lane: usize) -> Vec<T> {
        match std::mem::replace(&mut self.lanes[lane], LaneState::Closed) {
            LaneState::Open(load) => load.work,
            LaneState::Closed | LaneState::Opening => Vec::new(),
        }
    }

    /// Returns a lane to open, if more tasks wait than lanes connect and another lane is permitted.
    pub(super) fn next_to_open(&mut self, waiting: usize, now: Instant) -> Option<usize> {
        self.grow(now);
        let may = self.not_before.is_none_or(|it| it <= now);
        if !may || self.count(|it| matches!(it, LaneState::Opening)) >= waiting {
            return None;
        }
        self.closed()
    }

    /// Returns the time at which the next lane may be opened, if that must wait.
    pub(super) fn due(&self) -> Option<Instant> {
        self.closed().and(self.not_before)
    }

    /// Returns a closed lane, if another one may be opened.
    ///
    /// Lanes connect one at a time after a failure, and until the first log-in has succeeded. Hence
    /// the server receives a wrong password once. A later refusal is repeated within bounds.
    fn closed(&self) -> Option<usize> {
        let open = self.lanes.len() - self.count(|it| matches!(it, LaneState::Closed));
        let is_alone = self.failures > 0 || !self.has_opened;
        let is_tried = is_alone && self.is_any_opening();
        if open >= self.open_max || is_tried {
            return None;
        }
        self.lanes
            .iter()
            .position(|it| matches!(it, LaneState::Closed))
    }

    fn count(&self, what: impl Fn(&LaneState<T>) -> bool) -> usize {
        self.lanes.iter().filter(|it| what(it)).count()
    }

    /// Records that a lane begins to connect.
    pub(super) fn opening(&mut self, lane: usize) {
        self.lanes[lane] = LaneState::Opening;
    }

    /// Records that a lane has connected. It moves `depth` small files at a time.
    pub(super) fn opened(&mut self, lane: usize, depth: usize) {
        let work = Vec::new();
        self.lanes[lane] = LaneState::Open(LaneLoad { work, depth });
        self.not_before = None;
        self.has_opened = true;
        self.open_max = self.open_max.max(self.up());
    }

    /// Whether a lane is connected, or was connected before.
    pub(super) fn has_opened(&self) -> bool {
        self.has_opened
    }

    /// Records that a lane has finished a task, so that connections are useful.
    pub(super) fn proved(&mut self) {
        self.failures = 0;
        self.failures_alone = 0;
        self.not_before = None;
    }

    /// Records that a lane could not be opened; the next attempt waits.
    ///
    /// Returns the consecutive failures while no lane was connected. A server that refuses a
    /// further connection may accept the present ones.
    pub(super) fn refused(&mut self, lane: usize, now: Instant) -> u32 {
        self.lanes[lane] = LaneState::Closed;
        self.failures += 1;
        self.failures_alone += u32::from(!self.is_any_open());
        self.not_before = Some(now + backoff(self.failures));
        self.failures_alone
    }

    /// Limits the open lanes to their present number, which the server does not exceed. One lane is
    /// always permitted.
    pub(super) fn shrink(&mut self, now: Instant) {
        self.open_max = self.up().clamp(1, self.open_max);
        self.limited_at = Some(now);
    }

    /// Permits one more lane after a while, since a full server may have room again.
    fn grow(&mut self, now: Instant) {
        let is_due = self.limited_at.is_some_and(|it| it + GROWS_AFTER <= now);
        if is_due && self.open_max < self.lanes.len() {
            self.open_max += 1;
            self.limited_at = Some(now);
        }
    }

    fn up(&self) -> usize {
        self.count(|it| matches!(it, LaneState::Open(_)))
    }

    /// Number of lanes that connect.
    pub(super) fn connecting(&self) -> usize {
        self.count(|it| matches!(it, LaneState::Opening))
    }

    /// Whether a lane is connecting.
    pub(super) fn is_any_opening(&self) -> bool {
        self.connecting() > 0
    }

    /// Whether a lane is connected.
    pub(super) fn is_any_open(&self) -> bool {
        self.lanes.iter().any(|it| matches!(it, LaneState::Open(_)))
    }

    /// Returns the work of all lanes.
    pub(super) fn busy(&self) -> impl Iterator<Item = &T> {
        self.lanes.iter().flat_map(|it| match it {
            LaneState::Open(load) => load.work.as_slice(),
            LaneState::Closed | LaneState::Opening => &[],
        })
    }
}

/// Returns the pause before attempt `failures + 1`. It is a second at first and doubles each time,
/// up to a minute.
pub(super) fn backoff(failures: u32) -> Duration {
    let doubled = 1_u64 << failures.saturating_sub(1).min(6);
    Duration::from_secs(doubled.min(BACKOFF_MAX_S))
}

const BACKOFF_MAX_S: u64 = 60;

/// Pause before one more lane is permitted. Other users' connections end within minutes, and a
/// refused attempt in this time is cheap.
const GROWS_AFTER: Duration = Duration::from_secs(2 * 60);
