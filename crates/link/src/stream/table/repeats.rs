//! Streams with slots that may be repeated while the path is idle.
//!
//! Only these streams cost processing time, and other open streams cost none. The connection
//! decides when a new pass over these streams begins, and how many copies of a slot may be in
//! flight.

use std::collections::{BTreeSet, VecDeque};

use super::StreamTable;
use crate::{control_frame::ControlFrame, stream::ChunkRef};

/// Streams with slots to repeat, as indices in the stream table. Each of the two lists contains a
/// stream at most once.
#[derive(Default)]
pub(super) struct RepeatQueue {
    /// Streams with sent slots whose arrival has not been reported. Streams without such slots are
    /// removed when the next pass begins.
    unsettled: BTreeSet<u32>,
    /// Streams in which the present pass may still find slots to repeat.
    pass: VecDeque<u32>,
    /// Number of times that a stream was examined.
    #[cfg(test)]
    pub(super) looks: u64,
}

impl RepeatQueue {
    /// Adds the stream at table index `place`. The caller uses this when the stream sends a slot
    /// while none of its other slots is in flight.
    pub(super) fn begin(&mut self, place: u32) {
        self.unsettled.insert(place);
    }

    /// Adds `looks` to the number of times that a stream was examined.
    #[cfg_attr(not(test), expect(unused, reason = "only tests count"))]
    fn count_looks(&mut self, looks: usize) {
        #[cfg(test)]
        {
            self.looks += looks as u64;
        }
    }
}

impl StreamTable {
    /// Returns a slot to repeat while the path is idle, and the length of the slot. `restart`
    /// begins a new pass. A pass handles one stream after the other, and each stream from its
    /// newest slot to its oldest.
    pub(crate) fn next_repeat(
        &mut self,
        copies_max: u8,
        restart: bool,
    ) -> Option<(ChunkRef, usize)> {
        if restart {
            self.restart_repeats();
        }
        while let Some(place) = self.repeats.pass.front().copied() {
            self.repeats.count_looks(1);
            // A stream that can send new slots, now or after a credit frame, needs no repeats.
            // Repeats would take capacity from new slots. The next pass examines the stream again.
            let stream = self.places[place as usize].as_mut();
            let tail = stream.filter(|it| !it.send.is_blocked() && it.send.is_tail());
            let found = tail.and_then(|stream| {
                let (index, len) = stream.send.next_repeat(copies_max)?;
                Some((stream.number, index, len))
            });
            let Some((number, index, len)) = found else {
                self.repeats.pass.pop_front();
                continue;
            };
            let chunk = ChunkRef {
                slot: place,
                stream: number,
                index,
            };
            return Some((chunk, len));
        }
        None
    }

    /// Begins a new pass over all streams that have slots to repeat.
    fn restart_repeats(&mut self) {
        let places = &mut self.places;
        let mut looks = 0;
        self.repeats.unsettled.retain(|place| {
            looks += 1;
            let stream = places[*place as usize].as_mut();
            let stream = stream.filter(|stream| !stream.send.is_settled());
            stream.map(|stream| stream.send.restart_repeats()).is_some()
        });
        self.repeats.count_looks(looks);
        self.repeats.pass.clear();
        self.repeats.pass.extend(&self.repeats.unsettled);
    }

    /// Queues another copy of each end record whose arrival has not been reported, if fewer than
    /// `copies_max` copies have been sent.
    pub(crate) fn repeat_ends(&mut self, copies_max: u8) {
        self.repeats.count_looks(self.repeats.unsettled.len());
        for place in &self.repeats.unsettled {
            if let Some(stream) = self.places[*place as usize].as_mut()
                && stream.send.take_end_copy(copies_max)
            {
                self.controls.push(ControlFrame::End(stream.number));
            }
        }
    }
}
