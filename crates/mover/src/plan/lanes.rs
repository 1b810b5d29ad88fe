//! Lanes: connections that work side by side, as many as the servers take.

use std::time::{Duration, Instant};

/// What a lane does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lane<T> {
    /// It has no connection.
    Closed,
    /// It connects.
    Opening,
    /// It waits for work.
    Idle,
    /// It works.
    Busy(T),
}

/// All lanes of a job.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    lanes: Vec<Lane<T>>,
    /// How many may be open: fewer than there are once a server has refused one.
    open_max: usize,
    /// No lane is opened before.
    not_before: Option<Instant>,
    /// Failures to open one since the last that came up.
    failures: u32,
}

impl<T> Lanes<T> {
    pub(super) fn new(count: usize) -> Self {
        assert!(count > 0, "somebody has to do the work");
        Self {
            lanes: (0..count).map(|_| Lane::Closed).collect(),
            open_max: count,
            not_before: None,
            failures: 0,
        }
    }

    /// A lane that waits for work.
    pub(super) fn idle(&self) -> Option<usize> {
        self.lanes.iter().position(|it| matches!(it, Lane::Idle))
    }

    /// A lane to be opened for work that nobody is free to do, if one may be.
    pub(super) fn to_open(&self, waiting: usize, now: Instant) -> Option<usize> {
        let may = self.not_before.is_none_or(|it| it <= now);
        if !may || self.count(|it| matches!(it, Lane::Opening)) >= waiting {
            return None;
        }
        self.closed()
    }

    /// When the next lane may be opened, if that has to wait.
    pub(super) fn due(&self) -> Option<Instant> {
        self.closed().and(self.not_before)
    }

    /// A lane that is not open, if another one may be. After a failure one at a time is tried.
    fn closed(&self) -> Option<usize> {
        let open = self.lanes.len() - self.count(|it| matches!(it, Lane::Closed));
        let is_tried = self.failures > 0 && self.count(|it| matches!(it, Lane::Opening)) > 0;
        if open >= self.open_max || is_tried {
            return None;
        }
        self.lanes.iter().position(|it| matches!(it, Lane::Closed))
    }

    fn count(&self, what: impl Fn(&Lane<T>) -> bool) -> usize {
        self.lanes.iter().filter(|it| what(it)).count()
    }

    pub(super) fn set(&mut self, lane: usize, state: Lane<T>) -> Lane<T> {
        std::mem::replace(&mut self.lanes[lane], state)
    }

    pub(super) fn get_mut(&mut self, lane: usize) -> &mut Lane<T> {
        &mut self.lanes[lane]
    }

    /// A lane has come up.
    pub(super) fn opened(&mut self, lane: usize) {
        self.lanes[lane] = Lane::Idle;
        self.failures = 0;
        self.not_before = None;
    }

    /// A lane could not be opened; the next attempt waits. Returns how often that has happened in a row.
    pub(super) fn refused(&mut self, lane: usize, now: Instant) -> u32 {
        self.lanes[lane] = Lane::Closed;
        self.failures += 1;
        self.not_before = Some(now + backoff(self.failures));
        self.failures
    }

    /// A server takes no more connections than are open now. One is always tried.
    pub(super) fn shrink(&mut self) {
        let up = self
            .lanes
            .iter()
            .filter(|it| matches!(it, Lane::Idle | Lane::Busy(_)));
        self.open_max = up.count().clamp(1, self.open_max);
    }

    /// The work of all lanes.
    pub(super) fn busy(&self) -> impl Iterator<Item = &T> {
        self.lanes.iter().filter_map(|it| match it {
            Lane::Busy(work) => Some(work),
            _ => None,
        })
    }
}

/// The pause before attempt `failures + 1`: a second, then twice as long each time, a minute at most.
pub(super) fn backoff(failures: u32) -> Duration {
    let doubled = 1_u64 << failures.saturating_sub(1).min(6);
    Duration::from_secs(doubled.min(BACKOFF_MAX_S))
}

const BACKOFF_MAX_S: u64 = 60;
