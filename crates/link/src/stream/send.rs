//! Sending half of a stream: the written bytes, the slots cut from them, and the slots that have
//! arrived.
//!
//! The input is bytes, credit, and the fate of slots. The output is slots to send, new ones and
//! repeats. The table decides which stream is next, and recovery detects lost slots.

use std::collections::VecDeque;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use super::{SLOT_SIZE, byte_queue::ByteQueue, idle_detector::IdleDetector};
use crate::wire::frame::Half;

/// Sending half of one stream.
///
/// Its memory is about twice its bytes at most, however small the writes were ([`ByteQueue`]). Each
/// slot that was sent and has not arrived adds a record of 24 bytes. If slots are so short that
/// their records take more than their bytes, the rest counts as [waiting](Self::excess_bytes).
pub(crate) struct SendHalf {
    /// Written bytes that have not arrived yet, oldest first. The first and the last segment may
    /// hold other bytes, too.
    segments: ByteQueue,
    /// Number of the first segment. Numbers are never reused.
    segment_base: u64,
    /// Start of the next new slot: never the end of a segment with a successor.
    cursor: Cursor,
    unsent_bytes: usize,
    slots: VecDeque<Slot>,
    /// Index of the first slot in `slots`. All slots below have arrived.
    base: u64,
    /// Slots below this index may be sent.
    credit: u64,
    /// Whether the receiver has granted slots by PACED_CREDIT, which alone counts from then on.
    is_paced: bool,
    bytes_written: u64,
    bytes_arrived: u64,
    hash: Xxh3,
    state: SendState,
    /// Slots below this index are still to be repeated in this pass.
    repeat_below: u64,
    idle: IdleDetector,
    /// Copies of the end that were sent because the path was idle.
    end_copies: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cursor {
    segment: u64,
    offset: usize,
}

/// Slot that has been sent.
#[derive(Debug, Clone, Copy)]
struct Slot {
    start: Cursor,
    len: u16,
    /// Packets in flight that carry the slot.
    outstanding: u8,
    /// Number of times the slot was lost.
    round: u8,
    /// Copies that wait to be sent.
    queued: u8,
    arrived: bool,
    /// Half of the slot that has arrived, if it was sent in halves.
    half_arrived: Option<Half>,
    /// Whether the first half of the present copy has been sent, and the second has not.
    is_first_sent: bool,
}

/// Progress of the end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendState {
    /// More may be written.
    Open,
    /// The application has finished; the end must still arrive.
    Finished { end_sent: bool, end_arrived: bool },
    /// Abandoned by the application or at the peer's request.
    Reset { code: u32 },
}

/// Maximum number of bytes in flight of an open stream that may be a dialogue.
const TAIL_BYTES: usize = 64 * 1024;

impl SendHalf {
    pub(crate) fn new(credit: u64) -> Self {
        Self {
            segments: ByteQueue::default(),
            segment_base: 0,
            cursor: Cursor {
                segment: 0,
                offset: 0,
            },
            unsent_bytes: 0,
            slots: VecDeque::new(),
            base: 0,
            credit,
            is_paced: false,
            bytes_written: 0,
            bytes_arrived: 0,
            hash: Xxh3::new(),
            state: SendState::Open,
            repeat_below: 0,
            idle: IdleDetector::default(),
            end_copies: 0,
        }
    }

    pub(crate) fn state(&self) -> SendState {
        self.state
    }

    /// Returns the bytes held for sending or retransmission.
    pub(crate) fn buffered_bytes(&self) -> usize {
        match self.state {
            SendState::Reset { .. } => 0,
            _ => (self.bytes_written - self.bytes_arrived) as usize,
        }
    }

    /// Returns the memory of slot records beyond the bytes held. Records of short slots take more
    /// than the slots.
    pub(crate) fn excess_bytes(&self) -> usize {
        (self.slots.len() * size_of::<Slot>()).saturating_sub(self.buffered_bytes())
    }

    /// Returns the bytes written and not yet sent for the first time.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Appends bytes of the application.
    pub(crate) fn write(&mut self, data: Bytes) {
        debug_assert!(
            self.state == SendState::Open,
            "nothing is written behind the end"
        );
        if data.is_empty() {
            return;
        }
        self.hash.update(&data);
        self.bytes_written += data.len() as u64;
        self.unsent_bytes += data.len();
        self.segments.push(data);
        self.cursor = self.settled(self.cursor);
    }

    pub(crate) fn finish(&mut self) {
        if self.state == SendState::Open {
            self.state = SendState::Finished {
                end_sent: false,
                end_arrived: false,
            };
        }
    }

    /// Abandons everything that has not arrived. Returns whether that is news.
    pub(crate) fn reset(&mut self, code: u32) -> bool {
        if matches!(self.state, SendState::Reset { .. }) {
            return false;
        }
        self.state = SendState::Reset { code };
        self.segments.clear();
        self.slots.clear();
        self.unsent_bytes = 0;
        true
    }

    /// Raises the number of slots that may be sent. Returns whether that unblocks any bytes.
    pub(crate) fn set_credit(&mut self, credit: u64) -> bool {
        let was_blocked = self.is_blocked();
        if !self.is_paced {
            self.credit = self.credit.max(credit);
        }
        was_blocked && !self.is_blocked()
    }

    /// Sets the number of slots that may be sent, as granted by a receiver of version 2.
    ///
    /// The first call may lower the number, and later ones only raise it. Slots that were sent stay
    /// sent.
    pub(crate) fn set_paced_credit(&mut self, credit: u64) {
        if !self.is_paced || credit > self.credit {
            self.credit = credit;
            self.is_paced = true;
        }
    }

    /// Whether only the lack of credit blocks bytes.
    pub(crate) fn is_blocked(&self) -> bool {
        self.unsent_bytes > 0 && self.next_index() >= self.credit
    }

    /// Whether an application may wait for the bytes of this stream.
    ///
    /// It may if the stream is finished, if no bytes were written for a while, or if few bytes are
    /// in flight.
    pub(crate) fn is_tail(&self) -> bool {
        self.state != SendState::Open || self.idle.is_long() || self.buffered_bytes() <= TAIL_BYTES
    }

    /// Whether a new slot can be sent now.
    pub(crate) fn has_new(&self) -> bool {
        self.unsent_bytes > 0 && self.next_index() < self.credit
    }

    /// Returns the bytes for which there is unused credit.
    pub(crate) fn credit_bytes(&self) -> usize {
        let slots = self.credit.saturating_sub(self.next_index()) as usize;
        slots.saturating_mul(SLOT_SIZE)
    }

    /// Returns the bytes that may be sent for the first time now.
    pub(crate) fn new_bytes(&self) -> usize {
        self.unsent_bytes.min(self.credit_bytes())
    }

    /// Whether the end is still to be sent, and everything before it has been sent once.
    pub(crate) fn end_is_due(&self) -> bool {
        matches!(
            self.state,
            SendState::Finished {
                end_sent: false,
                ..
            }
        ) && self.unsent_bytes == 0
    }

    /// Returns the fields of the end record: slots, bytes, hash.
    pub(crate) fn end(&self) -> (u64, u64, u64) {
        (self.next_index(), self.bytes_written, self.hash.digest())
    }

    pub(crate) fn mark_end_sent(&mut self, sent: bool) {
        if let SendState::Finished { end_sent, .. } = &mut self.state {
            *end_sent = sent;
        }
    }

    /// Whether one more of `copies_max` copies of the end is to be sent; it counts as sent.
    pub(crate) fn take_end_copy(&mut self, copies_max: u8) -> bool {
        let is_wanted = matches!(
            self.state,
            SendState::Finished {
                end_sent: true,
                end_arrived: false
            }
        );
        if !is_wanted || self.end_copies + 1 >= copies_max {
            return false;
        }
        self.end_copies += 1;
        true
    }

    pub(crate) fn mark_end_arrived(&mut self) {
        if let SendState::Finished { end_arrived, .. } = &mut self.state {
            *end_arrived = true;
        }
    }

    /// Cuts the next new slot, of at most `len_max` bytes, and appends its bytes to `out`. Returns
    /// its index.
    pub(crate) fn take_new(&mut self, len_max: usize, out: &mut Vec<u8>) -> u64 {
        debug_assert!(self.has_new(), "callers ask first");
        let len = len_max.min(self.unsent_bytes).min(SLOT_SIZE);
        let index = self.next_index();
        let start = self.cursor;
        self.cursor = self.copy(start, len, out);
        self.unsent_bytes -= len;
        self.slots.push_back(Slot {
            start,
            len: len as u16,
            outstanding: 1,
            round: 0,
            queued: 0,
            arrived: false,
            half_arrived: None,
            is_first_sent: false,
        });
        index
    }

    /// Returns the index of the next new slot.
    pub(crate) fn next_index(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// Whether everything that was sent is acknowledged, including the end.
    pub(crate) fn is_settled(&self) -> bool {
        let awaits_end = matches!(
            self.state,
            SendState::Finished {
                end_sent: true,
                end_arrived: false
            }
        );
        self.slots.is_empty() && !awaits_end
    }

    /// Returns the length of slot `index` if it has not arrived.
    pub(crate) fn missing_len(&self, index: u64) -> Option<usize> {
        self.slot(index)
            .filter(|slot| !slot.arrived)
            .map(|slot| usize::from(slot.len))
    }

    /// Appends the bytes of a slot that has not arrived, to be sent once more.
    pub(crate) fn take_again(&mut self, index: u64, out: &mut Vec<u8>) {
        let at = (index - self.base) as usize;
        let slot = &mut self.slots[at];
        slot.outstanding = slot.outstanding.saturating_add(1);
        let (start, len) = (slot.start, usize::from(slot.len));
        self.copy(start, len, out);
        if index + 1 == self.repeat_below {
            self.repeat_below = index;
        }
    }

    /// Returns the half of slot `index` to send next, for a slot that does not fit a packet, and
    /// whether it ends its copy.
    ///
    /// A copy is the first half and then the second, or only the missing half.
    pub(crate) fn next_half(&self, index: u64) -> (Half, bool) {
        let slot = self.slot(index);
        match slot.and_then(|slot| slot.half_arrived) {
            Some(Half::First) => (Half::Second, true),
            Some(Half::Second) => (Half::First, true),
            None if slot.is_some_and(|slot| slot.is_first_sent) => (Half::Second, true),
            None => (Half::First, false),
        }
    }

    /// Appends the [next half](Self::next_half) of a slot that has not arrived.
    pub(crate) fn take_half(&mut self, index: u64, out: &mut Vec<u8>) {
        let (half, is_last) = self.next_half(index);
        let at = (index - self.base) as usize;
        let slot = &mut self.slots[at];
        slot.outstanding = slot.outstanding.saturating_add(1);
        slot.is_first_sent = !is_last;
        let (start, len) = (slot.start, usize::from(slot.len));
        let mut whole = Vec::with_capacity(len);
        self.copy(start, len, &mut whole);
        out.extend_from_slice(&whole[half.of(len)]);
        if is_last && index + 1 == self.repeat_below {
            self.repeat_below = index;
        }
    }

    /// Handles the arrival of a packet with a half of slot `index`. Returns the freed bytes of the
    /// buffer, and whether the other half is neither in flight nor queued.
    pub(crate) fn on_half_arrived(&mut self, index: u64, half: Half) -> (usize, bool) {
        let Some(slot) = self.slot_mut(index) else {
            return (0, false);
        };
        match slot.half_arrived {
            Some(other) if other != half => (self.on_arrived(index), false),
            _ => {
                slot.half_arrived = Some(half);
                slot.outstanding = slot.outstanding.saturating_sub(1);
                let is_lost = !slot.arrived && slot.outstanding == 0 && slot.queued == 0;
                (0, is_lost)
            }
        }
    }

    /// Handles the loss of a packet with a half of slot `index`. Returns the round of repetition
    /// that the slot now needs, from 1.
    ///
    /// `None` if that half has arrived, or if the slot waits to be sent.
    pub(crate) fn on_half_lost(&mut self, index: u64, half: Half) -> Option<u8> {
        let slot = self.slot_mut(index)?;
        slot.outstanding = slot.outstanding.saturating_sub(1);
        if slot.arrived || slot.half_arrived == Some(half) {
            return None;
        }
        slot.is_first_sent = false;
        if slot.queued > 0 {
            return None;
        }
        slot.round = slot.round.saturating_add(1);
        Some(slot.round)
    }

    /// Handles the arrival of a packet with slot `index`. Returns the freed bytes of the buffer.
    pub(crate) fn on_arrived(&mut self, index: u64) -> usize {
        let Some(slot) = self.slot_mut(index) else {
            return 0;
        };
        slot.outstanding = slot.outstanding.saturating_sub(1);
        slot.arrived = true;
        let mut freed = 0;
        while let Some(slot) = self.slots.front().filter(|slot| slot.arrived) {
            freed += usize::from(slot.len);
            self.slots.pop_front();
            self.base += 1;
        }
        self.bytes_arrived += freed as u64;
        let keep = match self.slots.front() {
            Some(slot) => slot.start,
            // Without unsent bytes no segment is needed any more.
            None => {
                self.cursor = self.settled(self.cursor);
                self.cursor
            }
        };
        while self.segment_base < keep.segment {
            self.segments.pop_front();
            self.segment_base += 1;
        }
        freed
    }

    /// Handles the loss of a packet with slot `index`. Returns the round of repetition that the
    /// slot now needs, from 1. `None` if it has arrived or another copy of it is in flight.
    pub(crate) fn on_lost(&mut self, index: u64) -> Option<u8> {
        let at = index.checked_sub(self.base)? as usize;
        let slot = self.slots.get_mut(at)?;
        slot.outstanding = slot.outstanding.saturating_sub(1);
        if slot.arrived || slot.outstanding > 0 || slot.queued > 0 {
            return None;
        }
        slot.round = slot.round.saturating_add(1);
        Some(slot.round)
    }

    /// Records that `copies` copies of slot `index` wait to be sent.
    pub(crate) fn set_queued(&mut self, index: u64, copies: u32) {
        if let Some(slot) = self.slot_mut(index) {
            slot.queued = copies as u8;
        }
    }

    /// Records that one copy of slot `index` no longer waits to be sent.
    pub(crate) fn unqueue(&mut self, index: u64) {
        if let Some(slot) = self.slot_mut(index) {
            slot.queued = slot.queued.saturating_sub(1);
        }
    }

    /// Begins a new pass of repeats at the newest slot.
    pub(crate) fn restart_repeats(&mut self) {
        self.repeat_below = self.next_index();
        self.idle.on_pass(self.bytes_written);
    }

    /// Returns the next slot of this pass worth repeating while the path is idle, with its length.
    ///
    /// It has not arrived, and has fewer than `copies_max` packets in flight. It stays the next one
    /// until it is [taken](Self::take_again).
    ///
    /// The newest slot goes first. A pass in the order of sending would be as fast as the reports,
    /// and repeat each slot just before its report arrives.
    pub(crate) fn next_repeat(&mut self, copies_max: u8) -> Option<(u64, usize)> {
        while self.repeat_below > self.base {
            let index = self.repeat_below - 1;
            let slot = self.slot(index).filter(|slot| {
                !slot.arrived && slot.outstanding > 0 && slot.outstanding < copies_max
            });
            if let Some(slot) = slot {
                return Some((index, usize::from(slot.len)));
            }
            self.repeat_below = index;
        }
        None
    }

    fn slot_mut(&mut self, index: u64) -> Option<&mut Slot> {
        self.slots.get_mut(index.checked_sub(self.base)? as usize)
    }

    fn slot(&self, index: u64) -> Option<&Slot> {
        self.slots.get(index.checked_sub(self.base)? as usize)
    }

    /// Appends `len` bytes from `from` on. Returns their end.
    fn copy(&self, from: Cursor, len: usize, out: &mut Vec<u8>) -> Cursor {
        let mut at = from;
        let mut left = len;
        while left > 0 {
            let place = self.place(at);
            let segment = self.segments.get(place);
            let part = left.min(segment.len() - at.offset);
            out.extend_from_slice(&segment[at.offset..at.offset + part]);
            left -= part;
            at.offset += part;
            // The last segment may grow.
            if at.offset == segment.len() && place + 1 < self.segments.len() {
                at = Cursor {
                    segment: at.segment + 1,
                    offset: 0,
                };
            }
        }
        at
    }

    /// Returns the same position, or the start of the next segment if it is the end of a segment.
    ///
    /// Callers use it when more has been written, or when no bytes are needed any more: the last
    /// segment may grow.
    fn settled(&self, at: Cursor) -> Cursor {
        let place = self.place(at);
        if place < self.segments.len() && at.offset == self.segments.get(place).len() {
            return Cursor {
                segment: at.segment + 1,
                offset: 0,
            };
        }
        at
    }

    fn place(&self, at: Cursor) -> usize {
        (at.segment - self.segment_base) as usize
    }
}

#[cfg(test)]
mod tests;
