//! Detecting jumps of the peer's clock, or of ours, from receive times.
//!
//! In: pairs of a one-way time by both clocks and a round-trip time. Out: whether a clock has jumped, and the
//! correction that makes receive times continuous.
//!
//! A one-way delay is known only up to the difference of the two clocks. The difference does not matter while it
//! stays the same. When it changes by an hour, congestion control would see a queue of an hour. A one-way
//! delay lies between zero and the round-trip time, so a change by more than the round-trip time comes from a
//! clock. A smaller change may come from the path and is not corrected.

use std::time::Duration;

use crate::time::Time;

/// The correction of the peer's receive times, and what it was derived from.
#[derive(Debug, Default)]
pub(crate) struct PeerClock {
    ahead_s: f64,
    last: Option<Sample>,
    /// When a jump was told last.
    told: Option<Time>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Time,
    forward_s: f64,
    rtt_s: f64,
}

/// Change beyond the round-trip time that timers and schedulers may cause.
const SLACK_S: f64 = 0.05;
/// Drift that is not a jump, in seconds a second: a clock without synchronisation drifts by a ten-thousandth,
/// and this allows ten times as much.
const DRIFT_MAX: f64 = 1e-3;
/// Hosts are seldom suspended, and clocks seldom put. A peer whose clock jumps more often is told of no more often: what was lost
/// before a jump counts for nothing.
const JUMPS_APART: Duration = Duration::from_secs(60);

impl PeerClock {
    /// Takes in a packet that took `forward_s` one way, as the difference of both clocks has it, and `rtt` both
    /// ways. Returns whether a clock has jumped, and none of late.
    pub(crate) fn sample(&mut self, forward_s: f64, rtt: Duration, now: Time) -> bool {
        let rtt_s = rtt.as_secs_f64();
        let mut has_jumped = false;
        if let Some(last) = self.last {
            let change_s = forward_s - last.forward_s;
            let allowed_s =
                rtt_s.max(last.rtt_s) + SLACK_S + DRIFT_MAX * now.seconds_since(last.at);
            has_jumped = change_s.abs() > allowed_s;
            if has_jumped {
                // Of the change, as much as the round-trip time changed by is taken for the path's.
                self.ahead_s += change_s - (rtt_s - last.rtt_s);
            }
        }
        self.last = Some(Sample {
            at: now,
            forward_s,
            rtt_s,
        });
        let is_rare = |told: Time| now.since(told) >= JUMPS_APART;
        let is_told = has_jumped && self.told.is_none_or(is_rare);
        if is_told {
            self.told = Some(now);
        }
        is_told
    }

    /// Seconds to subtract from the peer's receive times, so that they are continuous.
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
