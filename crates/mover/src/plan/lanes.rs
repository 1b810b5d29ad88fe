//! Lanes: parallel connections. Their number adapts to the number of connections that the servers
//! accept.

use std::time::{Duration, Instant};

/// State of a lane (the connections that carry out one task at a time).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LaneState<T> {
    /// The lane has no connection.
    Closed,
    /// The lane is connecting.
    Opening,
    /// The lane is connected.
    Open(LaneLoad<T>),
}

/// Work of a connected lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LaneLoad<T> {
    /// Tasks of the lane, the oldest first. A lane with an empty list is idle.
    pub(super) work: Vec<T>,
    /// Maximum number of small files that the lane moves at the same time.
    pub(super) depth: usize,
}

/// All lanes of a job.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    lanes: Vec<LaneState<T>>,
    /// Maximum number of open lanes. The value falls below the number of all lanes when a server
    /// refuses a connection.
    open_max: usize,
    /// Earliest time at which another lane may be opened.
    not_before: Option<Instant>,
    /// Number of failures to open a lane. The count starts again when any lane finishes a task.
    failures: u32,
    /// Number of failures to open a lane while no lane was connected. The count starts again when
    /// any lane finishes a task.
    failures_alone: u32,
    /// Whether a lane has ever been connected. If so, the credentials are right.
    has_opened: bool,
    /// Time of the last change of `open_max`, once a server has limited the number of lanes.
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

    /// Returns a connected lane that has no task.
    pub(super) fn idle(&self) -> Option<usize> {
        let is_idle =
            |it: &LaneState<T>| matches!(it, LaneState::Open(load) if load.work.is_empty());
        self.lanes.iter().position(is_idle)
    }

    /// Returns the connected lane with the fewest tasks. Only lanes that have free capacity and no
    /// slow task are considered.
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

    /// Assigns a task to a connected lane.
    pub(super) fn give(&mut self, lane: usize, work: T) {
        match &mut self.lanes[lane] {
            LaneState::Open(load) => load.work.push(work),
            LaneState::Closed | LaneState::Opening => {
                unreachable!("only a connected lane is given work")
            }
        }
    }

    /// Returns the lane's task for which `is_it` returns true.
    pub(super) fn find(&self, lane: usize, is_it: impl Fn(&T) -> bool) -> Option<&T> {
        match &self.lanes[lane] {
            LaneState::Open(load) => load.work.iter().find(|it| is_it(it)),
            LaneState::Closed | LaneState::Opening => None,
        }
    }

    /// Removes from a lane the task for which `is_it` returns true. Returns the removed task.
    pub(super) fn take(&mut self, lane: usize, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let LaneState::Open(load) = &mut self.lanes[lane] else {
            return None;
        };
        let at = load.work.iter().position(is_it)?;
        Some(load.work.remove(at))
    }

    /// Records that a lane has lost its connection. Returns the lane's tasks.
    pub(super) fn close(&mut self, lane: usize) -> Vec<T> {
        match std::mem::replace(&mut self.lanes[lane], LaneState::Closed) {
            LaneState::Open(load) => load.work,
            LaneState::Closed | LaneState::Opening => Vec::new(),
        }
    }

    /// Returns a lane to open. Returns `None` if enough lanes are connecting for the `waiting`
    /// tasks, or if no further lane may be opened now.
    pub(super) fn next_to_open(&mut self, waiting: usize, now: Instant) -> Option<usize> {
        self.grow(now);
        let may = self.not_before.is_none_or(|it| it <= now);
        if !may || self.count(|it| matches!(it, LaneState::Opening)) >= waiting {
            return None;
        }
        self.closed()
    }

    /// Returns the earliest time at which the next lane may be opened. Returns `None` if a lane may
    /// be opened now, or if no further lane may be opened at all.
    pub(super) fn due(&self) -> Option<Instant> {
        self.closed().and(self.not_before)
    }

    /// Returns a closed lane, if another lane may be opened.
    ///
    /// After a failure, and until the first log-in has succeeded, only one lane connects at a time.
    /// Therefore a wrong password is sent to the server only once. Refusals after a successful
    /// log-in are retried a limited number of times.
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

    /// Records that a lane has begun to connect.
    pub(super) fn opening(&mut self, lane: usize) {
        self.lanes[lane] = LaneState::Opening;
    }

    /// Records that a lane has connected and can move up to `depth` small files at the same time.
    pub(super) fn opened(&mut self, lane: usize, depth: usize) {
        let work = Vec::new();
        self.lanes[lane] = LaneState::Open(LaneLoad { work, depth });
        self.not_before = None;
        self.has_opened = true;
        self.open_max = self.open_max.max(self.up());
    }

    /// Returns whether any lane is connected or has been connected before.
    pub(super) fn has_opened(&self) -> bool {
        self.has_opened
    }

    /// Records that a lane has finished a task. Resets the failure counters, because connections
    /// work.
    pub(super) fn proved(&mut self) {
        self.failures = 0;
        self.failures_alone = 0;
        self.not_before = None;
    }

    /// Records that a lane could not be opened, and delays the next attempt.
    ///
    /// Returns the number of failures that occurred while no lane was connected. Failures while
    /// another lane is connected are not included, because a server may refuse further connections
    /// and keep the existing connections.
    pub(super) fn refused(&mut self, lane: usize, now: Instant) -> u32 {
        self.lanes[lane] = LaneState::Closed;
        self.failures += 1;
        self.failures_alone += u32::from(!self.is_any_open());
        self.not_before = Some(now + backoff(self.failures));
        self.failures_alone
    }

    /// Limits the number of open lanes to their present number, because the server accepts no more.
    /// At least one lane is always permitted.
    pub(super) fn shrink(&mut self, now: Instant) {
        self.open_max = self.up().clamp(1, self.open_max);
        self.limited_at = Some(now);
    }

    /// Permits one more lane when a pause has ended, because the server may accept more connections
    /// again.
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

    /// Returns the number of lanes that are connecting.
    pub(super) fn connecting(&self) -> usize {
        self.count(|it| matches!(it, LaneState::Opening))
    }

    /// Returns whether any lane is connecting.
    pub(super) fn is_any_opening(&self) -> bool {
        self.connecting() > 0
    }

    /// Returns whether any lane is connected.
    pub(super) fn is_any_open(&self) -> bool {
        self.lanes.iter().any(|it| matches!(it, LaneState::Open(_)))
    }

    /// Returns the tasks of all lanes.
    pub(super) fn busy(&self) -> impl Iterator<Item = &T> {
        self.lanes.iter().flat_map(|it| match it {
            LaneState::Open(load) => load.work.as_slice(),
            LaneState::Closed | LaneState::Opening => &[],
        })
    }
}

/// Returns the pause after the given number of consecutive failures. The pause after the first
/// failure is 1 s. Each further failure doubles the pause, up to 60 s.
pub(super) fn backoff(failures: u32) -> Duration {
    let doubled = 1_u64 << failures.saturating_sub(1).min(6);
    Duration::from_secs(doubled.min(BACKOFF_MAX_S))
}

const BACKOFF_MAX_S: u64 = 60;

/// Pause before one more lane is permitted. A full server may accept more connections after
/// minutes, when other users disconnect. One refused attempt in each pause costs little.
const GROWS_AFTER: Duration = Duration::from_secs(2 * 60);
