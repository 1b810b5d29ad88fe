//! The peer's clock, as far as its receive times tell: notices that it has jumped, or ours has.
//!
//! How long a packet took one way is only known up to the difference of two clocks. That may be anything as
//! long as it stays the same; when it changes by an hour, congestion control would see a queue of an hour.
//! A way cannot take less than nothing nor longer than the round trip, so a change beyond the round trip is
//! the clocks'. Smaller ones pass.

use std::time::Duration;

use crate::time::Time;

/// How far receive times are to be put back.
#[derive(Debug, Default)]
pub(crate) struct PeerClock {
    ahead_s: f64,
    last: Option<Sample>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Time,
    forward_s: f64,
    rtt_s: f64,
}

/// Beside the round trip: what timers and schedulers add.
const SLACK_S: f64 = 0.05;
/// Clocks that nobody disciplines are wrong by a ten-thousandth; ten times that is no jump.
const DRIFT_MAX: f64 = 1e-3;

impl PeerClock {
    /// A packet took `forward_s` by the difference of both clocks, and `rtt` both ways. Returns whether a
    /// clock has jumped.
    pub(crate) fn sample(&mut self, forward_s: f64, rtt: Duration, now: Time) -> bool {
        let rtt_s = rtt.as_secs_f64();
        let mut has_jumped = false;
        if let Some(last) = self.last {
            let change_s = forward_s - last.forward_s;
            let allowed_s =
                rtt_s.max(last.rtt_s) + SLACK_S + DRIFT_MAX * now.seconds_since(last.at);
            has_jumped = change_s.abs() > allowed_s;
            if has_jumped {
                // The way itself has changed by no more than the round trip has, it seems.
                self.ahead_s += change_s - (rtt_s - last.rtt_s);
            }
        }
        self.last = Some(Sample {
            at: now,
            forward_s,
            rtt_s,
        });
        has_jumped
    }

    /// How much of the peer's receive times is to be taken off, so that they go on from where they were.
    pub(crate) fn ahead_s(&self) -> f64 {
        self.ahead_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// Samples each 10 ms; the clocks differ by what `difference_s` says.
    fn run(difference_s: impl Fn(u64) -> f64, one_way_s: impl Fn(u64) -> f64) -> PeerClock {
        let mut clock = PeerClock::default();
        for number in 0..1000 {
            let way_s = one_way_s(number);
            let rtt = RTT / 2 + Duration::from_secs_f64(way_s);
            let now = Time(number * 10_000_000);
            clock.sample(difference_s(number) + way_s, rtt, now);
        }
        clock
    }

    #[test]
    fn a_jump_beyond_the_round_trip_is_taken_off() {
        for jump_s in [3600.0, -3600.0, 1.0, -1.0] {
            let jumps = |number| 77.0 + if number < 500 { 0.0 } else { jump_s };
            let clock = run(jumps, |_| 0.05);
            assert!((clock.ahead_s() - jump_s).abs() < 1e-9, "{jump_s}");
        }
    }

    #[test]
    fn queues_jitter_and_drift_are_no_jumps() {
        let queue = |number| 0.05 + (number % 300) as f64 * 0.01;
        assert_eq!(run(|_| -5.0, queue).ahead_s(), 0.0);
        let jitter = |number| if number % 7 == 0 { 0.25 } else { 0.05 };
        assert_eq!(run(|_| 5.0, jitter).ahead_s(), 0.0);
        let drift = |number| number as f64 * 0.01 * 1e-4;
        assert_eq!(run(drift, |_| 0.05).ahead_s(), 0.0);
    }

    #[test]
    fn a_jump_under_a_queue_keeps_the_queue_in_sight() {
        let jumps = |number| if number < 500 { 0.0 } else { 3600.0 };
        let fills = |number| 0.05 + if number < 500 { 0.0 } else { 0.02 };
        assert!((run(jumps, fills).ahead_s() - 3600.0).abs() < 1e-9);
    }
}
