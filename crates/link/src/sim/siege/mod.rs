//! Simulation of a gateway with one hostile peer and two honest peers, in virtual time.
//!
//! Each peer is connected by its own line. Each honest peer has a steady transfer in each
//! direction. The third peer is the enemy. It has all keys of its own connections. It lies, drops
//! and floods according to the strategies of its seed. A third party never sends a datagram, and
//! the simulation counts the packets that reach it.
//!
//! These conditions must hold:
//!
//! - An address that is not validated receives at most three times the bytes that came from it.
//! - The honest peers keep their goodput.
//! - The gateway stays within its memory limit.
//! - After the enemy has left, the gateway holds no state of the enemy.

mod enemy;
mod gateway;
mod liar;
mod node;
mod strategy;

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    time::{Duration, Instant},
};

use units::{BitRate, ByteCount};
use wansim::{Duplex, PathConfig, PathDirection};

use self::{
    enemy::{ENEMY, Enemy, THIRD},
    gateway::SiegeGateway,
    node::{DOWNLOAD, IDLE_TIMEOUT, Node, NodeConfig, UPLOAD},
};
pub use self::{gateway::GatewayWork, strategy::Strategy};
use super::{GRANULARITY, inbox::Datagram, random::Random};
use crate::{AMPLIFICATION_MAX, Footprint, stream::memory::streams_max, wire::report::WINDOW};

/// Configuration of a simulated attack.
#[derive(Debug, Clone)]
pub struct SiegeConfig {
    /// Seed of the enemy's decisions.
    pub seed: u64,
    /// Strategies of the enemy. If the list is empty, the simulation has no enemy.
    pub strategies: Vec<Strategy>,
    /// Time for which the enemy is active.
    pub lasts: Duration,
    /// Rate of a flood in bits per second on the wire.
    pub flood_rate: BitRate,
    /// Functions that measure memory and processor time of the real machine.
    pub meters: Meters,
}

/// Functions that measure memory and processor time. Virtual time has neither.
#[derive(Debug, Clone, Copy)]
pub struct Meters {
    /// Returns the number of allocated heap bytes.
    pub heap_bytes: fn() -> i64,
    /// Returns the processor time of this thread.
    pub processor: fn() -> Duration,
}

/// Outcome of a simulated attack.
#[derive(Debug, Clone)]
pub struct SiegeOutcome {
    /// Distinct payload bytes of the honest peers that arrived while the enemy was active.
    ///
    /// The order is: uploads of the first peer, downloads of the first peer, uploads of the second
    /// peer, downloads of the second peer.
    pub goodput_bytes: [u64; 4],
    /// Longest time in which one of the four honest transfers delivered no bytes.
    pub longest_stall: Duration,
    /// Work of the gateway while the enemy was active.
    pub work: GatewayWork,
    /// Maximum sizes of the gateway's tables.
    pub peak: Footprint,
    /// Maximum memory of the enemy's connections, as a fraction of the enemy's memory share.
    pub share_peak: f64,
    /// Limit of the gateway's buffers.
    pub memory_max: ByteCount,
    /// Bytes that arrived from the third party's address. The second value is the number of bytes
    /// that the gateway sent to that address.
    pub third_bytes: (u64, u64),
    /// Bytes that the gateway sent to an address, divided by the permitted bytes, for the address
    /// with the largest quotient. A value above 1 is a violation.
    pub paid: f64,
    /// Number of datagrams that the enemy sent.
    pub enemy_sent: u64,
    /// Bytes from the enemy that reached the gateway.
    pub enemy_bytes: u64,
    /// Bytes that the gateway sent to the enemy's own addresses.
    pub answered_bytes: u64,
    /// Bytes of the packets that the gateway sent to the enemy and that contain reports.
    pub reported_bytes: u64,
    /// Number of frames and flood packets that the enemy forged.
    pub lies: u64,
    /// Number of protocol violations that the gateway detected.
    pub breaches: u64,
    /// Descriptions of the conditions that did not hold.
    pub complaints: Vec<String>,
}

/// Number of simulated environments with different lines and memory limits.
pub const WORLDS: u64 = 6;
/// Least goodput of an honest peer, as a fraction of its goodput without the enemy.
pub const GOODPUT_MIN: f64 = 0.9;

impl SiegeOutcome {
    /// Returns the goodput of the honest peer that suffered most, as a fraction of its goodput
    /// without the enemy. `without` is the outcome without the enemy. Both directions count
    /// together.
    pub fn kept(&self, without: &Self) -> f64 {
        let of_peer = |bytes: &[u64]| bytes.iter().sum::<u64>().max(1) as f64;
        let with = self.goodput_bytes.chunks(2).map(of_peer);
        let kept = with.zip(without.goodput_bytes.chunks(2).map(of_peer));
        kept.fold(f64::INFINITY, |least, (with, without)| {
            least.min(with / without)
        })
    }
}

/// Runs a simulated attack to its end.
pub fn run(config: &SiegeConfig) -> SiegeOutcome {
    let mut siege = Siege::new(config);
    siege.run_for(WARM_UP);
    let before = siege.goodput();
    siege.gateway.work = GatewayWork {
        heap_bytes: siege.gateway.work.heap_bytes,
        ..GatewayWork::default()
    };
    siege.outcome.longest_stall = Duration::ZERO;
    siege.run_for(config.lasts);
    let longest_stall = siege.outcome.longest_stall;
    let after = siege.goodput();
    let work = siege.gateway.work;
    siege.outcome.work = work;
    siege.outcome.goodput_bytes = std::array::from_fn(|at| after[at] - before[at]);
    siege.end();
    siege.outcome.longest_stall = longest_stall;
    siege.outcome
}

struct Siege {
    start: Instant,
    now: Instant,
    gateway: SiegeGateway,
    honest: Vec<Node>,
    enemy: Option<Enemy>,
    /// Line of each peer. The forward direction is towards the gateway.
    lines: Vec<Duplex<Datagram>>,
    tally: HashMap<SocketAddr, AddressTraffic>,
    next_sample: Instant,
    next_open: Instant,
    next_give_up: Instant,
    outcome: SiegeOutcome,
    noticed: BTreeMap<&'static str, ()>,
    /// Delivered bytes of each honest transfer, and the time of the last increase.
    moved: [(u64, Instant); 4],
}

/// Bytes that the gateway received from one address, and bytes that it sent to this address.
#[derive(Debug, Default, Clone, Copy)]
struct AddressTraffic {
    received: u64,
    sent: u64,
}

impl Siege {
    fn new(config: &SiegeConfig) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "any origin does: only differences count"
        )]
        let start = Instant::now();
        let world = config.seed % WORLDS;
        let mut random = Random(world);
        let memory_max = ByteCount::mebibytes([24, 96, 768][world as usize % 3]);
        let share = ByteCount::new(memory_max.bytes() / PEERS);
        let dials_enemy = world % 2 == 1;
        let gateway = NodeConfig {
            identity: GATEWAY_IDENTITY,
            address: GATEWAY,
            peers: vec![
                (1, None),
                (2, None),
                (ENEMY_IDENTITY, dials_enemy.then_some(ENEMY[0])),
            ],
            memory_max: share,
            seed: world,
            instance: 0x6a,
            unix_ns: UNIX_NS,
        };
        let honest = [1, 2].map(|identity| {
            let config = NodeConfig {
                identity,
                address: SocketAddr::new(HONEST_HOSTS[usize::from(identity) - 1].into(), 4810),
                peers: vec![(GATEWAY_IDENTITY, Some(GATEWAY))],
                memory_max: ByteCount::mebibytes(64),
                seed: world << 8 | u64::from(identity),
                instance: u64::from(identity),
                unix_ns: UNIX_NS,
            };
            Node::new(config, start)
        });
        let line = |rate: BitRate, rtt: Duration, seed| {
            let path = PathConfig {
                rate: Some(rate),
                queue: PathConfig::default_queue(rate, rtt),
                delay: rtt / 2,
                ..PathConfig::default()
            };
            Duplex::new([(path.clone(), seed), (path, seed + 1)], None)
        };
        let mut lines: Vec<_> = (0..2)
            .map(|peer| {
                let rtt = Duration::from_millis([10, 25, 60][random.below(3)]);
                line(HONEST_RATE, rtt, world * 10 + 2 * peer)
            })
            .collect();
        lines.push(line(config.flood_rate, ENEMY_RTT, world * 10 + 4));
        let heap = (config.meters.heap_bytes)();
        let gateway = SiegeGateway::new(Node::new(gateway, start), config.meters, start);
        let tables_bytes = (config.meters.heap_bytes)() - heap;
        let enemy = (!config.strategies.is_empty()).then(|| {
            let flood_bytes_per_s = config.flood_rate.as_bytes_per_s();
            let times = (start, start + WARM_UP);
            Enemy::new(
                config.seed,
                config.strategies.clone(),
                GATEWAY,
                flood_bytes_per_s,
                times,
            )
        });
        let mut siege = Self {
            start,
            now: start,
            gateway,
            honest: honest.into(),
            enemy,
            lines,
            tally: HashMap::new(),
            next_sample: start,
            next_open: start,
            next_give_up: start + GIVE_UP_EVERY,
            outcome: SiegeOutcome {
                goodput_bytes: [0; 4],
                longest_stall: Duration::ZERO,
                work: GatewayWork::default(),
                peak: Footprint::default(),
                share_peak: 0.0,
                memory_max,
                third_bytes: (0, 0),
                paid: 0.0,
                enemy_sent: 0,
                enemy_bytes: 0,
                answered_bytes: 0,
                reported_bytes: 0,
                lies: 0,
                breaches: 0,
                complaints: Vec::new(),
            },
            noticed: BTreeMap::new(),
            moved: [(0, start); 4],
        };
        siege.gateway.work.heap_bytes = tables_bytes;
        siege
    }

    /// Returns the distinct payload bytes that have arrived: uploads and downloads of the first
    /// peer, then of the second peer.
    fn goodput(&self) -> [u64; 4] {
        let up = |peer| {
            self.gateway
                .node
                .endpoint
                .peer_view(peer)
                .stats
                .payload_received
        };
        let down = |peer: usize| {
            self.honest[peer]
                .endpoint
                .peer_view(0)
                .stats
                .payload_received
        };
        [up(0), down(0), up(1), down(1)]
    }

    /// Returns the bytes delivered in order to the applications: uploads and downloads of the first
    /// peer, then of the second peer.
    fn delivered(&self) -> [u64; 4] {
        let up = &self.gateway.node.delivered;
        let down = |peer: usize| self.honest[peer].delivered[0];
        [up[0], down(0), up[1], down(1)]
    }

    fn complain(&mut self, kind: &'static str, text: impl FnOnce() -> String) {
        if self.noticed.insert(kind, ()).is_none() {
            let at_s = (self.now - self.start).as_secs_f64();
            self.outcome
                .complaints
                .push(format!("{kind} at {at_s:.3} s: {}", text()));
        }
    }

    fn run_for(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + limit;
        while !done(self) {
            let next = self.next_event().max(self.now + GRANULARITY);
            self.now = next.min(end);
            self.step();
            if next >= end {
                return done(self);
            }
        }
        true
    }

    fn next_event(&mut self) -> Instant {
        let now = self.now;
        let arrivals = self.lines.iter().filter_map(Duplex::next_arrival);
        let honest = self
            .honest
            .iter_mut()
            .filter_map(|node| node.endpoint.next_timeout(now));
        let enemy = self.enemy.as_mut().and_then(|enemy| enemy.due(now));
        let others = [self.gateway.due(), enemy, Some(self.next_sample)];
        let times = arrivals.chain(honest).chain(others.into_iter().flatten());
        times.min().unwrap_or(now + Duration::from_secs(1))
    }

    fn step(&mut self) {
        let now = self.now;
        self.deliver();
        let Self {
            honest,
            enemy,
            lines,
            ..
        } = self;
        for (peer, node) in honest.iter_mut().enumerate() {
            node.endpoint.handle_timeout(now);
            node.act(now);
            node.transmit(now, |datagram| {
                lines[peer].send(PathDirection::Forward, datagram, now)
            });
        }
        if let Some(enemy) = enemy {
            enemy.step(now, &mut |datagram| {
                lines[2].send(PathDirection::Forward, datagram, now)
            });
        }
        self.keep_busy();
        let found = self.gateway.node.endpoint.peer_view(2).stats.malformed;
        if found > self.outcome.breaches {
            self.outcome.breaches = found;
            if let Some(enemy) = &mut self.enemy {
                enemy.on_found_out(now);
            }
        }
        let mut leaving = Vec::new();
        self.gateway
            .run(now, &mut |datagram| leaving.push(datagram));
        for datagram in leaving {
            self.route(datagram);
        }
        if now >= self.next_sample {
            self.next_sample = now + SAMPLE_EVERY;
            self.sample();
        }
    }

    /// Delivers the datagrams that have crossed the lines.
    fn deliver(&mut self) {
        let now = self.now;
        for peer in 0..self.lines.len() {
            while let Some(datagram) = self.lines[peer].poll(PathDirection::Forward, now) {
                let (from, bytes) = (datagram.from, datagram.bytes.len() as u64);
                if self.gateway.arrive(datagram) {
                    self.tally.entry(from).or_default().received += bytes;
                    if peer == 2 {
                        self.outcome.enemy_bytes += bytes;
                    }
                }
            }
            while let Some(mut datagram) = self.lines[peer].poll(PathDirection::Backward, now) {
                match self.honest.get_mut(peer) {
                    Some(node) => node.receive(&mut datagram, now),
                    None => {
                        if let Some(enemy) = &mut self.enemy {
                            enemy.take(datagram, now);
                        }
                    }
                }
            }
        }
    }

    /// Sends a datagram of the gateway into the line of its destination. If the destination has no
    /// line, the function only counts the bytes.
    fn route(&mut self, datagram: Datagram) {
        let now = self.now;
        let bytes = datagram.bytes.len() as u64;
        if let Some(peer) = self
            .honest
            .iter()
            .position(|node| node.address == datagram.to)
        {
            self.lines[peer].send(PathDirection::Backward, datagram, now);
            return;
        }
        if ENEMY.contains(&datagram.to) {
            self.outcome.answered_bytes += bytes;
            self.lines[2].send(PathDirection::Backward, datagram, now);
            return;
        }
        let to = datagram.to;
        let tally = self.tally.entry(to).or_default();
        tally.sent += bytes;
        let (sent, owed) = (tally.sent, AMPLIFICATION_MAX as u64 * tally.received);
        self.outcome.paid = self.outcome.paid.max(sent as f64 / owed.max(1) as f64);
        if sent > owed {
            self.complain("amplification", || {
                format!("{to} was sent {sent} bytes, owed {owed}")
            });
        }
    }

    /// Keeps transfers running between the gateway and all peers.
    fn keep_busy(&mut self) {
        let now = self.now;
        let is_over = now - self.start > WARM_UP && self.enemy.as_ref().is_none_or(|it| it.is_gone);
        for node in &mut self.honest {
            if node.endpoint.is_up(0) && node.own.is_empty() && now - self.start < WARM_UP {
                node.open(0, UPLOAD, None, now);
                node.open(0, DOWNLOAD, None, now);
            }
        }
        if is_over && self.enemy.is_some() {
            return;
        }
        // The gateway's clients request files of the enemy's servers.
        if now >= self.next_open && self.gateway.node.own.len() < GATEWAY_STREAMS {
            self.next_open = now + OPEN_EVERY;
            self.gateway
                .ask(|node| node.open(2, UPLOAD, Some(GATEWAY_UPLOAD_BYTES), now));
        }
        if now >= self.next_give_up {
            self.next_give_up = now + GIVE_UP_EVERY;
            self.gateway.ask(Node::give_up_own);
        }
    }

    fn sample(&mut self) {
        for (bytes, moved) in self.delivered().into_iter().zip(&mut self.moved) {
            if bytes != moved.0 {
                *moved = (bytes, self.now);
            }
            self.outcome.longest_stall = self.outcome.longest_stall.max(self.now - moved.1);
        }
        let footprint = self.gateway.node.endpoint.footprint();
        let peak = &mut self.outcome.peak;
        peak.attempts = peak.attempts.max(footprint.attempts);
        peak.connections = peak.connections.max(footprint.connections);
        peak.packets = peak.packets.max(footprint.packets);
        peak.controls = peak.controls.max(footprint.controls);
        peak.streams = peak.streams.max(footprint.streams);
        peak.buffered_bytes = peak.buffered_bytes.max(footprint.buffered_bytes);
        let memory_max = self.outcome.memory_max.bytes();
        if footprint.buffered_bytes > memory_max {
            let bytes = footprint.buffered_bytes;
            self.complain("memory", || {
                format!("{bytes} bytes are buffered of {memory_max}")
            });
        }
        let share = memory_max / PEERS;
        let of_enemy = self.gateway.node.endpoint.buffered_bytes_of(2);
        self.outcome.share_peak = self.outcome.share_peak.max(of_enemy as f64 / share as f64);
        if of_enemy > share + share / SHARE_LEEWAY {
            self.complain("share", || {
                format!("{of_enemy} bytes are the enemy's of {share}")
            });
        }
        let heap_max = HEAP_FACTOR * memory_max + TABLES_BYTES_MAX;
        let heap = self.gateway.work.heap_bytes;
        if heap > heap_max as i64 {
            self.complain("heap", || {
                format!("{heap} bytes, {heap_max} may be; {footprint:?}")
            });
        }
        let connections = footprint.connections as u64;
        let streams_max =
            connections * u64::from(streams_max(memory_max / PEERS)) + OUR_STREAMS_MAX;
        let packets_max = connections * 2 * WINDOW;
        for (kind, figure, max) in [
            ("controls", footprint.controls as u64, CONTROLS_MAX),
            ("streams", footprint.streams as u64, streams_max),
            ("packets", footprint.packets as u64, packets_max),
            ("connections", connections, CONNECTIONS_MAX),
            ("handshakes", footprint.attempts as u64, ATTEMPTS_MAX),
        ] {
            if figure > max {
                self.complain(kind, || format!("{figure} of {max}"));
            }
        }
    }

    /// Removes the enemy without closing its connections. Checks that the honest peers can open new
    /// streams, and that no state of the enemy remains.
    fn end(&mut self) {
        if let Some(enemy) = &mut self.enemy {
            enemy.is_gone = true;
            self.outcome.enemy_sent = enemy.sent;
            let stats = self.gateway.node.endpoint.peer_view(2).stats;
            self.outcome.reported_bytes = stats.feedback_bytes;
            self.outcome.lies = enemy.liar().lies + enemy.flooded;
        }
        let third = self
            .tally
            .iter()
            .filter(|(address, _)| address.ip() == THIRD.ip());
        self.outcome.third_bytes = third.fold((0, 0), |(received, sent), (_, tally)| {
            (received + tally.received, sent + tally.sent)
        });
        self.transfer_anew("beside the steady transfers", NEW_BYTES);
        for node in &mut self.honest {
            node.end_endless();
        }
        self.gateway.ask(Node::end_endless);
        self.run_until(IDLE_TIMEOUT + LEEWAY, |siege| {
            siege.gateway.node.endpoint.footprint().connections == HONEST_HOSTS.len()
        });
        self.run_for(Duration::from_secs(1));
        let streams = self.gateway.node.endpoint.streams_of(2);
        let footprint = self.gateway.node.endpoint.footprint();
        if streams > 0 || footprint.connections != HONEST_HOSTS.len() {
            self.complain("left", || format!("{streams} streams, {footprint:?}"));
        }
        self.transfer_anew("at the end", NEW_BYTES);
        for (at, node) in self.honest.iter().enumerate() {
            if node.failed > 0 {
                let failed = node.failed;
                self.outcome
                    .complaints
                    .push(format!("honest peer {at} lost {failed} streams"));
            }
        }
    }

    /// Lets each honest peer upload `len` bytes on a new stream, and checks that the uploads end.
    fn transfer_anew(&mut self, when: &'static str, len: usize) {
        let now = self.now;
        let before: Vec<_> = self.honest.iter().map(|node| node.confirmed).collect();
        let opened = self
            .honest
            .iter_mut()
            .all(|node| node.open(0, UPLOAD, Some(len), now));
        let is_done = |siege: &Self| {
            let pairs = siege.honest.iter().zip(&before);
            pairs.clone().all(|(node, before)| node.confirmed > *before)
        };
        if !opened || !self.run_until(NEW_STREAM_MAX, is_done) {
            self.complain("stuck", || format!("a new stream {when} does not end"));
        }
    }
}

const GATEWAY_IDENTITY: u8 = 9;
const ENEMY_IDENTITY: u8 = 3;
const GATEWAY: SocketAddr = SocketAddr::new(
    std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 9)),
    4810,
);
const HONEST_HOSTS: [[u8; 4]; 2] = [[10, 77, 0, 1], [10, 77, 0, 2]];
const UNIX_NS: u64 = 1_700_000_000_000_000_000;
/// Rate of each honest peer's line, in each direction.
const HONEST_RATE: BitRate = BitRate::mbit(8);
const ENEMY_RTT: Duration = Duration::from_millis(20);
/// Time before the attack. The honest transfers reach their full rate in this time.
const WARM_UP: Duration = Duration::from_secs(2);
const SAMPLE_EVERY: Duration = Duration::from_millis(10);
/// Maximum number of streams that the gateway opens to the enemy.
const GATEWAY_STREAMS: usize = 32;
const OPEN_EVERY: Duration = Duration::from_millis(50);
const GATEWAY_UPLOAD_BYTES: usize = 200_000;
/// Interval after which the gateway's applications abandon their streams.
const GIVE_UP_EVERY: Duration = Duration::from_secs(3);
/// Bytes of an upload on a new stream.
const NEW_BYTES: usize = 50_000;
/// Maximum time for the upload on a new stream while a steady transfer runs.
const NEW_STREAM_MAX: Duration = Duration::from_secs(5);
/// Maximum time for which a connection may exist after its idle timeout.
const LEEWAY: Duration = Duration::from_secs(5);
/// Maximum ratio of the heap memory of buffers to the counted bytes (docs/protocol.md section 11).
const HEAP_FACTOR: u64 = 2;
/// Maximum memory of all other tables in bytes: duplicate filters, logs and handshakes.
const TABLES_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of waiting control frames of all connections: one for each stream, and a few
/// more.
const CONTROLS_MAX: u64 = 20_000;
/// Maximum number of connections: one for each honest peer, and four for the enemy.
const CONNECTIONS_MAX: u64 = 2 + 4;
/// Maximum number of handshakes in progress: one for each honest peer, four from the enemy, and one
/// from the gateway to the enemy.
const ATTEMPTS_MAX: u64 = 2 + 4 + 1;
/// Maximum number of streams that the gateway opens to all peers, including the honest peers.
const OUR_STREAMS_MAX: u64 = 64;
/// Divisor of a peer's memory share. The peer may exceed its share by the quotient.
///
/// The gateway never drops the slots that are next in order. These slots need a slab of memory for
/// each stream.
const SHARE_LEEWAY: u64 = 4;
/// Number of peers that share the gateway's memory.
const PEERS: u64 = 3;
