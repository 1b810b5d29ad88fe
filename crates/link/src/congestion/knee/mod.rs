//! Knee controller: fills the path up to the knee of its delay curve, and then drains the queue.
//!
//! While competing flows keep the queue full, the controller behaves as paced CUBIC.
//!
//! The input is reports of the peer ([`Digest`]) and the time. The output is a window, and a pacing
//! rate of window / (base RTT + queueing delay). The window counts *sent* bytes, so random loss
//! does not shrink the window.
//!
//! The window grows until one-way queueing delay appears. The controller then drains the queue. If
//! the drain does not empty the queue, the route has become longer, or other flows fill the queue.
//!
//! Losses matter only in excess of the loss floor. The floor is measured far below the path's
//! capacity. An experiment can raise the floor, and every count with fewer losses lowers it. At a
//! policer, loss without a queue is the only sign of congestion. The window then grows as CUBIC's
//! window. The benches `controller` and `fair` show the results.
//!
//! Each submodule holds one measurement: [`queue`], [`capacity`], [`floor`], [`competing_flows`],
//! [`policer_detector`], [`report_times`]. [`path_model`] holds all measurements and the window. A
//! [`mode`] reads the measurements, sets the window and returns the next mode. This file forwards
//! the reports and changes the mode.

mod capacity;
mod competing_flows;
mod cubic;
mod extremes;
mod floor;
mod mechanism;
mod mode;
mod path_model;
mod policer_detector;
mod queue;
mod report_times;

pub use self::competing_flows::KneePolicy;
#[cfg(feature = "ablation")]
pub use self::mechanism::Mechanism;
#[cfg(not(feature = "ablation"))]
use self::mechanism::Mechanism;
use self::{
    mode::{KneeMode, StartMode, Transition},
    path_model::{PACKET_GUESS, PathModel},
};
use super::{Controller, Digest, PathMemory};

/// Knee controller.
#[derive(Debug)]
pub struct Knee {
    path: PathModel,
    mode: KneeMode,
}

impl Knee {
    /// Creates a controller. `memory` holds measurements of the path from an earlier connection.
    pub fn new(policy: KneePolicy, memory: Option<PathMemory>) -> Self {
        let cached = memory.map(|memory| memory.capacity_bytes_per_s);
        let first_train = StartMode::first_train(cached);
        let first_window_bytes = first_train as f64 * PACKET_GUESS;
        let mut path = PathModel::new(policy, first_window_bytes, memory);
        path.capacity.trains.ask_for(first_train);
        Self {
            path,
            mode: KneeMode::Start(StartMode::new(first_window_bytes, cached)),
        }
    }

    /// Changes to the mode that `next` requests, if any.
    fn follow(&mut self, next: Transition, now_s: f64) {
        if let Some(mode) = KneeMode::after(next, &mut self.path, now_s) {
            self.mode = mode;
        }
    }

    /// Updates the measurements of the path. If the base round-trip time changes, the controller
    /// keeps the rate and changes the window.
    fn measure(&mut self, digest: &Digest<'_>, since_report_s: f64, now_s: f64) {
        // While the link is idle, this sender causes no queue.
        let queue_s = if self.is_idle(digest) {
            0.0
        } else {
            self.path.queue.delay_s
        };
        let is_stale = Mechanism::StaleWindow
            .acts(since_report_s > extremes::PATH_WINDOW_S && !self.mode.is_start());
        if is_stale {
            // The measurements of the path are old, so the rate is kept as a guess.
            self.path.look_again(now_s);
            self.follow(Transition::Grow, now_s);
        }
        // If a packet was sent before the reports stopped, its round-trip time includes the time
        // without reports.
        let is_telling = |sample_s: &f64| !is_stale || *sample_s < SENT_IN_SILENCE * since_report_s;
        let digest = Digest {
            rtt_s: digest.rtt_s.filter(is_telling),
            ..*digest
        };
        let factor = self.path.measure(&digest, queue_s, now_s);
        if Mechanism::RateAcrossRoutes.acts(factor != 1.0 && self.mode.window_fits_base_rtt()) {
            self.path.window_bytes *= factor;
            // Losses of the previous path are no evidence about the present path.
            self.path.floor.begin_count(now_s);
        }
    }

    /// Whether the application sends only a few packets per round trip. A queue then comes from
    /// other flows, and does not react to this sender.
    fn is_idle(&self, digest: &Digest<'_>) -> bool {
        let used = digest.bytes_in_flight as f64 + digest.resolved_bytes() as f64;
        !self.mode.is_start()
            && digest.app_limited
            && used
                < (IDLE_PART * self.path.window_bytes).min(IDLE_PACKETS * self.path.packet_bytes)
    }

    /// Grows the window after a report. The growth depends on the bytes that the report
    /// acknowledges or declares lost.
    fn grow(&mut self, digest: &Digest<'_>, since_report_s: f64, now_s: f64) {
        // The window must not grow while there are no bytes to send, or no reports.
        let idle_s = if digest.app_limited {
            since_report_s
        } else {
            Mechanism::GrowthPause.value(
                (since_report_s - GROWTH_PAUSE_ROUNDS * self.path.round_s()).max(0.0),
                0.0,
            )
        };
        self.mode.pause(&mut self.path, idle_s);
        if !digest.app_limited {
            // After a pause, one report may cover packets of several round trips. Such a report
            // grows the window at most as much as the reports of one round trip would.
            let bytes = digest.resolved_bytes() as f64;
            let bytes = Mechanism::GrowthBound.value(bytes.min(self.path.window_bytes), bytes);
            self.mode.grow(&mut self.path, bytes, now_s);
        }
    }

    /// Handles a report while the link is idle.
    fn rest(&mut self, now_s: f64) {
        let next = self.mode.rest(&mut self.path, now_s);
        self.follow(next, now_s);
        self.path.begin_round(now_s);
    }

    /// Checks whether the present mode has ended, and changes the mode if it has.
    fn step(&mut self, app_limited: bool, now_s: f64) {
        let next = self.mode.step(&mut self.path, app_limited, now_s);
        self.follow(next, now_s);
    }
}

impl Controller for Knee {
    fn on_sent(&mut self, _: u64, bytes: usize, now_s: f64) {
        self.path.on_sent(bytes, now_s);
        self.mode.on_sent(bytes, now_s);
    }

    fn on_report(&mut self, digest: &Digest<'_>, now_s: f64) {
        let since_report_s = self.path.reports.since_s(now_s);
        self.measure(digest, since_report_s, now_s);
        self.path.count_losses(digest, now_s);
        if let KneeMode::Start(start) = &mut self.mode
            && digest.rtt_s.is_some()
        {
            start.take_up_cached(&mut self.path);
        }
        self.grow(digest, since_report_s, now_s);
        if Mechanism::IdleRest.acts(self.is_idle(digest)) {
            self.rest(now_s);
        } else {
            self.step(digest.app_limited, now_s);
        }
        let window_min_bytes = WINDOW_MIN_PACKETS * self.path.packet_bytes;
        self.path.window_bytes = self.path.window_bytes.max(window_min_bytes);
        debug_assert!(
            self.path.window_bytes.is_finite(),
            "every divisor is bounded below"
        );
    }

    fn rate_bytes_per_s(&self) -> f64 {
        self.mode.rate_bytes_per_s(&self.path)
    }

    /// Returns the limit of bytes in flight. The limit lets pacing continue until the slowest
    /// report about a packet arrives.
    fn window_bytes(&self) -> f64 {
        let path = &self.path;
        let base_s = path.base_s();
        let reordered = Mechanism::InFlightForReordering.value(path.reports.reordered(base_s), 0.0);
        let slack = 1.0
            + Mechanism::InFlightForLoss.value(IN_FLIGHT_FOR_LOSS * path.floor.loss(), 0.0)
            + reordered;
        let spare = IN_FLIGHT_SPARE_PACKETS * path.packet_bytes;
        let window_bytes = self.mode.extra_bytes()
            + IN_FLIGHT_MAX * path.window_bytes * slack
            + self.mode.rate_bytes_per_s(path) * self.mode.silence_s(path);
        window_bytes.max(self.mode.in_flight_min_bytes()) + spare
    }

    fn train_wanted(&self, room_bytes: f64) -> usize {
        self.path
            .capacity
            .trains
            .wanted(self.path.packet_bytes, room_bytes)
    }

    fn on_train_begun(&mut self, packets: usize, now_s: f64) {
        self.path.capacity.trains.begin(packets);
        self.mode.on_train_begun(now_s);
    }

    fn unpaced_bytes(&self) -> f64 {
        match self.mode.is_start() {
            true => StartMode::UNPACED_BYTES.min(self.path.window_bytes),
            false => 0.0,
        }
    }

    fn memory(&self) -> Option<PathMemory> {
        let capacity = self.path.capacity.lasting()?;
        (!self.mode.is_start()).then_some(PathMemory {
            capacity_bytes_per_s: capacity.min(REMEMBERED_MAX * self.rate_bytes_per_s()),
            loss_floor: self.path.floor.loss(),
        })
    }

    fn state(&self) -> &'static str {
        self.mode.name()
    }

    fn forgive_losses(&mut self, now_s: f64) {
        self.path.floor.begin_count(now_s);
        let next = self.mode.forgive_losses(&mut self.path, now_s);
        self.follow(next, now_s);
    }

    fn queue_delay_s(&self) -> f64 {
        self.path.queue.delay_s
    }

    fn take_longer_route(&mut self) -> bool {
        self.path.queue.take_longer_route()
    }
}

/// Number of rounds without a report. After these rounds, CUBIC's window stops growing, because no
/// measurement shows whether later packets have passed.
const GROWTH_PAUSE_ROUNDS: f64 = 2.0;
/// Fraction of a period without reports. If a packet's round-trip time exceeds this fraction of the
/// period, the packet was sent before the reports stopped.
const SENT_IN_SILENCE: f64 = 0.5;
/// Limits below which a link counts as idle: a fraction of the window, and a number of packets.
/// Commands and keep-alives stay below both limits.
const IDLE_PART: f64 = 1.0 / 8.0;
const IDLE_PACKETS: f64 = 8.0;
/// Least window, in packets. With a smaller window, one lost report stops the flow, and too few
/// packets remain for a measurement.
const WINDOW_MIN_PACKETS: f64 = 4.0;

/// Limit of bytes in flight, as a multiple of the window. Pacing sets the rate, so the limit
/// matters only if reports are missing.
const IN_FLIGHT_MAX: f64 = 1.25;
/// Relative increase of the limit [`IN_FLIGHT_MAX`] on a path that loses all packets. The actual
/// increase is this value multiplied by the loss floor.
///
/// A lost packet counts as in flight until it is declared lost. The report about an arrived packet
/// comes sooner.
const IN_FLIGHT_FOR_LOSS: f64 = 0.25;
/// Number of packets that may be in flight in addition to [`IN_FLIGHT_MAX`]. These packets allow a
/// burst of the pacer if the window is small.
const IN_FLIGHT_SPARE_PACKETS: f64 = 4.0;

/// Upper limit of the capacity stored for a later connection, as a multiple of the present sending
/// rate.
///
/// A capacity may be too high if competing flows shared the path or if packets arrived in a burst.
const REMEMBERED_MAX: f64 = 2.0;

/// Returns `count` packets of 1500 bytes, all sent at `sent_s`.
#[cfg(test)]
fn resolved_at(
    sent_s: f64,
    count: u64,
    is_lost: impl Fn(u64) -> bool,
) -> Vec<crate::congestion::ResolvedPacket> {
    (0..count)
        .map(|number| crate::congestion::ResolvedPacket {
            number,
            bytes: 1500,
            sent_s,
            lost: is_lost(number),
            in_outage: false,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::congestion::PacketArrival;

    proptest! {
        /// Each report contains a round-trip time, delays of four packets, and whether the link is
        /// idle. The values are random, like the values of a hostile peer.
        ///
        /// No report resolves a packet as acknowledged or lost, so the window has no reason to
        /// grow.
        #[test]
        fn no_order_of_round_trip_times_and_delays_pumps_the_window_up(
            reports in prop::collection::vec((0.001..5.0_f64, 0.0..10.0_f64, any::<bool>()), 1..200),
        ) {
            let mut knee = Knee::new(KneePolicy::Fair, None);
            knee.path.pretend(0.1, 10e6, 0.5);
            knee.path.queue.has_emptied = true;
            knee.path.window_bytes = 1e6;
            knee.follow(Transition::Grow, 0.5);
            let mut number = 0;
            for (place, (rtt_s, delay_s, app_limited)) in reports.into_iter().enumerate() {
                let now_s = 1.0 + place as f64;
                let arrivals = [0, 1, 2, 3].map(|packet| {
                    number += 1;
                    let sent_s = now_s - 0.5 + 0.05 * f64::from(packet);
                    PacketArrival {
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
                prop_assert!(knee.path.window_bytes.is_finite() && knee.window_bytes().is_finite());
                if before == "grow" && knee.state() == "grow" {
                    prop_assert!(knee.rate_bytes_per_s() < 20e6, "{} bytes/s", knee.rate_bytes_per_s());
                }
            }
        }
    }
}
