//! Two link cores over a simulated WAN, in virtual time.
//!
//! A [`World`] holds two sites joined by one `wansim::Path` in each direction. It moves real
//! datagrams with real encryption, and jumps from event to event, so that minutes of a transatlantic
//! path take seconds, with the same figures on every run of a seed.

use std::{
    collections::HashMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use units::{BitRate, ByteCount};
use wansim::{Counters, Packet, Path, PathConfig};

use crate::{
    Class, Endpoint, EndpointConfig, EndpointPeer, Event, Identity, LostReason, PeerView, Read,
    StreamKey, Transmit,
    congestion::{Controller, PathMemory},
};

/// One of the two sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The site that connects.
    A,
    /// The site that waits.
    B,
}

/// Two sites and the paths between them.
pub struct World {
    start: Instant,
    now: Instant,
    sites: [Site; 2],
    /// From A to B, and back.
    paths: [Path<Datagram>; 2],
    transfers: Vec<Transfer>,
    by_stream: HashMap<(Side, StreamKey), usize>,
    seed: u64,
    make_controller: ControllerMaker,
    granularity: Duration,
    scratch: Vec<u8>,
    /// Datagrams that arrived at one side, kept for replay.
    recording: Option<Side>,
    recorded: Vec<Vec<u8>>,
    /// How many datagrams went to each address.
    sent_to: HashMap<SocketAddr, u64>,
    /// Streams that each side was told are lost.
    lost_streams: [u64; 2],
}

/// Makes the controller of each new connection.
pub type ControllerMaker = fn(Option<PathMemory>, Option<BitRate>) -> Box<dyn Controller>;

/// Names a transfer of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferId(usize);

/// How a transfer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read in order by the receiving application.
    pub delivered: ByteCount,
    /// When it was begun, since the start of the world.
    pub began: Duration,
    /// When the receiving application had everything.
    pub arrived: Option<Duration>,
    /// When the sending application knew that.
    pub confirmed: Option<Duration>,
    /// Why it failed.
    pub lost: Option<LostReason>,
}

/// What a world is made from.
#[derive(Debug, Clone)]
pub struct WorldConfig {
    /// From A to B.
    pub forward: PathConfig,
    /// From B to A.
    pub backward: PathConfig,
    /// Seed of everything random.
    pub seed: u64,
    /// Makes the congestion controllers.
    pub controller: ControllerMaker,
    /// Bound of the buffers of each connection.
    pub memory_max: ByteCount,
    /// Silence after which a connection is given up.
    pub idle_timeout: Duration,
}

struct Site {
    endpoint: Endpoint,
    address: SocketAddr,
    instance: u64,
    is_stopped: bool,
}

struct Transfer {
    from: Side,
    class: Class,
    total: u64,
    key: Option<StreamKey>,
    written: u64,
    is_finished: bool,
    /// The receiving application does not read.
    is_unread: bool,
    progress: Progress,
}

#[derive(Debug, Clone)]
struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl Packet for Datagram {
    fn ip_bytes(&self) -> usize {
        self.bytes.len() + IP_UDP_HEADERS
    }

    fn flip_bit(&mut self, bit: usize) {
        // A flipped bit in the headers dies in their checksums; here it breaks the first byte.
        let byte = (bit / 8).saturating_sub(IP_UDP_HEADERS);
        self.bytes[byte] ^= 1 << (bit % 8);
    }
}

const IP_UDP_HEADERS: usize = 28;
/// Period of the pattern that transfers carry; a prime, so that shifted slots are noticed.
const PATTERN_BYTES: usize = 1_000_003;
const WRITE_BYTES: usize = 256 * 1024;

impl World {
    /// Two sites that know each other; A has B's address. Their first handshake begins at once.
    pub fn new(config: &WorldConfig) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "any origin does: only differences count"
        )]
        let start = Instant::now();
        let addresses = ["10.77.0.1:4810", "10.77.0.2:4810"]
            .map(|text| text.parse().expect("the address is well formed"));
        let sites = [Side::A, Side::B].map(|side| Site {
            endpoint: endpoint(config, side, 1, start),
            address: addresses[side as usize],
            instance: 1,
            is_stopped: false,
        });
        Self {
            start,
            now: start,
            sites,
            paths: [
                Path::new(config.forward.clone(), config.seed.wrapping_mul(2) + 1),
                Path::new(config.backward.clone(), config.seed.wrapping_mul(2) + 2),
            ],
            transfers: Vec::new(),
            by_stream: HashMap::new(),
            seed: config.seed,
            make_controller: config.controller,
            granularity: Duration::from_micros(50),
            scratch: Vec::new(),
            recording: None,
            recorded: Vec::new(),
            sent_to: HashMap::new(),
            lost_streams: [0; 2],
        }
    }

    /// Time since the start.
    pub fn now(&self) -> Duration {
        self.now - self.start
    }

    /// Begins to send `size` bytes from one side to the other, on a stream of their own.
    pub fn send(&mut self, from: Side, class: Class, size: ByteCount) -> TransferId {
        let progress = Progress {
            delivered: ByteCount::ZERO,
            began: self.now(),
            arrived: None,
            confirmed: None,
            lost: None,
        };
        let total = size.bytes();
        self.transfers.push(Transfer {
            from,
            class,
            total,
            key: None,
            written: 0,
            is_finished: false,
            is_unread: false,
            progress,
        });
        TransferId(self.transfers.len() - 1)
    }

    /// The application at the other end never reads this transfer.
    pub fn leave_unread(&mut self, id: TransferId) {
        self.transfers[id.0].is_unread = true;
    }

    /// How a transfer stands.
    pub fn progress(&self, id: TransferId) -> Progress {
        self.transfers[id.0].progress
    }

    /// Runs until the sender of `id` knows that everything arrived, or `limit` has passed. Returns
    /// the time it took from its beginning.
    pub fn run_to_end(&mut self, id: TransferId, limit: Duration) -> Option<Duration> {
        self.run_until(limit, |world| {
            let progress = world.progress(id);
            progress.confirmed.is_some() || progress.lost.is_some()
        });
        let progress = self.progress(id);
        progress.confirmed.map(|end| end - progress.began)
    }

    /// Runs for a time.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Runs until `done`, for at most `limit`. Returns whether `done` came true.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now + limit;
        self.step();
        while !done(self) {
            let next = self.next_event().max(self.now + self.granularity);
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

    /// Changes the path from one side.
    pub fn set_path(&mut self, from: Side, config: PathConfig) {
        self.paths[from as usize].configure(config, self.now);
    }

    /// Changes both directions alike.
    pub fn change_paths(&mut self, change: impl Fn(&mut PathConfig)) {
        for path in &mut self.paths {
            let mut config = path.config().clone();
            change(&mut config);
            path.configure(config, self.now);
        }
    }

    /// What happened to the packets sent from one side.
    pub fn path_counters(&self, from: Side) -> &Counters {
        self.paths[from as usize].counters()
    }

    /// What one side knows of the other.
    pub fn view(&self, side: Side) -> PeerView {
        self.sites[side as usize].endpoint.peer_view(0)
    }

    /// The endpoint of one side.
    pub fn endpoint(&self, side: Side) -> &Endpoint {
        &self.sites[side as usize].endpoint
    }

    /// Restarts one side: everything it knew is gone, nobody was told.
    pub fn restart(&mut self, side: Side, config: &WorldConfig) {
        let site = &mut self.sites[side as usize];
        site.instance += 1;
        site.endpoint = endpoint(config, side, site.instance, self.now);
    }

    /// Stops one side (as SIGSTOP does) or lets it go on: datagrams that arrive meanwhile are lost.
    pub fn set_stopped(&mut self, side: Side, is_stopped: bool) {
        self.sites[side as usize].is_stopped = is_stopped;
    }

    /// Gives one side another address, as a NAT does that forgot its binding.
    pub fn set_address(&mut self, side: Side, address: SocketAddr) {
        self.sites[side as usize].address = address;
    }

    /// Hands a datagram to one side as if the network had.
    pub fn inject(&mut self, to: Side, from: SocketAddr, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        self.sites[to as usize]
            .endpoint
            .handle_datagram(&mut bytes, from, self.now);
    }

    /// Keeps what arrives at one side from now on.
    pub fn record(&mut self, at: Side) {
        self.recording = Some(at);
    }

    /// What arrived since [`record`](Self::record), and an end to recording.
    pub fn take_recorded(&mut self) -> Vec<Vec<u8>> {
        self.recording = None;
        std::mem::take(&mut self.recorded)
    }

    /// How many datagrams either side has sent to an address.
    pub fn sent_to(&self, address: SocketAddr) -> u64 {
        self.sent_to.get(&address).copied().unwrap_or(0)
    }

    /// How many streams one side was told are lost.
    pub fn lost_streams(&self, side: Side) -> u64 {
        self.lost_streams[side as usize]
    }

    fn next_event(&mut self) -> Instant {
        let now = self.now;
        let far = now + Duration::from_secs(3600);
        let timeouts = self
            .sites
            .iter_mut()
            .filter(|site| !site.is_stopped)
            .filter_map(|site| site.endpoint.next_timeout(now));
        let arrivals = self.paths.iter().filter_map(Path::next_arrival);
        timeouts.chain(arrivals).min().unwrap_or(far)
    }

    fn step(&mut self) {
        for from in [Side::A, Side::B] {
            while let Some(mut datagram) = self.paths[from as usize].poll(self.now) {
                let site = &mut self.sites[1 - from as usize];
                if self.recording.is_some_and(|side| side != from) {
                    self.recorded.push(datagram.bytes.clone());
                }
                if datagram.to == site.address && !site.is_stopped {
                    site.endpoint
                        .handle_datagram(&mut datagram.bytes, datagram.from, self.now);
                }
            }
        }
        for side in [Side::A, Side::B] {
            if self.sites[side as usize].is_stopped {
                continue;
            }
            self.sites[side as usize].endpoint.handle_timeout(self.now);
            self.handle_events(side);
            self.write(side);
            self.transmit(side);
        }
    }

    fn handle_events(&mut self, side: Side) {
        while let Some(event) = self.sites[side as usize].endpoint.poll_event() {
            let other = self.sites[1 - side as usize].address;
            let now = self.now();
            match event {
                Event::Resolve { peer } => {
                    self.sites[side as usize]
                        .endpoint
                        .set_address(peer, Some(other), self.now);
                }
                Event::Connected { .. } => {}
                Event::Incoming { key, .. } => {
                    let sender = if side == Side::A { Side::B } else { Side::A };
                    let found = self.transfers.iter().position(|transfer| {
                        transfer.from == sender
                            && transfer.key.is_some_and(|ours| ours.stream == key.stream)
                            && transfer.progress.lost.is_none()
                    });
                    if let Some(index) = found {
                        self.by_stream.insert((side, key), index);
                    }
                    // The answering direction is not used.
                    self.sites[side as usize].endpoint.finish(key);
                }
                Event::Readable { key } => self.read(side, key),
                Event::SendDone { key } => {
                    if let Some(index) = self.by_stream.get(&(side, key)) {
                        let transfer = &mut self.transfers[*index];
                        if transfer.from == side {
                            transfer.progress.confirmed = Some(now);
                        }
                    }
                }
                Event::Stopped { .. } => {}
                Event::Lost { key, reason } => {
                    self.lost_streams[side as usize] += 1;
                    if let Some(index) = self.by_stream.get(&(side, key)) {
                        let progress = &mut self.transfers[*index].progress;
                        if progress.confirmed.is_none() {
                            progress.lost = Some(reason);
                        }
                    }
                }
            }
        }
    }

    fn read(&mut self, side: Side, key: StreamKey) {
        let now = self.now();
        let index = self.by_stream.get(&(side, key)).copied();
        if index.is_some_and(|index| self.transfers[index].is_unread) {
            return;
        }
        let endpoint = &mut self.sites[side as usize].endpoint;
        loop {
            let read = endpoint.read(key, WRITE_BYTES, self.now);
            let transfer = index.map(|index| &mut self.transfers[index]);
            match (read, transfer) {
                (Read::Data(data), Some(transfer)) => {
                    let offset = transfer.progress.delivered.bytes();
                    assert_pattern(&data, offset);
                    transfer.progress.delivered += ByteCount::new(data.len() as u64);
                }
                (Read::End, Some(transfer)) => {
                    if transfer.from != side {
                        assert_eq!(transfer.progress.delivered.bytes(), transfer.total);
                        transfer.progress.arrived.get_or_insert(now);
                    }
                    return;
                }
                (Read::Corrupt, _) => panic!("count or hash did not match (seed {})", self.seed),
                (Read::Data(_), None) => {}
                _ => return,
            }
        }
    }

    fn write(&mut self, side: Side) {
        let endpoint = &mut self.sites[side as usize].endpoint;
        for (index, transfer) in self.transfers.iter_mut().enumerate() {
            if transfer.from != side || transfer.is_finished || transfer.progress.lost.is_some() {
                continue;
            }
            let Some(key) = transfer
                .key
                .or_else(|| endpoint.open(0, transfer.class, self.now))
            else {
                continue;
            };
            transfer.key = Some(key);
            self.by_stream.insert((side, key), index);
            while transfer.written < transfer.total && endpoint.writable(key) > 0 {
                let left = transfer.total - transfer.written;
                let data = pattern(transfer.written, left.min(WRITE_BYTES as u64) as usize);
                transfer.written += data.len() as u64;
                endpoint.write(key, data);
            }
            if transfer.written == transfer.total {
                endpoint.finish(key);
                transfer.is_finished = true;
            }
        }
    }

    fn transmit(&mut self, side: Side) {
        let site = &mut self.sites[side as usize];
        let path = &mut self.paths[side as usize];
        loop {
            self.scratch.clear();
            let transmit = site.endpoint.poll_transmit(&mut self.scratch, 44, self.now);
            let Some(Transmit { to, segment_bytes }) = transmit else {
                return;
            };
            for bytes in self.scratch.chunks(segment_bytes) {
                *self.sent_to.entry(to).or_default() += 1;
                path.send(
                    Datagram {
                        from: site.address,
                        to,
                        bytes: bytes.to_vec(),
                    },
                    self.now,
                );
            }
        }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let _ = self.make_controller;
        f.debug_struct("World")
            .field("now", &self.now())
            .field("seed", &self.seed)
            .finish()
    }
}

fn endpoint(config: &WorldConfig, side: Side, instance: u64, epoch: Instant) -> Endpoint {
    let identity = Identity::from_seed([1 + side as u8; 32]);
    let other = Identity::from_seed([2 - side as u8; 32]).public_key();
    let make = config.controller;
    let endpoint = EndpointConfig {
        identity,
        peers: vec![EndpointPeer {
            public_keys: vec![other],
            has_endpoint: side == Side::A,
            rate_max: None,
        }],
        memory_max: config.memory_max,
        idle_timeout: config.idle_timeout,
        seed: config.seed ^ (instance << 32) ^ (side as u64) << 48,
        instance: instance << 1 | side as u64,
        unix_ns: 1_700_000_000_000_000_000 + (instance << 40),
        pacing_quantum: Duration::from_micros(250),
        controller: Box::new(make),
    };
    Endpoint::new(endpoint, epoch).expect("seeded keys are valid")
}

fn pattern_buffer() -> &'static [u8] {
    static PATTERN: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut state = 1u32;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..PATTERN_BYTES).map(next).collect()
    })
}

/// At most `len_max` bytes of the pattern from `offset` on.
fn pattern(offset: u64, len_max: usize) -> Bytes {
    let start = (offset % PATTERN_BYTES as u64) as usize;
    let end = (start + len_max).min(PATTERN_BYTES);
    Bytes::from_static(&pattern_buffer()[start..end])
}

fn assert_pattern(data: &[u8], offset: u64) {
    let mut at = 0;
    while at < data.len() {
        let expected = pattern(offset + at as u64, data.len() - at);
        assert!(
            data[at..at + expected.len()] == expected,
            "wrong bytes at offset {offset}"
        );
        at += expected.len();
    }
}
