//! Start-up: growth up to eightfold a round trip, until a queue, a plateau or excess loss shows.

use super::{FIRST_TRAIN, Knee, LATER_TRAIN, START_FLOOR_MAX, State};

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
        // Where a train shows several times the rate at which the packets were sent of which is known
        // now, their losses cannot be our doing.
        let train = self.measure.train.map_or(0.0, |train| train.rate);
        // That holds as long as more arrives for more sent: a policer's bucket lets a train pass, too.
        let is_far_below = flat_rounds == 0 && train > 4.0 * self.rate() / self.growth_since_sent();
        let evidence = self.losses.evidence(0.10, 8.0);
        if let Some(evidence) = evidence.filter(|_| !is_far_below && self.rounds_in_state >= 2) {
            self.cut_for_loss(&evidence, now_s);
            return;
        }
        if now_s - self.round_began_s < self.round_s() {
            return;
        }
        self.rounds_in_state += 1;
        self.begin_round(now_s);
        let delivered = self.measure.delivered.unwrap_or(0.0);
        let is_flat = !app_limited && delivered < 1.25 * delivered_before;
        let flat_rounds = if is_flat { flat_rounds + 1 } else { 0 };
        let is_empty = self.measure.queue_s <= self.threshold_s() / 2.0;
        // A crowd that starts together looks like a lossy path, but not from its first packets on.
        let is_first = is_far_below && self.losses.is_floor_unknown();
        let loss = self.losses.since_cut.rate();
        if is_first
            || !is_flat && is_empty && loss <= START_FLOOR_MAX && !self.losses.excess(0.02, 4.0)
        {
            self.losses.learn(200.0);
        }
        self.state = State::Start {
            delivered_before: delivered,
            flat_rounds,
        };
        let evidence = self.losses.evidence(0.05, 4.0);
        if let Some(evidence) = evidence.filter(|_| flat_rounds >= 1) {
            self.cut_for_loss(&evidence, now_s);
            return;
        }
        if flat_rounds >= 3 {
            let capacity = self.capacity();
            self.enter_drain(capacity, 0, now_s);
            return;
        }
        if self.measure.train.is_none() {
            self.train_wanted = FIRST_TRAIN;
        } else if train > 2.0 * self.rate() && self.window >= 64.0 * self.packet {
            self.train_wanted = LATER_TRAIN;
        }
    }
}
