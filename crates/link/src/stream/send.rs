//! The sending half of a stream: the bytes that the application wrote, the slots that they were cut into, and
//! which of the slots have arrived.
//!
//! In: bytes, credit, and the fate of slots. Out: slots to send, new ones and repeats. The table decides which
//! stream is next, and recovery which slots are lost.

use std::collections::VecDeque;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use super::{SLOT_SIZE, pieces::Pieces, quiet::Quiet};
use crate::wire::frame::Half;

/// The sending half of one stream.
///
/// Its memory is about twice the bytes that it holds at most, however small the writes were ([`Pieces`]), and a
/// record of 24 bytes for each slot that was sent and has not arrived. Where slots are so short that their records
/// take more than their bytes, the rest counts as [waiting](Self::excess_bytes).
pub(crate) struct SendHalf {
    /// Bytes that the application wrote and that have not arrived yet, oldest first; the first and the last
    /// segment may hold others.
    segments: Pieces,
    /// Number of the first segment; numbers are never reused.
    segment_base: u64,
    /// Where the next new slot starts: never the end of a segment that another one follows.
    cursor: Cursor,
    unsent_bytes: usize,
    slots: VecDeque<Slot>,
    /// Index of the first slot in `slots`; all below have arrived.
    base: u64,
    /// Slots below this index may be sent.
    credit: u64,
    /// The receiver has granted slots by PACED_CREDIT, which alone counts from then on.
    is_paced: bool,
    bytes_written: u64,
    bytes_arrived: u64,
    hash: Xxh3,
    state: SendState,
    /// Slots below this one are still to be repeated in this pass.
    repeat_below: u64,
    quiet: Quiet,
    /// Copies of the end that were sent because the line was idle.
    end_copies: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cursor {
    segment: u64,
    offset: usize,
}

/// One slot that has been sent.
#[derive(Debug, Clone, Copy)]
struct Slot {
    start: Cursor,
    len: u16,
    /// Packets in flight that carry the slot.
    outstanding: u8,
    /// How often the slot was given up.
    round: u8,
    /// Copies that wait to be sent.
    queued: u8,
    arrived: bool,
    /// The half of it that has arrived, if it was sent in halves.
    half_arrived: Option<Half>,
    /// The first half of the present copy has been sent, and the second has not.
    is_first_sent: bool,
}

/// How far the end of a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendState {
    /// More may be written.
    Open,
    /// The application has finished; the end must still arrive.
    Finished { end_sent: bool, end_arrived: bool },
    /// Abandoned by the application or at the peer's request.
    Reset { code: u32 },
}

/// An open stream with no more than this on its way may be a dialogue.
const TAIL_BYTES: usize = 64 * 1024;

impl SendHalf {
    pub(crate) fn new(credit: u64) -> Self {
        Self {
            segments: Pieces::default(),
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
            quiet: Quiet::default(),
            end_copies: 0,
        }
    }

    pub(crate) fn state(&self) -> SendState {
        self.state
    }

    /// Bytes held for sending or sending again.
    pub(crate) fn buffered_bytes(&self) -> usize {
        match self.state {
            SendState::Reset { .. } => 0,
            _ => (self.bytes_written - self.bytes_arrived) as usize,
        }
    }

    /// Memory that the records of slots take beyond the bytes held: slots of few bytes take more for their record
    /// than for themselves.
    pub(crate) fn excess_bytes(&self) -> usize {
        (self.slots.len() * size_of::<Slot>()).saturating_sub(self.buffered_bytes())
    }

    /// Bytes written and not yet sent for the first time.
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

    /// Raises the number of slots that may be sent. Returns whether that unblocks anything.
    pub(crate) fn set_credit(&mut self, credit: u64) -> bool {
        let was_blocked = self.is_blocked();
        if !self.is_paced {
            self.credit = self.credit.max(credit);
        }
        was_blocked && !self.is_blocked()
    }

    /// Sets the number of slots that may be sent, as a receiver of version 2 grants them. The first
    /// call may lower the number, later ones only raise it. Slots that were sent stay sent.
    pub(crate) fn set_paced_credit(&mut self, credit: u64) {
        if !self.is_paced || credit > self.credit {
            self.credit = credit;
            self.is_paced = true;
        }
    }

    /// Whether there are bytes that only the lack of credit holds back.
    pub(crate) fn is_blocked(&self) -> bool {
        self.unsent_bytes > 0 && self.next_index() >= self.credit
    }

    /// Whether the application has finished, or has written nothing for a while, or so few bytes are on their way that
    /// somebody may wait for them.
    pub(crate) fn is_tail(&self) -> bool {
        self.state != SendState::Open || self.quiet.is_long() || self.buffered_bytes() <= TAIL_BYTES
    }

    /// Whether a new slot can be sent now.
    pub(crate) fn has_new(&self) -> bool {
        self.unsent_bytes > 0 && self.next_index() < self.credit
    }

    /// Bytes for which there is credit that has not been used.
    pub(crate) fn credit_bytes(&self) -> usize {
        let slots = self.credit.saturating_sub(self.next_index()) as usize;
        slots.saturating_mul(SLOT_SIZE)
    }

    /// Bytes that may be sent for the first time now.
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

    /// The fields of the end record: slots, bytes, hash.
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

    /// Index of the next new slot.
    pub(crate) fn next_index(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// Whether nothing that was sent, the end included, waits to be acknowledged.
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

    /// The length of slot `index` if it has not arrived.
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

    /// The half of slot `index` to send next, if the slot does not fit a packet, and whether that ends its copy: a copy
    /// is the first half and then the second, or the one that is missing.
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

    /// A packet with a half of slot `index` arrived. Returns how many bytes of buffer that freed, and whether the
    /// other half is neither on its way nor queued.
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

    /// A packet with a half of slot `index` was given up. Returns the round of repetition that the slot now needs,
    /// from 1; `None` if that half has arrived, or the slot waits to be sent.
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

    /// A packet with slot `index` arrived. Returns how many bytes of buffer that freed.
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
            // Without unsent bytes nothing is needed any more.
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

    /// A packet with slot `index` was given up. Returns the round of repetition that it now needs,
    /// from 1; `None` if it has arrived or another copy of it is on its way.
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

    /// Notes that `copies` copies of slot `index` wait to be sent.
    pub(crate) fn set_queued(&mut self, index: u64, copies: u32) {
        if let Some(slot) = self.slot_mut(index) {
            slot.queued = copies as u8;
        }
    }

    /// Notes that one copy of slot `index` no longer waits to be sent.
    pub(crate) fn unqueue(&mut self, index: u64) {
        if let Some(slot) = self.slot_mut(index) {
            slot.queued = slot.queued.saturating_sub(1);
        }
    }

    /// Begins a new pass of repeats at the newest slot.
    pub(crate) fn restart_repeats(&mut self) {
        self.repeat_below = self.next_index();
        self.quiet.on_pass(self.bytes_written);
    }

    /// The next slot of this pass worth repeating while the line is idle, with its length: not arrived, with fewer
    /// than `copies_max` packets in flight. It stays the next until it is [taken](Self::take_again).
    ///
    /// The newest goes first: a pass in the order of sending would be as fast as the reports, and
    /// repeat each slot just before the report of it comes.
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

    /// Appends `len` bytes from `from` on. Returns where they end.
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

    /// The same place; if it is the end of a segment, as the beginning of the next one. To be called when more has
    /// been written, or nothing is needed any more: the last segment may grow.
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
