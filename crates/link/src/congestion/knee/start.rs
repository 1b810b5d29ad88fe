//! Start-up: growth up to eightfold a round trip, until a queue, a plateau or excess loss shows.

use super::{Knee, LATER_TRAIN, START_FLOOR_MAX, State};

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
        // While a train shows several times the present rate, losses cannot be our doing.
        let train = self.measure.train.map_or(0.0, |train| train.rate);
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
        if now_s - self.round_began_s < self.round_s() {
            return;
        }
        self.rounds_in_state += 1;
        self.begin_round(now_s);
        let delivered = self.measure.delivered.unwrap_or(0.0);
        let is_flat = !app_limited && !is_far_below && delivered < 1.25 * delivered_before;
        let flat_rounds = if is_flat { flat_rounds + 1 } else { 0 };
        let is_empty = self.measure.queue_s <= self.threshold_s() / 2.0;
        if !is_flat
            && is_empty
            && self.losses.since_cut.rate() <= START_FLOOR_MAX
            && !self.losses.excess(0.02, 4.0)
        {
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
        if train > 2.0 * self.rate() && self.window >= 64.0 * self.packet {
            self.train_wanted = LATER_TRAIN;
        }
    }
}
