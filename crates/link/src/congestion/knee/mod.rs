//! The knee controller: fills the path up to the knee of its delay curve, drains what it built, and
//! behaves as paced CUBIC while others keep the queue full.
//!
//! The controlled variable is a window in the *sending* domain, so random loss does not enter it;
//! packets are paced at window / (base RTT + queueing delay). Growth goes on until one-way queueing
//! delay shows; then a drain must empty the queue. A drain that fails means company. Loss acts only
//! in excess of a floor; the floor is learned below capacity, raised by experiment, and lowered by
//! every cleaner window. Where loss without a queue is the only sign of a limit, as at a policer, CUBIC's
//! law rules, too. How well that does is printed by the benches of this crate.

mod company;
mod cubic;
mod loss;
mod losses;
mod measure;
mod policed;
mod queue;
mod start;

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
    /// Capacity from an earlier connection, until a train is measured.
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
    /// A drain has emptied the queue at least once: the base delay is the path's.
    has_emptied: bool,
    /// The last cut was for loss: grow gently.
    is_gentle: bool,
    /// Cuts for loss without a queue, since there last was another signal.
    policer_cuts: u32,
    /// CUBIC's law, once such cuts have shown a limit that drops instead of queueing.
    policed: Option<Cubic>,
    /// The largest window that passed when it dropped.
    policer_limit: f64,
    first_window: f64,
    train_wanted: usize,
    train_asked_s: f64,
    reorder_window_s: f64,
    sent_any: bool,
    last_report_s: f64,
    /// When the application, not this, was last what held us back.
    limited_s: f64,
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
        threshold_cap_s: f64,
        loss_at_cut: f64,
        cut_s: f64,
    },
    /// Still losing: is it less at a quarter of the rate?
    Experiment {
        window_before: f64,
        threshold_cap_s: f64,
        loss_before: f64,
        packets_before: f64,
        resume: f64,
        began_s: f64,
    },
    /// Below a limit that drops instead of queueing: CUBIC's law, too.
    Policed,
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

/// Packets before anything is measured.
const PACKET_GUESS: f64 = 1500.0;
/// A path that holds fewer packets than this is short: its queue is what fills it.
const SHORT: f64 = 16.0;
/// The link goes on without a report for this long at least.
const REPORT_GAP_MIN_S: f64 = 0.3;
/// After this long without a report the window is validated anew.
const STALE_S: f64 = 30.0;

impl Knee {
    /// A controller that knows `memory` of the path.
    pub fn new(share: Share, memory: Option<PathMemory>) -> Self {
        let cached = memory.map(|memory| memory.capacity_bytes_per_s);
        let first_train = Self::first_train(cached);
        Self {
            share,
            measure: Measure::new(),
            losses: Losses::new(memory.map(|memory| memory.loss_floor)),
            state: State::Start {
                delivered_before: 0.0,
                flat_rounds: 0,
            },
            window: first_train as f64 * PACKET_GUESS,
            packet: PACKET_GUESS,
            cached,
            threshold_cap_s: f64::INFINITY,
            round_began_s: 0.0,
            gain: 0.0,
            gain_start: 0.0,
            rounds_in_state: 0,
            known_capacity: 0.0,
            score: 0.0,
            has_emptied: false,
            is_gentle: false,
            policer_cuts: 0,
            policed: None,
            policer_limit: 0.0,
            first_window: first_train as f64 * PACKET_GUESS,
            train_wanted: first_train,
            train_asked_s: 0.0,
            reorder_window_s: 0.0,
            sent_any: false,
            last_report_s: 0.0,
            limited_s: f64::NEG_INFINITY,
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
            State::Drain { capacity, .. } if self.is_short(capacity) => rate.max(0.8 * capacity),
            State::Drain { capacity, .. } => rate.max(0.6 * capacity),
            _ => rate,
        }
    }

    fn is_short(&self, capacity: f64) -> bool {
        capacity * self.base_s() < SHORT * self.packet
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
        if self.last_report_s - self.limited_s < self.rtt_s() {
            // What was measured over a pause is too little: a queue comes of what was sent.
            let peak = self.measure.capacity_peak().unwrap_or(capacity);
            capacity = capacity.max(peak.min(1.8 * sent));
        }
        capacity.max(sent)
    }

    /// Growth by the packets that a report resolved.
    fn grow(&mut self, bytes: f64, now_s: f64) {
        let base_s = self.base_s();
        // A report after a pause resolves several round trips at once: growth is by round trips.
        let bytes = bytes.min(self.window);
        match &mut self.state {
            State::Start { .. } => self.grow_start(bytes),
            State::Grow => {
                let share = self.rtt_s() / self.round_s();
                self.window += self.gain * bytes * share;
            }
            State::Policed => self.grow_policed(bytes, now_s),
            State::Compete { cubic, .. } => {
                let rtt_s = base_s + self.measure.queue_s;
                self.window = cubic
                    .window(now_s, rtt_s, self.packet, bytes)
                    .max(2.0 * self.packet);
            }
            _ => {}
        }
    }
}

impl Controller for Knee {
    fn on_sent(&mut self, _: u64, bytes: usize, now_s: f64) {
        if !self.sent_any {
            self.sent_any = true;
            self.round_began_s = now_s;
            self.train_asked_s = now_s;
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
            self.has_emptied = false;
            self.forget_policer();
            self.mark_cut(now_s);
            self.enter_grow(now_s);
        }
        let since_report_s = now_s - self.last_report_s;
        self.last_report_s = now_s;
        self.reorder_window_s = digest.reorder_window_s;
        self.measure.update(digest, now_s);
        self.losses.update(digest.resolved, digest.late_sent_s);
        self.take_up_cached(digest.rtt_s.is_some());
        // Time without anything to send, or without reports, is no time to grow.
        let idle_s = if digest.app_limited {
            since_report_s
        } else {
            (since_report_s - 2.0 * self.round_s()).max(0.0)
        };
        if let Some(cubic) = &mut self.policed {
            cubic.pause(idle_s);
        }
        if let State::Compete { cubic, .. } = &mut self.state {
            cubic.pause(idle_s);
        }
        if digest.app_limited {
            self.limited_s = now_s;
        } else {
            let bytes: usize = digest.resolved.iter().map(|packet| packet.bytes).sum();
            self.grow(bytes as f64, now_s);
        }
        match self.state {
            State::Start { .. } => self.step_start(digest.app_limited, now_s),
            State::Grow => self.step_grow(digest.app_limited, now_s),
            State::Drain { .. } => self.step_drain(digest.app_limited, now_s),
            State::LossDrain { .. } => self.step_loss_drain(now_s),
            State::Experiment { .. } => self.step_experiment(now_s),
            State::Policed => self.step_policed(now_s),
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
        let between_reports =
            self.rate() * (base_s / 8.0 + self.measure.report_gap_s().max(REPORT_GAP_MIN_S));
        1.25 * self.window * slack + 4.0 * self.packet + between_reports
    }

    fn take_train(&mut self, room_bytes: f64) -> usize {
        let fits = self.train_wanted as f64 * self.packet <= room_bytes;
        if fits {
            std::mem::take(&mut self.train_wanted)
        } else {
            0
        }
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
            State::Policed => "policed",
            State::Compete { .. } => "compete",
            State::CompeteTest { .. } => "compete test",
        }
    }

    fn queue_delay_s(&self) -> f64 {
        self.measure.queue_s
    }
}

/// So many packets of 1500 bytes, all sent at `sent_s`.
#[cfg(test)]
fn resolved_at(
    sent_s: f64,
    count: u64,
    is_lost: impl Fn(u64) -> bool,
) -> Vec<crate::congestion::Resolved> {
    (0..count)
        .map(|number| crate::congestion::Resolved {
            number,
            bytes: 1500,
            sent_s,
            lost: is_lost(number),
        })
        .collect()
}
