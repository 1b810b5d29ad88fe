//! Detection of arriving packets that have overtaken others: hardly any of the packets sent a while
//! before have arrived.
//!
//! The input is the numbers of arriving packets, the arrived packets, and the round-trip time. The
//! delay of an overtaking packet is not the path's.

use std::time::Duration;

use super::{
    progress::{Cursor, Progress},
    replay_window::ReplayWindow,
};
use crate::time::Time;

/// Detector that compares a packet with its neighbours.
///
/// The company of a packet is the fraction of its neighbours, the packets sent before it, that has
/// arrived before it.
#[derive(Debug)]
pub(super) struct Overtaking {
    progress: Progress,
    /// Cursors of the two times between which the neighbours of a packet were sent.
    neighbours_from: Cursor,
    neighbours_to: Cursor,
    /// Usual company: the fraction of the [`NEIGHBOURS`] packets sent before a packet that has
    /// arrived before it, as a moving average.
    company: f64,
    /// Time since which only packets without company have arrived.
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
/// Part of the usual company below which a packet overtook, if the difference is no chance.
///
/// If one packet in five or more is faster than the others, the fast ones show the path, and the
/// others are late.
const ALONE: f64 = 1.0 / 5.0;
/// Least usual company.
///
/// While a queue overflows few packets have company. Overtaking packets, which no queue drops,
/// would soon have as much as usual. A fifth of 0.8 is 0.16, and less a standard deviation of 256
/// packets it is 0.137. That is two standard deviations above the company with one overtaking
/// packet in ten. It is below the company of one packet in five that shows the path.
const COMPANY_MIN: f64 = 0.8;
/// Least time for which overtaking packets may arrive alone. A round-trip time that was measured on
/// one of them is too short.
const ALONE_FOR_MIN: Duration = Duration::from_millis(100);
/// Weight of a packet in the usual company. A pause after which overtaking packets arrive alone
/// changes it little.
const COMPANY_GAIN: f64 = 1.0 / 1024.0;

impl Overtaking {
    pub(super) fn new(rtt: Duration) -> Self {
        let mut overtaking = Self {
            progress: Progress::new(),
            neighbours_from: Cursor::default(),
            neighbours_to: Cursor::default(),
            company: 1.0,
            alone_since: None,
            rtt,
            around: Duration::ZERO,
            lately: Duration::ZERO,
            step: Duration::ZERO,
        };
        overtaking.set_rtt(rtt);
        overtaking
    }

    pub(super) fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
        self.around = (rtt / AROUND).max(AROUND_MIN);
        self.lately = rtt / WHILE;
        self.step = self.around / STEPS_AROUND;
    }

    #[cfg(test)]
    pub(super) fn company(&self) -> f64 {
        self.company
    }

    /// Records that a packet below `next` has arrived, and none with a higher number before.
    pub(super) fn advance(&mut self, next: u64, now: Time) {
        self.progress.advance(next, now, self.step);
    }

    /// Whether far fewer of the packets sent a while before `number` have arrived than usual. No
    /// packet overtakes by a round trip.
    pub(super) fn has_overtaken(&mut self, number: u64, window: &ReplayWindow, now: Time) -> bool {
        let (low, high) = self.neighbours(number, now);
        if high - low < NEIGHBOURS_MIN {
            return false;
        }
        let sent = (high - low) as f64;
        let company = f64::from(window.arrived_among(low, high)) / sent;
        // The company of one packet in five that shows the path, less a standard deviation. Often
        // none of the few neighbours of such a packet has arrived.
        let of_the_path = ALONE * self.company.max(COMPANY_MIN);
        let is_alone = company < of_the_path - (of_the_path * (1.0 - of_the_path) / sent).sqrt();
        self.company += (company - self.company) * COMPANY_GAIN;
        if !is_alone {
            self.alone_since = None;
            return false;
        }
        now.since(*self.alone_since.get_or_insert(now)) < self.rtt.max(ALONE_FOR_MIN)
    }

    /// Returns the packets whose arrival decides whether `number` overtook, as the first and one
    /// past the last.
    fn neighbours(&mut self, number: u64, now: Time) -> (u64, u64) {
        let sent = self.progress.passed_at(number).unwrap_or(now);
        let lately = sent - self.lately;
        let progress = &self.progress;
        let lately_from = progress.next_at(lately, &mut self.neighbours_to);
        let lately_from = lately_from.min(number);
        let before_from = progress.next_at(lately - self.around, &mut self.neighbours_from);
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
