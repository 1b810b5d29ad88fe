//! Selection of the slots that a connection sends again.
//!
//! Lost slots are sent first. While the path would otherwise be idle, slots in flight are repeated
//! too. The number of copies is chosen so that probably every slot arrives without a further
//! retransmission.

use std::time::Duration;

use super::Connection;
use crate::{
    recovery::PacketContents,
    stream::{ChunkRef, SLOT_SIZE},
    time::Time,
};

/// Interval at which an initiator repeats its last handshake flight until the peer confirms it.
pub(super) const FLIGHT_INTERVAL: Duration = Duration::from_millis(20);
/// Number of buffered slots. A connection with fewer slots counts as just started. The peer may
/// still lack the keys for these slots. In that case, they are repeated as often as the handshake
/// flight.
const FIRST_SLOTS: f64 = 8.0;
/// Loss (fraction of packets) above which unacknowledged slots are repeated while the path is idle.
const REPEAT_LOSS_MIN: f64 = 0.000_05;
/// Assumed loss until the outcome of [`LOSS_SAMPLES_MIN`] packets is known. With this high value,
/// short exchanges repeat their slots before any loss is known.
const LOSS_GUESS: f64 = 0.3;
const LOSS_SAMPLES_MIN: u64 = 16;
/// Expected number of missing slots. At this number, the repetition of a transfer's tail stops.
const REPEAT_MISSING: f64 = 0.2;
/// Maximum number of copies of one slot in flight. It is enough for 20,000 slots at 64 % loss.
const REPEAT_COPIES_MAX: f64 = 26.0;
/// Divisor of the round-trip time. The quotient is the time between two passes over the slots to
/// repeat, and is longer than short bursts of losses.
const REPEAT_SPACING: u32 = 16;
/// Pause between two passes over the slots to repeat. In this pause, applications may write new
/// bytes, which are sent before any repeat.
const TURN: Duration = Duration::from_micros(1);

/// Scheduler for repeats of slots in flight while the path is idle. One pass visits all such slots.
#[derive(Debug)]
pub(super) struct TailRepeater {
    /// Start of the present pass over the slots.
    began: Time,
    /// Time at which a pass last found no more slots.
    ended: Time,
    left: RepeatsLeft,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RepeatsLeft {
    /// No slots to repeat are left. The next slots can appear when a packet is sent, a report
    /// arrives, or a packet from the peer is overdue.
    None,
    /// No slots are left in the present pass, but the next pass may find some.
    NextPass,
    /// The present pass may still find slots.
    Some,
}

impl TailRepeater {
    pub(super) fn new() -> Self {
        Self {
            began: Time::default(),
            ended: Time::default(),
            left: RepeatsLeft::Some,
        }
    }

    /// Records that a packet was sent or a report arrived, so that the next pass may find slots.
    pub(super) fn look_again(&mut self) {
        self.left = self.left.max(RepeatsLeft::NextPass);
    }

    /// Makes the next pass due now, because packets from the peer are overdue.
    pub(super) fn begin_anew(&mut self) {
        self.began = Time::default();
        self.look_again();
    }

    /// Returns the time at which the next search for unacknowledged slots starts. Searches start
    /// `interval` apart.
    pub(super) fn due(&self, interval: Duration) -> Option<Time> {
        match self.left {
            RepeatsLeft::Some => Some(Time::default()),
            RepeatsLeft::NextPass => Some((self.began + interval).max(self.ended + TURN)),
            RepeatsLeft::None => None,
        }
    }

    /// Begins a pass if one is due. Returns whether a pass began. While the present pass still
    /// finds slots, a new pass begins at the earliest one round trip after the start of the present
    /// pass.
    fn begin_pass(&mut self, interval: Duration, rtt: Duration, now: Time) -> bool {
        let age = now.since(self.began);
        let begins = match self.left {
            RepeatsLeft::None => false,
            RepeatsLeft::NextPass => age >= interval,
            RepeatsLeft::Some => age >= interval.max(rtt),
        };
        if begins {
            self.began = now;
        }
        begins
    }

    /// Whether the present pass may find more slots.
    fn goes_on(&self) -> bool {
        self.left == RepeatsLeft::Some
    }

    /// Records whether a search found slots. `has_begun` states whether the pass began with this
    /// search.
    fn on_looked(&mut self, has_found: bool, has_begun: bool, now: Time) {
        if !has_found {
            self.ended = now;
        }
        self.left = match (has_found, has_begun) {
            (true, _) => RepeatsLeft::Some,
            (false, true) => RepeatsLeft::None,
            (false, false) => RepeatsLeft::NextPass,
        };
    }
}

impl Connection {
    /// Returns the next slot to send again: a lost slot, or a slot to repeat while the path is
    /// idle.
    pub(super) fn again(
        &mut self,
        now: Time,
        contents: &PacketContents,
    ) -> Option<(ChunkRef, usize)> {
        if let Some(again) = self.streams.next_again(now) {
            return Some(again);
        }
        if contents.first.is_some() || !self.repeats() || self.streams.next_new().is_some() {
            return None;
        }
        let (interval, rtt) = (self.repeat_interval(), self.path.rtt.smoothed());
        let copies = self.repeat_copies();
        let begins = self.tail_repeater.begin_pass(interval, rtt, now);
        if begins {
            self.streams.repeat_ends(copies);
        } else if !self.tail_repeater.goes_on() {
            return None;
        }
        let repeat = self.streams.next_repeat(copies, begins);
        self.tail_repeater.on_looked(repeat.is_some(), begins, now);
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

    /// Returns k, the number of copies of each slot with which every slot probably arrives. For n
    /// slots and loss p, k solves n p^k = 0.2.
    pub(super) fn repeat_copies(&self) -> u8 {
        let slots = (self.streams.memory.send_buffered() / SLOT_SIZE as u64 + 1) as f64;
        let copies = (slots / REPEAT_MISSING).ln() / -self.expected_loss().clamp(1e-5, 0.9).ln();
        let copies = copies.ceil() + f64::from(self.liveness.doubts());
        // The peer may not have the keys yet, so the first slots are sent with each repetition of
        // the handshake.
        let is_first = self.unconfirmed.is_some() && slots < FIRST_SLOTS;
        if is_first {
            return REPEAT_COPIES_MAX as u8;
        }
        copies.clamp(1.0, REPEAT_COPIES_MAX) as u8
    }

    /// Returns the expected fraction of lost packets. It is at least [`LOSS_GUESS`] until enough
    /// packets have been measured.
    fn expected_loss(&self) -> f64 {
        match self.sent.loss_samples() {
            0..LOSS_SAMPLES_MIN => self.sent.loss().max(LOSS_GUESS),
            _ => self.sent.loss(),
        }
    }

    /// Whether the path loses enough packets to make repeats during idle time useful.
    pub(super) fn repeats(&self) -> bool {
        self.expected_loss() > REPEAT_LOSS_MIN && self.streams.memory.send_buffered() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(160);
    const INTERVAL: Duration = Duration::from_millis(10);
    const START: Time = Time(1_000_000_000);

    /// Runs one search. `has_found` states whether the search finds a slot. Returns whether a pass
    /// began.
    fn look(repeater: &mut TailRepeater, has_found: bool, now: Time) -> bool {
        let begins = repeater.begin_pass(INTERVAL, RTT, now);
        repeater.on_looked(has_found, begins, now);
        begins
    }

    #[test]
    fn a_pass_that_finds_nothing_is_the_last_until_something_is_sent() {
        let mut repeater = TailRepeater::new();
        assert!(look(&mut repeater, false, START));
        assert_eq!(repeater.due(INTERVAL), None);
        repeater.look_again();
        assert_eq!(repeater.due(INTERVAL), Some(START + INTERVAL));
    }

    #[test]
    fn a_pass_goes_on_while_it_finds_something_and_the_next_begins_later() {
        let mut repeater = TailRepeater::new();
        assert!(look(&mut repeater, true, START));
        let now = START + INTERVAL / 2;
        assert!(repeater.due(INTERVAL).is_some_and(|due| due <= now));
        assert!(!look(&mut repeater, true, now));
        assert!(!look(&mut repeater, false, now));
        assert_eq!(repeater.due(INTERVAL), Some(START + INTERVAL));
        assert!(look(&mut repeater, true, START + INTERVAL));
    }

    #[test]
    fn after_a_round_trip_a_pass_begins_anew_though_it_still_finds_something() {
        let mut repeater = TailRepeater::new();
        look(&mut repeater, true, START);
        assert!(!look(&mut repeater, true, START + RTT / 2));
        assert!(look(&mut repeater, true, START + RTT));
    }

    #[test]
    fn between_two_passes_applications_get_a_turn() {
        let mut repeater = TailRepeater::new();
        look(&mut repeater, true, START);
        let late = START + 2 * INTERVAL;
        assert!(!look(&mut repeater, false, late));
        assert_eq!(repeater.due(INTERVAL), Some(late + TURN));
    }

    #[test]
    fn a_doubt_begins_the_next_pass_at_once() {
        let mut repeater = TailRepeater::new();
        look(&mut repeater, false, START);
        repeater.begin_anew();
        let now = START + TURN;
        assert!(repeater.due(INTERVAL).is_some_and(|due| due <= now));
        assert!(look(&mut repeater, true, now));
    }
}
