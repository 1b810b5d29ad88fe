//! One transfer over one path, and its measured outcome.

use std::time::Duration;

use link::{
    Policy, StreamClass, congestion,
    sim::{SimSite, SimWorld, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

/// Path and transfer of one trial.
#[derive(Clone)]
pub struct Trial {
    pub forward: PathConfig,
    pub backward: PathConfig,
    pub size: ByteCount,
    /// Round-trip time of the path without queueing delay.
    pub rtt: Duration,
    /// Probability that the path delivers a packet. The value applies to each direction.
    pub arrives: f64,
    /// Whether the connection carries a transfer of four bandwidth-delay products before the trial.
    pub is_warm: bool,
    pub memory_max: ByteCount,
    pub seed: u64,
}

/// Outcome of a trial.
#[derive(Clone, Copy, Default)]
pub struct TrialOutcome {
    /// Time in seconds until the peer confirmed that all bytes arrived.
    pub time_s: f64,
    /// Ideal time divided by the measured time. Zero if the transfer did not end.
    pub fraction: f64,
    /// Bytes of reports including headers, divided by the bytes that the sender sent.
    pub feedback: f64,
    /// Number of packets that were declared lost but arrived, divided by the number of sent
    /// packets.
    pub needless: f64,
    pub memory_peak_bytes: usize,
    /// Time from the first transmission of the last byte until the receiving application had all
    /// bytes, in round trips.
    pub tail_rtts: f64,
    /// Number of packets that the queue or the policer dropped, divided by the number of sent
    /// packets.
    pub caused_loss: f64,
}

/// Time after which a transfer counts as failed.
const LIMIT: Duration = Duration::from_secs(900);

impl Trial {
    /// Returns a trial with the same rate and the same loss in both directions. The queue holds
    /// half of the bandwidth-delay product.
    pub fn symmetric(rate: BitRate, rtt: Duration, loss: f64) -> Self {
        let path = PathConfig {
            rate: Some(rate),
            queue: PathConfig::default_queue(rate, rtt),
            delay: rtt / 2,
            loss,
            ..PathConfig::default()
        };
        Self {
            forward: path.clone(),
            backward: path,
            size: ByteCount::megabytes(500),
            rtt,
            arrives: 1.0 - loss,
            is_warm: true,
            memory_max: ByteCount::gibibytes(1),
            seed: 1,
        }
    }

    /// Applies `change` to the configuration of both directions.
    pub fn with(mut self, change: impl Fn(&mut PathConfig)) -> Self {
        change(&mut self.forward);
        change(&mut self.backward);
        self
    }

    /// Returns the goodput of a perfect sender in bytes per second. 94 % of the rate is payload.
    pub fn goodput_bytes_per_s(&self) -> f64 {
        let rate = self.forward.rate.map_or(f64::MAX, BitRate::as_bytes_per_s);
        rate * 0.94 * self.arrives
    }

    /// Increases the size of the transfer, if needed, so that it takes at least 20 round trips.
    pub fn at_least_twenty_rtts(mut self) -> Self {
        let bytes = 20.0 * self.rtt.as_secs_f64() * self.goodput_bytes_per_s();
        self.size = self.size.max(ByteCount::new(bytes as u64));
        self
    }

    pub fn world(&self) -> SimWorld {
        SimWorld::new(&WorldConfig {
            forward: self.forward.clone(),
            backward: self.backward.clone(),
            seed: self.seed,
            controller: |memory, rate_max| congestion::for_policy(Policy::Fair, memory, rate_max),
            memory_max: self.memory_max,
            idle_timeout: Duration::from_secs(600),
        })
    }

    /// Transfers four bandwidth-delay products before the trial. Returns the duration in seconds,
    /// or `None` if the transfer did not end.
    pub fn warm(&self, world: &mut SimWorld, watch: &mut dyn FnMut(&SimWorld)) -> Option<f64> {
        let bdp = self
            .forward
            .rate
            .map_or(0, |rate| rate.bytes_in(self.rtt).bytes());
        let id = world.send(
            SimSite::A,
            StreamClass::Bulk,
            ByteCount::new(4 * bdp.max(1_000_000)),
        );
        world.run_until(LIMIT, |world| {
            watch(world);
            let progress = world.progress(id);
            progress.confirmed.is_some() || progress.lost.is_some()
        });
        let progress = world.progress(id);
        progress
            .confirmed
            .map(|end| (end - progress.began).as_secs_f64())
    }

    pub fn run(&self) -> TrialOutcome {
        self.run_watched(&mut |_| {})
    }

    /// Runs the trial. Calls `watch` after each event of the simulation.
    pub fn run_watched(&self, watch: &mut dyn FnMut(&SimWorld)) -> TrialOutcome {
        let mut world = self.world();
        if self.is_warm && self.warm(&mut world, watch).is_none() {
            return TrialOutcome::default();
        }
        let before = world.view(SimSite::A);
        let feedback_before = world.view(SimSite::B).stats.feedback_bytes;
        let drops_before = *world.path_counters(SimSite::A);
        let id = world.send(SimSite::A, StreamClass::Bulk, self.size);
        let mut last_sent = None;
        world.run_until(LIMIT, |world| {
            watch(world);
            if last_sent.is_none() {
                let sent = world.view(SimSite::A).stats.payload_sent - before.stats.payload_sent;
                last_sent = (sent >= self.size.bytes()).then(|| world.now());
            }
            let progress = world.progress(id);
            progress.confirmed.is_some() || progress.lost.is_some()
        });
        let progress = world.progress(id);
        let (Some(end), Some(arrived)) = (progress.confirmed, progress.arrived) else {
            return TrialOutcome::default();
        };
        let time_s = (end - progress.began).as_secs_f64();
        let trips = if self.arrives < 1.0 { 2.0 } else { 1.0 };
        let ideal =
            self.size.bytes() as f64 / self.goodput_bytes_per_s() + trips * self.rtt.as_secs_f64();
        let after = world.view(SimSite::A);
        let receiver = world.view(SimSite::B);
        let path = world.path_counters(SimSite::A);
        let sent = (path.sent - drops_before.sent).max(1) as f64;
        let forward_bytes = after.stats.bytes_sent - before.stats.bytes_sent;
        TrialOutcome {
            time_s,
            fraction: ideal / time_s,
            feedback: (receiver.stats.feedback_bytes - feedback_before) as f64
                / forward_bytes.max(1) as f64,
            needless: after.packets_late.saturating_sub(before.packets_late) as f64 / sent,
            memory_peak_bytes: receiver.receive_memory_peak_bytes,
            tail_rtts: arrived
                .saturating_sub(last_sent.unwrap_or(arrived))
                .as_secs_f64()
                / self.rtt.as_secs_f64(),
            caused_loss: (path.queue_drops + path.policer_drops
                - drops_before.queue_drops
                - drops_before.policer_drops) as f64
                / sent,
        }
    }
}
