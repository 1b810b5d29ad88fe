//! Streams with slots that may be repeated while the path is idle.
//!
//! Only such streams cost time, and other open streams cost none. The connection decides when a
//! pass begins, and how many copies there are.

use std::collections::{BTreeSet, VecDeque};

use super::StreamTable;
use crate::{control_frame::ControlFrame, stream::ChunkRef};

/// Positions of streams in the table, each once in either list.
#[derive(Default)]
pub(super) struct RepeatQueue {
    /// Streams with sent slots that have no known arrival. Settled and ended streams leave when the
    /// next pass begins.
    unsettled: BTreeSet<u32>,
    /// Streams in which the present pass may still find slots.
    pass: VecDeque<u32>,
    /// Number of times that streams were examined.
    #[cfg(test)]
    pub(super) looks: u64,
}

impl RepeatQueue {
    /// Adds the stream at `place` when it sends a slot while no other slot of it is in flight.
    pub(super) fn begin(&mut self, place: u32) {
        self.unsettled.insert(place);
    }

    /// Counts examined streams.
    #[cfg_attr(not(test), expect(unused, reason = "only tests count"))]
    fn count_looks(&mut self, looks: usize) {
        #[cfg(test)]
        {
            self.looks += looks as u64;
        }
    }
}

impl StreamTable {
    /// Returns a slot to repeat while the path is idle, with its length. Streams follow each other,
    /// each with its newest slot first. With `restart` a new pass begins.
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
            // A stream that has more to send, now or once the peer gives credit, needs no repeats.
            // They would take capacity from new slots. The next pass examines it again.
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

    /// Begins a new pass over all streams with slots that may be repeated.
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

    /// Queues the ends of streams once more if they have no known arrival and fewer than
    /// `copies_max` copies in flight.
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
