//! Timers of a state machine. At most one timer of each kind is set.

use std::{collections::BTreeMap, time::Duration};

#[derive(Debug)]
pub(super) struct Timers<K>(BTreeMap<K, Duration>);

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy> Timers<K> {
    /// Sets the timer of this kind to `at`, even if it is already set.
    pub(super) fn set(&mut self, kind: K, at: Duration) {
        self.0.insert(kind, at);
    }

    /// Sets the timer of this kind to `at`, unless it is already set.
    pub(super) fn start(&mut self, kind: K, at: Duration) {
        self.0.entry(kind).or_insert(at);
    }

    pub(super) fn cancel(&mut self, kind: K) {
        self.0.remove(&kind);
    }

    pub(super) fn is_set(&self, kind: K) -> bool {
        self.0.contains_key(&kind)
    }

    pub(super) fn next(&self) -> Option<Duration> {
        self.0.values().copied().min()
    }

    /// Removes and returns an expired timer. Returns `None` if no timer has expired.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<K> {
        let (&kind, _) = self.0.iter().find(|(_, at)| **at <= now)?;
        self.0.remove(&kind);
        Some(kind)
    }
}
