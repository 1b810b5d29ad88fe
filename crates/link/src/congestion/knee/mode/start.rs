//! Start-up mode: growth of up to eightfold per round trip, until a queue, a constant delivery rate
//! or excess loss appears.
//!
//! The input is packet trains and the measurements of an earlier connection. The spread of a train
//! limits growth. The output is a window. Start-up ends with a drain or a cut for loss.
//!
//! The first round is sent far below the rate of a train, so its losses come from the path itself.
//! Start-up ends after a later round that loses far more than the cleanest round.
//!
//! Such a round is the only sign of a queue that other flows keep full. Start-up never measures a
//! shorter queue, so the full queue counts as part of the path's delay. An experiment may then show
//! that the path itself loses as many packets. In that case start-up continues once.
//!
//! On a path with jitter, a queue must be longer to end start-up. The base delay is the least delay
//! of a few packets at a low rate, and jitter delays other packets more.

use super::{
    super::{
        capacity::{TRAIN_PACKETS_MAX, TRAIN_PACKETS_MIN, packets_to_time},
        floor::{CleanestRound, EXCESS_RUNS, LossCounts, WEAK_PACKETS},
        path_model::{PACKET_GUESS, PathModel},
    },
    transition::{DrainSeries, LossEvidence, Transition},
};
use crate::congestion::knee::Mechanism;

#[derive(Debug)]
pub(in super::super) struct StartMode {
    /// Window of the first train, in bytes.
    first_window_bytes: f64,
    /// Capacity from an earlier connection, in bytes per second. `None` once a train has been
    /// measured.
    cached: Option<f64>,
    /// Time at which the last train was sent.
    train_begun_s: f64,
    /// Delivery rate at the end of the previous round, in bytes per second.
    delivered_before: f64,
    /// Windows in bytes at the end of the last two rounds.
    windows_before: [f64; 2],
    /// Number of consecutive rounds in which the delivery rate hardly grew.
    flat_rounds: u32,
    /// Number of completed rounds.
    rounds: u32,
    cleanest: CleanestRound,
    /// Whether start-up may continue after losses that come from the path itself.
    may_go_on: bool,
}

impl StartMode {
    /// Number of bytes that may be in flight without pacing: ten packets, the initial window of
    /// RFC 9002 (section 7.2). The first limit of bytes in flight also leaves room for the first
    /// train.
    ///
    /// With pacing, the rate of start-up would spread a file of 10 KB over a sixth of the
    /// round-trip time. On a link that carries only small files, start-up usually never ends.
    pub(in super::super) const UNPACED_BYTES: f64 = 10.0 * PACKET_GUESS;

    /// Creates the state of a new connection whose first train has `first_window_bytes` bytes.
    pub(in super::super) fn new(first_window_bytes: f64, cached: Option<f64>) -> Self {
        Self {
            first_window_bytes,
            cached,
            train_begun_s: 0.0,
            delivered_before: 0.0,
            windows_before: [first_window_bytes; 2],
            flat_rounds: 0,
            rounds: 0,
            cleanest: CleanestRound::default(),
            may_go_on: true,
        }
    }

    /// Creates the state for continuing start-up after losses that the sender did not cause.
    pub(super) fn again(path: &PathModel) -> Self {
        Self {
            rounds: ROUNDS_BEFORE_CUT,
            may_go_on: false,
            ..Self::new(path.window_bytes, None)
        }
    }

    /// Returns the number of packets in the first train. `cached_bytes_per_s` is the capacity
    /// stored from an earlier connection.
    pub(in super::super) fn first_train(cached_bytes_per_s: Option<f64>) -> usize {
        let length = cached_bytes_per_s.map_or(0.0, |rate| packets_to_time(rate, PACKET_GUESS));
        length.clamp(FIRST_TRAIN_MIN, FIRST_TRAIN_MAX) as usize
    }

    pub(super) fn on_train_begun(&mut self, now_s: f64) {
        self.train_begun_s = now_s;
    }

    /// Sets the window for the lower of two rates: the capacity from an earlier connection, and the
    /// rate of the first train.
    pub(in super::super) fn take_up_cached(&mut self, path: &mut PathModel) {
        let Some(believed) = path.capacity.trains.believed_max() else {
            return;
        };
        let Some(cached) = self.cached.take() else {
            return;
        };
        path.window_bytes = path
            .window_bytes
            .max(OF_SHOWN * believed.min(cached) * path.base_s());
    }

    pub(super) fn step(
        &mut self,
        path: &mut PathModel,
        app_limited: bool,
        now_s: f64,
    ) -> Transition {
        if path.queue_shows_in_start() {
            return drain(path);
        }
        self.learn_from_first_round(path, now_s);
        if self.is_lossy(path) {
            // The cleanest round was sent at a fraction of the present rate, so its losses come
            // from the path.
            if let Some(round) = self.cleanest.round()
                && Mechanism::CleanestRound
                    .acts(path.floor.since_cut.loss_fraction() <= PATH_LOSS_MAX)
            {
                path.floor.learn_if_longer(round);
            }
            if self.is_lossy(path) {
                return self.cut_for_loss(None);
            }
        }
        self.ask_for_train(path, now_s);
        if path.round_is_over(now_s) {
            path.begin_round(now_s);
            self.end_round(path, app_limited)
        } else {
            Transition::Stay
        }
    }

    fn learn_from_first_round(&self, path: &mut PathModel, now_s: f64) {
        if path.window_bytes > FIRST_ROUND_GROWTH * self.first_window_bytes {
            path.floor.end_first_round(now_s);
        }
        if Mechanism::FirstRound
            .acts(self.first_window_bytes / path.base_s() <= train_rate(path) / EIGHTFOLD)
        {
            path.floor.learn_first();
        }
    }

    /// Whether the losses are numerous enough to end start-up before the end of the round.
    fn is_lossy(&self, path: &PathModel) -> bool {
        !is_far_below_train(path)
            && self.rounds >= ROUNDS_BEFORE_CUT
            && path.window_bytes >= FAR_ABOVE * self.first_window_bytes
            && path.floor.packets_since_first_round() >= FIRST_TRAIN_MIN
            && Mechanism::LossEndsStart.acts(path.floor.excess(EXCESS_AT_ONCE, RUNS_AT_ONCE))
    }

    fn ask_for_train(&self, path: &mut PathModel, now_s: f64) {
        if let Some(length) = self.later_train(path)
            && !path.capacity.trains.is_waiting()
            && now_s - self.train_begun_s >= path.rtt_s()
        {
            path.capacity.trains.ask_for(length);
        }
    }

    /// Returns the number of packets in the next train. The train is long enough to be measured,
    /// and at most a quarter of the window.
    ///
    /// Returns `None` if no train is useful, because the sending rate is near the rate of the last
    /// train.
    fn later_train(&self, path: &PathModel) -> Option<usize> {
        let Some(train) = path.capacity.trains.newest() else {
            return Mechanism::TrainAgain
                .acts(self.rounds >= ROUNDS_BEFORE_CUT)
                .then_some(TRAIN_PACKETS_MIN as usize);
        };
        let length = packets_to_time(train.rate_bytes_per_s, path.packet_bytes)
            .clamp(TRAIN_PACKETS_MIN, TRAIN_PACKETS_MAX);
        let is_wanted = train.rate_bytes_per_s > TRAIN_WANTED_ABOVE * path.rate_bytes_per_s()
            && path.window_bytes >= TRAINS_PER_WINDOW * length * path.packet_bytes;
        Mechanism::LaterTrains
            .acts(is_wanted)
            .then_some(length as usize)
    }

    fn end_round(&mut self, path: &mut PathModel, app_limited: bool) -> Transition {
        let delivered = path.capacity.delivered().unwrap_or(0.0);
        let is_flat = !app_limited && self.is_flat(path, delivered);
        self.flat_rounds = if is_flat { self.flat_rounds + 1 } else { 0 };
        let drowned = self.cleanest.end_round(&mut path.floor);
        let drowned = drowned.filter(|_| Mechanism::DrownedRound.acts(!is_far_below_train(path)));
        let is_clean =
            path.floor.since_cut.loss_fraction() <= FLOOR_MAX && !path.floor.is_exceeded();
        if Mechanism::LearnInStart.acts(path.queue_is_empty() && !is_flat && is_clean) {
            path.floor.learn(WEAK_PACKETS);
        }
        self.rounds += 1;
        self.delivered_before = delivered;
        self.windows_before = [path.window_bytes, self.windows_before[0]];
        let is_full = Mechanism::FlatWithLoss
            .acts(self.flat_rounds >= 1 && path.floor.excess(EXCESS_WHEN_FLAT, EXCESS_RUNS));
        if let (Some(_), Some(cleanest)) = (drowned, self.cleanest.round()) {
            path.floor
                .learn_experiment(cleanest.loss_fraction(), cleanest.packets);
        }
        if drowned.is_some() || is_full {
            self.cut_for_loss(drowned)
        } else if Mechanism::FlatRounds.acts(self.flat_rounds >= FLAT_ROUNDS) {
            drain(path)
        } else {
            Transition::Stay
        }
    }

    fn cut_for_loss(&self, drowned: Option<LossCounts>) -> Transition {
        Transition::CutForLoss(LossEvidence {
            is_from_start: Mechanism::StartAgain.acts(self.may_go_on),
            drowned,
            ..LossEvidence::PLAIN
        })
    }

    /// Whether the delivery rate hardly grew in this round, although the window grew in the
    /// previous round.
    fn is_flat(&self, path: &PathModel, delivered: f64) -> bool {
        let [sent, sent_before] = self.windows_before;
        sent >= FLAT_GROWTH * sent_before
            && !is_far_below_train(path)
            && delivered < FLAT_GROWTH * self.delivered_before
    }
}

/// Grows the window after `bytes` more bytes were acknowledged or declared lost.
///
/// Up to nine tenths of the train's rate, the window grows up to eightfold per round trip. Above
/// nine tenths, growth is slow. Growth becomes faster again as the rate rises further above the
/// train's rate.
///
/// Without a train, the window doubles per round trip. If the train shows only a lower limit of the
/// capacity, the window at least doubles.
pub(super) fn grow(path: &mut PathModel, bytes: f64) {
    let Some(train) = path.capacity.trains.newest() else {
        path.window_bytes += GAIN_DOUBLING * bytes;
        return;
    };
    let target = OF_SHOWN * train.rate_bytes_per_s * path.base_s();
    let shown = train
        .rate_bytes_per_s
        .max(path.capacity.measured.unwrap_or(0.0));
    if train.is_lower_bound {
        let is_far_below = EIGHTFOLD * path.window_bytes < target;
        path.window_bytes += if Mechanism::Eightfold.acts(is_far_below) {
            GAIN_EIGHTFOLD
        } else {
            GAIN_DOUBLING
        } * bytes;
    } else if Mechanism::Disproven.acts(path.window_bytes > DISPROVEN * shown * path.base_s()) {
        path.window_bytes = target;
    } else if path.window_bytes < target {
        path.window_bytes = (path
            .window_bytes
            .max(Mechanism::TrainLeap.value(LEAP * target, 0.0))
            + GAIN_EIGHTFOLD * bytes)
            .min(target);
    } else {
        let beyond = path.window_bytes / target - 1.0;
        path.window_bytes += (GAIN_AT_SHOWN
            + Mechanism::GrowthBeyondTrain.value(GAIN_BEYOND * beyond, 0.0))
        .min(GAIN_DOUBLING)
            * bytes;
    }
}

fn drain(path: &PathModel) -> Transition {
    let sent_max = SENT_MAX * path.capacity.trains.shown_max();
    let sent_max = Mechanism::SentMax.value(sent_max, f64::INFINITY);
    Transition::Drain {
        capacity: path.capacity_at(path.rate_bytes_per_s().min(sent_max)),
        series: DrainSeries::default(),
    }
}

/// Returns the rate of the newest train in bytes per second. Returns zero if no train was measured.
fn train_rate(path: &PathModel) -> f64 {
    path.capacity
        .trains
        .newest()
        .map_or(0.0, |train| train.rate_bytes_per_s)
}

/// Whether the train's rate is several times the present rate. Losses then have another cause than
/// the sending rate.
fn is_far_below_train(path: &PathModel) -> bool {
    Mechanism::FarBelowTrain.acts(train_rate(path) > FAR_ABOVE * path.rate_bytes_per_s())
}

/// Number of packets in the first train. At 100 Mbit/s the path spreads the train over 4 ms, which
/// is measurable. At 10 Mbit/s the train builds 38 ms of queue.
///
/// Losses after the first round count only if at least this number of packets was acknowledged or
/// declared lost. A packet that overtakes a train makes other packets of the train seem lost.
const FIRST_TRAIN_MIN: f64 = 32.0;
/// Maximum number of packets in the first train if a capacity is stored from an earlier connection:
/// 1.5 ms at 1 Gbit/s.
const FIRST_TRAIN_MAX: f64 = 128.0;
/// Ratio of the last train's rate to the present rate. Above this ratio a further train is useful,
/// because the capacity is still far away.
const TRAIN_WANTED_ABOVE: f64 = 2.0;
/// Least window for a further train, as a multiple of the train's size. In a smaller window, the
/// train would make up too much of the traffic.
const TRAINS_PER_WINDOW: f64 = 4.0;

/// The first round ends when the window has grown by this factor.
const FIRST_ROUND_GROWTH: f64 = 2.0;
/// Ratio of a train's rate to the present rate. Above this ratio losses do not come from the
/// sending rate.
///
/// Losses can end start-up only if the window has grown by this factor since the first train. With
/// a smaller window, the sending rate does not cause the losses either.
const FAR_ABOVE: f64 = 4.0;
/// Largest loss fraction that start-up adopts as the loss floor. Without this limit, many flows
/// that start together would count as a lossy path.
const FLOOR_MAX: f64 = 0.125;

/// Least excess of losses over the floor. If such losses form at least `RUNS_AT_ONCE` runs,
/// start-up ends at once.
///
/// While the floor is uncertain, a smaller excess may be chance. An early end of start-up costs
/// many rounds of slow growth.
const EXCESS_AT_ONCE: f64 = 0.10;
const RUNS_AT_ONCE: f64 = 8.0;
/// Least number of rounds before losses may end start-up. After these rounds, start-up also sends
/// another train if losses prevented a measurement of the first train.
const ROUNDS_BEFORE_CUT: u32 = 2;
/// Largest loss fraction that can be the loss floor of a path.
const PATH_LOSS_MAX: f64 = 0.75;
/// Least excess of losses over the floor. With such losses, start-up ends after one round without
/// growth of the delivery rate.
const EXCESS_WHEN_FLAT: f64 = 0.05;
/// Growth factor of the delivery rate. If the sent bytes grow by at least this factor and the
/// delivery rate by less, the round is flat.
const FLAT_GROWTH: f64 = 1.25;
/// Number of consecutive flat rounds that end start-up. The path is then full, and its queue was
/// too short to be detected.
const FLAT_ROUNDS: u32 = 3;

/// Fraction of a train's rate, or of a stored capacity, up to which the window grows fast.
///
/// Both values are accurate to about a tenth. Above the capacity every packet would wait in a
/// queue.
const OF_SHOWN: f64 = 0.9;
/// Growth factor per round trip while the capacity is far away.
///
/// A path of 1 Gbit/s and 1 s holds 2600 times the first window. With doubling, the window would
/// need eleven round trips to fill the path.
///
/// If the first round is sent at less than an eighth of a train's rate, its losses come from the
/// path itself.
const EIGHTFOLD: f64 = 8.0;
/// Growth of the window in bytes for each acknowledged or lost byte. With pacing, x-fold growth per
/// round trip requires a value of x ln x. The two values are therefore 8 ln 8 and 2 ln 2.
const GAIN_EIGHTFOLD: f64 = 16.6;
const GAIN_DOUBLING: f64 = 1.386;
/// Fraction of a train's rate. The window is set at once for this fraction of the rate, and then
/// grows gradually.
const LEAP: f64 = 0.5;
/// Growth at the train's rate, in bytes for each acknowledged or lost byte. At a higher rate,
/// growth increases by `GAIN_BEYOND` multiplied by the relative excess over the train's rate.
///
/// If the train's rate was too low, growth therefore becomes faster. Twice the growth would
/// overflow a queue of half a bandwidth-delay product before the first report about the queue.
const GAIN_AT_SHOWN: f64 = 0.1;
const GAIN_BEYOND: f64 = 0.35;
/// Multiple of the highest measured rate, from a train or from arrivals. A window for a rate above
/// this multiple is too large.
///
/// While the window doubles each round trip, packets arrive at half of the window's rate or more.
const DISPROVEN: f64 = 3.0;
/// Multiple of a train's rate. A sending rate above this multiple is no evidence for the capacity.
const SENT_MAX: f64 = 2.0;

#[cfg(test)]
mod tests {
    use crate::congestion::{
        Controller, Digest, PacketArrival, PathMemory,
        knee::{Knee, KneePolicy, resolved_at},
    };

    /// Reports a first train of 32 packets on a path with 100 ms in each direction. The path has a
    /// capacity of `bytes_per_s`, and loses the packets for which `is_lost` returns true.
    fn report_train(knee: &mut Knee, bytes_per_s: f64, is_lost: impl Fn(u64) -> bool) {
        knee.on_sent(0, 1500, 0.001);
        let arrival = |number: u64| PacketArrival {
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
        let mut knee = Knee::new(KneePolicy::Fair, None);
        report_train(&mut knee, 12.5e6, |_| false);
        let share = knee.rate_bytes_per_s() / 12.5e6;
        assert!((0.4..0.9).contains(&share), "{share}");
    }

    #[test]
    fn a_train_too_fast_to_be_measured_is_followed_by_a_longer_one() {
        let mut knee = Knee::new(KneePolicy::Fair, None);
        assert_eq!(knee.train_wanted(1e6), 32);
        knee.on_train_begun(32, 0.001);
        report_train(&mut knee, 1.25e9, |_| false);
        assert!(
            knee.rate_bytes_per_s() < 10e6,
            "{}",
            knee.rate_bytes_per_s()
        );
        assert_eq!(knee.train_wanted(10_000.0), 0, "there is no room yet");
        assert!(knee.train_wanted(1e6) > 60);
    }

    #[test]
    fn what_the_first_train_loses_is_the_path_s() {
        let mut knee = Knee::new(KneePolicy::Fair, None);
        report_train(&mut knee, 12.5e6, |number| number % 2 == 1);
        assert!(
            (knee.path.floor.loss() - 0.5).abs() < 0.05,
            "{}",
            knee.path.floor.loss()
        );
    }

    #[test]
    fn a_remembered_rate_ten_times_too_high_is_cut_to_what_the_train_shows() {
        let memory = PathMemory {
            capacity_bytes_per_s: 125e6,
            loss_floor: 0.0,
        };
        let mut knee = Knee::new(KneePolicy::Fair, Some(memory));
        report_train(&mut knee, 12.5e6, |_| false);
        assert!(knee.rate_bytes_per_s() <= 12.5e6);
        assert!(knee.rate_bytes_per_s() > 10e6);
    }
}
