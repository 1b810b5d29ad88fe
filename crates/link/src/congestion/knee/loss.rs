//! What a loss in excess of the floor leads to: a cut, and if that does not help, an experiment.

use super::{Knee, State, losses::Tally};

impl Knee {
    /// Cuts to what arrived of the packets that showed the loss.
    pub(super) fn cut_for_loss(&mut self, evidence: &Tally, now_s: f64) {
        let queue_s = self.measure.queue_s;
        let threshold_cap_s = self.threshold_cap_s;
        if queue_s > 0.000_2 && matches!(self.state, State::Grow) {
            // Loss before the threshold: the queue is shallower than that.
            let least_s = 0.000_3f64.max(3.0 * self.packet_time_s());
            self.threshold_cap_s = (queue_s / 2.0).max(least_s);
        }
        let loss = evidence.rate();
        let window_before = self.window;
        self.window *= 0.9 / self.growth_since_sent() * (1.0 - loss) / (1.0 - self.losses.floor);
        self.state = State::LossDrain {
            window_before,
            threshold_cap_s,
            loss_at_cut: loss,
            cut_s: now_s,
        };
        self.is_gentle = true;
        self.mark_cut(now_s);
    }

    pub(super) fn step_loss_drain(&mut self, now_s: f64) {
        let State::LossDrain {
            window_before,
            threshold_cap_s,
            loss_at_cut,
            cut_s,
        } = self.state
        else {
            return;
        };
        let packets = self.losses.since_cut.packets;
        let is_late = now_s - cut_s > 3.0 + 2.0 * self.round_s();
        let wanted = (self.window / self.packet).clamp(16.0, 400.0);
        if packets < wanted && !is_late {
            return;
        }
        let loss = self.losses.since_cut.rate();
        let floor = self.losses.floor;
        let is_gone = loss - floor <= (loss_at_cut - floor) / 2.0 && !self.losses.excess(0.02, 4.0);
        if is_gone || packets < 8.0 {
            if loss <= floor + 0.005 {
                self.losses.learn(f64::INFINITY);
            }
            // More than this the path does not pass, or no longer.
            self.known_capacity = self.known_capacity.min(self.window / self.base_s());
            self.enter_grow(now_s);
            return;
        }
        if packets < 0.5 * self.sample_wanted(loss) && !is_late {
            return;
        }
        let resume = self.window;
        self.window /= 4.0;
        self.state = State::Experiment {
            window_before,
            threshold_cap_s,
            loss_before: loss,
            packets_before: packets,
            resume,
            began_s: now_s,
        };
        self.mark_cut(now_s);
    }

    /// Packets from which a loss is known well enough to compare it with another.
    fn sample_wanted(&self, loss: f64) -> f64 {
        (200.0 * odds(loss) * self.losses.dispersion(loss).min(10.0)).clamp(64.0, 800.0)
    }

    pub(super) fn step_experiment(&mut self, now_s: f64) {
        let State::Experiment {
            window_before,
            threshold_cap_s,
            loss_before,
            packets_before,
            resume,
            began_s,
        } = self.state
        else {
            return;
        };
        let packets = self.losses.since_cut.packets;
        let is_late = now_s - began_s > 3.0 && packets >= 16.0;
        if packets < self.sample_wanted(loss_before) && !is_late {
            return;
        }
        let loss = self.losses.since_cut.rate();
        // A path that got worse meanwhile is no congestion: only less loss counts against it.
        let change = ((1.0 - loss).max(0.01) / (1.0 - loss_before).max(0.01)).ln();
        let dispersion = self.losses.dispersion(loss_before).min(20.0);
        let per_packet = 1.0 / packets.max(1.0) + 1.0 / packets_before.max(1.0);
        let noise = (odds(loss_before) * dispersion * per_packet).sqrt();
        let is_as_high = loss - self.losses.floor > 0.5 * (loss_before - self.losses.floor);
        if is_as_high && change < 0.08 + noise && noise < 0.12 {
            // A quarter of the rate loses as much: it is the path, and the cut was for nothing.
            self.losses
                .set_floor(loss.max(0.5 * (loss + loss_before)), packets);
            self.threshold_cap_s = threshold_cap_s;
            self.is_gentle = false;
            // Not beyond what is known to pass; where nothing is, growth goes on from here.
            let known = self.known_capacity * self.base_s();
            self.window = window_before.min(known.max(resume));
        } else {
            self.window = 0.9 * resume;
            self.known_capacity = self.known_capacity.min(self.window / self.base_s());
        }
        self.mark_cut(now_s);
        self.enter_grow(now_s);
    }
}

/// Packets lost for each that arrives.
fn odds(loss: f64) -> f64 {
    loss / (1.0 - loss).max(0.01)
}
