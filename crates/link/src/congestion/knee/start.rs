//! Start-up: growth up to eightfold a round trip, until a queue, a plateau or excess loss shows.

use super::{Knee, PACKET_GUESS, State};

/// Packets of the first train.
const FIRST_TRAIN_MIN: f64 = 32.0;
const FIRST_TRAIN_MAX: f64 = 128.0;
/// Packets of a train after the first.
const LATER_TRAIN_MIN: f64 = 16.0;
const LATER_TRAIN_MAX: f64 = 256.0;
/// A train should take this long at the bottleneck: well above the receiver's timer.
const TRAIN_TIME_S: f64 = 0.001_5;
/// What the first round loses at this fraction of what a train shows, or less, the path loses.
const FAR_BELOW: f64 = 1.0 / 8.0;
/// Otherwise a floor is learned only up to this loss: beyond, a crowd that starts together is taken for
/// a lossy path.
const FLOOR_MAX: f64 = 0.125;
/// Growth by so many bytes for each that is resolved: under pacing x-fold growth a round trip solves
/// ln x = gain / x.
const EIGHTFOLD: f64 = 16.6;
const DOUBLING: f64 = 1.386;

impl Knee {
    pub(super) fn step_start(&mut self, app_limited: bool, now_s: f64) {
        let State::Start {
            delivered_before,
            flat_rounds,
        } = self.state
        else {
            return;
        };
        if self.measure.queue_is_fresh && self.measure.queue_s > self.threshold_s() {
            let capacity = self.capacity();
            self.enter_drain(capacity, 0, now_s);
            return;
        }
        let train = self.measure.train.map_or(0.0, |train| train.rate);
        if self.window > 2.0 * self.first_window {
            self.losses.end_first_round(now_s);
        }
        if self.first_window / self.base_s() <= FAR_BELOW * train {
            self.losses.learn_first();
        }
        // While a train shows several times the present rate, losses cannot be our doing.
        let is_far_below = train > 4.0 * self.rate();
        let packets = self.losses.since_cut.packets;
        if !is_far_below
            && self.rounds_in_state >= 2
            && packets >= 32.0
            && self.losses.excess(0.10, 8.0)
        {
            self.cut_for_loss(now_s);
            return;
        }
        if let Some(length) = self.later_train()
            && now_s - self.train_asked_s >= self.rtt_s()
        {
            self.train_wanted = length;
            self.train_asked_s = now_s;
        }
        if now_s - self.round_began_s < self.round_s() {
            return;
        }
        self.rounds_in_state += 1;
        self.begin_round(now_s);
        let delivered = self.measure.delivered.unwrap_or(0.0);
        let is_flat = !app_limited && !is_far_below && delivered < 1.25 * delivered_before;
        let flat_rounds = if is_flat { flat_rounds + 1 } else { 0 };
        let is_empty = self.measure.queue_s <= self.threshold_s() / 2.0;
        let is_clean = self.losses.since_cut.rate() <= FLOOR_MAX && !self.losses.excess(0.02, 4.0);
        if is_empty && !is_flat && is_clean {
            self.losses.learn(200.0);
        }
        self.state = State::Start {
            delivered_before: delivered,
            flat_rounds,
        };
        if flat_rounds >= 3 || (flat_rounds >= 1 && self.losses.excess(0.05, 4.0)) {
            if self.losses.excess(0.05, 4.0) {
                self.cut_for_loss(now_s);
            } else {
                let capacity = self.capacity();
                self.enter_drain(capacity, 0, now_s);
            }
            return;
        }
    }

    /// Goes on at the rate that is remembered, or less if a train has shown less.
    pub(super) fn take_up_cached(&mut self, is_rtt_known: bool) {
        let Some(cached) = self.cached else { return };
        let train = match self.measure.train {
            Some(train) if train.is_lower_bound => f64::INFINITY,
            Some(train) => train.rate,
            None if self.rounds_in_state >= 2 => f64::INFINITY,
            None => return,
        };
        if is_rtt_known {
            self.cached = None;
            self.window = self.window.max(0.9 * train.min(cached) * self.base_s());
        }
    }

    /// Packets of a train that is worth sending: long enough to be measured, and at most a quarter of
    /// a round's; none once the rate is near what the last one showed.
    fn later_train(&self) -> Option<usize> {
        let Some(train) = self.measure.train else {
            return (self.rounds_in_state >= 2).then_some(LATER_TRAIN_MIN as usize);
        };
        let length =
            (train.rate * TRAIN_TIME_S / self.packet).clamp(LATER_TRAIN_MIN, LATER_TRAIN_MAX);
        let is_wanted = train.rate > 2.0 * self.rate() && self.window >= 4.0 * length * self.packet;
        is_wanted.then_some(length as usize)
    }

    /// Growth by the packets that a report resolved: eightfold a round trip up to nine tenths of what
    /// a train shows, and gently from there, faster the further the train proves wrong.
    pub(super) fn grow_start(&mut self, bytes: f64) {
        let base_s = self.base_s();
        let Some(train) = self.measure.train else {
            self.window += DOUBLING * bytes;
            return;
        };
        let target = 0.9 * train.rate * base_s;
        if train.is_lower_bound {
            let is_far_below = 8.0 * self.window < target;
            self.window += if is_far_below { EIGHTFOLD } else { DOUBLING } * bytes;
        } else if self.window < target {
            self.window = (self.window.max(0.5 * target) + EIGHTFOLD * bytes).min(target);
        } else {
            let beyond = self.window / target - 1.0;
            self.window += (0.1 + 0.35 * beyond).min(DOUBLING) * bytes;
        }
    }

    /// Packets of the first train, by the capacity that is remembered.
    pub(super) fn first_train(cached_bytes_per_s: Option<f64>) -> usize {
        let length = cached_bytes_per_s.map_or(0.0, |rate| rate * TRAIN_TIME_S / PACKET_GUESS);
        length.clamp(FIRST_TRAIN_MIN, FIRST_TRAIN_MAX) as usize
    }
}
