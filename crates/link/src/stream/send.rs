//! Sending half of a stream: the written bytes, the slots cut from them, and the slots that have
//! arrived.
//!
//! Input: bytes to send, credit, and whether sent slots arrived or were lost. Output: slots to
//! send, both new slots and repeats. The stream table selects the next stream, and recovery detects
//! lost slots.

use std::collections::VecDeque;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use super::{SLOT_SIZE, byte_queue::ByteQueue, idle_detector::IdleDetector};
use crate::wire::frame::Half;

/// Sending half of one stream.
///
/// Its memory is at most about twice the number of its bytes, however small the writes were
/// ([`ByteQueue`]). Each slot that was sent and has not arrived adds a record of 24 bytes. If slots
/// are so short that the records take more memory than the bytes,
/// [`excess_bytes`](Self::excess_bytes) returns the difference.
pub(crate) struct SendHalf {
    /// Written bytes that have not arrived yet, oldest first. The first and the last segment may
    /// also hold bytes that have arrived.
    segments: ByteQueue,
    /// Number of the first segment in `segments`. Segment numbers are never reused.
    segment_base: u64,
    /// Position of the next new slot. It never points to the end of a segment that has a successor.
    cursor: Cursor,
    unsent_bytes: usize,
    slots: VecDeque<Slot>,
    /// Index of the first slot in `slots`. All slots with a lower index have arrived.
    base: u64,
    /// Credit: slots with a lower index may be sent.
    credit: u64,
    /// Whether the receiver has sent a PACED_CREDIT frame. From then on, only such frames change
    /// the credit.
    is_paced: bool,
    bytes_written: u64,
    bytes_arrived: u64,
    hash: Xxh3,
    state: SendState,
    /// Slots below this index are still to be examined for a repeat in the present pass over the
    /// slots.
    repeat_below: u64,
    idle: IdleDetector,
    /// Number of copies of the end record that were sent because the path was idle.
    end_copies: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cursor {
    segment: u64,
    offset: usize,
}

/// State of one slot that has been sent.
#[derive(Debug, Clone, Copy)]
struct Slot {
    start: Cursor,
    len: u16,
    /// Number of packets in flight that carry the slot.
    outstanding: u8,
    /// Number of times the slot was lost.
    round: u8,
    /// Number of copies that wait to be sent.
    queued: u8,
    arrived: bool,
    /// Arrived half of the slot, if the slot was sent in halves.
    half_arrived: Option<Half>,
    /// Whether only the first half of the present copy has been sent so far.
    is_first_sent: bool,
}

/// Progress of the sending half towards the end of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendState {
    /// The application may write more bytes.
    Open,
    /// The application has written its last byte. The fields state whether the end record was sent,
    /// and whether it has arrived.
    Finished { end_sent: bool, end_arrived: bool },
    /// The application reset the stream, or the peer requested the reset.
    Reset { code: u32 },
}

/// Part of the window. If the slots from the oldest missing slot on fill more than this part, the
/// window is short.
const SHORT_WINDOW_USE: f64 = 0.7;
/// Maximum number of buffered bytes of a dialogue. In a dialogue, the application waits for a reply
/// to its last bytes. An open stream with more buffered bytes is no dialogue.
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

    /// Returns the number of bytes stored for sending or retransmission.
    pub(crate) fn buffered_bytes(&self) -> usize {
        match self.state {
            SendState::Reset { .. } => 0,
            _ => (self.bytes_written - self.bytes_arrived) as usize,
        }
    }

    /// Returns by how many bytes the slot records exceed the stored bytes. Records of very short
    /// slots take more memory than the slots themselves.
    pub(crate) fn excess_bytes(&self) -> usize {
        (self.slots.len() * size_of::<Slot>()).saturating_sub(self.buffered_bytes())
    }

    /// Returns the number of bytes that were written but never sent.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Appends bytes that the application has written.
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

    /// Drops everything that has not arrived. Returns `false` if the stream was already reset.
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

    /// Raises the credit: slots below index `credit` may be sent. Returns whether this unblocks any
    /// bytes. After the first call of [`set_paced_credit`](Self::set_paced_credit), this method has
    /// no effect.
    pub(crate) fn set_credit(&mut self, credit: u64) -> bool {
        let was_blocked = self.is_blocked();
        if !self.is_paced {
            self.credit = self.credit.max(credit);
        }
        was_blocked && !self.is_blocked()
    }

    /// Sets the credit that a receiver of version 2 grants: slots below index `credit` may be sent.
    ///
    /// The first call may lower the credit. Later calls can only raise it. A lower credit does not
    /// affect slots that have already been sent.
    pub(crate) fn set_paced_credit(&mut self, credit: u64) {
        if !self.is_paced || credit > self.credit {
            self.credit = credit;
            self.is_paced = true;
        }
    }

    /// Whether bytes wait to be sent only because the credit is used up.
    pub(crate) fn is_blocked(&self) -> bool {
        self.unsent_bytes > 0 && self.next_index() >= self.credit
    }

    /// Whether most of the window is used, counted from the oldest slot that has not been reported
    /// as arrived. If that slot arrives late, the stream becomes [blocked](Self::is_blocked). A
    /// stream without new bytes cannot become blocked.
    pub(crate) fn is_window_short(&self) -> bool {
        if self.unsent_bytes == 0 {
            return false;
        }
        let used = self.next_index() - self.base;
        let window = self.credit.saturating_sub(self.base);
        used as f64 > SHORT_WINDOW_USE * window as f64
    }

    /// Whether an application may be waiting for the bytes of this stream.
    ///
    /// This is possible if the stream is finished, if no bytes were written for a while, or if few
    /// bytes are unsent or unacknowledged.
    pub(crate) fn is_tail(&self) -> bool {
        self.state != SendState::Open || self.idle.is_long() || self.buffered_bytes() <= TAIL_BYTES
    }

    /// Whether a new slot can be sent now.
    pub(crate) fn has_new(&self) -> bool {
        self.unsent_bytes > 0 && self.next_index() < self.credit
    }

    /// Returns the number of bytes that fit into the unused credit.
    pub(crate) fn credit_bytes(&self) -> usize {
        let slots = self.credit.saturating_sub(self.next_index()) as usize;
        slots.saturating_mul(SLOT_SIZE)
    }

    /// Returns the number of bytes that may be sent for the first time now.
    pub(crate) fn new_bytes(&self) -> usize {
        self.unsent_bytes.min(self.credit_bytes())
    }

    /// Whether the end record must be sent now. It is due after all bytes of the stream have been
    /// sent once.
    pub(crate) fn end_is_due(&self) -> bool {
        matches!(
            self.state,
            SendState::Finished {
                end_sent: false,
                ..
            }
        ) && self.unsent_bytes == 0
    }

    /// Returns the fields of the end record: number of slots, number of bytes, and hash.
    pub(crate) fn end(&self) -> (u64, u64, u64) {
        (self.next_index(), self.bytes_written, self.hash.digest())
    }

    pub(crate) fn mark_end_sent(&mut self, sent: bool) {
        if let SendState::Finished { end_sent, .. } = &mut self.state {
            *end_sent = sent;
        }
    }

    /// Whether another copy of the end record may be sent. At most `copies_max` copies are
    /// permitted. If the result is `true`, the copy counts as sent.
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

    /// Creates the next new slot of at most `len_max` bytes, and appends its bytes to `out`.
    /// Returns the index of the slot.
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

    /// Returns whether the peer has acknowledged all sent slots, and the end record if it was sent.
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

    /// Returns the length of slot `index` in bytes, or `None` if the slot has arrived.
    pub(crate) fn missing_len(&self, index: u64) -> Option<usize> {
        self.slot(index)
            .filter(|slot| !slot.arrived)
            .map(|slot| usize::from(slot.len))
    }

    /// Appends the bytes of slot `index` to `out` for a retransmission, and counts one more packet
    /// in flight.
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

    /// Returns the half of slot `index` to send next, and whether this half completes a copy of the
    /// slot. Slots that do not fit into one packet are sent in halves.
    ///
    /// A copy consists of the first half and then the second half, or of the missing half alone.
    pub(crate) fn next_half(&self, index: u64) -> (Half, bool) {
        let slot = self.slot(index);
        match slot.and_then(|slot| slot.half_arrived) {
            Some(Half::First) => (Half::Second, true),
            Some(Half::Second) => (Half::First, true),
            None if slot.is_some_and(|slot| slot.is_first_sent) => (Half::Second, true),
            None => (Half::First, false),
        }
    }

    /// Appends the [next half](Self::next_half) of slot `index` to `out`. The slot must not have
    /// arrived.
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

    /// Handles the arrival of a packet that contained a half of slot `index`. Returns the number of
    /// freed buffer bytes, and whether the other half is neither in flight nor queued.
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

    /// Handles the loss of a packet that contained a half of slot `index`. Returns the
    /// retransmission round that the slot now needs, counted from 1.
    ///
    /// Returns `None` if that half has arrived, or if a copy of the slot already waits to be sent.
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

    /// Handles the arrival of a packet that contained slot `index`. Returns the number of freed
    /// buffer bytes.
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

    /// Handles the loss of a packet that contained slot `index`. Returns the retransmission round
    /// that the slot now needs, counted from 1.
    ///
    /// Returns `None` if the slot has arrived, or if another copy of the slot is in flight or
    /// queued.
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

    /// Starts a new pass over the slots that may be repeated, beginning with the newest slot.
    pub(crate) fn restart_repeats(&mut self) {
        self.repeat_below = self.next_index();
        self.idle.on_pass(self.bytes_written);
    }

    /// Returns the next slot to repeat in this pass while the path is idle, and the length of the
    /// slot.
    ///
    /// The slot has not arrived. At least one packet in flight carries the slot, but fewer than
    /// `copies_max` packets do. The method returns the same slot until
    /// [`take_again`](Self::take_again) sends it.
    ///
    /// Passes go from the newest slot to the oldest. A pass in sending order would advance as fast
    /// as the reports arrive, and would repeat each slot just before its acknowledgement.
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

    /// Appends `len` bytes that start at position `from` to `out`. Returns the position after these
    /// bytes.
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

    /// Returns the position `at`, or the start of the next segment if `at` is the end of a segment.
    ///
    /// Callers use it after a write, or when all bytes of the segment have arrived. At other times
    /// the last segment may still grow.
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
