//! Receiving half of a stream: accepts slots in any order, and returns bytes in order.
//!
//! Input: slots, the end record and resets from the peer. Output: the bytes, the credit to grant,
//! and finally whether byte count and hash match. Slots are stored in slabs of the connection's
//! pool ([`slab`](super::slab)). The module [`memory`](super::memory) limits the memory of a
//! stream.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use xxhash_rust::xxh3::Xxh3;

use super::{
    SLOT_SIZE,
    slab::{SLAB_SLOTS, Slab, SlabPool},
    window_need::{WindowNeed, gap_share, round_trips},
};
use crate::wire::frame::Half;

/// Result of storing an arriving slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotFate {
    /// The slot was stored.
    New,
    /// The slot was already stored or read.
    Duplicate,
    /// No memory is free. The caller must treat the packet as lost, so that the peer retransmits
    /// the slot.
    NoMemory,
    /// The slot lies outside the credit or behind the end of the stream, or has a wrong length. The
    /// peer violates the protocol.
    Violation,
}

/// State of the receiving half of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecvState {
    /// More bytes are expected.
    Open,
    /// All bytes were read, and their count and hash match the end record.
    Ended,
    /// All bytes were read, but their count or hash does not match the end record.
    Corrupt,
    /// The peer reset the stream with this code.
    Reset { code: u32 },
}

/// Reason why a window is too small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowShortage {
    /// The slots behind a missing slot fill too much of the window: a quarter if all memory is
    /// free. `highest` is one more than the highest slot index that has arrived.
    Hole { highest: u64 },
    /// A quarter of the window was read within at most two round-trip times. The reader has read
    /// `read` slots so far.
    Reader { read: u64 },
}

/// Receiving half of one stream.
pub(crate) struct RecvHalf {
    /// Slabs in stream order. They are boxed, so that an absent slab takes only a pointer. A peer
    /// may leave hundreds of slabs absent in each of thousands of streams.
    slabs: VecDeque<Option<Box<Slab>>>,
    /// Number of the slab that is first in `slabs`.
    slab_base: u64,
    /// Index of the next slot to return to the application.
    next: u64,
    /// One more than the highest slot index that has arrived.
    highest: u64,
    end: Option<EndRecord>,
    bytes_read: u64,
    hash: Xxh3,
    state: RecvState,
    /// Number of slots that the peer may send beyond the slots already read.
    window: u64,
    /// Credit that was sent to the peer: the peer may send slots below this index.
    announced_credit: u64,
    /// Highest credit that the peer may have assumed when the stream began.
    limit_at_first: u64,
    /// Initial credit for which memory is reserved. `announced_credit` may be lower.
    limit_promised: u64,
    /// Number of slots that had been read when the window was last assessed. `judged_s` is the time
    /// of that assessment in seconds.
    judged_at: u64,
    judged_s: f64,
    need: WindowNeed,
    /// Whether the granted credit follows the reader's drain rate instead of the window.
    is_paced: bool,
    /// Fraction of memory that was free when the window was last assessed.
    free: f64,
}

#[derive(Debug, Clone, Copy)]
struct EndRecord {
    chunks: u64,
    bytes: u64,
    hash: u64,
}

impl RecvHalf {
    /// Creates a receiving half that grants `window` slots beyond the last slot read.
    ///
    /// At the start, the credit that the peer assumes is between `floor` and `limit` slots, since
    /// frames that announced more credit may be lost. If the stream needs more credit, the peer
    /// receives it when the application reads the first bytes.
    pub(crate) fn new(window: u64, floor: u64, limit: u64, now_s: f64) -> Self {
        Self {
            slabs: VecDeque::new(),
            slab_base: 0,
            next: 0,
            highest: 0,
            end: None,
            bytes_read: 0,
            hash: Xxh3::new(),
            state: RecvState::Open,
            window,
            announced_credit: floor,
            limit_at_first: limit,
            limit_promised: window,
            judged_at: 0,
            judged_s: now_s,
            need: WindowNeed::new(now_s),
            is_paced: false,
            free: 1.0,
        }
    }

    pub(crate) fn state(&self) -> RecvState {
        self.state
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Returns the window in slots that the reader needs, or `None` while the need has not been
    /// measured.
    pub(crate) fn needed_window(&self) -> Option<u64> {
        self.need.window(self.free)
    }

    /// Sets the fraction of memory that is free. Later window sizes depend on it.
    pub(crate) fn set_free_memory(&mut self, part: f64) {
        self.free = part;
    }

    /// Measures the window that the reader needs. The caller uses this after slots have arrived or
    /// have been read.
    pub(crate) fn measure_need(&mut self, now_s: f64, rtt_s: f64) {
        self.need.on_read(self.next, now_s, rtt_s);
        if !self.is_readable() {
            self.need.on_gap(self.highest.saturating_sub(self.next));
        }
    }

    /// Returns how many slots the granted or reserved credit permits beyond the slots already read.
    /// Slots after the end of the stream do not count.
    pub(crate) fn promised(&self) -> u64 {
        let limit = self.announced_credit.max(self.limit_promised);
        let limit = self.end.map_or(limit, |end| end.chunks.min(limit));
        limit.saturating_sub(self.next)
    }

    /// Returns the number of unread slots up to the end of the stream, or `None` if the end record
    /// has not arrived.
    pub(crate) fn slots_to_end(&self) -> Option<u64> {
        self.end.map(|end| end.chunks.saturating_sub(self.next))
    }

    /// Changes the state as if the next `slots` slots had arrived and been read.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, slots: u64, pool: &mut SlabPool) {
        self.next += slots;
        self.highest = self.highest.max(self.next);
        self.release(pool);
    }

    /// Stores a slot. Returns whether the slot was new, a duplicate, refused for lack of memory, or
    /// a violation.
    pub(crate) fn insert(&mut self, index: u64, data: &[u8], pool: &mut SlabPool) -> SlotFate {
        let slab = match self.place(index, data.len(), pool) {
            Ok(slab) => slab,
            Err(fate) => return fate,
        };
        slab.fill(index, data);
        self.highest = self.highest.max(index + 1);
        SlotFate::New
    }

    /// Stores one half of a slot that has `len` bytes in total.
    pub(crate) fn insert_half(
        &mut self,
        index: u64,
        len: usize,
        half: Half,
        data: &[u8],
        pool: &mut SlabPool,
    ) -> SlotFate {
        let slab = match self.place(index, len, pool) {
            Ok(slab) => slab,
            Err(fate) => return fate,
        };
        match slab.fill_half(index, len, half, data) {
            Some(true) => {
                self.highest = self.highest.max(index + 1);
                SlotFate::New
            }
            Some(false) => SlotFate::Duplicate,
            None => SlotFate::Violation,
        }
    }

    /// Returns the slab for the missing slot `index`, which has `len` bytes.
    ///
    /// # Errors
    /// Returns the [`SlotFate`] of a slot that cannot be stored.
    fn place(
        &mut self,
        index: u64,
        len: usize,
        pool: &mut SlabPool,
    ) -> Result<&mut Slab, SlotFate> {
        let is_within = index < self.announced_credit.max(self.limit_at_first)
            && self.end.is_none_or(|end| index < end.chunks);
        if !(1..=SLOT_SIZE).contains(&len) || !is_within {
            return Err(SlotFate::Violation);
        }
        if index < self.next || self.state != RecvState::Open {
            return Err(SlotFate::Duplicate);
        }
        let slab_number = index / SLAB_SLOTS;
        let at = (slab_number - self.slab_base) as usize;
        if self.slabs.get(at).is_none_or(Option::is_none) {
            // A slab for the next slot to read is always granted, because reading that slot frees
            // other slabs.
            let is_essential = slab_number == self.next / SLAB_SLOTS;
            let slab = pool.take(is_essential).ok_or(SlotFate::NoMemory)?;
            if at >= self.slabs.len() {
                self.slabs.resize_with(at + 1, || None);
            }
            self.slabs[at] = Some(slab);
        }
        let slab = self.slabs[at].as_mut().expect("it was just put there");
        match slab.len(index) {
            0 => Ok(slab),
            _ => Err(SlotFate::Duplicate),
        }
    }

    /// Stores the end record. Returns `false` if the record contradicts an earlier record or slots
    /// that have arrived.
    pub(crate) fn set_end(&mut self, chunks: u64, bytes: u64, hash: u64) -> bool {
        if let Some(end) = self.end {
            return end.chunks == chunks && end.bytes == bytes && end.hash == hash;
        }
        if chunks < self.highest {
            return false;
        }
        self.end = Some(EndRecord {
            chunks,
            bytes,
            hash,
        });
        self.check_end();
        true
    }

    /// Handles a reset from the peer: drops all bytes that have not been read.
    pub(crate) fn set_reset(&mut self, code: u32, pool: &mut SlabPool) {
        if self.state == RecvState::Open {
            self.state = RecvState::Reset { code };
            self.release(pool);
        }
    }

    /// Whether [`read`](Self::read) would return bytes.
    pub(crate) fn is_readable(&self) -> bool {
        self.slot_len(self.next) != 0
    }

    /// Removes and returns the next bytes in order: at most `len_max` bytes, but at least one slot.
    /// Returns `None` if the next slot is missing.
    pub(crate) fn read(&mut self, len_max: usize, pool: &mut SlabPool) -> Option<Bytes> {
        if !self.is_readable() {
            return None;
        }
        let mut out = BytesMut::with_capacity(self.readable_len(len_max));
        while let Some(len) = Some(self.slot_len(self.next)).filter(|len| *len != 0) {
            if !out.is_empty() && out.len() + len > len_max {
                break;
            }
            let at = (self.next / SLAB_SLOTS - self.slab_base) as usize;
            let slab = self.slabs[at]
                .as_ref()
                .expect("a slot with a length has a slab");
            out.extend_from_slice(slab.slot(self.next));
            self.next += 1;
            if self.next.is_multiple_of(SLAB_SLOTS) {
                let slab = self
                    .slabs
                    .pop_front()
                    .flatten()
                    .expect("its slots were read");
                pool.give_back(slab);
                self.slab_base += 1;
            }
        }
        self.hash.update(&out);
        self.bytes_read += out.len() as u64;
        self.check_end();
        if self.state != RecvState::Open {
            self.release(pool);
        }
        Some(out.freeze())
    }

    /// Returns the reason why the window is too small, or `None` if it is large enough. If the
    /// window is full because the application reads slowly, it is large enough.
    pub(crate) fn shortage(&self, now_s: f64, rtt_s: f64) -> Option<WindowShortage> {
        if self.state != RecvState::Open || self.end.is_some() {
            return None;
        }
        let behind_gap = (self.highest.saturating_sub(self.next)) as f64;
        if !self.is_readable() && behind_gap * gap_share(self.free) >= self.window as f64 {
            return Some(WindowShortage::Hole {
                highest: self.highest,
            });
        }
        let time_s = round_trips(self.free) / 4.0 * rtt_s.max(0.002);
        let is_fast =
            self.next - self.judged_at >= self.window / 4 && now_s - self.judged_s < time_s;
        is_fast.then_some(WindowShortage::Reader { read: self.next })
    }

    /// Sets the window, in slots.
    pub(crate) fn set_window(&mut self, window: u64) {
        self.window = window;
    }

    /// Whether a new credit frame must be sent, because the credit has grown enough since the last
    /// such frame.
    pub(crate) fn credit_due(&mut self, now_s: f64) -> bool {
        if self.state != RecvState::Open || self.end.is_some() {
            return false;
        }
        if self.next - self.judged_at >= self.window / 4 {
            self.judged_at = self.next;
            self.judged_s = now_s;
        }
        let window = self.granted_window();
        self.next + window >= self.announced_credit + (window / 8).max(1)
    }

    /// Makes the granted credit follow the reader's drain rate from now on. After the client's last
    /// byte, bytes may still wait for a slow server. With a peer of version 2, only this credit
    /// limits the number of waiting bytes.
    pub(crate) fn pace(&mut self) {
        self.is_paced = true;
    }

    /// Returns the number of slots to grant beyond the last slot read.
    pub(crate) fn granted_window(&self) -> u64 {
        if self.is_paced {
            self.need.paced_window().min(self.window)
        } else {
            self.window
        }
    }

    /// Returns the credit limit to send to the peer now, and records it as sent.
    pub(crate) fn take_credit(&mut self) -> u64 {
        self.announced_credit = self.announced_credit.max(self.next + self.granted_window());
        self.announced_credit
    }

    /// Returns all slabs of this half to `pool`.
    pub(crate) fn release(&mut self, pool: &mut SlabPool) {
        for slab in self.slabs.drain(..).flatten() {
            pool.give_back(slab);
        }
        self.slab_base = self.next / SLAB_SLOTS;
    }

    fn check_end(&mut self) {
        let Some(end) = self.end.filter(|end| end.chunks == self.next) else {
            return;
        };
        if self.state == RecvState::Open {
            let intact = end.bytes == self.bytes_read && end.hash == self.hash.digest();
            self.state = if intact {
                RecvState::Ended
            } else {
                RecvState::Corrupt
            };
        }
    }

    /// Returns the length of slot `index` in bytes, or zero if the slot is not stored.
    fn slot_len(&self, index: u64) -> usize {
        let Some(at) = (index / SLAB_SLOTS).checked_sub(self.slab_base) else {
            return 0;
        };
        let slab = self.slabs.get(at as usize).and_then(Option::as_ref);
        slab.map_or(0, |slab| slab.len(index))
    }

    fn readable_len(&self, len_max: usize) -> usize {
        let mut len = 0;
        let mut index = self.next;
        while len < len_max {
            match self.slot_len(index) {
                0 => break,
                slot => len += slot,
            }
            index += 1;
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hash(bytes: &[u8]) -> u64 {
        xxhash_rust::xxh3::xxh3_64(bytes)
    }

    proptest! {
        #[test]
        fn slots_in_any_order_read_back_as_written(
            slots in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..SLOT_SIZE), 1..200),
            order in any::<prop::sample::Index>(),
            halved in any::<u64>(),
        ) {
            let mut pool = SlabPool::new(1 << 30);
            let mut half = RecvHalf::new(1000, 1000, 1000, 0.0);
            let whole = slots.concat();
            let mut read = Vec::new();
            let start = order.index(slots.len());
            for at in (start..slots.len()).chain(0..start) {
                let (index, slot) = (at as u64, &slots[at]);
                let len = slot.len();
                if halved >> (at % 64) & 1 == 1 {
                    let part = if halved % 2 == 0 { Half::First } else { Half::Second };
                    let data = &slot[part.of(len)];
                    let mut insert = |len| half.insert_half(index, len, part, data, &mut pool);
                    prop_assert_eq!(insert(len), SlotFate::New);
                    prop_assert_eq!(insert(len), SlotFate::Duplicate);
                    prop_assert_eq!(insert(len + 1), SlotFate::Violation);
                    let other = if halved % 2 == 0 { Half::Second } else { Half::First };
                    if halved % 3 > 0 {
                        let data = &slot[other.of(len)];
                        let fate = half.insert_half(index, len, other, data, &mut pool);
                        prop_assert_eq!(fate, SlotFate::New);
                    } else {
                        prop_assert_eq!(half.insert(index, slot, &mut pool), SlotFate::New);
                    }
                } else {
                    prop_assert_eq!(half.insert(index, slot, &mut pool), SlotFate::New);
                }
                prop_assert_eq!(half.insert(index, slot, &mut pool), SlotFate::Duplicate);
                while let Some(data) = half.read(10_000, &mut pool) {
                    read.extend_from_slice(&data);
                }
            }
            prop_assert_eq!(&read, &whole);
            prop_assert_eq!(half.state(), RecvState::Open);
            prop_assert!(half.set_end(slots.len() as u64, whole.len() as u64, hash(&whole)));
            prop_assert_eq!(half.state(), RecvState::Ended);
            half.release(&mut pool);
            prop_assert_eq!(pool.lent(), 0);
        }
    }

    #[test]
    fn a_wrong_hash_or_count_is_no_end() {
        for (bytes, hash) in [(3, hash(b"abd")), (4, hash(b"abc"))] {
            let mut pool = SlabPool::new(1 << 20);
            let mut half = RecvHalf::new(10, 10, 10, 0.0);
            half.insert(0, b"abc", &mut pool);
            assert!(half.set_end(1, bytes, hash));
            half.read(100, &mut pool);
            assert_eq!(half.state(), RecvState::Corrupt);
        }
    }

    #[test]
    fn a_full_pool_refuses_all_but_the_next_slab() {
        let mut pool = SlabPool::new(0);
        let mut half = RecvHalf::new(10_000, 10_000, 10_000, 0.0);
        for slab in 1..=16 {
            assert_eq!(
                half.insert(slab * SLAB_SLOTS, b"x", &mut pool),
                SlotFate::New
            );
        }
        assert_eq!(
            half.insert(17 * SLAB_SLOTS, b"x", &mut pool),
            SlotFate::NoMemory
        );
        assert_eq!(half.slabs.len(), 17, "what is refused leaves no trace");
        assert_eq!(
            half.insert(0, b"x", &mut pool),
            SlotFate::New,
            "it is needed to free the rest"
        );
    }

    #[test]
    fn slots_beyond_the_credit_are_a_violation() {
        let mut pool = SlabPool::new(1 << 20);
        let mut half = RecvHalf::new(10, 10, 10, 0.0);
        assert_eq!(half.insert(10, b"x", &mut pool), SlotFate::Violation);
        assert_eq!(half.insert(9, b"", &mut pool), SlotFate::Violation);
        half.insert(9, b"x", &mut pool);
        assert!(!half.set_end(9, 1, 0), "an end before a slot that arrived");
    }
}
