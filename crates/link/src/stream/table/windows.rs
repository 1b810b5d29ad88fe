//! Adjustment of stream windows: each window follows the need of its reader as far as memory
//! permits.

use super::StreamTable;
use crate::stream::{credit_pool::WINDOW_FLOOR, recv::RecvHalf, recv::WindowShortage};

impl StreamTable {
    /// Doubles the window of a stream if it is too small. If memory is short, the window grows by
    /// less. Returns whether the window has changed.
    pub(crate) fn widen(
        &mut self,
        number: u32,
        shortage: impl Fn(&RecvHalf) -> Option<WindowShortage>,
    ) -> bool {
        self.note_free_memory(number);
        let Some(stream) = self.get(number) else {
            return false;
        };
        let window = stream.recv.window();
        let (Some(share), Some(shortage)) = (stream.share, shortage(&stream.recv)) else {
            return false;
        };
        let more = window.min(self.memory.room_to_grow());
        let wider = (window + more).min(self.memory.window_max(share, window, shortage));
        if wider < window + (window / WORTH_TELLING).max(1) {
            return false;
        }
        self.refit(number, wider);
        true
    }

    /// Narrows the window of a stream while memory is short and the window is larger than its
    /// reader needs. Credit that was already granted remains valid. The window therefore shrinks
    /// only as the reader reads.
    pub(crate) fn narrow(&mut self, number: u32) {
        self.note_free_memory(number);
        let Some(stream) = self.get(number) else {
            return;
        };
        let Some(share) = stream.share else {
            return;
        };
        let window = stream.recv.window();
        let (needed, to_end) = (stream.recv.needed_window(), stream.recv.slots_to_end());
        let promised = stream.recv.promised();
        let kept = match (needed, to_end) {
            (_, Some(to_end)) => to_end,
            (None, None) => return,
            (Some(needed), None) => {
                let by_peer = self.is_by_peer(number);
                let free = self.memory.free_part(by_peer, share, window);
                if free >= 1.0 {
                    // Other streams have only their least windows.
                    return;
                }
                needed.max(self.memory.window_without_need(free))
            }
        };
        let kept = kept.max(promised).max(WINDOW_FLOOR);
        if kept + (window / WORTH_TAKING).max(1) <= window {
            self.refit(number, kept);
        }
    }

    /// Sets the window of a stream, and frees the memory that the stream no longer needs.
    fn refit(&mut self, number: u32, window: u64) {
        let by_peer = self.is_by_peer(number);
        let Some(stream) = self.get(number) else {
            return;
        };
        let before = stream.recv.window();
        stream.recv.set_window(window);
        let Some(mut share) = stream.share else {
            return;
        };
        self.memory.refit(by_peer, &mut share, before, window);
        if let Some(stream) = self.get(number) {
            stream.share = Some(share);
        }
        if window < before {
            self.raise_limit();
            self.announce_credit();
        }
    }

    /// Stores the free fraction of memory in the receiving half of a stream.
    fn note_free_memory(&mut self, number: u32) {
        let by_peer = self.is_by_peer(number);
        let Some(stream) = self.get(number) else {
            return;
        };
        if let Some(share) = stream.share {
            let window = stream.recv.window();
            let free = self.memory.free_part(by_peer, share, window);
            if let Some(stream) = self.get(number) {
                stream.recv.set_free_memory(free);
            }
        }
    }
}

/// Divisor of a window. The quotient is the least step by which the window widens.
const WORTH_TELLING: u64 = 64;
/// Divisor of a window. The quotient is the least step by which the window narrows.
const WORTH_TAKING: u64 = 16;

#[cfg(test)]
mod tests;
