//! Two link cores over a simulated WAN, in virtual time.
//!
//! A [`World`] holds two sites that are joined by a `wansim::Duplex`. It moves real datagrams with
//! real encryption, and jumps from event to event. Minutes of a transatlantic path therefore take
//! seconds, and every run of a seed gives the same figures. A [`Crowd`] holds several such pairs
//! and models of TCP on one path.

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
    Class, Endpoint, PeerView, Policy,
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
pub struct World {
    start: Instant,
    now: Instant,
    pair: SimPair,
    /// The forward direction is from A to B.
    paths: Duplex<Datagram>,
    /// Datagrams that arrived at one side, kept for replay.
    recording: Option<SimSite>,
    recorded: Vec<Vec<u8>>,
    /// Number of datagrams to each address.
    sent_to: HashMap<SocketAddr, u64>,
    adversary: Option<Adversary>,
}

/// Makes the controller of each new connection.
pub type WorldControllerFactory = fn(Option<PathMemory>, Option<BitRate>) -> Box<dyn Controller>;

/// The configuration of a world.
#[derive(Debug, Clone)]
pub struct WorldConfig {
    /// From A to B.
    pub forward: PathConfig,
    /// From B to A.
    pub backward: PathConfig,
    /// Seed of all random decisions.
    pub seed: u64,
    /// Makes the congestion controllers.
    pub controller: WorldControllerFactory,
    /// Bound of each connection's buffers.
    pub memory_max: ByteCount,
    /// Time without packets after which a connection is abandoned.
    pub idle_timeout: Duration,
}

impl WorldConfig {
    /// Returns the same path both ways, and links with the defaults of gateways.
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

impl World {
    /// Creates two sites that have each other's keys. A has B's address. Their first handshake
    /// begins at once.
    pub fn new(config: &WorldConfig) -> Self {
        Self::with_radio(config, None)
    }

    /// Creates the same world, where both directions may share a medium.
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

    /// Returns the time since the start.
    pub fn now(&self) -> Duration {
        self.now - self.start
    }

    /// Begins to send `size` bytes from one side to the other, on a stream of their own.
    pub fn send(&mut self, from: SimSite, class: Class, size: ByteCount) -> SimTransferId {
        self.pair.send(from, class, size, self.now)
    }

    /// Begins a transfer of `size` bytes that its receiver requests: the receiver opens the stream,
    /// and the sender answers on it.
    pub fn request(&mut self, from: SimSite, class: Class, size: ByteCount) -> SimTransferId {
        let id = self.pair.send(from, class, size, self.now);
        self.pair.await_request(id);
        id
    }

    /// Lets the receiving application take `size` bytes at any rate before its reading rate counts,
    /// as buffers behind it do.
    pub fn swallow(&mut self, id: SimTransferId, size: ByteCount) {
        self.pair.swallow(id, size);
    }

    /// Lets the application at the other end read at this rate from now on.
    pub fn set_reading_rate(&mut self, id: SimTransferId, rate: BitRate) {
        self.pair.set_reading_rate(id, rate, self.now);
    }

    /// Lets the sending application keep the stream of this transfer open once everything is
    /// written.
    pub fn keep_open(&mut self, id: SimTransferId) {
        self.pair.keep_open(id);
    }

    /// Lets the sending application, which [keeps the stream open](Self::keep_open), write `size`
    /// bytes more.
    pub fn write_more(&mut self, id: SimTransferId, size: ByteCount) {
        self.pair.write_more(id, size);
    }

    /// Sends an ICMP error to `side`, which reports that no program listens at the other site's
    /// address.
    pub fn deny(&mut self, side: SimSite) {
        self.pair.deny(side, self.now);
    }

    /// Lets the application at the other end never read this transfer.
    pub fn leave_unread(&mut self, id: SimTransferId) {
        self.pair.leave_unread(id);
    }

    /// Returns the state of a transfer.
    pub fn progress(&self, id: SimTransferId) -> TransferProgress {
        self.pair.progress(id)
    }

    /// Runs until the sender of `id` has learned that everything arrived, or `limit` has passed.
    /// Returns the time since the transfer's start.
    pub fn run_to_end(&mut self, id: SimTransferId, limit: Duration) -> Option<Duration> {
        self.run_until(limit, |world| {
            let progress = world.progress(id);
            progress.confirmed.is_some() || progress.lost.is_some()
        });
        let progress = self.progress(id);
        progress.confirmed.map(|end| end - progress.began)
    }

    /// Runs for this time.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Runs until `done`, for at most `limit`. Returns whether `done` came true.
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

    /// Changes the direction that begins at `from`.
    pub fn set_path(&mut self, from: SimSite, config: PathConfig) {
        self.paths
            .configure(from.path_direction(), config, self.now);
    }

    /// Changes both directions in the same way.
    pub fn change_paths(&mut self, change: impl Fn(&mut PathConfig)) {
        for side in [SimSite::A, SimSite::B] {
            let mut config = self.paths.path(side.path_direction()).config().clone();
            change(&mut config);
            self.set_path(side, config);
        }
    }

    /// Returns counters of the path for the packets of one site.
    pub fn path_counters(&self, from: SimSite) -> &Counters {
        self.paths.counters(from.path_direction())
    }

    /// Returns one site's view of the other.
    pub fn view(&self, side: SimSite) -> PeerView {
        self.pair.endpoint(side).peer_view(0)
    }

    /// Returns the endpoint of one site.
    pub fn endpoint(&self, side: SimSite) -> &Endpoint {
        self.pair.endpoint(side)
    }

    /// Restarts one site without a close: its whole state is gone.
    pub fn restart(&mut self, side: SimSite, config: &WorldConfig) {
        self.pair.restart(side, config.pair(), self.now);
        if let Some(adversary) = &mut self.adversary {
            adversary.on_restart(side);
        }
    }

    /// Changes the caps of one side: on all its sending, and on the traffic between the two sides.
    pub fn set_rate_max(&mut self, side: SimSite, all: Option<BitRate>, peer: Option<BitRate>) {
        self.pair.set_rate_max(side, all, peer);
    }

    /// Stops one side (as SIGSTOP does) or lets it continue. Datagrams that arrive meanwhile wait
    /// in its socket.
    pub fn set_stopped(&mut self, side: SimSite, is_stopped: bool) {
        self.pair.set_stopped(side, is_stopped, false);
    }

    /// Stops one side or both for a time, as a suspension does. Datagrams that arrive meanwhile are
    /// lost. The clocks of the sides continue, or stand still, too.
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

    /// Lets the clock of one side jump ahead, between two moments.
    pub fn jump_clock(&mut self, side: SimSite, by: Duration) {
        self.pair.advance_clock(side, by);
    }

    /// Sets the time of day that one side finds at its next restart, in nanoseconds since the Unix
    /// epoch. At first it is 1 700 000 000 s.
    pub fn set_time_of_day(&mut self, side: SimSite, unix_ns: u64) {
        self.pair.set_unix_ns(side, unix_ns);
    }

    /// Gives one side another address, as a NAT does that lost its binding.
    pub fn set_address(&mut self, side: SimSite, address: SocketAddr) {
        self.pair.set_address(side, address);
    }

    /// Passes a datagram to one side as if the network had delivered it.
    pub fn inject(&mut self, to: SimSite, from: SocketAddr, bytes: &[u8]) {
        self.pair.inject(to, from, bytes, self.now);
    }

    /// Records the datagrams that arrive at one site from now on.
    pub fn record(&mut self, at: SimSite) {
        self.recording = Some(at);
    }

    /// Ends the recording, and returns the datagrams that arrived since [`record`](Self::record).
    pub fn take_recorded(&mut self) -> Vec<Vec<u8>> {
        self.recording = None;
        std::mem::take(&mut self.recorded)
    }

    /// Returns the number of datagrams that either side has sent to an address.
    pub fn sent_to(&self, address: SocketAddr) -> u64 {
        self.sent_to.get(&address).copied().unwrap_or(0)
    }

    /// Places an adversary at the ends of the paths.
    pub fn admit_adversary(&mut self, config: AdversaryConfig) {
        self.adversary = Some(Adversary::new(config));
    }

    /// Lets the adversary pass all datagrams from now on.
    pub fn calm_adversary(&mut self) {
        if let Some(adversary) = &mut self.adversary {
            adversary.rest();
        }
    }

    /// Returns the adversary, if there is one.
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

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

/// Events closer together than this are handled together.
const GRANULARITY: Duration = Duration::from_micros(50);
