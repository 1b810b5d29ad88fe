//! The sender. It decides when to send a segment, and which segment to retransmit.

use std::time::Duration;

use crate::{
    law::{Delivery, Law},
    scoreboard::{Past, Scoreboard},
    segment::{Ack, Segment},
};

/// A TCP sender that always has data.
#[derive(Debug)]
pub struct Sender {
    law: Box<dyn Law>,
    /// Maximum number of segments in flight that the receiver's window or the sender's buffer
    /// permits.
    window_max: u64,
    board: Scoreboard,
    past: Past,
    rtt: Option<Smoothed>,
    recovery: Option<Recovery>,
    look_again: Option<Duration>,
    timeout_at: Option<Duration>,
    timeouts_in_row: u32,
    /// Earliest time at which the pacer permits the next segment.
    next_send: Duration,
    is_window_limited: bool,
    counts: Counts,
}

/// Counters of a sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of transmissions, including retransmissions.
    pub sent: u64,
    /// Number of loss recoveries.
    pub recoveries: u64,
    /// Number of retransmission timeouts.
    pub timeouts: u64,
}

#[derive(Debug, Clone, Copy)]
struct Smoothed {
    mean: Duration,
    deviation: Duration,
}

/// State of a loss recovery. Proportional rate reduction (RFC 9937) spreads the reduction of the
/// window over a round trip.
#[derive(Debug, Clone, Copy)]
struct Recovery {
    /// Segment number that ends the recovery. The recovery lasts until all segments below it are
    /// acknowledged.
    ends_at: u64,
    in_flight_before: u64,
    delivered: u64,
    sent: u64,
    allowance: u64,
}

impl Sender {
    /// Creates the sender of a new connection. `window_max` limits the number of segments in
    /// flight, in addition to the congestion control.
    pub fn new(law: Box<dyn Law>, window_max: Option<u64>) -> Self {
        Self {
            law,
            window_max: window_max.unwrap_or(u64::MAX),
            board: Scoreboard::default(),
            past: Past::default(),
            rtt: None,
            recovery: None,
            look_again: None,
            timeout_at: None,
            timeouts_in_row: 0,
            next_send: Duration::ZERO,
            is_window_limited: false,
            counts: Counts::default(),
        }
    }

    /// Returns the congestion control.
    pub fn law(&self) -> &dyn Law {
        &*self.law
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the next segment if the sender may send it at `now`.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Segment> {
        if self.next_send > now || !self.may_send() {
            return None;
        }
        if let Some(rate) = self.law.pacing_rate() {
            let gap = Duration::from_secs_f64(1.0 / rate.max(1.0));
            self.next_send = self.next_send.max(now.saturating_sub(PACER_CATCH_UP)) + gap;
        }
        if self.board.in_flight() == 0 {
            self.past.first_at = now;
            self.past.delivered_at = now;
        }
        if let Some(recovery) = &mut self.recovery {
            recovery.sent += 1;
            recovery.allowance = recovery.allowance.saturating_sub(1);
        }
        let number = self.board.transmit(self.past, now);
        self.counts.sent += 1;
        if self.timeout_at.is_none() {
            self.arm(now);
        }
        Some(Segment { number })
    }

    /// Processes an acknowledgement.
    pub fn handle_ack(&mut self, ack: &Ack, now: Duration) {
        let news = self.board.acknowledge(ack, now);
        let Some(newest) = news.newest else {
            return;
        };
        self.past.delivered += news.segments;
        self.past.delivered_at = now;
        self.past.first_at = newest.at;
        let rtt = now.saturating_sub(newest.at);
        let rtt = (!newest.is_repeated).then_some(rtt);
        if let Some(rtt) = rtt {
            self.rtt = Some(Smoothed::with(self.rtt, rtt));
        }
        self.timeouts_in_row = 0;
        self.arm(now);
        let since_ack = now.saturating_sub(newest.delivered_at);
        let since_sent = newest.at.saturating_sub(newest.first_at);
        let span_s = since_ack.max(since_sent).as_secs_f64();
        let delivered = self.past.delivered - newest.delivered;
        self.detect(news.segments, now);
        let is_recovering = self.recovery.is_some();
        self.law.on_delivery(&Delivery {
            now,
            segments: news.segments,
            delivered: self.past.delivered,
            delivered_before: newest.delivered,
            rtt,
            rate: (span_s > 0.0 && !newest.is_repeated).then(|| delivered as f64 / span_s),
            in_flight: self.board.in_flight(),
            is_recovering,
            is_window_limited: self.is_window_limited,
        });
        if let Some(recovery) = self.recovery
            && self.board.first >= recovery.ends_at
        {
            self.recovery = None;
            self.law.on_recovered();
        }
        self.note_limit();
    }

    /// Processes all deadlines up to `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.look_again.is_some_and(|at| at <= now) {
            self.detect(0, now);
        }
        if self.timeout_at.is_some_and(|at| at <= now) {
            self.counts.timeouts += 1;
            self.timeouts_in_row += 1;
            let in_flight = self.board.in_flight();
            self.board.lose_all();
            self.law.on_timeout(in_flight, now);
            self.recovery = None;
            self.look_again = None;
            self.next_send = now;
            self.arm(now);
        }
    }

    /// Returns the time at which [`Self::handle_timeout`] and [`Self::poll_transmit`] must be
    /// called if no acknowledgement arrives earlier.
    pub fn next_timeout(&mut self) -> Option<Duration> {
        let paced = self.may_send().then_some(self.next_send);
        [self.look_again, self.timeout_at, paced]
            .into_iter()
            .flatten()
            .min()
    }

    fn may_send(&mut self) -> bool {
        let in_flight = self.board.in_flight();
        let window = (self.law.window().max(1.0) as u64).min(self.window_max);
        match &self.recovery {
            Some(recovery) if self.law.pacing_rate().is_none() => {
                recovery.allowance > 0 && in_flight < self.window_max
            }
            _ => in_flight < window,
        }
    }

    /// Records whether the congestion window limited the sender at the last acknowledgement.
    fn note_limit(&mut self) {
        let window = self.law.window();
        self.is_window_limited =
            window <= self.window_max as f64 && self.board.in_flight() as f64 + 1.0 >= window / 2.0;
    }

    /// Detects losses after `delivered` segments have arrived.
    fn detect(&mut self, delivered: u64, now: Duration) {
        let in_flight_before = self.board.in_flight() + delivered;
        let (lost, look_again) = self.board.find_lost(self.recovery.is_some(), now);
        self.look_again = look_again;
        if lost > 0 && self.recovery.is_none() {
            self.counts.recoveries += 1;
            self.law.on_loss(in_flight_before, now);
            self.recovery = Some(Recovery {
                ends_at: self.board.next(),
                in_flight_before,
                delivered: 0,
                sent: 0,
                allowance: 0,
            });
        }
        let target = (self.law.window().max(1.0) as u64).min(self.window_max);
        if let Some(recovery) = &mut self.recovery {
            recovery.reduce(delivered, self.board.in_flight(), target);
        }
    }

    fn arm(&mut self, now: Duration) {
        let base = self.rtt.map_or(TIMEOUT_FIRST, |rtt| {
            (rtt.mean + 4 * rtt.deviation).max(rtt.mean + TIMEOUT_MIN)
        });
        let timeout = base * 2u32.pow(self.timeouts_in_row.min(BACKOFFS_MAX));
        self.timeout_at = Some(now + timeout.min(TIMEOUT_MAX));
    }
}

impl Smoothed {
    /// Updates the estimate of the round-trip time according to RFC 6298.
    fn with(before: Option<Self>, rtt: Duration) -> Self {
        let Some(before) = before else {
            return Self {
                mean: rtt,
                deviation: rtt / 2,
            };
        };
        Self {
            mean: (before.mean * 7 + rtt) / 8,
            deviation: (before.deviation * 3 + before.mean.abs_diff(rtt)) / 4,
        }
    }
}

impl Recovery {
    fn reduce(&mut self, delivered: u64, in_flight: u64, target: u64) {
        self.delivered += delivered;
        self.allowance = if in_flight > target {
            (self.delivered * target)
                .div_ceil(self.in_flight_before.max(1))
                .saturating_sub(self.sent)
        } else {
            // The limit is one segment more than was delivered, so that the sender catches up
            // without a burst.
            let limit = self.delivered.saturating_sub(self.sent).max(delivered) + 1;
            (target - in_flight).min(limit)
        };
        // The first retransmission leaves at once.
        if self.sent == 0 {
            self.allowance = self.allowance.max(1);
        }
    }
}

/// Retransmission timeouts of RFC 6298 section 2. The minimum is the value of Linux: 200 ms more
/// than the mean round-trip time. It is shorter than the RFC's minimum.
const TIMEOUT_FIRST: Duration = Duration::from_secs(1);
const TIMEOUT_MIN: Duration = Duration::from_millis(200);
const TIMEOUT_MAX: Duration = Duration::from_secs(120);
const BACKOFFS_MAX: u32 = 10;
/// Maximum timer delay that the pacer compensates.
const PACER_CATCH_UP: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cubic, Reno, testing::Line};

    #[test]
    fn a_window_bounds_the_rate() {
        let mut line = Line::new(100e6, Duration::from_millis(173), 1.0);
        line.add_bounded(Box::new(Cubic::new()), 90);
        line.run(Duration::from_secs(30));
        let rate = line.rates(Duration::from_secs(5))[0];
        assert!((rate / (90.0 / 0.173) - 1.0).abs() < 0.02, "{rate}");
        assert_eq!(line.drops(), 0);
    }

    #[test]
    fn a_burst_of_losses_takes_one_cut_and_no_timeout() {
        let mut line = Line::new(20e6, Duration::from_millis(50), 2.0);
        line.add(Box::new(Reno::new()));
        line.run(Duration::from_secs(20));
        let before = line.counts(0);
        line.drop_next(5);
        line.run(Duration::from_secs(21));
        let after = line.counts(0);
        assert_eq!(after.recoveries - before.recoveries, 1);
        assert_eq!(after.timeouts, before.timeouts);
    }

    #[test]
    fn a_blackout_ends_in_a_timeout_and_goes_on() {
        let mut line = Line::new(20e6, Duration::from_millis(50), 1.0);
        line.add(Box::new(Cubic::new()));
        line.run(Duration::from_secs(5));
        line.drop_until(Duration::from_secs(7));
        line.run(Duration::from_secs(40));
        assert!(line.counts(0).timeouts > 0);
        let rate = line.rates(Duration::from_secs(30))[0];
        assert!(rate > 0.9 * line.capacity(), "{rate}");
    }

    #[test]
    fn half_of_all_packets_lost_stops_nobody() {
        let mut line = Line::new(20e6, Duration::from_millis(50), 1.0);
        line.lose(0.3, 9);
        line.add(Box::new(Cubic::new()));
        line.run(Duration::from_secs(60));
        assert!(line.rates(Duration::from_secs(1))[0] > 5.0);
    }
}
