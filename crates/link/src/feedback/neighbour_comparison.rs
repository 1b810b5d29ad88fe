//! Detection of packets that have overtaken other packets. If a packet has overtaken others, most
//! packets sent shortly before this packet have not arrived yet.
//!
//! The input is the numbers of arriving packets, the arrived packets, and the round-trip time. The
//! delay of an overtaking packet is not typical of the path.

use std::time::Duration;

use super::{
    highest_numbers::{HighestNumbers, SearchCursor},
    replay_window::ReplayWindow,
};
use crate::time::Time;

/// Detector that compares a packet with its neighbours.
///
/// The neighbours of a packet are the packets sent shortly before it. The detector computes the
/// fraction of neighbours that arrived before the packet.
#[derive(Debug)]
pub(super) struct NeighbourComparison {
    highest: HighestNumbers,
    /// Search positions for the start and the end of the time in which the neighbours of a packet
    /// were sent.
    neighbours_from: SearchCursor,
    neighbours_to: SearchCursor,
    /// Moving average of the fraction of neighbours that arrive before a packet.
    usual_arrived: f64,
    /// Start of the present period in which all arriving packets lack most of their neighbours.
    /// `None` outside such a period.
    alone_since: Option<Time>,
    rtt: Duration,
    /// Length of the time in which the neighbours of a packet were sent. `lately` is the time from
    /// the end of that period to the packet.
    around: Duration,
    lately: Duration,
    /// Approximate time between two stored steps of the highest packet number.
    step: Duration,
}

/// Maximum number of neighbours that are compared. If one packet in ten overtakes, a sample of this
/// size rarely suggests that one packet in five overtakes.
const NEIGHBOURS: u64 = 256;
/// Least number of neighbours for a comparison.
const NEIGHBOURS_MIN: u64 = 8;
/// Divisor of the round-trip time. The quotient is the time between the last neighbour and the
/// packet. Jitter alone lets a packet overtake the packets directly before it.
const WHILE: u32 = 16;
/// Divisor of the round-trip time. The quotient is the time in which the neighbours were sent.
/// Packets sent earlier were not overtaken.
const AROUND: u32 = 8;
/// Least length of the time in which the neighbours were sent. On a short path, a shorter time
/// would contain too few packets, and jitter would dominate.
const AROUND_MIN: Duration = Duration::from_millis(20);
/// Number of packets in a burst after a pause. In a longer burst, each packet is compared only with
/// packets of the same burst.
///
/// One packet that overtakes in the first train of 32 packets is therefore ignored. Such a packet
/// would make the train seem fast, and start-up would grow too fast.
const BURST_MIN: u64 = 20;
/// Number of stored steps within the time in which the neighbours were sent.
const STEPS_AROUND: u32 = 16;
/// Factor for the usual fraction of arrived neighbours. If a packet's fraction is below the
/// product, and chance does not explain the difference, the packet has overtaken others.
///
/// If at least one packet in five is faster than the others, the fast packets are typical of the
/// path. The other packets then count as late.
const ALONE: f64 = 1.0 / 5.0;
/// Least value of the usual fraction of arrived neighbours.
///
/// While a queue overflows, few neighbours of a packet arrive. Without this minimum, the moving
/// average would then fall. Overtaking packets would soon count as normal, since no queue drops
/// them.
///
/// A fifth of 0.8 is 0.16. The limit is this product minus one standard deviation: 0.137 for 256
/// packets. If one packet in ten overtakes, the fraction is two standard deviations below this
/// limit. If one packet in five is fast, the fraction is above the limit.
const USUAL_ARRIVED_MIN: f64 = 0.8;
/// Least duration of a period in which packets arrive without their neighbours. After this time,
/// such packets count as normal. A measured round-trip time may be too short, because it may come
/// from an overtaking packet.
const ALONE_FOR_MIN: Duration = Duration::from_millis(100);
/// Weight of one packet in the usual fraction. After a pause, overtaking packets arrive first. With
/// this weight, a pause changes the average only little.
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

    /// Records that a packet with a new highest number has arrived. `next` is the number plus one.
    pub(super) fn advance(&mut self, next: u64, now: Time) {
        self.highest.advance(next, now, self.step);
    }

    /// Whether the packet `number` has overtaken others: far fewer of its neighbours have arrived
    /// than usual.
    ///
    /// If only such packets arrive for longer than a round trip, they no longer count as
    /// overtaking.
    pub(super) fn has_overtaken(&mut self, number: u64, window: &ReplayWindow, now: Time) -> bool {
        let (low, high) = self.neighbours(number, now);
        if high - low < NEIGHBOURS_MIN {
            return false;
        }
        let sent = (high - low) as f64;
        let arrived = f64::from(window.arrived_among(low, high)) / sent;
        // If one packet in five is typical of the path, the fraction `of_the_path` of that packet's
        // neighbours has arrived. The limit is lower by a standard deviation, because often none of
        // the few neighbours has arrived.
        let of_the_path = ALONE * self.usual_arrived.max(USUAL_ARRIVED_MIN);
        let is_alone = arrived < of_the_path - (of_the_path * (1.0 - of_the_path) / sent).sqrt();
        self.usual_arrived += (arrived - self.usual_arrived) * USUAL_ARRIVED_GAIN;
        if !is_alone {
            self.alone_since = None;
            return false;
        }
        now.since(*self.alone_since.get_or_insert(now)) < self.rtt.max(ALONE_FOR_MIN)
    }

    /// Returns the neighbours of the packet `number`: the lowest packet number, and the highest
    /// packet number plus one.
    fn neighbours(&mut self, number: u64, now: Time) -> (u64, u64) {
        let sent = self.highest.passed_at(number).unwrap_or(now);
        let lately = sent - self.lately;
        let highest = &self.highest;
        let lately_from = highest.next_at(lately, &mut self.neighbours_to);
        let lately_from = lately_from.min(number);
        let before_from = highest.next_at(lately - self.around, &mut self.neighbours_from);
        let sent_lately = number - lately_from;
        let sent_before = lately_from - before_from.min(lately_from);
        // All packets before a burst may have arrived. Their arrival is no evidence about the
        // packets in the burst.
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
