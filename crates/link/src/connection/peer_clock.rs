//! Detection of jumps of the peer's clock or of the local clock. Receive times show these jumps.
//!
//! Input: pairs of a one-way time and a round-trip time. The one-way time is the receive time on
//! one clock minus the send time on the other clock. Output: whether a clock has jumped, and a
//! correction that makes receive times continuous.
//!
//! The difference of the two clocks is unknown, so every measured one-way delay contains the same
//! unknown error. A constant error is harmless. But if a clock jumped by an hour, congestion
//! control would measure a queueing delay of an hour.
//!
//! A one-way delay is between zero and the round-trip time. A change by more than the round-trip
//! time is therefore caused by a clock. The path may cause a smaller change, so the module does not
//! correct such a change.

use std::time::Duration;

use crate::time::Time;

/// Correction of the peer's receive times, and the last sample from which it is computed.
#[derive(Debug, Default)]
pub(crate) struct PeerClock {
    ahead_s: f64,
    last: Option<ClockSample>,
    /// Time of the last jump that was reported to the caller.
    told: Option<Time>,
}

#[derive(Debug, Clone, Copy)]
struct ClockSample {
    at: Time,
    forward_s: f64,
    rtt_s: f64,
}

/// Margin in seconds that is added to the round-trip time. Timers and schedulers may change a
/// one-way time by up to this margin.
const SLACK_S: f64 = 0.05;
/// Maximum clock drift that does not count as a jump, in seconds per second. An unsynchronised
/// clock drifts by about 0.0001, and this value permits ten times as much.
const DRIFT_MAX: f64 = 1e-3;
/// Minimum time between two reported jumps. Hosts are seldom suspended, and clocks are seldom set.
///
/// Losses before a reported jump are ignored. Because of the minimum time, a clock that jumps often
/// cannot hide many losses.
const JUMPS_APART: Duration = Duration::from_secs(60);

impl PeerClock {
    /// Adds the sample of one packet. `forward_s` is the receive time by the peer's clock minus the
    /// send time by the local clock. Returns `true` if a clock has jumped and no jump was reported
    /// recently.
    pub(crate) fn sample(&mut self, forward_s: f64, rtt: Duration, now: Time) -> bool {
        let rtt_s = rtt.as_secs_f64();
        let mut has_jumped = false;
        if let Some(last) = self.last {
            let change_s = forward_s - last.forward_s;
            let allowed_s =
                rtt_s.max(last.rtt_s) + SLACK_S + DRIFT_MAX * now.seconds_since(last.at);
            has_jumped = change_s.abs() > allowed_s;
            if has_jumped {
                // The round-trip time changes because of the path, so its change is not part of the
                // jump.
                self.ahead_s += change_s - (rtt_s - last.rtt_s);
            }
        }
        self.last = Some(ClockSample {
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

    /// Returns the seconds that must be subtracted from the peer's receive times to make these
    /// times continuous.
    pub(crate) fn ahead_s(&self) -> f64 {
        self.ahead_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// Adds a sample every 10 ms. `difference_s` returns the difference of the clocks, and
    /// `one_way_s` returns the one-way delay.
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
