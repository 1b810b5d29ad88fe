//! Mode that grows the window until queueing delay appears.
//!
//! The input is rounds without a queue. The output is a window that grows by an increasing fraction
//! per round. The next mode is a drain, a route test or a cut for loss.

use super::{
    super::path_model::PathModel,
    transition::{ApparentQueue, DrainSeries, LossEvidence, Transition},
};
use crate::congestion::knee::Mechanism;

#[derive(Debug)]
pub(in super::super) struct GrowMode {
    /// Growth of the window in the present round, as a fraction of the window.
    gain: f64,
    /// Gain of the first round of growth.
    gain_start: f64,
    /// Number of completed rounds of growth.
    rounds: u32,
}

impl GrowMode {
    pub(super) fn begin(path: &mut PathModel, now_s: f64) -> Self {
        let packets = (path.window_bytes / path.packet_bytes).max(1.0);
        let mut gain_start = Mechanism::ConvergingStart.value(
            (GAIN_START / packets.sqrt()).max(GAIN_START_MIN),
            GAIN_START_MIN,
        );
        if Mechanism::GentleStart.acts(path.is_gentle || path.competing_flows.comes_first()) {
            gain_start *= GENTLE_START;
        }
        path.begin_round(now_s);
        Self {
            gain: gain_start,
            gain_start,
            rounds: 0,
        }
    }

    pub(super) fn grow(&self, path: &mut PathModel, bytes: f64) {
        let share = path.rtt_s() / path.round_s();
        path.window_bytes += self.gain * bytes * share;
    }

    pub(super) fn step(
        &mut self,
        path: &mut PathModel,
        app_limited: bool,
        now_s: f64,
    ) -> Transition {
        if path.queue_shows() {
            return meet_queue(path);
        }
        if path.floor.is_exceeded() || must_cut_again(path) {
            return Transition::CutForLoss(LossEvidence {
                is_from_growth: true,
                ..LossEvidence::PLAIN
            });
        }
        if path.round_is_over(now_s) {
            path.begin_round(now_s);
            if app_limited {
                self.begin_anew();
            } else {
                self.end_round(path);
            }
        }
        Transition::Stay
    }

    fn begin_anew(&mut self) {
        self.gain = self.gain_start;
        self.rounds = 0;
    }

    fn end_round(&mut self, path: &mut PathModel) {
        self.rounds += 1;
        if self.rounds == GENTLE_ROUNDS {
            path.policer.forget();
        }
        self.gain = self.next_gain(path).min(GAIN_MAX);
    }

    /// Returns the gain of the next round. The gain depends on the ratio of the window to the
    /// bandwidth-delay product of the last drain.
    fn next_gain(&self, path: &PathModel) -> f64 {
        let known = path.capacity.known_bytes_per_s * path.base_s();
        if Mechanism::GentleGrowth.acts(path.is_gentle && self.rounds < GENTLE_ROUNDS) {
            self.gain * GENTLE_GROWTH
        } else if Mechanism::FastReturn.acts(path.window_bytes < FAR_BELOW_KNOWN * known) {
            GAIN_FAR_BELOW
        } else if !Mechanism::FastBeyond.acts(path.window_bytes >= FAR_ABOVE_KNOWN * known) {
            // A round may build a queue of at most one threshold, since reports about the round
            // arrive one round later.
            let cap = (path.threshold_s() / path.base_s()).max(self.gain_start);
            let cap = Mechanism::GainCap.value(cap, GAIN_MAX.max(self.gain_start));
            (self.gain * GAIN_GROWTH).clamp(self.gain_start, cap)
        } else {
            // There is still no queue: the path passes more than before.
            self.gain * GAIN_GROWTH_ABOVE
        }
    }
}

/// Handles the appearance of a queue. This sender or other flows built the queue, or the route has
/// become longer.
fn meet_queue(path: &mut PathModel) -> Transition {
    path.queue.raise_threshold();
    let capacity = path.capacity();
    // An earlier train may have measured the path before a change of route.
    path.capacity.trains.forget_newest();
    if Mechanism::SuddenQueue.acts(path.can_test_route(capacity) && queue_is_sudden(path)) {
        Transition::TestRoute(ApparentQueue {
            capacity,
            delay_s: path.queue.delay_s,
            series: DrainSeries::default(),
        })
    } else {
        Transition::Drain {
            capacity,
            series: DrainSeries::default(),
        }
    }
}

/// Whether the queue is too long to come from growth.
fn queue_is_sudden(path: &PathModel) -> bool {
    let built_s = SUDDEN * path.base_s() + SUDDEN_THRESHOLDS * path.threshold_s();
    path.queue.delay_s > built_s
}

/// Whether losses continued soon after a cut for loss. The cut was then too small.
fn must_cut_again(path: &PathModel) -> bool {
    Mechanism::CutAgain.acts(path.is_gentle && path.floor.has_surplus(SURPLUS_AFTER_CUT))
}

/// Gain of the first round, to be divided by the square root of the window in packets.
///
/// If two senders share a path, the larger window grows by the smaller fraction. The shares of the
/// two senders therefore converge.
const GAIN_START: f64 = 0.5;
/// Least gain of the first round. Without this limit, windows of more than 4096 packets would need
/// minutes to grow.
const GAIN_START_MIN: f64 = 1.0 / 128.0;
/// Largest gain of a round. With a larger gain, one round could build a queue of more than half the
/// bandwidth-delay product before the first report about the round.
const GAIN_MAX: f64 = 0.5;
/// Factor by which the gain grows each round, while the window is near the bandwidth-delay product
/// of the last drain.
///
/// A queue appears after eight to ten rounds. The drain then takes one round at a rate that is 5 %
/// lower.
const GAIN_GROWTH: f64 = 1.5;
/// Factor by which the gain grows each round, while the window is far above the bandwidth-delay
/// product of the last drain. In about ten rounds, growth then finds a multiple of the old
/// capacity.
const GAIN_GROWTH_ABOVE: f64 = 2.0;
/// Fraction of the bandwidth-delay product of the last drain. A smaller window is far from building
/// a queue. Such a small window comes from a repeated drain or a cut for loss.
const FAR_BELOW_KNOWN: f64 = 0.85;
/// Gain of a round while the window is below [`FAR_BELOW_KNOWN`].
const GAIN_FAR_BELOW: f64 = 0.25;
/// Multiple of the bandwidth-delay product of the last drain. If a window above this multiple
/// builds no queue, the capacity has grown.
///
/// At the old capacity, such a window would have built a queue of a quarter of the bandwidth-delay
/// product.
const FAR_ABOVE_KNOWN: f64 = 1.25;

/// Factor of the first gain. The factor applies after a cut for loss, and to background traffic.
const GENTLE_START: f64 = 0.5;
/// Factor by which the gain grows each round after a cut for loss. The factor is small because a
/// policer may drop packets without any warning from a queue.
const GENTLE_GROWTH: f64 = 1.15;
/// Number of rounds of slow growth without a queue or losses. After these rounds no policer is
/// assumed any more. The gain has then grown by a factor of 29.
const GENTLE_ROUNDS: u32 = 25;
/// Number of losses in excess of the floor and the tolerance, soon after a cut for loss. More
/// losses show that the cut was too small.
const SURPLUS_AFTER_CUT: f64 = 16.0;

/// Least length of a sudden queue: this fraction of the base round-trip time, plus
/// `SUDDEN_THRESHOLDS` times the threshold.
///
/// Growth ends when the queue reaches the threshold, so growth cannot have built a longer queue.
const SUDDEN: f64 = 0.5;
const SUDDEN_THRESHOLDS: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::knee::competing_flows::KneePolicy;

    /// Returns a path of 100 ms with a window of 1000 packets. The stored capacity is `known` bytes
    /// per second.
    fn path(policy: KneePolicy, known: f64) -> PathModel {
        let mut path = PathModel::new(policy, 1.5e6, None);
        path.pretend(0.1, 15e6, 0.0);
        path.capacity.known_bytes_per_s = known;
        path
    }

    /// Returns the gain after `rounds` rounds without a queue or losses.
    fn gain_after(rounds: u32, path: &mut PathModel) -> f64 {
        let mut grow = GrowMode::begin(path, 0.0);
        for round in 1..=rounds {
            assert_eq!(grow.step(path, false, f64::from(round)), Transition::Stay);
        }
        grow.gain
    }

    #[test]
    fn the_gain_grows_the_faster_the_farther_the_window_is_from_what_the_path_passed() {
        let start = gain_after(0, &mut path(KneePolicy::Fair, 15e6));
        assert!((start - 0.5 / 1000.0_f64.sqrt()).abs() < 1e-9);
        let near = gain_after(1, &mut path(KneePolicy::Fair, 15e6));
        assert!((near / start - GAIN_GROWTH).abs() < 1e-9);
        let above = gain_after(1, &mut path(KneePolicy::Fair, 5e6));
        assert!((above / start - GAIN_GROWTH_ABOVE).abs() < 1e-9);
        assert_eq!(
            gain_after(1, &mut path(KneePolicy::Fair, 30e6)),
            GAIN_FAR_BELOW,
            "a drain that was repeated made it so small"
        );
    }

    #[test]
    fn a_round_builds_a_threshold_s_worth_of_queue_at_most() {
        let mut path = path(KneePolicy::Fair, 15e6);
        let gain = gain_after(20, &mut path);
        assert!((gain - path.threshold_s() / 0.1).abs() < 1e-9, "{gain}");
    }

    #[test]
    fn growth_is_gentle_after_a_cut_for_loss_and_where_others_come_first() {
        let usual = gain_after(0, &mut path(KneePolicy::Fair, 15e6));
        let background = gain_after(0, &mut path(KneePolicy::Background, 15e6));
        let mut cut = path(KneePolicy::Fair, 15e6);
        cut.is_gentle = true;
        assert_eq!(background, GENTLE_START * usual);
        assert!((gain_after(1, &mut cut) - GENTLE_GROWTH * background).abs() < 1e-9);
    }
}
