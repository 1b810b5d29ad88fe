//! Readers whose wake-up is delayed, so that they find more bytes when they run.
//!
//! Input: readers for which bytes are available, and the time until which each may wait. Output:
//! the time at which the first reader must be woken. All waiting readers are woken at that time,
//! since the driver runs anyway. The module [`stream`](super::stream) decides which readers are
//! woken at once.

use std::time::{Duration, Instant};

use crate::{StreamClass, StreamKey};

/// Readers for which bytes are available and which have not been woken yet.
#[derive(Debug, Default)]
pub(super) struct DeferredWakes {
    /// Streams of the waiting readers. The state of each stream records whether it is in this list,
    /// so the list has no duplicates.
    held: Vec<StreamKey>,
    due: Option<Instant>,
}

/// Minimum number of turns between two wake-ups of a bulk stream's reader while traffic is dense. A
/// turn is one run of the driver. The minimum does not apply if many bytes wait for the reader, or
/// if the stream has ended. Waking another thread costs more than a turn.
const READER_TURNS: u32 = 4;

/// Returns the minimum time between two wake-ups of a reader of this class. If traffic is dense,
/// arriving datagrams wait for the time `turn`, and are then handled together.
///
/// `None` means that the reader is woken at once. This applies to control streams, because other
/// traffic may depend on their readers.
pub(super) fn pause(class: StreamClass, turn: Option<Duration>) -> Option<Duration> {
    match class {
        StreamClass::Control => None,
        StreamClass::Bulk => turn.map(|turn| turn * READER_TURNS),
    }
}

impl DeferredWakes {
    /// Delays the wake-up of the reader of `key` until `until`, or until another delayed reader is
    /// woken.
    pub(super) fn hold(&mut self, key: StreamKey, until: Instant) {
        self.held.push(key);
        self.due = Some(self.due.map_or(until, |due| due.min(until)));
    }

    /// Returns the time at which [`take_due`](Self::take_due) will return readers.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Removes and returns the readers that must be woken now.
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
        assert_eq!(pause(StreamClass::Control, Some(turn)), None);
        assert_eq!(pause(StreamClass::Bulk, None), None);
        assert_eq!(
            pause(StreamClass::Bulk, Some(turn)),
            Some(turn * READER_TURNS)
        );
    }
}
