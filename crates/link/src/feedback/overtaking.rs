//! Whether an arriving packet has overtaken the others: of those sent a while before it hardly any have arrived.
//!
//! In: the numbers of arriving packets, what has arrived, and the round-trip time. The time that an overtaker takes is not
//! that of the path.

use std::time::Duration;

use super::{
    progress::{Cursor, Progress},
    replay_window::ReplayWindow,
};
use crate::time::Time;

/// The company in which packets arrive.
#[derive(Debug)]
pub(super) struct Overtaking {
    progress: Progress,
    /// Of the two times between which the neighbours of a packet were sent.
    neighbours_from: Cursor,
    neighbours_to: Cursor,
    /// Of the [`NEIGHBOURS`] packets sent before one, the fraction that has arrived before it, moving average.
    company: f64,
    /// Since when only packets without company have arrived.
    alone_since: Option<Time>,
    rtt: Duration,
    /// The time in which the neighbours of a packet were sent, and how long before it that time ended.
    around: Duration,
    lately: Duration,
    /// Steps in which it is remembered when which number was passed.
    step: Duration,
}

/// Packets sent before one that tell whether it overtook: so many that one in ten is seldom taken for one in five.
const NEIGHBOURS: u64 = 256;
/// Fewer tell nothing.
const NEIGHBOURS_MIN: u64 = 8;
/// The neighbours were sent this part of a round trip before: jitter lets a packet overtake those just before.
const WHILE: u32 = 16;
/// ... and in this part of a round trip: earlier ones would be those of before the others were overtaken.
const AROUND: u32 = 8;
/// ... but for so long at least: on a short path jitter alone makes so few arrive in time.
const AROUND_MIN: Duration = Duration::from_millis(20);
/// A burst after a pause has more packets than this. The one packet that may overtake in a first train, which has 32, then
/// is not looked for: it makes the train seem fast, and growth quick.
const BURST_MIN: u64 = 20;
/// When which number was passed is remembered in steps of this part of that time.
const STEPS_AROUND: u32 = 16;
/// A packet overtook the others if of its neighbours less than this part of what is usual has arrived, and the difference
/// is no chance. Where one packet in five or more is faster than the others, those are the path, and the others late.
const ALONE: f64 = 1.0 / 5.0;
/// The least that counts as usual. While a queue overflows few packets have company, and overtakers, which no queue
/// drops, would soon have as much as usual. A fifth of 0.8 is 0.16, less a standard deviation of 256 packets 0.137: two
/// standard deviations more than the company of one packet in ten that overtakes, and less than that of one in five
/// that are the path.
const COMPANY_MIN: f64 = 0.8;
/// A round-trip time that was measured on an overtaker is too short: they may come alone for so long at least.
const ALONE_FOR_MIN: Duration = Duration::from_millis(100);
/// Weight of a packet in what is usual: a pause after which overtakers come alone moves that by little.
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

    /// A packet below `next` has arrived, and none with a higher number before.
    pub(super) fn advance(&mut self, next: u64, now: Time) {
        self.progress.advance(next, now, self.step);
    }

    /// Whether far fewer of the packets sent a while before `number` have arrived than usual. None overtakes by a
    /// round trip.
    pub(super) fn has_overtaken(&mut self, number: u64, window: &ReplayWindow, now: Time) -> bool {
        let (low, high) = self.neighbours(number, now);
        if high - low < NEIGHBOURS_MIN {
            return false;
        }
        let sent = (high - low) as f64;
        let company = f64::from(window.arrived_among(low, high)) / sent;
        // The company of one packet in five, where those are the path, less a standard deviation: of few neighbours of
        // such a packet often none has arrived.
        let of_the_path = ALONE * self.company.max(COMPANY_MIN);
        let is_alone = company < of_the_path - (of_the_path * (1.0 - of_the_path) / sent).sqrt();
        self.company += (company - self.company) * COMPANY_GAIN;
        if !is_alone {
            self.alone_since = None;
            return false;
        }
        now.since(*self.alone_since.get_or_insert(now)) < self.rtt.max(ALONE_FOR_MIN)
    }

    /// The packets whose arrival tells whether `number` overtook, as the first and one past the last.
    fn neighbours(&mut self, number: u64, now: Time) -> (u64, u64) {
        let sent = self.progress.passed_at(number).unwrap_or(now);
        let lately = sent - self.lately;
        let progress = &self.progress;
        let lately_from = progress.next_at(lately, &mut self.neighbours_to);
        let lately_from = lately_from.min(number);
        let before_from = progress.next_at(lately - self.around, &mut self.neighbours_from);
        let sent_lately = number - lately_from;
        let sent_before = lately_from - before_from.min(lately_from);
        // Of the packets before a burst all may have arrived, which says nothing of the packets in the burst.
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
