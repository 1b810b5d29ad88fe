//! Mode that empties the queue built by growth.
//!
//! The input is the length of the queue. The output is a window slightly below the bandwidth-delay
//! product. The mode ends when the queue is empty and enough packets have shown the loss floor.
//!
//! If the queue does not become empty, the drain has failed. Other flows then fill the queue, or
//! the route has become longer.

use super::{
    super::path_model::{DRAIN_RATE_MIN, DRAINED, PathModel, ROUND_MIN_S},
    transition::{ApparentQueue, DrainSeries, Transition},
};
use crate::congestion::knee::Mechanism;

#[derive(Debug)]
pub(in super::super) struct DrainMode {
    /// Capacity of the path in bytes per second. Lost packets count as passed.
    capacity: f64,
    /// Drains of the same queue before this drain.
    pub(super) series: DrainSeries,
    cut_s: f64,
    /// Longest queueing delay since the drain began.
    queue_max_s: f64,
    /// Time at which the queue was first measured as empty. `None` before that.
    emptied_s: Option<f64>,
}

impl DrainMode {
    pub(super) fn begin(
        capacity: f64,
        series: DrainSeries,
        path: &mut PathModel,
        now_s: f64,
    ) -> Self {
        if series.failed == 0 {
            // Start-up may have sent far more than the path passes.
            let passed = capacity * path.rtt_s();
            path.competing_flows.on_drain(path.window_bytes.min(passed));
            path.capacity.known_bytes_per_s = capacity;
        }
        path.window_bytes = DRAINED * capacity * path.base_s();
        path.is_gentle = false;
        path.policer.forget();
        path.mark_cut(now_s);
        Self {
            capacity,
            series,
            cut_s: now_s,
            queue_max_s: path.queue.delay_s,
            emptied_s: None,
        }
    }

    pub(super) fn rate_bytes_per_s(&self, path: &PathModel) -> f64 {
        // The measured queue is a round trip old. A rate computed from this measurement would
        // become too low, because it would apply for another round trip. Only background traffic
        // uses such a low rate.
        let wanted = if !Mechanism::DrainAhead.acts(!path.competing_flows.comes_first()) {
            path.rate_bytes_per_s()
        } else {
            let queue = path.queue_ahead_s(self.capacity) / path.base_s();
            (DRAINED - STEEPNESS * queue) * self.capacity
        };
        wanted.max(Mechanism::DrainRateMin.value(self.rate_min(path), 0.01) * self.capacity)
    }

    /// Returns the least rate of a drain, as a fraction of the capacity.
    fn rate_min(&self, path: &PathModel) -> f64 {
        if path.is_short(self.capacity) {
            RATE_MIN_SHORT
        } else {
            DRAIN_RATE_MIN
        }
    }

    /// Restarts the timeout of the drain while the application is idle. Without packets, no
    /// measurement shows whether the queue becomes empty.
    pub(super) fn rest(&mut self, now_s: f64) {
        self.cut_s = now_s;
    }

    pub(super) fn step(
        &mut self,
        path: &mut PathModel,
        app_limited: bool,
        now_s: f64,
    ) -> Transition {
        self.queue_max_s = self.queue_max_s.max(path.queue.delay_s);
        if let Some(emptied_s) = self.emptied_s {
            if app_limited
                || !Mechanism::HoldEmpty
                    .acts(!(floor_has_been_seen(path) || hold_is_over(path, now_s - emptied_s)))
            {
                return self.end(path);
            }
        } else if path.queue_is_seen_empty() {
            self.emptied_s = Some(now_s);
            path.queue.has_emptied = true;
        } else if path.queue.is_fresh && self.is_overdue(path) {
            return self.fail(path);
        }
        Transition::Stay
    }

    /// Ends the drain after the queue became empty. No other flow fills the path, so the window
    /// grows from the capacity.
    fn end(&self, path: &mut PathModel) -> Transition {
        if Mechanism::LearnInDrain.acts(!path.floor.is_exceeded()) {
            path.floor.learn_expected();
        }
        if self.series.failed == 0 {
            path.competing_flows.on_emptied_queue();
        }
        path.window_bytes = self.capacity * path.base_s();
        Transition::Grow
    }

    /// Handles a drain that did not empty the queue. If a route test can give a result, the
    /// function requests the test.
    fn fail(&self, path: &PathModel) -> Transition {
        let failed = self.series.failed + 1;
        let series = DrainSeries {
            failed,
            ..self.series
        };
        // While other flows compete, the drains of background traffic fail. The time between route
        // tests therefore becomes longer.
        let is_due = !Mechanism::RareTests
            .acts(path.competing_flows.comes_first() && !failed.is_power_of_two());
        if Mechanism::RouteTest.acts(is_due && path.can_test_route(self.capacity)) {
            Transition::TestRoute(ApparentQueue {
                capacity: self.capacity,
                delay_s: self.queue_max_s,
                series,
            })
        } else {
            Transition::DrainFailed(series)
        }
    }

    /// Whether the queue should be empty by now if no other flow fills it.
    ///
    /// The lower rate takes effect after one round trip and the queueing delay. From that time on,
    /// the queue shrinks at the difference between the capacity and the sending rate.
    fn is_overdue(&self, path: &PathModel) -> bool {
        let base_s = path.base_s();
        let queue_s = self.queue_max_s;
        let ours = DRAINED * base_s / (base_s + queue_s);
        let spare = if path.is_short(self.capacity) {
            1.0 - RATE_MIN_SHORT
        } else {
            1.0 - ours
        };
        let timeout_s = TIMEOUT_ROUND_TRIPS * base_s.max(ROUND_MIN_S) + queue_s + queue_s / spare;
        // The timeout has passed only if a packet has crossed the path after the deadline. While
        // the application is idle, no packet crosses the path.
        path.queue.sent_s + base_s > self.cut_s + timeout_s
    }
}

/// Whether the packets that have crossed the path since the cut are numerous enough to show the
/// loss floor.
fn floor_has_been_seen(path: &PathModel) -> bool {
    let wanted = (FLOOR_PART * path.window_bytes / path.packet_bytes).min(FLOOR_PACKETS);
    path.floor.since_cut.packets >= wanted
}

/// Whether the maximum time with an empty queue has passed. `empty_s` is the time in seconds for
/// which the queue has been empty.
fn hold_is_over(path: &PathModel, empty_s: f64) -> bool {
    empty_s > HOLD_ROUNDS * path.round_s()
}

/// Returns the next mode after failed drains: competition with other flows, or a further drain.
///
/// A further drain uses a smaller window. The reduction depends on the ratio of the remaining
/// queueing delay to the base round-trip time.
pub(super) fn after_failure(series: DrainSeries, path: &mut PathModel) -> Transition {
    if path.competing_flows.on_failed_drain() {
        return Transition::Compete {
            window_bytes: Mechanism::WindowBefore.value(
                path.competing_flows
                    .window_before_bytes()
                    .max(path.window_bytes),
                path.window_bytes,
            ),
        };
    }
    let base_s = path.base_s();
    let part = base_s / (base_s + path.queue.delay_s);
    let target = path.window_bytes.min(path.capacity() * base_s)
        * part.max(Mechanism::DrainAgainMin.value(AGAIN_MIN, 0.05));
    Transition::Drain {
        capacity: (target / base_s).max(path.packet_bytes / base_s),
        series,
    }
}

/// Least pacing rate of a drain on a short path, as a fraction of the capacity. At a lower rate,
/// gaps between the few packets would leave the path idle.
const RATE_MIN_SHORT: f64 = 0.8;
/// Reduction of the drain's rate, as a fraction of the capacity. The value applies to an expected
/// queueing delay of one base round-trip time, and scales with the delay.
///
/// With this value, the last part of the queue drains within half a base round-trip time.
const STEEPNESS: f64 = 3.0;
/// Limits of the time for which a drain keeps the queue empty.
///
/// The drain ends once this fraction of a window, or [`FLOOR_PACKETS`] packets, have shown the loss
/// floor. The drain also ends after [`HOLD_ROUNDS`] rounds. A longer time measures the floor
/// better, but reduces the sending rate for longer.
const FLOOR_PART: f64 = 0.7;
const FLOOR_PACKETS: f64 = 200.0;
const HOLD_ROUNDS: f64 = 2.0;
/// Time within which a cut must take effect, in base round-trip times. The additional quarter of a
/// round trip covers the report and the measurement of the queue.
const TIMEOUT_ROUND_TRIPS: f64 = 1.25;
/// Least window of a repeated drain, as a fraction of the present window. A long queue consists
/// mostly of packets of other flows, and those flows do not slow down.
const AGAIN_MIN: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{
        Digest,
        knee::{competing_flows::KneePolicy, resolved_at},
    };

    /// Returns a drain that starts with 50 ms of queue. The path has a capacity of 15 MB/s and a
    /// round-trip time of 100 ms.
    fn draining() -> (DrainMode, PathModel) {
        let mut path = PathModel::new(KneePolicy::Fair, 2e6, None);
        path.pretend(0.1, 15e6, 0.0);
        path.queue.delay_s = 0.05;
        let drain = DrainMode::begin(15e6, DrainSeries::default(), &mut path, 1.0);
        (drain, path)
    }

    /// Records that packets sent at `sent_s` have measured a queueing delay of `delay_s`.
    fn see_queue(path: &mut PathModel, delay_s: f64, sent_s: f64) {
        path.queue.delay_s = delay_s;
        path.queue.sent_s = sent_s;
        path.queue.is_fresh = true;
    }

    #[test]
    fn the_window_to_compete_with_is_no_more_than_what_passed() {
        let mut path = PathModel::new(KneePolicy::Fair, 2e6, None);
        path.pretend(0.1, 15e6, 0.0);
        path.queue.delay_s = 0.05;
        for (sent, before) in [(1e6, 1e6), (9e6, 15e6 * 0.15)] {
            path.window_bytes = sent;
            DrainMode::begin(15e6, DrainSeries::default(), &mut path, 1.0);
            assert!((path.competing_flows.window_before_bytes() - before).abs() < 1.0);
        }
    }

    #[test]
    fn a_queue_that_empties_is_held_empty_until_the_floor_has_been_seen() {
        let (mut drain, mut path) = draining();
        assert_eq!(path.window_bytes, DRAINED * 15e6 * path.base_s());
        see_queue(&mut path, 0.0, 1.1);
        assert_eq!(drain.step(&mut path, false, 1.2), Transition::Stay);
        assert_eq!(drain.step(&mut path, false, 1.25), Transition::Stay);
        path.floor.update(&resolved_at(1.1, 200, |_| false), &[]);
        assert_eq!(drain.step(&mut path, false, 1.3), Transition::Grow);
        assert_eq!(path.window_bytes, 1.5e6);
    }

    #[test]
    fn a_sender_that_leaves_everything_to_others_tests_the_route_more_and_more_rarely() {
        let tests = |policy| {
            let is_tested = |failed: &u32| {
                let mut path = PathModel::new(policy, 2e6, None);
                path.pretend(0.1, 15e6, 0.0);
                path.queue.has_emptied = true;
                let series = DrainSeries {
                    failed: failed - 1,
                    tested: None,
                };
                let drain = DrainMode::begin(15e6, series, &mut path, 1.0);
                matches!(drain.fail(&path), Transition::TestRoute(_))
            };
            (1..=9).filter(is_tested).collect::<Vec<u32>>()
        };
        assert_eq!(tests(KneePolicy::Background), [1, 2, 4, 8]);
        assert_eq!(tests(KneePolicy::Fair), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn a_drain_ends_its_low_rate_when_the_queue_must_be_gone_and_not_when_that_is_heard() {
        let (drain, mut path) = draining();
        see_queue(&mut path, 0.05, 1.0);
        let mut rate_after = |bytes_sent: u64, now_s| {
            let digest = Digest {
                bytes_sent,
                ..Digest::default()
            };
            path.measure(&digest, 0.0, now_s);
            drain.rate_bytes_per_s(&path) / 15e6
        };
        // The bytes that the path passes in 0.1 s.
        let passed = 1.5e6;
        let expected = [
            (1.0, DRAIN_RATE_MIN),
            (0.55, 0.8),
            (0.5, DRAINED),
            (0.0, DRAINED),
        ];
        for (sent, part) in expected {
            let reached = rate_after((sent * passed) as u64, 1.1);
            assert!((reached - part).abs() < 1e-3, "{sent}: {reached}");
        }
    }

    #[test]
    fn a_drain_fails_only_when_our_own_queue_would_be_empty() {
        let (mut drain, mut path) = draining();
        see_queue(&mut path, 0.05, 1.2);
        assert_eq!(drain.step(&mut path, false, 1.3), Transition::Stay);
        see_queue(&mut path, 0.05, 1.3);
        let next = drain.step(&mut path, false, 1.4);
        let Transition::DrainFailed(series) = next else {
            panic!("no test can tell: {next:?}");
        };
        let Transition::Drain { capacity, series } = after_failure(series, &mut path) else {
            panic!("one failed drain shows no competing flows");
        };
        assert!(capacity < 15e6 && series.failed == 1, "{capacity}");
    }
}
