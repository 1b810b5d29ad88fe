//! One transfer over one path, and its outcome.

use std::time::Duration;

use link::{
    Class, Policy, congestion,
    sim::{SimSite, World, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

/// Path and transfer.
#[derive(Clone)]
pub struct Trial {
    pub forward: PathConfig,
    pub backward: PathConfig,
    pub size: ByteCount,
    /// Round-trip time without a queue.
    pub rtt: Duration,
    /// Probability that a packet arrives, each way.
    pub arrives: f64,
    /// Whether a transfer of four bandwidth-delay products goes before.
    pub is_warm: bool,
    pub memory_max: ByteCount,
    pub seed: u64,
}

/// Outcome of a trial.
#[derive(Clone, Copy, Default)]
pub struct TrialOutcome {
    /// Time until the sender has learned that everything arrived.
    pub time_s: f64,
    /// Ideal time divided by that time; zero if the transfer did not end.
    pub fraction: f64,
    /// Bytes of reports, headers included, divided by bytes sent forward.
    pub feedback: f64,
    /// Spuriously lost packets, divided by packets sent.
    pub needless: f64,
    pub memory_peak_bytes: usize,
    /// Time from the first transmission of the last byte until the reader had everything, in round
    /// trips.
    pub tail_rtts: f64,
    /// Packets that the bottleneck's queue dropped, divided by packets sent.
    pub caused_loss: f64,
}

/// Time after which a transfer has failed.
const LIMIT: Duration = Duration::from_secs(900);

impl Trial {
    /// Returns a trial with `rate` each way, a queue of half the bandwidth-delay product, and the
    /// same impairments both ways.
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

    /// Changes both directions.
    pub fn with(mut self, change: impl Fn(&mut PathConfig)) -> Self {
        change(&mut self.forward);
        change(&mut self.backward);
        self
    }

    /// Returns the best goodput of a perfect sender, with 94 % of the rate as payload.
    pub fn goodput_bytes_per_s(&self) -> f64 {
        let rate = self.forward.rate.map_or(f64::MAX, BitRate::as_bytes_per_s);
        rate * 0.94 * self.arrives
    }

    /// Makes the transfer at least as long as the definition of goodput requires.
    pub fn at_least_twenty_rtts(mut self) -> Self {
        let bytes = 20.0 * self.rtt.as_secs_f64() * self.goodput_bytes_per_s();
        self.size = self.size.max(ByteCount::new(bytes as u64));
        self
    }

    pub fn world(&self) -> World {
        World::new(&WorldConfig {
            forward: self.forward.clone(),
            backward: self.backward.clone(),
            seed: self.seed,
            controller: |memory, rate_max| congestion::for_policy(Policy::Fair, memory, rate_max),
            memory_max: self.memory_max,
            idle_timeout: Duration::from_secs(600),
        })
    }

    /// Moves four bandwidth-delay products. Returns the time it took.
    pub fn warm(&self, world: &mut World, watch: &mut dyn FnMut(&World)) -> Option<f64> {
        let bdp = self
            .forward
            .rate
            .map_or(0, |rate| rate.bytes_in(self.rtt).bytes());
        let id = world.send(
            SimSite::A,
            Class::Bulk,
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

    /// Runs the trial, and calls `watch` at each event.
    pub fn run_watched(&self, watch: &mut dyn FnMut(&World)) -> TrialOutcome {
        let mut world = self.world();
        if self.is_warm && self.warm(&mut world, watch).is_none() {
            return TrialOutcome::default();
        }
        let before = world.view(SimSite::A);
        let feedback_before = world.view(SimSite::B).stats.feedback_bytes;
        let drops_before = *world.path_counters(SimSite::A);
        let id = world.send(SimSite::A, Class::Bulk, self.size);
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
