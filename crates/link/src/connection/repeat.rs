//! The choice of slots that a connection sends again.
//!
//! Slots that were given up go first. While the line would be idle, slots that are not known to have arrived are
//! repeated, in so many copies that hardly any will be missing.

use std::time::Duration;

use super::Connection;
use crate::{
    recovery::Contents,
    stream::{ChunkRef, SLOT_SIZE},
    time::Time,
};

/// The handshake flight of an initiator is repeated this often until confirmed.
pub(super) const FLIGHT_INTERVAL: Duration = Duration::from_millis(20);
/// Fewer slots than this are the first words of a connection. While the peer may lack the keys to read them,
/// they are repeated as often as the handshake is.
const FIRST_SLOTS: f64 = 8.0;
/// From this loss on idle capacity is used to repeat slots that are not acknowledged yet.
const REPEAT_LOSS_MIN: f64 = 0.000_05;
/// The loss that is assumed until the fate of [`LOSS_SAMPLES_MIN`] packets is known, so that short exchanges
/// are repeated from the start.
const LOSS_GUESS: f64 = 0.3;
const LOSS_SAMPLES_MIN: u64 = 16;
/// The tail of a transfer is repeated until no more than this many of its slots are expected to be missing.
const REPEAT_MISSING: f64 = 0.2;
/// Copies of one slot in flight at most: enough for 20,000 slots at 64 % loss.
const REPEAT_COPIES_MAX: f64 = 26.0;
/// The copies are this fraction (one over it) of a round trip apart, past short bursts.
const REPEAT_SPACING: u32 = 16;

/// What is left to repeat while the line is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RepeatsLeft {
    /// Nothing, until something is sent, reported or doubted.
    None,
    /// Nothing in the present pass; the next one may find something.
    NextPass,
    /// More of the present pass.
    Some,
}

impl Connection {
    /// The next slot to send again: a given-up one, or one to repeat because nothing else is there.
    pub(super) fn again(&mut self, now: Time, contents: &Contents) -> Option<(ChunkRef, usize)> {
        if let Some(again) = self.streams.next_again(now) {
            return Some(again);
        }
        if contents.first.is_some() || !self.repeats() || self.streams.next_new().is_some() {
            return None;
        }
        let restart = now.since(self.repeat_pass) >= self.repeat_interval()
            && (self.repeats_left != RepeatsLeft::Some
                || now.since(self.repeat_pass) >= self.path.rtt.smoothed());
        let copies = self.repeat_copies();
        if restart {
            self.repeat_pass = now;
            self.streams.repeat_ends(copies);
        }
        let repeat = self.streams.next_repeat(copies, restart);
        self.repeats_left = match repeat {
            Some(_) => RepeatsLeft::Some,
            None if restart => RepeatsLeft::None,
            None => self.repeats_left.min(RepeatsLeft::NextPass),
        };
        repeat
    }

    pub(super) fn repeat_interval(&self) -> Duration {
        let interval = self.path.rtt.smoothed() / REPEAT_SPACING;
        if self.unconfirmed.is_some() {
            interval.max(FLIGHT_INTERVAL)
        } else {
            interval
        }
    }

    /// How many copies of each slot make it likely that none is missing: n p^k = 0.2.
    pub(super) fn repeat_copies(&self) -> u8 {
        let slots = (self.streams.memory.send_buffered() / SLOT_SIZE as u64 + 1) as f64;
        let copies = (slots / REPEAT_MISSING).ln() / -self.expected_loss().clamp(1e-5, 0.9).ln();
        let copies = copies.ceil() + f64::from(self.doubts);
        // The peer may not have the keys yet: the first words go along with each repetition of the handshake.
        let is_first = self.unconfirmed.is_some() && slots < FIRST_SLOTS;
        if is_first {
            return REPEAT_COPIES_MAX as u8;
        }
        copies.clamp(1.0, REPEAT_COPIES_MAX) as u8
    }

    /// The fraction of packets lost; a guess while too few are known.
    fn expected_loss(&self) -> f64 {
        match self.sent.loss_samples() {
            0..LOSS_SAMPLES_MIN => self.sent.loss().max(LOSS_GUESS),
            _ => self.sent.loss(),
        }
    }

    /// Whether idle capacity is worth using to send again what may have been lost.
    pub(super) fn repeats(&self) -> bool {
        self.expected_loss() > REPEAT_LOSS_MIN && self.streams.memory.send_buffered() > 0
    }
}
