//! Detection of arriving packets that have overtaken others: hardly any of the packets sent a while
//! before have arrived.
//!
//! The input is the numbers of arriving packets, the arrived packets, and the round-trip time. The
//! delay of an overtaking packet is not the path's.

use std::time::Duration;

use super::{
    highest_numbers::{HighestNumbers, SearchCursor},
    replay_window::ReplayWindow,
};
use crate::time::Time;

/// Detector that compares a packet with its neighbours.
///
/// The neighbours of a packet are the packets sent shortly before it. The comparison counts the
/// fraction of them that has arrived before the packet.
#[derive(Debug)]
pub(super) struct NeighbourComparison {
    highest: HighestNumbers,
    /// Cursors of the two times between which the neighbours of a packet were sent.
    neighbours_from: SearchCursor,
    neighbours_to: SearchCursor,
    /// Usual fraction of the [`NEIGHBOURS`] packets sent before a packet that arrives before it, as
    /// a moving average.
    usual_arrived: f64,
    /// Time since which only packets whose neighbours are missing have arrived.
    alone_since: Option<Time>,
    rtt: Duration,
    /// Time in which the neighbours of a packet were sent, and the distance of its end from the
    /// packet.
    around: Duration,
    lately: Duration,
    /// Length of the steps in which passed numbers are stored.
    step: Duration,
}

/// Neighbours of a packet that decide whether it overtook. With this many, one in ten seldom looks
/// like one in five.
const NEIGHBOURS: u64 = 256;
/// Fewest neighbours that decide.
const NEIGHBOURS_MIN: u64 = 8;
/// Divisor of a round trip that gives the distance of the neighbours: jitter lets a packet overtake
/// the packets just before it.
const WHILE: u32 = 16;
/// Divisor of a round trip that gives the time in which the neighbours were sent. Earlier packets
/// would have been sent before the overtaken ones.
const AROUND: u32 = 8;
/// Least such time, since on a short path jitter alone makes few packets arrive in time.
const AROUND_MIN: Duration = Duration::from_millis(20);
/// Packets of a burst after a pause, at least. The one packet that may overtake in a first train of
/// 32 is therefore ignored: it makes the train seem fast, and growth quick.
const BURST_MIN: u64 = 20;
/// Steps of stored numbers within the time of the neighbours.
const STEPS_AROUND: u32 = 16;
/// Part of the usual fraction below which a packet overtook, if the difference is no chance.
///
/// If one packet in five or more is faster than the others, the fast ones show the path, and the
/// others are late.
const ALONE: f64 = 1.0 / 5.0;
/// Least usual fraction of arrived neighbours.
///
/// While a queue overflows few neighbours of a packet arrive. Overtaking packets, which no queue
/// drops, would soon have as many arrived neighbours as usual. A fifth of 0.8 is 0.16, and less a
/// standard deviation of 256 packets it is 0.137. That is two standard deviations above the
/// fraction with one overtaking packet in ten. It is below the fraction for one packet in five that
/// shows the path.
const USUAL_ARRIVED_MIN: f64 = 0.8;
/// Least time for which overtaking packets may arrive alone. A round-trip time that was measured on
/// one of them is too short.
const ALONE_FOR_MIN: Duration = Duration::from_millis(100);
/// Weight of a packet in the usual fraction. A pause after which overtaking packets arrive alone
/// changes it little.
const USUAL_ARRIVED_GAIN: f64 = 1.0 / 1024.0;

impl NeighbourComparison {
    pub(super) fn new(rtt: Duration) -> Self {
        let mut comparison = Self {
            highest: HighestNumbers::new(),
            neighbours_from: SearchCursor::default(),
            neighbours_to: SearchCursor::default(),
            usual_arrived: 1.0,
            alone_since: None,
            rtt,
            around: Duration::ZERO,
            lately: Duration::ZERO,
            step: Duration::ZERO,
        };
        comparison.set_rtt(rtt);
        comparison
    }

    pub(super) fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
        self.around = (rtt / AROUND).max(AROUND_MIN);
        self.lately = rtt / WHILE;
        self.step = self.around / STEPS_AROUND;
    }

    #[cfg(test)]
    pub(super) fn usual_arrived(&self) -> f64 {
        self.usual_arrived
    }

    /// Records that a packet below `next` has arrived, and none with a higher number before.
    pub(super) fn advance(&mut self, next: u64, now: Time) {
        self.highest.advance(next, now, self.step);
    }

    /// Whether far fewer of the packets sent a while before `number` have arrived than usual. No
    /// packet overtakes by a round trip.
    pub(super) fn has_overtaken(&mut self, number: u64, window: &ReplayWindow, now: Time) -> bool {
        let (low, high) = self.neighbours(number, now);
        if high - low < NEIGHBOURS_MIN {
            return false;
        }
        let sent = (high - low) as f64;
        let arrived = f64::from(window.arrived_among(low, high)) / sent;
        // The fraction for one packet in five that shows the path, less a standard deviation. Often
        // none of the few neighbours of such a packet has arrived.
        let of_the_path = ALONE * self.usual_arrived.max(USUAL_ARRIVED_MIN);
        let is_alone = arrived < of_the_path - (of_the_path * (1.0 - of_the_path) / sent).sqrt();
        self.usual_arrived += (arrived - self.usual_arrived) * USUAL_ARRIVED_GAIN;
        if !is_alone {
            self.alone_since = None;
            return false;
        }
        now.since(*self.alone_since.get_or_insert(now)) < self.rtt.max(ALONE_FOR_MIN)
    }

    /// Returns the packets whose arrival decides whether `number` overtook, as the first and one
    /// past the last.
    fn neighbours(&mut self, number: u64, now: Time) -> (u64, u64) {
        let sent = self.highest.passed_at(number).unwrap_or(now);
        let lately = sent - self.lately;
        let highest = &self.highest;
        let lately_from = highest.next_at(lately, &mut self.neighbours_to);
        let lately_from = lately_from.min(number);
        let before_from = highest.next_at(lately - self.around, &mut self.neighbours_from);
        let sent_lately = number - lately_from;
        let sent_before = lately_from - before_from.min(lately_from);
        // All packets before a burst may have arrived, which is no evidence about the packets in
        // the burst.
        let is_first = lately_from == 0;
        let in_burst = sent_lately > sent_before && (is_first || sent_lately > BURST_MIN);
        let (count, high) = if in_burst {
            (sent_lately, number)
        } else {
            (sent_before, lately_from)
        };
        let count = count.clamp(NEIGHBOURS_MIN, NEIGHBOURS);
        (high.saturating_sub(count), high)
    }
}
