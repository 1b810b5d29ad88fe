//! Which streams have something that may be repeated while the line is idle: a cost for each of them, and none for
//! the others that are open.
//!
//! When a pass begins, and how many copies there are, is the connection's business.

use std::collections::{BTreeSet, VecDeque};

use super::Streams;
use crate::{control_frame::Control, stream::ChunkRef};

/// Places of streams in the table, each once in either list.
#[derive(Default)]
pub(super) struct Repeats {
    /// All streams of which something was sent and is not known to have arrived. Those of which everything has
    /// arrived, and those that are over, leave when the next pass begins.
    unsettled: BTreeSet<u32>,
    /// Those in which the present pass may still find something.
    pass: VecDeque<u32>,
    /// Looks at streams, in all.
    #[cfg(test)]
    pub(super) looks: u64,
}

impl Repeats {
    /// Something of the stream at `place` is being sent, and nothing of it was on its way.
    pub(super) fn begin(&mut self, place: u32) {
        self.unsettled.insert(place);
    }

    /// Counts looks at streams.
    #[cfg_attr(not(test), expect(unused, reason = "only tests count"))]
    fn count_looks(&mut self, looks: usize) {
        #[cfg(test)]
        {
            self.looks += looks as u64;
        }
    }
}

impl Streams {
    /// A slot to repeat while the line is idle, with its length: of each stream newest first, one stream after the
    /// other. With `restart` a new pass begins.
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
            // A stream that has more to send, now or once the peer gives credit, needs no repeats: they would
            // take capacity from new slots. The next pass looks at it again.
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

    /// Begins a new pass over all streams of which something may be repeated.
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

    /// Queues the ends of streams once more that are not known to have arrived and have fewer than
    /// `copies_max` copies on their way.
    pub(crate) fn repeat_ends(&mut self, copies_max: u8) {
        self.repeats.count_looks(self.repeats.unsettled.len());
        for place in &self.repeats.unsettled {
            if let Some(stream) = self.places[*place as usize].as_mut()
                && stream.send.take_end_copy(copies_max)
            {
                self.controls.push(Control::End(stream.number));
            }
        }
    }
}
