//! Hostile peer: real endpoints whose packets a [`Liar`] rewrites.
//!
//! The hostile peer also drops, delays and repeats the datagrams of its endpoints, and sends them
//! from other addresses.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use units::ByteCount;

use super::{
    super::{inbox::Datagram, random::Random},
    liar::{Liar, STREAMS_OF_CORE},
    node::{DOWNLOAD, Node, NodeConfig, UPLOAD},
    strategy::Strategy,
};
use crate::{
    Forger,
    wire::{
        frame::Frame,
        packet::{self, DatagramKind},
        report::WINDOW,
    },
};

/// Hostile peer. It has all keys of its own connections.
pub(super) struct Enemy {
    start: Instant,
    /// Time at which the hostile peer starts to misbehave.
    begins: Instant,
    seed: u64,
    strategies: Vec<Strategy>,
    random: Random,
    liar: Arc<Mutex<Liar>>,
    cores: Vec<Node>,
    cores_made: u64,
    instance: u64,
    next_core: Instant,
    /// Time at which the newest endpoint connected. `None` while it is not connected.
    connected: Option<Instant>,
    victim: SocketAddr,
    held: BTreeMap<(Instant, u64), Datagram>,
    order: u64,
    recorded: VecDeque<Vec<u8>>,
    ticked: Instant,
    budget_bytes: f64,
    flood_bytes_per_s: f64,
    /// Amount by which the enemy has increased its packet numbers.
    jumped: u64,
    pub(super) is_gone: bool,
    /// Number of datagrams that the enemy sent.
    pub(super) sent: u64,
    /// Number of sent datagrams that belong to a flood.
    pub(super) flooded: u64,
}

/// Addresses at which the enemy receives datagrams: its own address, and the address of another
/// host.
pub(super) const ENEMY: [SocketAddr; 2] = [
    address([10, 77, 0, 66], 4810),
    address([10, 77, 9, 66], 4810),
];
/// Address of an uninvolved third party. The third party never sends a datagram.
pub(super) const THIRD: SocketAddr = address([203, 0, 113, 9], 7);

const fn address(ip: [u8; 4], port: u16) -> SocketAddr {
    let [a, b, c, d] = ip;
    SocketAddr::new(
        std::net::IpAddr::V4(std::net::Ipv4Addr::new(a, b, c, d)),
        port,
    )
}

impl Enemy {
    pub(super) fn new(
        seed: u64,
        strategies: Vec<Strategy>,
        victim: SocketAddr,
        flood_bytes_per_s: f64,
        times: (Instant, Instant),
    ) -> Self {
        let (start, begins) = times;
        let mut enemy = Self {
            start,
            begins,
            seed,
            random: Random(seed),
            liar: Arc::new(Mutex::new(Liar::new(seed, strategies.clone()))),
            strategies,
            cores: Vec::new(),
            cores_made: 0,
            instance: 1,
            next_core: begins,
            connected: None,
            victim,
            held: BTreeMap::new(),
            order: 0,
            recorded: VecDeque::new(),
            ticked: start,
            budget_bytes: 0.0,
            flood_bytes_per_s,
            jumped: 0,
            is_gone: false,
            sent: 0,
            flooded: 0,
        };
        let first = enemy.make_core(start);
        enemy.cores.push(first);
        enemy
    }

    pub(super) fn has(&self, strategy: Strategy) -> bool {
        self.strategies.contains(&strategy)
    }

    pub(super) fn liar(&self) -> MutexGuard<'_, Liar> {
        self.liar.lock().expect("the liar does not panic")
    }

    fn make_core(&mut self, now: Instant) -> Node {
        self.cores_made += 1;
        // The size of the enemy's memory is the limit for the bytes that other endpoints may send
        // to it. The memory varies from small to very large.
        let memory_max = ByteCount::mebibytes([1, 16, 64, 4096][self.random.below(4)]);
        let unix_ns = super::UNIX_NS + (now - self.start).as_nanos() as u64 + self.cores_made;
        let config = NodeConfig {
            identity: super::ENEMY_IDENTITY,
            address: ENEMY[0],
            peers: vec![(super::GATEWAY_IDENTITY, Some(self.victim))],
            memory_max,
            seed: self.seed ^ self.cores_made << 20,
            instance: self.instance << 8 | 0xe,
            unix_ns,
        };
        let mut core = Node::new(config, now);
        let liar = self.liar.clone();
        let forger: Forger = Arc::new(Mutex::new(move |payload: &mut Vec<u8>| {
            liar.lock()
                .expect("the liar does not panic")
                .rewrite(payload);
        }));
        core.endpoint.set_forger(forger);
        core
    }

    /// Returns the time of the enemy's next action. Returns `None` once the enemy has left.
    pub(super) fn due(&mut self, now: Instant) -> Option<Instant> {
        if self.is_gone {
            return None;
        }
        let timeouts = self
            .cores
            .iter_mut()
            .filter_map(|core| core.endpoint.next_timeout(now));
        let held = self.held.first_key_value().map(|((at, _), _)| *at);
        let tick = self.ticked.max(self.begins) + TICK;
        timeouts.chain(held).chain([tick]).min()
    }

    /// Handles a datagram from the attacked gateway.
    pub(super) fn take(&mut self, mut datagram: Datagram, now: Instant) {
        if self.is_gone {
            return;
        }
        if self.has(Strategy::BlackHole)
            && self.is_at_it(now, 700, 1400)
            && datagram.bytes.len() > BLACK_HOLE_BYTES
        {
            return;
        }
        for core in &mut self.cores {
            let mut copy = datagram.clone();
            core.receive(&mut copy, now);
        }
        datagram.bytes.clear();
    }

    /// Whether the present time is within the first `on_ms` milliseconds of a period of
    /// `period_ms`. Before the start of the attack, the result is false.
    fn is_at_it(&self, now: Instant, on_ms: u128, period_ms: u128) -> bool {
        now >= self.begins && (now - self.begins).as_millis() % period_ms < on_ms
    }

    /// Runs the enemy's endpoints, and applies its strategies.
    pub(super) fn step(&mut self, now: Instant, send: &mut impl FnMut(Datagram)) {
        if self.is_gone {
            return;
        }
        let is_active = now >= self.begins;
        self.liar().is_active = is_active;
        let mut leaving = Vec::new();
        let reads = !(is_active && self.has(Strategy::Unread));
        for core in &mut self.cores {
            core.reads = reads;
            core.endpoint.handle_timeout(now);
            core.act(now);
            if core.endpoint.is_up(0) && core.own.len() < TRANSFERS {
                let kind = [UPLOAD, DOWNLOAD][core.own.len() % 2];
                core.open(0, kind, None, now);
            }
            core.transmit(now, |datagram| leaving.push(datagram));
        }
        for datagram in leaving {
            self.treat(datagram, now, send);
        }
        while let Some(entry) = self.held.first_entry().filter(|held| held.key().0 <= now) {
            self.sent += 1;
            send(entry.remove());
        }
        if is_active && now >= self.ticked + TICK {
            let passed = now - self.ticked.max(self.begins);
            self.ticked = now;
            self.tick(passed, now, send);
        }
    }

    /// Records a datagram of the enemy's endpoints, and sends or drops it as the strategies
    /// require.
    fn treat(&mut self, mut datagram: Datagram, now: Instant, send: &mut impl FnMut(Datagram)) {
        if self.recorded.len() == RECORDED_MAX {
            self.recorded.pop_front();
        }
        self.recorded.push_back(datagram.bytes.clone());
        if now < self.begins {
            self.sent += 1;
            send(datagram);
            return;
        }
        if self.has(Strategy::Withholds) && self.is_at_it(now, 1200, 2000) {
            return;
        }
        let is_data = matches!(
            packet::classify(&datagram.bytes),
            Ok((DatagramKind::Data, _))
        );
        if self.has(Strategy::Moves) && is_data && self.is_at_it(now, 200, 500) {
            datagram.from = THIRD;
        }
        if self.has(Strategy::MovesInHandshake) {
            // In every second connection, the last flight and the next packets come from another
            // address.
            let kind = packet::classify(&datagram.bytes).map(|(kind, _)| kind);
            let is_away = match kind {
                Ok(DatagramKind::Handshake) => self.cores_made.is_multiple_of(2),
                Ok(DatagramKind::Data) => {
                    self.cores_made.is_multiple_of(2) && now + CORE_EVERY / 2 < self.next_core
                }
                _ => self.cores_made.is_multiple_of(3) && self.random.chance(0.5),
            };
            if is_away {
                datagram.from = THIRD;
            }
        }
        if self.has(Strategy::Strangers) && self.random.chance(0.3) {
            datagram.from.set_ip(THIRD.ip());
            datagram.from.set_port(1 + self.random.below(50) as u16);
        }
        if self.has(Strategy::Flaps) && self.is_at_it(now, 150, 300) {
            datagram.from = ENEMY[1];
        }
        let mut at = now;
        if self.has(Strategy::LagGrows) {
            let phase_ms = (now - self.begins).as_millis() as u64 % LAG_PERIOD_MS;
            at += Duration::from_millis(phase_ms.min(LAG_PERIOD_MS - phase_ms));
        }
        self.order += 1;
        self.held.insert((at, self.order), datagram);
    }

    /// Performs the enemy's regular actions, such as floods and new connections.
    fn tick(&mut self, passed: Duration, now: Instant, send: &mut impl FnMut(Datagram)) {
        self.manage_cores(now);
        let Some(core) = self.cores.last_mut() else {
            return;
        };
        let view = core.endpoint.peer_view(0);
        if view.connected != self.connected {
            self.connected = view.connected;
            self.jumped = 0;
            self.liar().begin_connection();
        }
        let core = self.cores.last_mut().expect("it was just found");
        let streams_max = u64::from(core.endpoint.streams_allowed(0));
        let known = core.endpoint.streams_open(0);
        let mut liar = self.liar();
        liar.streams_max = streams_max;
        liar.known = known;
        drop(liar);
        if self.has(Strategy::KeyTurns) && self.random.chance(0.3) {
            let core = self.cores.last_mut().expect("it was just found");
            core.endpoint.turn_keys(0);
        }
        if self.has(Strategy::OpensAll) {
            let payload = self.liar().opening();
            // With some seeds, the enemy opens more streams than permitted.
            let dares = self.seed % 2 == 1 && self.random.chance(0.5);
            if dares || self.liar().streams_opened() < streams_max {
                self.seal(&payload, now, send);
            }
        }
        if self.has(Strategy::Closes) && self.is_at_it(now, 2, 400) {
            let mut payload = Vec::new();
            Frame::Close { code: 0 }.put(&mut payload);
            self.seal(&payload, now, send);
        }
        let floods: Vec<_> = self
            .strategies
            .iter()
            .copied()
            .filter(|it| it.is_flood())
            .collect();
        if floods.is_empty() {
            return;
        }
        self.budget_bytes += self.flood_bytes_per_s * passed.as_secs_f64();
        let mut count = 0;
        while self.budget_bytes > 0.0 {
            let strategy = floods[count % floods.len()];
            count += 1;
            let is_rare =
                |it: &Strategy| matches!(it, Strategy::FloodCycles | Strategy::FloodHellos);
            if count > floods.len() && is_rare(&strategy) {
                // The packets of such a flood cause much work, so only one packet of each flood is
                // sent at a time.
                if floods.iter().all(is_rare) {
                    self.budget_bytes = 0.0;
                }
                continue;
            }
            let bytes = self.flood(strategy, now, send);
            self.budget_bytes -= (bytes + WIRE_OVERHEAD_BYTES) as f64;
        }
    }

    /// Creates a new endpoint after the gateway has detected a violation and closed the connection.
    pub(super) fn on_found_out(&mut self, now: Instant) {
        let core = self.make_core(now);
        self.cores.push(core);
        if self.cores.len() > CORES_MAX || !self.has(Strategy::ManyConnections) {
            self.cores.remove(0);
        }
    }

    /// Starts new connections and ends old connections, as the strategies require.
    fn manage_cores(&mut self, now: Instant) {
        if now < self.next_core {
            return;
        }
        self.next_core = now + CORE_EVERY;
        if self.cores.len() >= CORES_MAX && self.random.chance(0.9) {
            // Usually the enemy keeps its connections, so that the gateway's tables also fill up.
            return;
        }
        if self.has(Strategy::Restarts) {
            self.instance += 1;
            let core = self.make_core(now);
            self.cores = vec![core];
        } else if self.has(Strategy::ManyConnections) {
            let core = self.make_core(now);
            self.cores.push(core);
            if self.cores.len() > CORES_MAX {
                self.cores.remove(0);
            }
        } else if self.has(Strategy::Closes) || self.has(Strategy::MovesInHandshake) {
            let core = self.make_core(now);
            self.cores = vec![core];
        }
    }

    /// Encrypts and sends a packet on the newest connection. Returns the length of the datagram.
    fn seal(&mut self, payload: &[u8], now: Instant, send: &mut impl FnMut(Datagram)) -> usize {
        let mut bytes = Vec::new();
        if let Some(core) = self.cores.last_mut() {
            core.endpoint.seal_payload(0, payload, &mut bytes, now);
        }
        self.launch(bytes, ENEMY[0], send)
    }

    /// Sends a datagram that the enemy's endpoints have not created. Returns its length.
    fn launch(
        &mut self,
        bytes: Vec<u8>,
        from: SocketAddr,
        send: &mut impl FnMut(Datagram),
    ) -> usize {
        let len = bytes.len();
        if len > 0 {
            self.sent += 1;
            let to = self.victim;
            send(Datagram { from, to, bytes });
        }
        len
    }

    /// Sends one datagram of a flood. Returns its length in bytes.
    fn flood(
        &mut self,
        strategy: Strategy,
        now: Instant,
        send: &mut impl FnMut(Datagram),
    ) -> usize {
        self.flooded += 1;
        let mut from = ENEMY[0];
        let bytes = match strategy {
            Strategy::FloodRepeats => self.recorded.back().cloned().unwrap_or_default(),
            Strategy::FloodReplays | Strategy::FloodNoise => {
                let at = self.random.below(self.recorded.len());
                let mut bytes = self.recorded.get(at).cloned().unwrap_or_default();
                if strategy == Strategy::FloodNoise {
                    let at = 5 + self.random.below(bytes.len().saturating_sub(5));
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << self.random.below(8);
                    }
                }
                bytes
            }
            Strategy::FloodHellos => {
                from = [ENEMY[0], ENEMY[1], THIRD][self.random.below(3)];
                let mut core = self.make_core(now);
                core.endpoint.handle_timeout(now);
                core.act(now);
                let mut first = Vec::new();
                core.transmit(now, |datagram| first.push(datagram));
                for datagram in first.drain(1.min(first.len())..) {
                    self.launch(datagram.bytes, from, send);
                }
                first
                    .pop()
                    .map(|datagram| datagram.bytes)
                    .unwrap_or_default()
            }
            Strategy::FloodJumps | Strategy::FloodGaps => {
                let mut behind = 0;
                if strategy == Strategy::FloodJumps {
                    self.jumped += WINDOW - 1 + self.random.below(2) as u64;
                } else {
                    // Every second number is missing. Some of the missing packets come late, so
                    // that reports must cover much older packets.
                    self.jumped += 2;
                    if self.flooded.is_multiple_of(LATE_EACH) {
                        behind = 2 * self.random.below(LATE_BY_MAX) as u64 + 1;
                    }
                    if self.jumped > GAPS_MAX {
                        // From now on, the enemy sends almost only late packets.
                        behind = 2 * self.random.below(LATE_BY_MAX) as u64 + 1;
                        self.jumped = GAPS_MAX;
                        self.budget_bytes = self.budget_bytes.min(0.0);
                    }
                }
                let mut bytes = Vec::new();
                let endpoint = &mut self.cores.last_mut().expect("there is one").endpoint;
                if let Some(number) = endpoint.next_number(0) {
                    let number = (number + self.jumped).saturating_sub(behind);
                    endpoint.seal_as(0, number, &[1], &mut bytes);
                }
                bytes
            }
            _ => {
                if strategy == Strategy::GuessesFromThird
                    || strategy == Strategy::FloodChallenges && self.random.chance(0.5)
                {
                    from = THIRD;
                }
                let payload = self.liar().flood(strategy);
                let mut bytes = Vec::new();
                let core = self.cores.last_mut().expect("there is one");
                core.endpoint.seal_payload(0, &payload, &mut bytes, now);
                bytes
            }
        };
        self.launch(bytes, from, send)
    }
}

/// Period of packets that come late: one packet in 20 has a number far below the numbers of other
/// packets.
const LATE_EACH: u64 = 20;
/// Half of the largest number that the enemy subtracts from the number of a late packet.
const LATE_BY_MAX: usize = 60_000;
/// Range of packet numbers in which the enemy leaves out every second number.
const GAPS_MAX: u64 = 60_000;
/// Interval of the enemy's regular actions.
const TICK: Duration = Duration::from_millis(1);
/// Time between two new connections of an enemy that opens many connections.
const CORE_EVERY: Duration = Duration::from_millis(300);
/// Maximum number of connections that the enemy keeps. The number exceeds the limit for one peer.
const CORES_MAX: usize = 5;
/// Number of simultaneous transfers of each endpoint. Half of the transfers are uploads.
const TRANSFERS: usize = 4;
/// Maximum number of recorded datagrams that the enemy can repeat.
const RECORDED_MAX: usize = 2000;
/// Length in bytes above which the simulated black hole drops datagrams.
const BLACK_HOLE_BYTES: usize = 700;
/// Period of the enemy's artificial delay in milliseconds. The delay grows to half of the period,
/// and then shrinks to zero.
const LAG_PERIOD_MS: u64 = 1000;
/// Bytes that IP, UDP and Ethernet add to a UDP payload.
const WIRE_OVERHEAD_BYTES: usize = 28 + 38;

const _: () = assert!(TRANSFERS as u64 <= STREAMS_OF_CORE);
