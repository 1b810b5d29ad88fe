//! Simulation of two Longhaul endpoints over a WAN, in virtual time.
//!
//! A [`SimWorld`] holds two sites that a `wansim::Duplex` joins. It moves real datagrams with real
//! encryption, and jumps from one event to the next. The simulation of minutes on a transatlantic
//! path therefore takes seconds. Every run with the same seed gives the same results.
//!
//! A [`Crowd`] holds several pairs of endpoints and models of TCP on one path.

mod adversary;
mod clock;
mod crowd;
mod crowd_record;
mod flow;
mod inbox;
mod pair;
mod pattern;
pub(crate) mod random;
mod reading_schedule;
pub mod siege;
mod steady_transfer;
mod symmetric_path;

use std::{
    collections::HashMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use units::{BitRate, ByteCount};
use wansim::{Counters, Duplex, PathConfig, Radio};

use self::{
    inbox::Datagram,
    pair::{PairConfig, SimPair},
};
use crate::{
    Endpoint, PeerView, Policy, StreamClass,
    congestion::{self, Controller, PathMemory},
};

pub use self::{
    adversary::{Adversary, AdversaryConfig},
    crowd::{Crowd, CrowdConfig},
    crowd_record::{CrowdRecord, FlowSample},
    flow::{FlowConfig, FlowKind, LawFactory},
    pair::{FlowControllerFactory, SimSite, SimTransferId, TransferProgress},
    steady_transfer::SteadyTransfer,
    symmetric_path::{PACKET_WIRE_BYTES, SymmetricPath, offset},
};

/// Two sites and the paths between them.
pub struct SimWorld {
    start: Instant,
    now: Instant,
    pair: SimPair,
    /// Paths between the two sites. The forward direction is from A to B.
    paths: Duplex<Datagram>,
    /// Site whose arriving datagrams are recorded for replays. `None` if recording is off.
    recording: Option<SimSite>,
    recorded: Vec<Vec<u8>>,
    /// Number of datagrams that the sites sent to each address.
    sent_to: HashMap<SocketAddr, u64>,
    adversary: Option<Adversary>,
}

/// Function that creates the congestion controller of a new connection.
pub type WorldControllerFactory = fn(Option<PathMemory>, Option<BitRate>) -> Box<dyn Controller>;

/// Configuration of a simulation of two sites.
#[derive(Debug, Clone)]
pub struct WorldConfig {
    /// Path from A to B.
    pub forward: PathConfig,
    /// Path from B to A.
    pub backward: PathConfig,
    /// Seed of all random decisions.
    pub seed: u64,
    /// Function that creates the congestion controllers.
    pub controller: WorldControllerFactory,
    /// Maximum size of the buffers of each connection.
    pub memory_max: ByteCount,
    /// Time after which a site abandons the connection if no packet arrives.
    pub idle_timeout: Duration,
}

impl WorldConfig {
    /// Returns a configuration with the same path in both directions and the default settings of
    /// gateways.
    pub fn symmetric(path: PathConfig, seed: u64) -> Self {
        Self {
            forward: path.clone(),
            backward: path,
            seed,
            controller: |memory, rate_max| congestion::for_policy(Policy::Fair, memory, rate_max),
            memory_max: ByteCount::gibibytes(1),
            idle_timeout: Duration::from_secs(600),
        }
    }
}

impl SimWorld {
    /// Creates a simulation of two sites. Each site has the public key of the other site.
    ///
    /// Site A has the address of site B, and starts a handshake at once.
    pub fn new(config: &WorldConfig) -> Self {
        Self::with_radio(config, None)
    }

    /// Creates a simulation of two sites. If `radio` is set, both directions share a radio medium.
    pub fn with_radio(config: &WorldConfig, radio: Option<Radio>) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "any origin does: only differences count"
        )]
        let start = Instant::now();
        Self {
            start,
            now: start,
            pair: SimPair::new(config.pair(), start),
            paths: Duplex::new(
                [
                    (config.forward.clone(), config.seed.wrapping_mul(2) + 1),
                    (config.backward.clone(), config.seed.wrapping_mul(2) + 2),
                ],
                radio,
            ),
            recording: None,
            recorded: Vec::new(),
            sent_to: HashMap::new(),
            adversary: None,
        }
    }

    /// Returns the time since the start of the simulation.
    pub fn now(&self) -> Duration {
        self.now - self.start
    }

    /// Starts a transfer of `size` bytes from one site to the other, on a new stream.
    pub fn send(&mut self, from: SimSite, class: StreamClass, size: ByteCount) -> SimTransferId {
        self.pair.send(from, class, size, self.now)
    }

    /// Starts a transfer of `size` bytes that the receiver requests. The receiver opens the stream,
    /// and site `from` sends the bytes on this stream.
    pub fn request(&mut self, from: SimSite, class: StreamClass, size: ByteCount) -> SimTransferId {
        let id = self.pair.send(from, class, size, self.now);
        self.pair.await_request(id);
        id
    }

    /// Lets the receiving application read the next `size` bytes without a rate limit, as if its
    /// buffers were empty.
    pub fn swallow(&mut self, id: SimTransferId, size: ByteCount) {
        self.pair.swallow(id, size);
    }

    /// Limits the rate at which the receiving application reads, from now on.
    pub fn set_reading_rate(&mut self, id: SimTransferId, rate: BitRate) {
        self.pair.set_reading_rate(id, rate, self.now);
    }

    /// Makes the sending application keep the stream open after it has written all bytes of the
    /// transfer.
    pub fn keep_open(&mut self, id: SimTransferId) {
        self.pair.keep_open(id);
    }

    /// Makes the sending application write `size` more bytes on a stream that [stays
    /// open](Self::keep_open).
    pub fn write_more(&mut self, id: SimTransferId, size: ByteCount) {
        self.pair.write_more(id, size);
    }

    /// Delivers an ICMP error to `side`: no program listens at the other site's address.
    pub fn deny(&mut self, side: SimSite) {
        self.pair.deny(side, self.now);
    }

    /// Makes the receiving application read nothing of this transfer.
    pub fn leave_unread(&mut self, id: SimTransferId) {
        self.pair.leave_unread(id);
    }

    /// Returns the state of a transfer.
    pub fn progress(&self, id: SimTransferId) -> TransferProgress {
        self.pair.progress(id)
    }

    /// Runs until the receiver confirms that all bytes arrived, or until `limit` has passed.
    ///
    /// Returns the duration of the transfer. Returns `None` if the transfer failed or did not end
    /// in time.
    pub fn run_to_end(&mut self, id: SimTransferId, limit: Duration) -> Option<Duration> {
        self.run_until(limit, |world| {
            let progress = world.progress(id);
            progress.confirmed.is_some() || progress.lost.is_some()
        });
        let progress = self.progress(id);
        progress.confirmed.map(|end| end - progress.began)
    }

    /// Runs the simulation for the given time.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Runs until `done` returns true, for at most `limit`. Returns whether `done` returned true.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now + limit;
        self.step();
        while !done(self) {
            let next = self.next_event().max(self.now + GRANULARITY);
            if next > end {
                self.now = end;
                self.step();
                return done(self);
            }
            self.now = next;
            self.step();
        }
        true
    }

    /// Replaces the configuration of the path that starts at site `from`.
    pub fn set_path(&mut self, from: SimSite, config: PathConfig) {
        self.paths
            .configure(from.path_direction(), config, self.now);
    }

    /// Applies `change` to the configuration of both directions.
    pub fn change_paths(&mut self, change: impl Fn(&mut PathConfig)) {
        for side in [SimSite::A, SimSite::B] {
            let mut config = self.paths.path(side.path_direction()).config().clone();
            change(&mut config);
            self.set_path(side, config);
        }
    }

    /// Returns the counters of the path for packets that site `from` sent.
    pub fn path_counters(&self, from: SimSite) -> &Counters {
        self.paths.counters(from.path_direction())
    }

    /// Returns one site's snapshot of the other site.
    pub fn view(&self, side: SimSite) -> PeerView {
        self.pair.endpoint(side).peer_view(0)
    }

    /// Returns the endpoint of one site.
    pub fn endpoint(&self, side: SimSite) -> &Endpoint {
        self.pair.endpoint(side)
    }

    /// Restarts one site without closing its connections. The site loses all state except the state
    /// stored for a restart.
    pub fn restart(&mut self, side: SimSite, config: &WorldConfig) {
        self.pair.restart(side, config.pair(), self.now);
        if let Some(adversary) = &mut self.adversary {
            adversary.on_restart(side);
        }
    }

    /// Sets the rate limits of one site. `all` limits its sending rate to all peers, and `peer`
    /// limits the rate in each direction between the two sites.
    pub fn set_rate_max(&mut self, side: SimSite, all: Option<BitRate>, peer: Option<BitRate>) {
        self.pair.set_rate_max(side, all, peer);
    }

    /// Stops one site, as SIGSTOP does, or continues it. Datagrams that arrive during the stop wait
    /// in the site's socket.
    pub fn set_stopped(&mut self, side: SimSite, is_stopped: bool) {
        self.pair.set_stopped(side, is_stopped, false);
    }

    /// Suspends the machines of the given sites for a time. Datagrams that arrive during the
    /// suspension are lost.
    ///
    /// `clock_runs_on` states whether the clocks of the sites continue during the suspension.
    pub fn suspend(&mut self, sides: &[SimSite], time: Duration, clock_runs_on: bool) {
        for side in sides {
            self.pair.set_stopped(*side, true, true);
        }
        self.run_for(time);
        for side in sides {
            self.pair.set_stopped(*side, false, false);
            if !clock_runs_on {
                self.pair.hold_clock(*side, time);
            }
        }
    }

    /// Moves the clock of one site forward by `by`.
    pub fn jump_clock(&mut self, side: SimSite, by: Duration) {
        self.pair.advance_clock(side, by);
    }

    /// Sets the time of day at the next restart of one site, in nanoseconds since the Unix epoch.
    /// The initial time of day is 1 700 000 000 s.
    pub fn set_time_of_day(&mut self, side: SimSite, unix_ns: u64) {
        self.pair.set_unix_ns(side, unix_ns);
    }

    /// Changes the address of one site, as a NAT does after it has lost its mapping.
    pub fn set_address(&mut self, side: SimSite, address: SocketAddr) {
        self.pair.set_address(side, address);
    }

    /// Delivers a datagram to one site as if it had crossed the network.
    pub fn inject(&mut self, to: SimSite, from: SocketAddr, bytes: &[u8]) {
        self.pair.inject(to, from, bytes, self.now);
    }

    /// Starts to record the datagrams that arrive at one site.
    pub fn record(&mut self, at: SimSite) {
        self.recording = Some(at);
    }

    /// Stops the recording. Returns the datagrams recorded since [`record`](Self::record).
    pub fn take_recorded(&mut self) -> Vec<Vec<u8>> {
        self.recording = None;
        std::mem::take(&mut self.recorded)
    }

    /// Returns the number of datagrams that the two sites have sent to an address.
    pub fn sent_to(&self, address: SocketAddr) -> u64 {
        self.sent_to.get(&address).copied().unwrap_or(0)
    }

    /// Adds an adversary that handles all datagrams at the ends of the paths.
    pub fn admit_adversary(&mut self, config: AdversaryConfig) {
        self.adversary = Some(Adversary::new(config));
    }

    /// Stops the adversary's actions: from now on it delivers all datagrams.
    pub fn calm_adversary(&mut self) {
        if let Some(adversary) = &mut self.adversary {
            adversary.rest();
        }
    }

    /// Returns the adversary. Returns `None` if the simulation has none.
    pub fn adversary(&self) -> Option<&Adversary> {
        self.adversary.as_ref()
    }

    /// Returns the number of streams that one site's endpoint reported as lost.
    pub fn lost_streams(&self, side: SimSite) -> u64 {
        self.pair.lost_streams(side)
    }

    fn next_event(&mut self) -> Instant {
        let far = self.now + Duration::from_secs(3600);
        let timeout = self.pair.next_timeout(self.now);
        let arrival = self.paths.next_arrival();
        let held = self.adversary.as_ref().and_then(Adversary::next_due);
        let times = timeout.into_iter().chain(arrival).chain(held);
        times.min().unwrap_or(far)
    }

    fn step(&mut self) {
        for from in [SimSite::A, SimSite::B] {
            while let Some(datagram) = self.paths.poll(from.path_direction(), self.now) {
                if self.recording.is_some_and(|side| side != from) {
                    self.recorded.push(datagram.bytes.clone());
                }
                match &mut self.adversary {
                    None => self.pair.deliver(from.other(), datagram, self.now),
                    Some(adversary) => {
                        adversary.take(from, datagram, self.pair.addresses(), self.now);
                    }
                }
            }
        }
        if let Some(adversary) = &mut self.adversary {
            while let Some(held) = adversary.poll(self.now) {
                let before = self.pair.endpoint(held.to).dropped();
                self.pair.deliver(held.to, held.datagram.clone(), self.now);
                self.pair.handle_arrivals(held.to);
                if held.is_original && self.pair.endpoint(held.to).dropped() == before {
                    adversary.record(held);
                }
            }
        }
        for side in [SimSite::A, SimSite::B] {
            let Self {
                paths,
                sent_to,
                adversary,
                ..
            } = self;
            let now = self.now;
            self.pair.step(side, now, &mut |datagram| {
                *sent_to.entry(datagram.to).or_default() += 1;
                if let Some(adversary) = adversary {
                    adversary.on_sent(&datagram);
                }
                paths.send(side.path_direction(), datagram, now);
            });
        }
    }
}

impl WorldConfig {
    fn pair(&self) -> PairConfig {
        PairConfig {
            seed: self.seed,
            controller: std::sync::Arc::new(self.controller),
            memory_max: self.memory_max,
            idle_timeout: self.idle_timeout,
        }
    }
}

impl std::fmt::Debug for SimWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimWorld")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

/// Least time between two steps. Events within this time are handled together.
const GRANULARITY: Duration = Duration::from_micros(50);
