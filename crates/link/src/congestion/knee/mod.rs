//! The knee controller: fills the path up to the knee of its delay curve, drains what it built, and
//! behaves as paced CUBIC while others keep the queue full.
//!
//! The controlled variable is a window in the *sending* domain, so random loss does not enter it;
//! packets are paced at window / (base RTT + queueing delay). Growth goes on until one-way queueing
//! delay shows; then a drain must empty the queue. A drain that fails means company. Loss acts only
//! in excess of a floor; the floor is learned below capacity, raised by experiment, and lowered by
//! every cleaner window. How well that does is printed by the benches of this crate.

mod cubic;
mod losses;
mod measure;

use self::{cubic::Cubic, losses::Losses, measure::Measure};
use super::{Controller, Digest, PathMemory};

/// How the controller shares with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// As one CUBIC flow would.
    Fair,
    /// Leaves everything to others that want it.
    Background,
}

/// The knee controller.
#[derive(Debug)]
pub struct Knee {
    share: Share,
    measure: Measure,
    losses: Losses,
    state: State,
    /// Bytes in flight aimed at, queue excluded.
    window: f64,
    /// Size of a packet on the wire, moving average, in bytes.
    packet: f64,
    /// Capacity from an earlier connection, until the first report.
    cached: Option<f64>,
    /// Lowest the threshold of queueing delay may have to go, for shallow queues.
    threshold_cap_s: f64,
    round_began_s: f64,
    /// Growth per packet in the present round, as a fraction.
    gain: f64,
    gain_start: f64,
    rounds_in_state: u32,
    /// What the path passed when it was last full, bytes per second in the sending domain.
    known_capacity: f64,
    /// Drains that failed at the first try, decaying: evidence of company.
    score: f64,
    /// The last cut was for loss: grow gently.
    is_gentle: bool,
    train_wanted: usize,
    reorder_window_s: f64,
    sent_any: bool,
    last_report_s: f64,
    window_before_series: f64,
    last_fail: Option<Fail>,
}

#[derive(Debug, Clone, Copy)]
struct Fail {
    window: f64,
    queue_s: f64,
    capacity: f64,
}

#[derive(Debug)]
enum State {
    /// Looking for the capacity, up to eightfold a round trip.
    Start {
        delivered_before: f64,
        flat_rounds: u32,
    },
    /// Growing until queueing delay shows.
    Grow,
    /// Emptying the queue that growth built.
    Drain {
        capacity: f64,
        cut_s: f64,
        queue_max_s: f64,
        emptied_s: Option<f64>,
        tries: u32,
    },
    /// After a cut for loss: is it gone?
    LossDrain {
        window_before: f64,
        loss_at_cut: f64,
        cut_s: f64,
    },
    /// Still losing: is it less at a quarter of the rate?
    Experiment {
        window_before: f64,
        loss_before: f64,
        resume: f64,
        began_s: f64,
    },
    /// Others keep the queue full: CUBIC's law.
    Compete {
        cubic: Cubic,
        test_at_s: f64,
        empty_tests: u32,
        empty_rounds: u32,
    },
    /// Drained to our own bandwidth-delay product: does the queue empty?
    CompeteTest {
        cubic: Cubic,
        window: f64,
        began_s: f64,
        empty_tests: u32,
    },
}

/// Packets of the first train, and of later ones.
const FIRST_TRAIN: usize = 32;
const LATER_TRAIN: usize = 16;
/// A floor is learned while starting only up to this loss: beyond, a crowd that starts together is
/// taken for a lossy path.
const START_FLOOR_MAX: f64 = 0.125;
/// Packets before anything is measured.
const PACKET_GUESS: f64 = 1500.0;
/// After this long without a report the window is validated anew.
const STALE_S: f64 = 30.0;

impl Knee {
    /// A controller that knows `memory` of the path.
    pub fn new(share: Share, memory: Option<PathMemory>) -> Self {
        Self {
            share,
            measure: Measure::new(),
            losses: Losses::new(memory.map(|memory| memory.loss_floor)),
            state: State::Start {
                delivered_before: 0.0,
                flat_rounds: 0,
            },
            window: FIRST_TRAIN as f64 * PACKET_GUESS,
            packet: PACKET_GUESS,
            cached: memory.map(|memory| memory.capacity_bytes_per_s),
            threshold_cap_s: f64::INFINITY,
            round_began_s: 0.0,
            gain: 0.0,
            gain_start: 0.0,
            rounds_in_state: 0,
            known_capacity: 0.0,
            score: 0.0,
            is_gentle: false,
            train_wanted: FIRST_TRAIN,
            reorder_window_s: 0.0,
            sent_any: false,
            last_report_s: 0.0,
            window_before_series: 0.0,
            last_fail: None,
        }
    }

    fn base_s(&self) -> f64 {
        self.measure.base_rtt_s()
    }

    fn rtt_s(&self) -> f64 {
        self.base_s() + self.measure.queue_s
    }

    fn rate(&self) -> f64 {
        let rate = self.window / self.rtt_s();
        match self.state {
            // A tiny base RTT must not stop the flow.
            State::Drain { capacity, .. } => rate.max(0.6 * capacity),
            _ => rate,
        }
    }

    fn packet_time_s(&self) -> f64 {
        self.packet * self.rtt_s() / self.window.max(self.packet)
    }

    /// Queueing delay that ends growth: visible over jitter, yet within a queue of a tenth of the
    /// bandwidth-delay product.
    fn threshold_s(&self) -> f64 {
        let threshold = (self.base_s() / 16.0)
            .max(0.002)
            .max(6.0 * self.packet_time_s());
        threshold.min(self.threshold_cap_s)
    }

    fn round_s(&self) -> f64 {
        let packets = 8.0 * self.packet_time_s() / (1.0 - self.losses.floor).max(0.1);
        self.rtt_s().max(0.010).max(packets)
    }

    fn begin_round(&mut self, now_s: f64) {
        self.round_began_s = now_s;
    }

    /// From now on only packets sent later count, for losses and for the queue.
    fn mark_cut(&mut self, now_s: f64) {
        self.losses.begin_count(now_s);
        self.measure.forget_queue(now_s);
        self.begin_round(now_s);
        self.rounds_in_state = 0;
    }

    /// The capacity of the path in the sending domain, never far below what was just sent.
    fn capacity(&self) -> f64 {
        let sent = 0.5 * self.window / self.rtt_s();
        let mut capacity = self.measure.capacity.unwrap_or(sent);
        if self.losses.excess(0.02, 4.0) {
            // Drops before the bottleneck make the measured rate our own.
            let loss = self.losses.since_cut.rate();
            capacity *= (1.0 - loss) / (1.0 - self.losses.floor);
        }
        capacity.max(sent)
    }

    fn enter_grow(&mut self, now_s: f64) {
        self.state = State::Grow;
        let packets = (self.window / self.packet).max(1.0);
        self.gain_start = (0.5 / packets.sqrt()).max(1.0 / 128.0);
        if self.is_gentle || self.share == Share::Background {
            self.gain_start /= 2.0;
        }
        self.gain = self.gain_start;
        self.rounds_in_state = 0;
        self.begin_round(now_s);
    }

    fn enter_drain(&mut self, capacity: f64, tries: u32, now_s: f64) {
        if tries == 0 && self.score < 0.5 {
            self.window_before_series = self.window;
        }
        if tries == 0 {
            self.known_capacity = capacity;
        }
        self.window = 0.95 * capacity * self.base_s();
        self.state = State::Drain {
            capacity,
            cut_s: now_s,
            queue_max_s: self.measure.queue_s,
            emptied_s: None,
            tries,
        };
        self.is_gentle = false;
        self.mark_cut(now_s);
    }

    fn cut_for_loss(&mut self, now_s: f64) {
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

    fn enter_compete(&mut self, window: f64, now_s: f64) {
        self.window = window;
        let interval = self.test_interval_s();
        self.state = State::Compete {
            cubic: Cubic::new(window, now_s),
            test_at_s: now_s + interval,
            empty_tests: 0,
            empty_rounds: 0,
        };
        self.score = 0.0;
        self.mark_cut(now_s);
    }

    fn test_interval_s(&self) -> f64 {
        2f64.max(20.0 * self.rtt_s())
    }

    /// Growth by the packets that a report resolved.
    fn grow(&mut self, bytes: f64, now_s: f64) {
        let base_s = self.base_s();
        match &mut self.state {
            State::Start { .. } => {
                let train = self.measure.train.map_or(0.0, |train| train.rate);
                let is_bound = self.measure.train.is_none_or(|train| train.is_lower_bound);
                let target = 0.9 * train * base_s;
                // Under pacing x-fold growth a round trip solves ln x = gain / x.
                let gain = if 8.0 * self.window < target {
                    16.6
                } else if 4.0 * self.window < target {
                    5.5
                } else if self.window > target && !is_bound {
                    0.35
                } else {
                    1.386
                };
                self.window += gain * bytes;
            }
            State::Grow => {
                let share = self.rtt_s() / self.round_s();
                self.window += self.gain * bytes * share;
            }
            State::Compete { cubic, .. } => {
                let rtt_s = base_s + self.measure.queue_s;
                self.window = cubic
                    .window(now_s, rtt_s, self.packet, bytes)
                    .max(2.0 * self.packet);
            }
            _ => {}
        }
    }

    fn step_start(&mut self, app_limited: bool, now_s: f64) {
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

    fn step_grow(&mut self, app_limited: bool, now_s: f64) {
        if self.measure.queue_is_fresh && self.measure.queue_s > self.threshold_s() {
            if self.threshold_cap_s.is_finite() {
                self.threshold_cap_s *= 1.02;
            }
            let capacity = self.capacity();
            self.enter_drain(capacity, 0, now_s);
            return;
        }
        if self.losses.excess(0.02, 4.0) {
            self.cut_for_loss(now_s);
            return;
        }
        if now_s - self.round_began_s < self.round_s() {
            return;
        }
        self.begin_round(now_s);
        if app_limited {
            self.gain = self.gain_start;
            self.rounds_in_state = 0;
            return;
        }
        self.rounds_in_state += 1;
        let known = self.known_capacity * self.base_s();
        if self.is_gentle && self.rounds_in_state < 25 {
            self.gain *= 1.15;
        } else if self.window < 0.85 * known {
            self.gain = 0.25;
        } else if self.window < 1.25 * known {
            // Near the capacity known from the last drain a round may build a threshold's worth of
            // queue, no more: its feedback comes a round later.
            let cap = (self.threshold_s() / self.base_s()).max(self.gain_start);
            self.gain = (self.gain * 1.5).clamp(self.gain_start, cap);
        } else {
            // Well above it and still no queue: there is more than there was.
            self.gain *= 2.0;
        }
        self.gain = self.gain.min(0.5);
    }

    fn step_drain(&mut self, app_limited: bool, now_s: f64) {
        let queue_s = self.measure.queue_s;
        let State::Drain {
            capacity,
            cut_s,
            queue_max_s,
            emptied_s,
            tries,
        } = &mut self.state
        else {
            return;
        };
        *queue_max_s = queue_max_s.max(queue_s);
        let (capacity, cut_s, queue_max_s) = (*capacity, *cut_s, *queue_max_s);
        let (emptied_s, tries) = (*emptied_s, *tries);
        let empty_s = self.threshold_s() / 2.0;
        if let Some(emptied_s) = emptied_s {
            // Hold below capacity until the floor has been seen.
            let wanted = (0.7 * self.window / self.packet).min(200.0);
            let is_over = now_s - emptied_s > 2.0 * self.round_s();
            if self.losses.since_cut.packets >= wanted || is_over || app_limited {
                if !self.losses.excess(0.02, 4.0) {
                    self.losses.learn(f64::INFINITY);
                }
                if tries == 0 {
                    self.score = (self.score - 0.5).max(0.0);
                }
                self.last_fail = None;
                self.window = capacity * self.base_s();
                self.enter_grow(now_s);
            }
            return;
        }
        if self.measure.queue_is_fresh && queue_s <= empty_s {
            if let State::Drain { emptied_s, .. } = &mut self.state {
                *emptied_s = Some(now_s);
            }
            return;
        }
        // Until the cut is felt, and then as long as our own queue needs to drain at what the
        // bottleneck passes beyond our rate.
        let base_s = self.base_s();
        let spare = 1.0 - 0.95 * base_s / (base_s + queue_max_s);
        let patience_s = 1.25 * base_s.max(0.010) + queue_max_s + queue_max_s / spare;
        // Judged by packets that crossed the path then; none do while the application is idle.
        if self.measure.queue_sent_s + base_s > cut_s + patience_s && self.measure.queue_is_fresh {
            self.fail_drain(capacity, tries, now_s);
        }
    }

    /// The queue did not empty: a new route, or company.
    fn fail_drain(&mut self, capacity: f64, tries: u32, now_s: f64) {
        let queue_s = self.measure.queue_s;
        if let Some(fail) = self.last_fail {
            let is_much_lower = self.window <= 0.75 * fail.window;
            let is_unmoved = (queue_s - fail.queue_s).abs() < 0.03 * fail.queue_s.max(0.001);
            if tries >= 1 && is_much_lower && is_unmoved {
                self.measure.rebase(now_s);
                self.window = 0.9 * fail.capacity * self.base_s();
                self.last_fail = None;
                self.score = 0.0;
                self.mark_cut(now_s);
                self.enter_grow(now_s);
                return;
            }
        } else {
            self.last_fail = Some(Fail {
                window: self.window,
                queue_s,
                capacity,
            });
        }
        if tries == 0 {
            self.score += 1.0;
        }
        if self.score >= 3.0 && self.share == Share::Fair {
            let window = self.window_before_series.max(self.window);
            self.last_fail = None;
            self.enter_compete(window, now_s);
            return;
        }
        let base_s = self.base_s();
        let measured = self.capacity();
        let target = self.window.min(measured * base_s) * (base_s / (base_s + queue_s)).max(0.5);
        let capacity = target / base_s;
        self.enter_drain(capacity.max(self.packet / base_s), tries + 1, now_s);
    }

    fn step_loss_drain(&mut self, now_s: f64) {
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

    fn step_experiment(&mut self, now_s: f64) {
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

    fn step_compete(&mut self, now_s: f64) {
        let is_fresh_empty =
            self.measure.queue_is_fresh && self.measure.queue_s <= self.threshold_s() / 2.0;
        let round_is_over = now_s - self.round_began_s >= self.round_s();
        let any_excess = self.losses.any_excess();
        let base_s = self.base_s();
        let rtt_s = self.rtt_s();
        let mut is_alone = false;
        let State::Compete {
            cubic,
            test_at_s,
            empty_rounds,
            ..
        } = &mut self.state
        else {
            return;
        };
        if any_excess {
            self.window = cubic.cut(self.window, now_s);
            *empty_rounds = 0;
            self.losses.begin_count(now_s);
            return;
        }
        if round_is_over {
            *empty_rounds = if is_fresh_empty { *empty_rounds + 1 } else { 0 };
            is_alone = *empty_rounds >= 2;
        }
        let test_is_due = now_s >= *test_at_s;
        if round_is_over {
            self.begin_round(now_s);
        }
        if is_alone {
            self.enter_grow(now_s);
        } else if test_is_due {
            let window = self.window;
            self.window = 0.95 * window * base_s / rtt_s;
            let old = std::mem::replace(&mut self.state, State::Grow);
            let State::Compete {
                cubic, empty_tests, ..
            } = old
            else {
                return;
            };
            self.state = State::CompeteTest {
                cubic,
                window,
                began_s: now_s,
                empty_tests,
            };
            self.measure.forget_queue(now_s);
        }
    }

    fn step_compete_test(&mut self, now_s: f64) {
        let State::CompeteTest { began_s, .. } = &self.state else {
            return;
        };
        let began_s = *began_s;
        let is_empty =
            self.measure.queue_is_fresh && self.measure.queue_s <= self.threshold_s() / 2.0;
        // One round after the first feedback on packets sent at the lower rate.
        let is_over = now_s - began_s > 2.0 * self.round_s() && self.measure.queue_is_fresh;
        if !is_empty && !is_over && now_s - began_s < 5.0 * self.round_s() + 1.0 {
            return;
        }
        let interval = self.test_interval_s();
        let old = std::mem::replace(&mut self.state, State::Grow);
        let State::CompeteTest {
            mut cubic,
            window,
            began_s,
            empty_tests,
        } = old
        else {
            return;
        };
        let empty_tests = if is_empty { empty_tests + 1 } else { 0 };
        if empty_tests >= 2 {
            self.score = 0.0;
            self.window = window * self.base_s() / self.rtt_s().max(self.base_s());
            self.mark_cut(now_s);
            self.enter_grow(now_s);
            return;
        }
        cubic.pause(now_s - began_s);
        self.window = window;
        let wait = if is_empty { 0.3 * interval } else { interval };
        self.state = State::Compete {
            cubic,
            test_at_s: now_s + wait,
            empty_tests,
            empty_rounds: 0,
        };
        self.begin_round(now_s);
    }
}

impl Controller for Knee {
    fn on_sent(&mut self, _: u64, bytes: usize, now_s: f64) {
        if !self.sent_any {
            self.sent_any = true;
            self.round_began_s = now_s;
            self.last_report_s = now_s;
        }
        if bytes > 1000 {
            self.packet += (bytes as f64 - self.packet) / 64.0;
        }
    }

    fn on_report(&mut self, digest: &Digest<'_>, now_s: f64) {
        if now_s - self.last_report_s > STALE_S && !matches!(self.state, State::Start { .. }) {
            // What was known of the path is old: keep the rate as a guess and look again.
            self.measure = Measure::new();
            self.mark_cut(now_s);
            self.enter_grow(now_s);
        }
        self.last_report_s = now_s;
        self.reorder_window_s = digest.reorder_window_s;
        self.measure.update(digest, now_s);
        self.losses.update(digest.resolved, digest.late.len());
        if let Some(cached) = self.cached.filter(|_| digest.rtt_s.is_some()) {
            self.cached = None;
            let rate = self.measure.train.map_or(cached, |train| {
                if train.is_lower_bound {
                    cached
                } else {
                    train.rate.min(cached)
                }
            });
            self.window = self.window.max(0.9 * rate * self.base_s());
        }
        if !digest.app_limited {
            let bytes: usize = digest.resolved.iter().map(|packet| packet.bytes).sum();
            self.grow(bytes as f64, now_s);
        }
        match self.state {
            State::Start { .. } => self.step_start(digest.app_limited, now_s),
            State::Grow => self.step_grow(digest.app_limited, now_s),
            State::Drain { .. } => self.step_drain(digest.app_limited, now_s),
            State::LossDrain { .. } => self.step_loss_drain(now_s),
            State::Experiment { .. } => self.step_experiment(now_s),
            State::Compete { .. } => self.step_compete(now_s),
            State::CompeteTest { .. } => self.step_compete_test(now_s),
        }
        self.window = self.window.max(4.0 * self.packet);
        debug_assert!(self.window.is_finite(), "every divisor is bounded below");
    }

    fn on_tick(&mut self, _: f64) {}

    fn rate_bytes_per_s(&self) -> f64 {
        self.rate()
    }

    /// What pacing at the rate has in flight until the slowest report tells of it.
    fn window_bytes(&self) -> f64 {
        let base_s = self.base_s();
        let reordered = (self.reorder_window_s - base_s / 8.0).max(0.0) / base_s;
        let slack = 1.0 + 0.25 * self.losses.floor + reordered;
        let between_reports = self.rate() * (base_s / 8.0 + self.measure.report_gap_s);
        1.25 * self.window * slack + 4.0 * self.packet + between_reports
    }

    fn take_train(&mut self) -> usize {
        std::mem::take(&mut self.train_wanted)
    }

    fn memory(&self) -> Option<PathMemory> {
        let capacity = self.measure.capacity?;
        (!matches!(self.state, State::Start { .. })).then_some(PathMemory {
            capacity_bytes_per_s: capacity.min(2.0 * self.rate()),
            loss_floor: self.losses.floor,
        })
    }

    fn state(&self) -> &'static str {
        match self.state {
            State::Start { .. } => "start",
            State::Grow => "grow",
            State::Drain { .. } => "drain",
            State::LossDrain { .. } => "loss drain",
            State::Experiment { .. } => "experiment",
            State::Compete { .. } => "compete",
            State::CompeteTest { .. } => "compete test",
        }
    }

    fn queue_delay_s(&self) -> f64 {
        self.measure.queue_s
    }
}
