//! Choice of the slots that a connection sends again.
//!
//! Lost slots go first. While the path would be idle, slots without a known arrival are repeated.
//! The number of copies makes it likely that hardly any slot is missing.

use std::time::Duration;

use super::Connection;
use crate::{
    recovery::PacketContents,
    stream::{ChunkRef, SLOT_SIZE},
    time::Time,
};

/// Interval at which the handshake flight of an initiator is repeated until it is confirmed.
pub(super) const FLIGHT_INTERVAL: Duration = Duration::from_millis(20);
/// Number of slots below which the slots belong to the start of a connection. While the peer may
/// lack the keys to read them, they are repeated as often as the handshake.
const FIRST_SLOTS: f64 = 8.0;
/// Least loss at which idle capacity is used to repeat slots that are not acknowledged.
const REPEAT_LOSS_MIN: f64 = 0.000_05;
/// Assumed loss until the fate of [`LOSS_SAMPLES_MIN`] packets is known, so that short exchanges
/// are repeated from the start.
const LOSS_GUESS: f64 = 0.3;
const LOSS_SAMPLES_MIN: u64 = 16;
/// Expected number of missing slots down to which the tail of a transfer is repeated.
const REPEAT_MISSING: f64 = 0.2;
/// Maximum number of copies of one slot in flight: enough for 20,000 slots at 64 % loss.
const REPEAT_COPIES_MAX: f64 = 26.0;
/// Divisor of the round-trip time that gives the distance of copies, longer than short bursts.
const REPEAT_SPACING: u32 = 16;
/// Pause between two passes, in which applications may write: new bytes go before any repetition.
const TURN: Duration = Duration::from_micros(1);

/// Repeater of slots in flight while the path is idle, in passes over all of them.
#[derive(Debug)]
pub(super) struct TailRepeater {
    /// Start of the present pass, and its detected end.
    began: Time,
    ended: Time,
    left: RepeatsLeft,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RepeatsLeft {
    /// No slots, until something is sent, reported or doubted.
    None,
    /// No slots in the present pass; the next one may find some.
    NextPass,
    /// More slots of the present pass.
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

    /// Records that something was sent or reported. The next pass may find slots.
    pub(super) fn look_again(&mut self) {
        self.left = self.left.max(RepeatsLeft::NextPass);
    }

    /// Starts the next pass now, since the peer is in doubt.
    pub(super) fn begin_anew(&mut self) {
        self.began = Time::default();
        self.look_again();
    }

    /// Returns the time of the next search for slots to repeat, where passes are `interval` apart.
    pub(super) fn due(&self, interval: Duration) -> Option<Time> {
        match self.left {
            RepeatsLeft::Some => Some(Time::default()),
            RepeatsLeft::NextPass => Some((self.began + interval).max(self.ended + TURN)),
            RepeatsLeft::None => None,
        }
    }

    /// Begins a pass if one is due, and returns whether one began. A pass that still finds slots
    /// continues for a round trip.
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

    /// Whether the present pass may find more.
    fn goes_on(&self) -> bool {
        self.left == RepeatsLeft::Some
    }

    /// Records whether a search found slots, in a pass that has or has not just begun.
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
    /// Returns the next slot to send again: a lost one, or one to repeat while the path is idle.
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

    /// Returns the number of copies of each slot that make it likely that none is missing: n p^k =
    /// 0.2.
    pub(super) fn repeat_copies(&self) -> u8 {
        let slots = (self.streams.memory.send_buffered() / SLOT_SIZE as u64 + 1) as f64;
        let copies = (slots / REPEAT_MISSING).ln() / -self.expected_loss().clamp(1e-5, 0.9).ln();
        let copies = copies.ceil() + f64::from(self.liveness.doubts());
        // The peer may not have the keys yet: the first slots accompany each repetition of the
        // handshake.
        let is_first = self.unconfirmed.is_some() && slots < FIRST_SLOTS;
        if is_first {
            return REPEAT_COPIES_MAX as u8;
        }
        copies.clamp(1.0, REPEAT_COPIES_MAX) as u8
    }

    /// Returns the fraction of packets lost. It is a guess while too few packets are known.
    fn expected_loss(&self) -> f64 {
        match self.sent.loss_samples() {
            0..LOSS_SAMPLES_MIN => self.sent.loss().max(LOSS_GUESS),
            _ => self.sent.loss(),
        }
    }

    /// Whether idle capacity is worth using to repeat slots that may have been lost.
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

    /// Searches once, and finds something or nothing. Returns whether a pass began.
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
