//! Pacer: spreads packets over time at the rate of the congestion controller.
//!
//! Input: the rate, the time, and the packets sent. Output: whether a packet may be sent now, and
//! the time of the next burst.

use std::time::Duration;

use crate::time::Time;

/// Budget in bytes, which grows with time at the set rate and shrinks with each packet sent.
#[derive(Debug)]
pub(crate) struct Pacer {
    rate_bytes_per_s: f64,
    budget_bytes: f64,
    updated: Time,
    /// Duration of a burst. The packets of a burst are sent together, so that one system call can
    /// send several packets.
    burst: Duration,
}

/// Divisor of the base round-trip time. The quotient is the duration of a burst, within the limits
/// [`BURST_MIN`] and [`BURST_MAX`].
///
/// Longer bursts need fewer wake-ups, but cause queueing at the bottleneck. With a divisor of 64,
/// the rates of links that share a bottleneck differ more. On the worst of 24 paths, Jain's
/// fairness index is then 0.93 instead of 0.99 (two and four links).
const BURSTS_PER_RTT: u32 = 128;
const BURST_MIN: Duration = Duration::from_micros(400);
const BURST_MAX: Duration = Duration::from_millis(2);
/// Maximum delay of a timer, in seconds. Budget that accumulates during such a delay may be used in
/// addition to the budget of a burst.
const CATCH_UP_S: f64 = 0.003;
/// Minimum value of the limit on the budget, in bytes: two packets.
const BUDGET_MIN_BYTES: f64 = 3000.0;

impl Pacer {
    /// Creates a pacer with an empty budget. The first burst is permitted once the budget has grown
    /// enough.
    pub(crate) fn new(rate_bytes_per_s: f64, now: Time) -> Self {
        Self {
            rate_bytes_per_s,
            budget_bytes: 0.0,
            updated: now,
            burst: BURST_MIN,
        }
    }

    /// Sets the duration of bursts for a path with the base round-trip time `base_rtt`.
    pub(crate) fn fit(&mut self, base_rtt: Duration) {
        self.burst = (base_rtt / BURSTS_PER_RTT).clamp(BURST_MIN, BURST_MAX);
    }

    /// Increases the budget by the bytes that the previous rate permits until `now`. Then sets the
    /// new rate.
    pub(crate) fn update(&mut self, now: Time, rate_bytes_per_s: f64) {
        let earned = self.rate_bytes_per_s * now.seconds_since(self.updated);
        let cap_s = self.burst.as_secs_f64() + CATCH_UP_S;
        let cap = (self.rate_bytes_per_s * cap_s).max(BUDGET_MIN_BYTES);
        if self.budget_bytes < cap {
            self.budget_bytes = (self.budget_bytes + earned).min(cap);
        }
        if rate_bytes_per_s < self.rate_bytes_per_s && self.budget_bytes > BUDGET_MIN_BYTES {
            // The budget shrinks with the rate, so that it covers the same time as before.
            let saved = self.budget_bytes * rate_bytes_per_s / self.rate_bytes_per_s;
            self.budget_bytes = saved.max(BUDGET_MIN_BYTES);
        }
        self.updated = self.updated.max(now);
        self.rate_bytes_per_s = rate_bytes_per_s;
    }

    /// Whether a packet may be sent now.
    pub(crate) fn may_send(&self) -> bool {
        self.budget_bytes > 0.0
    }

    pub(crate) fn on_sent(&mut self, bytes: usize) {
        self.budget_bytes -= bytes as f64;
    }

    /// Permits `bytes` bytes immediately, in addition to the budget. Packet trains need this
    /// permission.
    pub(crate) fn allow(&mut self, bytes: f64) {
        self.budget_bytes = self.budget_bytes.max(0.0) + bytes;
    }

    /// Permits at least `bytes` bytes immediately.
    pub(crate) fn allow_at_least(&mut self, bytes: f64) {
        self.budget_bytes = self.budget_bytes.max(bytes);
    }

    /// Returns the time of the next burst.
    pub(crate) fn next_send(&self) -> Time {
        if self.budget_bytes > 0.0 {
            return self.updated;
        }
        let wanted = (self.rate_bytes_per_s * self.burst.as_secs_f64()).max(1.0);
        self.updated
            .after_seconds((wanted - self.budget_bytes) / self.rate_bytes_per_s)
    }

    /// Returns the send time of a packet that must wait until `due`. If the budget is used up at
    /// `due`, the packet waits for the next burst.
    pub(crate) fn next_send_from(&self, due: Time) -> Time {
        let earned = self.rate_bytes_per_s * due.seconds_since(self.updated);
        if self.budget_bytes + earned > 0.0 {
            due
        } else {
            self.next_send().max(due)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_up_at_a_high_rate_does_not_outlast_it() {
        let mut pacer = Pacer::new(10e9, Time(1));
        pacer.update(Time(1_000_000_000), 10e9);
        pacer.update(Time(1_000_000_001), 1e6);
        let mut sent = 0;
        while pacer.may_send() {
            pacer.on_sent(1500);
            sent += 1500;
        }
        assert!(sent <= 6_000, "{sent}");
    }

    #[test]
    fn packets_leave_at_the_rate_in_bursts_that_fit_the_path() {
        for (base_rtt_ms, burst_ms) in [(0, 0.4), (20, 0.4), (128, 1.0), (200, 1.5625), (1000, 2.0)]
        {
            let rate = 125e6;
            let mut now = Time(1);
            let mut pacer = Pacer::new(rate, now);
            pacer.fit(Duration::from_millis(base_rtt_ms));
            let (mut sent, mut bursts) = (0u64, 0);
            while now.0 < 1_000_000_000 {
                pacer.update(now, rate);
                let before = sent;
                while pacer.may_send() {
                    pacer.on_sent(1500);
                    sent += 1500;
                }
                let burst_bytes = rate * burst_ms / 1e3;
                assert!(
                    (sent - before) as f64 <= burst_bytes + 2_000.0,
                    "{base_rtt_ms} ms"
                );
                bursts += 1;
                now = pacer.next_send();
            }
            assert!((sent as f64 / rate - 1.0).abs() < 0.003, "{sent}");
            let expected = 1e3 / burst_ms;
            assert!(
                (f64::from(bursts) / expected - 1.0).abs() < 0.05,
                "{bursts}"
            );
        }
    }

    #[test]
    fn a_new_pacer_knows_when_its_first_burst_goes() {
        let pacer = Pacer::new(1e6, Time(1));
        assert_eq!(pacer.next_send(), Time(1) + BURST_MIN);
        let stopped = Pacer::new(0.0, Time(1));
        assert_eq!(stopped.next_send(), Time::NEVER);
    }

    #[test]
    fn a_packet_that_waits_needs_no_full_burst() {
        let mut pacer = Pacer::new(1e6, Time(1));
        pacer.on_sent(3000);
        let (early, late) = (Time(2_000_000), Time(3_200_000));
        assert_eq!(pacer.next_send(), Time(3_400_001));
        assert_eq!(pacer.next_send_from(early), pacer.next_send());
        assert_eq!(pacer.next_send_from(late), late);
        pacer.update(late, 1e6);
        assert!(pacer.may_send());
    }

    #[test]
    fn an_idle_pacer_saves_up_a_burst_and_three_milliseconds_and_no_more() {
        let mut pacer = Pacer::new(1e6, Time(0));
        pacer.update(Time(10_000_000_000), 1e6);
        let mut sent = 0;
        while pacer.may_send() {
            pacer.on_sent(1000);
            sent += 1000;
        }
        assert_eq!(sent, 4000, "3500 and what was begun");
    }
}
