//! The knee controller: fills the path up to the knee of its delay curve, drains the queue that it
//! built, and behaves as paced CUBIC while others keep the queue full.
//!
//! In: reports of the peer ([`Digest`]) and the time. Out: a window, and a pacing rate of
//! window / (base RTT + queueing delay). The window counts bytes *sent*, so random loss does not shrink
//! it.
//!
//! The window grows until one-way queueing delay shows; then a drain must empty the queue. A drain
//! that fails means that the route is longer, or that others fill the queue, too. Loss acts only in excess of a
//! floor: the floor is learned far below capacity, raised by experiment, and lowered by every cleaner window.
//! Where loss without a queue is the only sign of a limit, as at a policer, CUBIC's law rules. The benches
//! `controller` and `fair` print how well that does.
//!
//! This file holds what all states share; each other file holds one phase or one measurement.

mod capacity;
mod company;
mod cubic;
mod cycle;
mod extremes;
mod floor;
mod loss;
mod policed;
mod queue;
mod reports;
mod route;
mod start;
mod state;

use self::{
    capacity::Capacity,
    floor::Floor,
    queue::Queue,
    reports::Reports,
    state::{Experiment, FailedDrains, LossDrain, Policer, State},
};
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
    queue: Queue,
    capacity: Capacity,
    floor: Floor,
    reports: Reports,
    state: State,
    /// Bytes in flight aimed at, queue excluded.
    window: f64,
    /// Size of a packet on the wire, moving average, in bytes.
    packet: f64,
    round_began_s: f64,
    /// The last cut was for loss: growth is gentle.
    is_gentle: bool,
    policer: Policer,
    failed_drains: FailedDrains,
}

impl Knee {
    /// A controller that knows `memory` of the path.
    pub fn new(share: Share, memory: Option<PathMemory>) -> Self {
        let cached = memory.map(|memory| memory.capacity_bytes_per_s);
        let first_train = Self::first_train(cached);
        let first_window = first_train as f64 * PACKET_GUESS;
        let mut knee = Self {
            share,
            queue: Queue::new(),
            capacity: Capacity::default(),
            floor: Floor::new(memory.map(|memory| memory.loss_floor)),
            reports: Reports::default(),
            state: Self::first_state(first_window, cached),
            window: first_window,
            packet: PACKET_GUESS,
            round_began_s: 0.0,
            is_gentle: false,
            policer: Policer::default(),
            failed_drains: FailedDrains::default(),
        };
        knee.capacity.trains.ask_for(first_train);
        knee
    }

    /// As if it had measured this.
    #[cfg(test)]
    fn pretend(&mut self, base_s: f64, capacity: f64, now_s: f64) {
        self.queue.pretend(base_s, now_s);
        self.capacity.pretend(capacity, now_s);
    }

    fn base_s(&self) -> f64 {
        self.queue.base_rtt_s()
    }

    fn rtt_s(&self) -> f64 {
        self.queue.rtt_s()
    }

    fn rate(&self) -> f64 {
        let rate = self.window / self.rtt_s();
        match self.state {
            State::Drain(drain) if self.is_short(drain.capacity) => {
                rate.max(DRAIN_RATE_MIN_SHORT * drain.capacity)
            }
            State::Drain(drain) => rate.max(DRAIN_RATE_MIN * drain.capacity),
            State::RouteTest(test) if test.bytes_left > 0.0 => test.rate,
            State::RouteTest(test) => rate.max(DRAIN_RATE_MIN * test.capacity),
            _ => rate,
        }
    }

    fn is_short(&self, capacity: f64) -> bool {
        capacity * self.base_s() < SHORT_PACKETS * self.packet
    }

    /// The time between two packets at the present rate.
    fn packet_time_s(&self) -> f64 {
        self.packet * self.rtt_s() / self.window.max(self.packet)
    }

    /// Queueing delay that ends growth: visible over jitter, yet within a queue of a tenth of the
    /// bandwidth-delay product.
    fn threshold_s(&self) -> f64 {
        self.threshold_at_s(self.window / self.rtt_s())
    }

    /// The same at a given rate, in bytes per second: packets that are farther apart vary more.
    fn threshold_at_s(&self, rate: f64) -> f64 {
        self.queue.threshold_s(rate, self.packet)
    }

    /// Packets sent since the last cut show a queue that ends growth.
    fn queue_shows(&self) -> bool {
        self.queue.shows(self.threshold_s())
    }

    /// Packets sent since the last cut show no queue.
    fn queue_is_seen_empty(&self) -> bool {
        self.queue.is_seen_empty(self.threshold_s())
    }

    /// How long a round lasts: a round trip, or longer where that holds too few packets or too little
    /// time to measure in.
    fn round_s(&self) -> f64 {
        let delivered = (1.0 - self.floor.loss()).max(ROUND_DELIVERED_MIN);
        let packets_s = ROUND_PACKETS * self.packet_time_s() / delivered;
        self.rtt_s().max(ROUND_MIN_S).max(packets_s)
    }

    fn begin_round(&mut self, now_s: f64) {
        self.round_began_s = now_s;
    }

    /// From now on only packets sent later count, for losses and for the queue.
    fn mark_cut(&mut self, now_s: f64) {
        self.floor.begin_count(now_s);
        self.queue.forget(now_s);
        self.begin_round(now_s);
    }

    /// The capacity of the path in the sending domain, never far below the rate of the last round trip.
    fn capacity(&self) -> f64 {
        let sent = self.window / self.rtt_s();
        let passed = if self.floor.is_exceeded() {
            self.floor.passed()
        } else {
            1.0
        };
        let was_app_limited = self.reports.were_app_limited_of_late(self.rtt_s());
        self.capacity.estimate(sent, passed, was_app_limited)
    }

    /// Growth by the packets that a report resolved.
    fn grow(&mut self, bytes: f64, now_s: f64) {
        // A report after a pause resolves several round trips at once: growth is by round trips.
        let bytes = bytes.min(self.window);
        match self.state {
            State::Start(_) => self.grow_start(bytes),
            State::Grow(grow) => {
                let share = self.rtt_s() / self.round_s();
                self.window += grow.gain * bytes * share;
            }
            State::Policed => self.grow_policed(bytes, now_s),
            State::Compete(compete) => self.grow_compete(compete, bytes, now_s),
            State::Drain(_)
            | State::RouteTest(_)
            | State::LossDrain(_)
            | State::Experiment(_)
            | State::CompeteTest(_) => {}
        }
    }

    /// Looks whether the present state is over.
    fn step(&mut self, app_limited: bool, now_s: f64) {
        match self.state {
            State::Start(start) => self.step_start(start, app_limited, now_s),
            State::Grow(grow) => self.step_grow(grow, app_limited, now_s),
            State::Drain(drain) => self.step_drain(drain, app_limited, now_s),
            State::RouteTest(test) => self.step_route_test(test, app_limited, now_s),
            State::LossDrain(drain) => self.step_loss_drain(drain, now_s),
            State::Experiment(experiment) => self.step_experiment(experiment, now_s),
            State::Policed => self.step_policed(now_s),
            State::Compete(compete) => self.step_compete(compete, now_s),
            State::CompeteTest(test) => self.step_compete_test(test, now_s),
        }
    }

    /// Measures, and keeps the rate where the base RTT becomes another: a window fits one path.
    fn measure_path(&mut self, digest: &Digest<'_>, since_report_s: f64, now_s: f64) {
        // A queue on an idle link is none of ours, or none at all.
        let queue_s = if self.is_idle(digest) {
            0.0
        } else {
            self.queue.delay_s
        };
        let is_stale = since_report_s > STALE_S && !matches!(self.state, State::Start(_));
        if is_stale {
            self.look_again(now_s);
        }
        // The time of a packet that was sent before a silence says how long that was.
        let is_telling = |sample_s: &f64| !is_stale || *sample_s < since_report_s / 2.0;
        let digest = Digest {
            rtt_s: digest.rtt_s.filter(is_telling),
            ..*digest
        };
        self.update(&digest, now_s);
        if digest.rtt_s.is_some() {
            let factor = self.queue.follow_base_rtt(queue_s, now_s);
            self.scale_window(factor);
        }
    }

    fn update(&mut self, digest: &Digest<'_>, now_s: f64) {
        if let Some(rtt_s) = digest.rtt_s {
            self.queue.on_rtt(rtt_s, now_s);
        }
        let base_s = self.base_s();
        self.reports.on_report(digest, base_s, now_s);
        for arrival in digest.arrivals {
            if self.queue.on_arrival(arrival, base_s, now_s) {
                self.capacity.on_arrival(arrival, base_s);
            }
        }
        self.capacity.on_report(digest, base_s);
    }

    /// Scales the window where it is the product of a rate and the base RTT.
    fn scale_window(&mut self, factor: f64) {
        if let State::Grow(_) | State::Drain(_) | State::RouteTest(_) = self.state {
            self.window *= factor;
        }
    }

    /// Whether the application sends so little that a queue is none of ours, and that nothing we do would show in it.
    fn is_idle(&self, digest: &Digest<'_>) -> bool {
        let resolved: usize = digest.resolved.iter().map(|packet| packet.bytes).sum();
        let used = digest.bytes_in_flight as f64 + resolved as f64;
        let is_started = !matches!(self.state, State::Start(_));
        is_started
            && digest.app_limited
            && used < (IDLE_PART * self.window).min(IDLE_PACKETS * self.packet)
    }

    /// Waits for traffic: what is under way would judge a queue that is none of ours.
    fn rest(&mut self, now_s: f64) {
        match &mut self.state {
            State::Drain(drain) => drain.cut_s = now_s,
            State::RouteTest(_) => {
                self.forget_route_test();
                self.enter_grow(now_s);
            }
            State::Compete(compete) if now_s >= compete.test_at_s => self.enter_grow(now_s),
            _ => {}
        }
        self.begin_round(now_s);
    }

    /// What is known of the path is old: keeps the rate as a guess and measures anew.
    fn look_again(&mut self, now_s: f64) {
        let queue = std::mem::replace(&mut self.queue, Queue::new());
        self.queue = queue.after_pause();
        self.capacity = std::mem::take(&mut self.capacity).after_pause();
        self.reports.forget_gaps();
        self.forget_policer();
        self.mark_cut(now_s);
        self.enter_grow(now_s);
    }

    /// Takes `idle_s` out of the time in which CUBIC's window grows.
    fn pause_cubic(&mut self, idle_s: f64) {
        if let Some(cubic) = &mut self.policer.law {
            cubic.pause(idle_s);
        }
        if let State::Compete(compete) = &mut self.state {
            compete.cubic.pause(idle_s);
        }
    }
}

impl Controller for Knee {
    fn on_sent(&mut self, _: u64, bytes: usize, now_s: f64) {
        if self.reports.on_sent(now_s) {
            self.round_began_s = now_s;
            if let State::Start(start) = &mut self.state {
                start.train_asked_s = now_s;
            }
        }
        if let State::RouteTest(test) = &mut self.state {
            test.bytes_left -= bytes as f64;
        }
        if bytes > FULL_PACKET_MIN_BYTES {
            self.packet += (bytes as f64 - self.packet) * PACKET_WEIGHT;
        }
    }

    fn on_report(&mut self, digest: &Digest<'_>, now_s: f64) {
        let since_report_s = self.reports.since_s(now_s);
        self.measure_path(digest, since_report_s, now_s);
        self.floor.update(digest.resolved, digest.late_sent_s);
        if !self.floor.is_exceeded() {
            self.capacity
                .remember(self.queue.cut_s(), self.base_s(), now_s);
        }
        self.take_up_cached(digest.rtt_s.is_some());
        // Time without anything to send, or without reports, is no time to grow.
        self.pause_cubic(if digest.app_limited {
            since_report_s
        } else {
            (since_report_s - GROWTH_PAUSE_ROUNDS * self.round_s()).max(0.0)
        });
        if digest.app_limited {
            self.reports.on_app_limited(now_s);
        } else {
            let bytes: usize = digest.resolved.iter().map(|packet| packet.bytes).sum();
            self.grow(bytes as f64, now_s);
        }
        if self.is_idle(digest) {
            self.rest(now_s);
        } else {
            self.step(digest.app_limited, now_s);
        }
        self.window = self.window.max(WINDOW_MIN_PACKETS * self.packet);
        debug_assert!(self.window.is_finite(), "every divisor is bounded below");
    }

    fn rate_bytes_per_s(&self) -> f64 {
        self.rate()
    }

    /// What pacing at the rate has in flight until the slowest report tells of it.
    fn window_bytes(&self) -> f64 {
        let (reordered, unreported_s) = self.reports.slack(self.base_s());
        let slack = 1.0 + IN_FLIGHT_FOR_LOSS * self.floor.loss() + reordered;
        let between_reports = self.rate() * unreported_s;
        let test = match self.state {
            State::RouteTest(test) => test.bytes,
            _ => 0.0,
        };
        test + IN_FLIGHT_MAX * self.window * slack
            + IN_FLIGHT_SPARE_PACKETS * self.packet
            + between_reports
    }

    fn take_train(&mut self, room_bytes: f64) -> usize {
        self.capacity.trains.take_wanted(self.packet, room_bytes)
    }

    fn memory(&self) -> Option<PathMemory> {
        let capacity = self.capacity.measured?;
        (!matches!(self.state, State::Start(_))).then_some(PathMemory {
            capacity_bytes_per_s: capacity.min(REMEMBERED_MAX * self.rate()),
            loss_floor: self.floor.loss(),
        })
    }

    fn state(&self) -> &'static str {
        match self.state {
            State::Start(_) => "start",
            State::Grow(_) => "grow",
            State::Drain(_) => "drain",
            State::RouteTest(_) => "route test",
            State::LossDrain(_) => "loss drain",
            State::Experiment(_) => "experiment",
            State::Policed => "policed",
            State::Compete(_) => "compete",
            State::CompeteTest(_) => "compete test",
        }
    }

    fn forgive_losses(&mut self, now_s: f64) {
        self.floor.begin_count(now_s);
        if let State::LossDrain(LossDrain { before, .. })
        | State::Experiment(Experiment { before, .. }) = self.state
        {
            self.undo_cut(&before);
            self.mark_cut(now_s);
            self.enter_grow(now_s);
        }
    }

    fn queue_delay_s(&self) -> f64 {
        self.queue.delay_s
    }

    fn take_longer_route(&mut self) -> bool {
        self.queue.take_longer_route()
    }
}

/// Bytes of a packet before anything is measured: what Ethernet carries.
const PACKET_GUESS: f64 = 1500.0;
/// A smaller packet carries control frames or a stream's end and says nothing of the usual size; in bytes.
const FULL_PACKET_MIN_BYTES: usize = 1000;
/// Weight of one packet in the average of packet sizes: the average follows a new MTU within a few
/// hundred packets, and a few odd packets do not move it.
const PACKET_WEIGHT: f64 = 1.0 / 64.0;
/// A path that holds fewer packets than this is short: its queue is what fills it.
const SHORT_PACKETS: f64 = 16.0;

/// A round holds this many packets that arrive, so that there is something to judge it by.
const ROUND_PACKETS: f64 = 8.0;
/// For the length of a round, the path delivers this fraction at least: otherwise a floor near one
/// would make rounds endless.
const ROUND_DELIVERED_MIN: f64 = 0.1;
/// A round is this long at least. Reports are a millisecond apart or more, so a round of one short round
/// trip would be over before it was measured.
const ROUND_MIN_S: f64 = 0.010;

/// A drain is paced at this fraction of the capacity at least, since the measured queue may be many
/// times a tiny base RTT, and window / RTT would then stop the flow. Lower drains faster, higher wastes
/// less.
const DRAIN_RATE_MIN: f64 = 0.6;
/// The same on a short path, where a drain to a small fraction of a few packets would leave the line
/// idle.
const DRAIN_RATE_MIN_SHORT: f64 = 0.8;

/// Without a report for this many rounds, CUBIC's window stops growing: what was sent meanwhile is not
/// known to have passed.
const GROWTH_PAUSE_ROUNDS: f64 = 2.0;
/// After this long without a report the window is validated anew: the window over which the base delay
/// is the minimum is as long, so nothing measured is left by then.
const STALE_S: f64 = 30.0;
/// An application that uses less than this part of the window, and no more than a few packets as commands and
/// keep-alives do, leaves the link idle.
const IDLE_PART: f64 = 1.0 / 8.0;
const IDLE_PACKETS: f64 = 8.0;
/// The window never falls below this many packets: with fewer in flight a single lost report stops the
/// flow, and there is too little to measure.
const WINDOW_MIN_PACKETS: f64 = 4.0;

/// Bytes in flight at most, as a multiple of the window: pacing sets the rate, and this is to bind only
/// where reports fail to come.
const IN_FLIGHT_MAX: f64 = 1.25;
/// Further bytes in flight, as a multiple of the window, for each packet that the path loses: a lost
/// packet stays in flight until it is given up, later than one that arrives is reported.
const IN_FLIGHT_FOR_LOSS: f64 = 0.25;
/// Packets that may be in flight beyond that, so that a small window does not stop a burst of the pacer.
const IN_FLIGHT_SPARE_PACKETS: f64 = 4.0;

/// A later connection is told this multiple of the present rate at most: what is measured in company or
/// over a burst of arrivals may be more than the path passes.
const REMEMBERED_MAX: f64 = 2.0;

/// Packets of 1500 bytes, all sent at `sent_s`.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::congestion::Arrival;

    proptest! {
        /// Each report brings a round-trip time, a delay of four packets, and whether the link is idle: by noise, or by
        /// a peer that lies. Nothing is resolved, so there is no reason to grow.
        #[test]
        fn no_order_of_round_trip_times_and_delays_pumps_the_window_up(
            reports in prop::collection::vec((0.001..5.0_f64, 0.0..10.0_f64, any::<bool>()), 1..200),
        ) {
            let mut knee = Knee::new(Share::Fair, None);
            knee.pretend(0.1, 10e6, 0.5);
            knee.queue.has_emptied = true;
            knee.window = 1e6;
            knee.enter_grow(0.5);
            let mut number = 0;
            for (place, (rtt_s, delay_s, app_limited)) in reports.into_iter().enumerate() {
                let now_s = 1.0 + place as f64;
                let arrivals = [0, 1, 2, 3].map(|packet| {
                    number += 1;
                    let sent_s = now_s - 0.5 + 0.05 * f64::from(packet);
                    Arrival {
                        number,
                        sent_s,
                        received_s: sent_s + delay_s,
                        sent_bytes_before: number * 1500,
                        in_train: false,
                    }
                });
                let digest = Digest {
                    arrivals: &arrivals,
                    rtt_s: Some(rtt_s),
                    app_limited,
                    ..Digest::default()
                };
                let before = knee.state();
                knee.on_report(&digest, now_s);
                prop_assert!(knee.window.is_finite() && knee.window_bytes().is_finite());
                if before == "grow" && knee.state() == "grow" {
                    prop_assert!(knee.rate() < 20e6, "{} bytes/s", knee.rate());
                }
            }
        }
    }
}
