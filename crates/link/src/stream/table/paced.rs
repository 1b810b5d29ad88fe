//! Streams whose window follows the pace of their reader: the credit on both sides, and its memory.
//!
//! The pace itself is measured in [`pace`](crate::stream::pace).

use std::time::Duration;

use super::{StreamEvent, Streams};
use crate::stream::{Class, credit_pool::WINDOW_FLOOR, pace::Reader};

impl Streams {
    /// From now on the window of a bulk stream follows the pace of its reader, so that the window drains within
    /// `limit`. It begins small, unless the reader is known to be fast.
    pub(crate) fn pace(&mut self, number: u32, name: u64, limit: Duration, rtt_s: f64, now_s: f64) {
        let reader = Reader {
            name,
            slots_per_s: self.readers.slots_per_s(name, now_s),
            rtt_s,
        };
        let Some(stream) = self
            .get(number)
            .filter(|stream| stream.class == Class::Bulk)
        else {
            return;
        };
        if stream.recv.pace(reader, limit, now_s) {
            self.fit_window(number);
            self.tell_credit(number);
        }
    }

    /// A stream was read to its end: remembers the pace of its reader.
    pub(crate) fn remember_reader(&mut self, number: u32, now_s: f64) {
        let shown = self.get(number).and_then(|stream| stream.recv.shown_pace());
        if let Some((name, slots_per_s)) = shown {
            self.readers.remember(name, slots_per_s, now_s);
        }
    }

    /// Fits the window of a stream to the pace of its reader, as far as memory allows.
    pub(crate) fn fit_window(&mut self, number: u32) {
        self.note_free_memory(number);
        let wanted = self
            .get(number)
            .filter(|stream| stream.share.is_some())
            .and_then(|stream| stream.recv.paced_window());
        if let Some(wanted) = wanted {
            self.set_window(number, wanted);
        }
    }

    /// Makes the window of a stream as wide as wanted, if memory allows, but not narrower than what the
    /// peer may use already.
    fn set_window(&mut self, number: u32, wanted: u64) {
        let Some(stream) = self.get(number) else {
            return;
        };
        let Some(share) = stream.share else {
            return;
        };
        let (window, promised) = (stream.recv.window(), stream.recv.promised());
        let most = self.memory.paced_window_max(share, window);
        let window = wanted.min(most).max(promised).max(WINDOW_FLOOR);
        self.refit(number, window);
    }

    /// The peer grants slots up to `limit`, and bounds the bytes on their way to `window` slots.
    pub(crate) fn set_paced_credit(&mut self, number: u32, limit: u64, window: u64) {
        let Some(stream) = self.get(number) else {
            return;
        };
        let before = stream.send.queue_max();
        stream.send.set_paced_credit(limit, window);
        let has_changed = stream.send.queue_max() != before;
        if has_changed && !std::mem::replace(&mut stream.queue_changed, true) {
            self.events
                .push_back(StreamEvent::SendQueue { stream: number });
        }
        self.make_ready(number);
    }

    /// Bytes of a stream that may wait in the application's queue to be sent; `None` if nothing bounds them.
    pub(crate) fn send_queue_max(&mut self, number: u32) -> Option<usize> {
        let stream = self.get(number)?;
        stream.queue_changed = false;
        stream.send.queue_max()
    }
}
