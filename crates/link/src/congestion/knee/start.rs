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
        }
    }

    /// Goes on at the rate that is remembered, or less if a train has shown less.
    pub(super) fn take_up_cached(&mut self, is_rtt_known: bool) {
        let Some(cached) = self.cached else { return };
        let train = match self.measure.train {
            Some(train) if train.is_lower_bound => f64::INFINITY,
            Some(train) => train.rate,
            None => return,
        };
        if !matches!(self.state, State::Start { .. }) {
            // What was measured since is newer.
            self.cached = None;
        } else if is_rtt_known {
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

#[cfg(test)]
mod tests {
    use crate::congestion::{
        Arrival, Controller, Digest, PathMemory,
        knee::{Knee, Share, resolved_at},
    };

    /// The report on a first train of 32 packets that a path of so many bytes per second spread, of
    /// which each for which `is_lost` says so was lost; 100 ms each way.
    fn report_train(knee: &mut Knee, bytes_per_s: f64, is_lost: impl Fn(u64) -> bool) {
        knee.on_sent(0, 1500, 0.001);
        let arrival = |number: u64| Arrival {
            number,
            sent_s: 0.001,
            received_s: 0.101 + number as f64 * 1500.0 / bytes_per_s,
            sent_bytes_before: number * 1500,
            in_train: true,
        };
        let arrivals: Vec<_> = (0..32).filter(|n| !is_lost(*n)).map(arrival).collect();
        let resolved = resolved_at(0.001, 32, is_lost);
        let digest = Digest {
            resolved: &resolved,
            arrivals: &arrivals,
            received: (48_000, 0.15),
            rtt_s: Some(0.2),
            ..Digest::default()
        };
        knee.on_report(&digest, 0.25);
    }

    #[test]
    fn a_measured_train_is_taken_at_half_its_word() {
        let mut knee = Knee::new(Share::Fair, None);
        report_train(&mut knee, 12.5e6, |_| false);
        let share = knee.rate_bytes_per_s() / 12.5e6;
        assert!((0.4..0.9).contains(&share), "{share}");
    }

    #[test]
    fn a_train_too_fast_to_be_measured_is_followed_by_a_longer_one() {
        let mut knee = Knee::new(Share::Fair, None);
        assert_eq!(knee.take_train(1e6), 32);
        report_train(&mut knee, 1.25e9, |_| false);
        assert!(
            knee.rate_bytes_per_s() < 10e6,
            "{}",
            knee.rate_bytes_per_s()
        );
        assert_eq!(knee.take_train(10_000.0), 0, "there is no room yet");
        assert!(knee.take_train(1e6) > 60);
    }

    #[test]
    fn what_the_first_train_loses_is_the_path_s() {
        let mut knee = Knee::new(Share::Fair, None);
        report_train(&mut knee, 12.5e6, |number| number % 2 == 1);
        assert!(
            (knee.losses.floor - 0.5).abs() < 0.05,
            "{}",
            knee.losses.floor
        );
    }

    #[test]
    fn a_remembered_rate_ten_times_too_high_is_cut_to_what_the_train_shows() {
        let memory = PathMemory {
            capacity_bytes_per_s: 125e6,
            loss_floor: 0.0,
        };
        let mut knee = Knee::new(Share::Fair, Some(memory));
        report_train(&mut knee, 12.5e6, |_| false);
        assert!(knee.rate_bytes_per_s() <= 12.5e6);
        assert!(knee.rate_bytes_per_s() > 10e6);
    }
}
