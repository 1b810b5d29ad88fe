//! Readers that are woken later, so that they find more bytes.
//!
//! The input is readers that may continue, and the time until which they should wait. The output is
//! the time at which the first has waited for long enough. All of them are woken then, since the
//! driver is awake anyway. The reasons to wake a reader at once are in [`stream`](super::stream).

use std::time::{Duration, Instant};

use crate::{Class, StreamKey};

/// Readers that have not been woken for the present bytes.
#[derive(Debug, Default)]
pub(super) struct DeferredWakes {
    /// Streams, each once, as recorded in its state. There are thus no more entries than streams.
    held: Vec<StreamKey>,
    due: Option<Instant>,
}

/// Turns between two wake-ups of a bulk stream's reader where traffic is dense, unless many bytes
/// or the end wait. Waking another thread costs more than a turn.
const READER_TURNS: u32 = 4;

/// Returns the pause between two wake-ups of a reader of this class for few bytes, while arrivals
/// wait for each other for a `turn`.
///
/// `None` if it is woken at once. Traffic may depend on the reader of a control stream.
pub(super) fn pause(class: Class, turn: Option<Duration>) -> Option<Duration> {
    match class {
        Class::Control => None,
        Class::Bulk => turn.map(|turn| turn * READER_TURNS),
    }
}

impl DeferredWakes {
    /// Lets the reader of `key` wait until then, or until another one has waited for long enough.
    pub(super) fn hold(&mut self, key: StreamKey, until: Instant) {
        self.held.push(key);
        self.due = Some(self.due.map_or(until, |due| due.min(until)));
    }

    /// Returns the time at which [`take_due`](Self::take_due) returns readers.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the readers to be woken now.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<StreamKey> {
        match self.due.take_if(|due| *due <= now) {
            Some(_) => std::mem::take(&mut self.held),
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_readers_wake_when_the_first_has_waited_for_long_enough() {
        #[expect(clippy::disallowed_methods, reason = "any origin does")]
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        let key = |stream| StreamKey {
            connection: Default::default(),
            stream,
        };
        let mut deferred = DeferredWakes::default();
        assert_eq!(deferred.due(), None);
        deferred.hold(key(1), ms(4));
        deferred.hold(key(2), ms(2));
        deferred.hold(key(3), ms(3));
        assert_eq!(deferred.due(), Some(ms(2)));
        assert_eq!(deferred.take_due(ms(1)), []);
        assert_eq!(deferred.take_due(ms(2)), [1, 2, 3].map(key));
        assert_eq!(
            (deferred.due(), deferred.take_due(ms(9))),
            (None, Vec::new())
        );
        deferred.hold(key(1), ms(6));
        assert_eq!(deferred.take_due(ms(6)), [key(1)]);
    }

    #[test]
    fn control_streams_and_sparse_traffic_defer_no_wake_up() {
        let turn = Duration::from_millis(1);
        assert_eq!(pause(Class::Control, Some(turn)), None);
        assert_eq!(pause(Class::Bulk, None), None);
        assert_eq!(pause(Class::Bulk, Some(turn)), Some(turn * READER_TURNS));
    }
}
