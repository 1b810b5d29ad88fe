//! What a loss in excess of the floor leads to: a cut, and if that does not help, an experiment.

use super::{Knee, State};

impl Knee {
    pub(super) fn cut_for_loss(&mut self, now_s: f64) {
        let queue_s = self.measure.queue_s;
        if queue_s > 0.000_2 && matches!(self.state, State::Grow) {
            // Loss before the threshold: the queue is shallower than that.
            self.threshold_cap_s = (queue_s / 2.0).max(0.000_3);
        }
        let loss = self.losses.since_cut.rate();
        let floor = self.losses.floor;
        let window_before = self.window;
        let by_loss = self.window * (1.0 - loss) / (1.0 - floor);
        let by_delivery = self.measure.delivered.map_or(f64::INFINITY, |delivered| {
            delivered / (1.0 - floor) * self.base_s()
        });
        self.window = 0.9 * by_loss.min(by_delivery);
        self.state = State::LossDrain {
            window_before,
            loss_at_cut: loss,
            cut_s: now_s,
        };
        self.is_gentle = true;
        self.mark_cut(now_s);
    }

    pub(super) fn step_loss_drain(&mut self, now_s: f64) {
        let State::LossDrain {
            window_before,
            loss_at_cut,
            cut_s,
        } = self.state
        else {
            return;
        };
        let wanted = (self.window / self.packet).clamp(16.0, 400.0);
        let is_late = now_s - cut_s > 3.0 + 2.0 * self.round_s();
        if self.losses.since_cut.packets < wanted && !is_late {
            return;
        }
        let loss = self.losses.since_cut.rate();
        let floor = self.losses.floor;
        let is_gone = loss - floor <= (loss_at_cut - floor) / 2.0 && !self.losses.excess(0.02, 4.0);
        if is_gone || self.losses.since_cut.packets < 8.0 {
            if loss <= floor + 0.005 {
                self.losses.learn(f64::INFINITY);
            }
            self.enter_grow(now_s);
            return;
        }
        let resume = self.window;
        self.window /= 4.0;
        self.state = State::Experiment {
            window_before,
            loss_before: loss,
            resume,
            began_s: now_s,
        };
        self.mark_cut(now_s);
    }

    pub(super) fn step_experiment(&mut self, now_s: f64) {
        let State::Experiment {
            window_before,
            loss_before,
            resume,
            began_s,
        } = self.state
        else {
            return;
        };
        let odds = loss_before / (1.0 - loss_before).max(0.01);
        let dispersion = self.losses.dispersion();
        let wanted = (200.0 * odds * dispersion.min(10.0)).clamp(64.0, 800.0);
        let packets = self.losses.since_cut.packets;
        if packets < wanted && (now_s - began_s < 3.0 || packets < 16.0) {
            return;
        }
        let loss = self.losses.since_cut.rate();
        let change = ((1.0 - loss).max(0.01) / (1.0 - loss_before).max(0.01))
            .ln()
            .abs();
        let noise = (odds * dispersion.min(20.0) / packets.max(1.0)).sqrt();
        if change < 0.08 + noise && noise < 0.2 {
            // A quarter of the rate loses as much: it is the path.
            self.losses
                .set_floor(loss.max(0.5 * (loss + loss_before)), packets);
            self.window = window_before;
            self.is_gentle = false;
        } else {
            self.window = 0.9 * resume;
        }
        self.mark_cut(now_s);
        self.enter_grow(now_s);
    }
}
