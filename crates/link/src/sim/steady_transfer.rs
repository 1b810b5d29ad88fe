//! Bulk transfer in its steady state, without sockets.
//!
//! The sender and the receiver run in alternating turns. A bench can therefore measure the cost of
//! a packet at the sender and at the receiver separately.
//!
//! Two endpoints with the default congestion controller and real encryption send at 1 Gbit/s. The
//! round-trip time is 20 ms. A turn does the work of one turn of the driver. It handles received
//! datagrams and expired timers, moves the application's data, and collects outgoing datagrams. The
//! cost of a turn is the whole cost of the link, without the kernel.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use units::{BitRate, ByteCount};

use crate::{
    Endpoint, EndpointConfig, EndpointEvent, EndpointPeer, Identity, Policy, RestartState,
    StreamClass, StreamKey, StreamRead, congestion,
};

/// Sender, receiver, and the datagrams in flight between them.
pub struct SteadyTransfer {
    sender: SteadySite,
    receiver: SteadySite,
    /// Lost packets per thousand, in each direction.
    lost_per_mille: u64,
    dice: u64,
    now: Instant,
    flying: [VecDeque<(Instant, Vec<u8>)>; 2],
    /// Unused buffers, kept for reuse.
    spare: Vec<Vec<u8>>,
}

/// Sender or receiver of the transfer.
struct SteadySite {
    endpoint: Endpoint,
    peer_address: SocketAddr,
    stream: Option<StreamKey>,
    /// Datagrams that have arrived since the last turn.
    inbox: Vec<Vec<u8>>,
    /// Batches of datagrams sent in this turn. The second value of each pair is the size of a
    /// datagram in bytes.
    outbox: Vec<(Vec<u8>, usize)>,
    outbox_used: usize,
    /// Function that reads a counter, such as the number of allocations.
    meter: fn() -> u64,
    /// Total increase of the counter during the turns of this site.
    counted: u64,
}

impl SteadyTransfer {
    /// Creates a transfer that has been running for one second. `meter` returns the value of a
    /// counter. The transfer calls `meter` before and after each turn, and [`run`](Self::run)
    /// returns the increase of the counter.
    pub fn new(lost_per_mille: u64, meter: fn() -> u64) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "any origin does: only differences count"
        )]
        let now = Instant::now();
        let addresses = ["10.77.0.1:4810", "10.77.0.2:4810"]
            .map(|text| text.parse().expect("the address is well formed"));
        let site = |side: u8| SteadySite {
            endpoint: endpoint(side, now),
            peer_address: addresses[1 - usize::from(side)],
            stream: None,
            inbox: Vec::new(),
            outbox: Vec::new(),
            outbox_used: 0,
            meter,
            counted: 0,
        };
        let mut steady = Self {
            sender: site(0),
            receiver: site(1),
            lost_per_mille,
            dice: 1,
            now,
            flying: [VecDeque::new(), VecDeque::new()],
            spare: Vec::new(),
        };
        let begins = now + Duration::from_secs(1);
        while steady.now < begins {
            steady.step(take_sender_turn, take_receiver_turn);
        }
        assert!(
            steady.receiver.stream.is_some(),
            "the transfer must be under way"
        );
        steady
    }

    /// Runs until the sender has sent `packets` more packets. Returns the increase of the counter
    /// during the sender's turns and during the receiver's turns.
    ///
    /// # Panics
    /// Panics if the transfer is slower than 90 % of the configured rate. Such a transfer is not in
    /// its steady state.
    pub fn run(&mut self, packets: u64) -> [u64; 2] {
        let sent = |steady: &Self| steady.sender.endpoint.peer_view(0).stats.datagrams_sent;
        let counted = |steady: &Self| [steady.sender.counted, steady.receiver.counted];
        let (from, before) = (self.now, counted(self));
        let goal = sent(self) + packets;
        while sent(self) < goal {
            self.step(sender_turn, receiver_turn);
        }
        let took = (self.now - from).as_secs_f64();
        let rate = packets as f64 * FULL_PACKET_BITS / took;
        assert!(
            rate > 0.9 * CAP.as_bits_per_s() as f64,
            "a transfer at {:.0} Mbit/s is not in its steady state",
            rate * 1e-6
        );
        let after = counted(self);
        [after[0] - before[0], after[1] - before[1]]
    }

    /// Runs one turn of the sender and one turn of the receiver.
    fn step(&mut self, sender_turn: TurnFn, receiver_turn: TurnFn) {
        self.now += TURN;
        for (side, site) in [&mut self.sender, &mut self.receiver]
            .into_iter()
            .enumerate()
        {
            let flying = &mut self.flying[1 - side];
            while flying.front().is_some_and(|(due, _)| *due <= self.now) {
                let (_, datagram) = flying.pop_front().expect("it was just seen");
                site.inbox.push(datagram);
            }
        }
        sender_turn(&mut self.sender, self.now);
        receiver_turn(&mut self.receiver, self.now);
        for side in [0, 1] {
            self.carry(side);
        }
    }

    /// Sends the outgoing datagrams of one site into the path.
    fn carry(&mut self, side: usize) {
        let site = match side {
            0 => &mut self.sender,
            _ => &mut self.receiver,
        };
        self.spare.append(&mut site.inbox);
        for (batch, segment_bytes) in &site.outbox[..site.outbox_used] {
            for datagram in batch.chunks(*segment_bytes) {
                // SplitMix64's step, so that every run loses the same packets.
                self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mixed = (self.dice ^ self.dice >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                if (mixed >> 32) % 1000 < self.lost_per_mille {
                    continue;
                }
                let mut copy = self.spare.pop().unwrap_or_default();
                copy.clear();
                copy.extend_from_slice(datagram);
                self.flying[side].push_back((self.now + ONE_WAY, copy));
            }
        }
        site.outbox_used = 0;
    }
}

impl std::fmt::Debug for SteadyTransfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SteadyTransfer")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

type TurnFn = fn(&mut SteadySite, Instant);

/// Runs a measured turn of the sender. The bench `packets` finds this function by its name.
#[inline(never)]
fn sender_turn(site: &mut SteadySite, now: Instant) {
    take_turn(site, now, true);
}

/// Runs a measured turn of the receiver. The bench `packets` finds this function by its name.
#[inline(never)]
fn receiver_turn(site: &mut SteadySite, now: Instant) {
    take_turn(site, now, false);
}

/// Runs a turn of the sender before the measurement starts.
fn take_sender_turn(site: &mut SteadySite, now: Instant) {
    take_turn(site, now, true);
}

/// Runs a turn of the receiver before the measurement starts.
fn take_receiver_turn(site: &mut SteadySite, now: Instant) {
    take_turn(site, now, false);
}

fn take_turn(site: &mut SteadySite, now: Instant, is_sender: bool) {
    let before = (site.meter)();
    for datagram in &mut site.inbox {
        site.endpoint
            .handle_datagram(datagram, site.peer_address, now);
    }
    site.endpoint.handle_timeout(now);
    while let Some(event) = site.endpoint.poll_event() {
        match event {
            EndpointEvent::Resolve { peer } => {
                site.endpoint
                    .set_address(peer, Some(site.peer_address), now);
            }
            EndpointEvent::Incoming { key, .. } => site.stream = Some(key),
            EndpointEvent::Readable { key } => {
                while let StreamRead::Data(data) = site.endpoint.read(key, READ_BYTES, now) {
                    std::hint::black_box(&data);
                }
            }
            _ => {}
        }
    }
    if is_sender && site.endpoint.is_up(0) {
        if site.stream.is_none() {
            site.stream = site.endpoint.open(0, StreamClass::Bulk, now);
        }
        let key = site.stream.expect("a peer that is up takes a stream");
        while site.endpoint.writable(key) > 0 {
            site.endpoint.write(key, Bytes::from_static(&BLOCK));
        }
    }
    loop {
        if site.outbox.len() == site.outbox_used {
            site.outbox.push((Vec::with_capacity(BATCH_BYTES), 0));
        }
        let (batch, segment_bytes) = &mut site.outbox[site.outbox_used];
        batch.clear();
        let Some(transmit) = site.endpoint.poll_transmit(batch, BATCH_PACKETS, now) else {
            break;
        };
        *segment_bytes = transmit.segment_bytes;
        site.outbox_used += 1;
    }
    std::hint::black_box(site.endpoint.next_timeout(now));
    site.counted += (site.meter)() - before;
}

fn endpoint(side: u8, epoch: Instant) -> Endpoint {
    let identity = |side: u8| Identity::from_seed([1 + side; 32]);
    let config = EndpointConfig {
        identity: identity(side),
        peers: vec![EndpointPeer {
            public_keys: vec![identity(1 - side).public_key()],
            has_endpoint: side == 0,
            rate_max: None,
            is_guest: false,
        }],
        rate_max: Some(CAP),
        memory_max: ByteCount::mebibytes(256),
        idle_timeout: Duration::from_secs(600),
        seed: u64::from(side),
        instance: u64::from(side),
        generation: None,
        remembered: RestartState::default(),
        unix_ns: 1_700_000_000_000_000_000,
        controller: Arc::new(|memory, rate_max| {
            congestion::for_policy(Policy::Fair, memory, rate_max)
        }),
    };
    Endpoint::new(config, epoch).expect("seeded keys are valid")
}

/// Time between two turns: similar to the driver's turns on such a path.
const TURN: Duration = Duration::from_micros(400);
const ONE_WAY: Duration = Duration::from_millis(10);
const CAP: BitRate = BitRate::gbit(1);
/// Maximum number of packets that the driver passes to the kernel in one call.
const BATCH_PACKETS: usize = 44;
const BATCH_BYTES: usize = 64 * 1024;
/// Maximum number of bytes that the driver moves from a stream to its handle in one call.
const READ_BYTES: usize = 256 * 1024;
const FULL_PACKET_BITS: f64 = 1500.0 * 8.0;
/// Bytes that a gateway reads from a TCP socket in one call.
static BLOCK: [u8; 64 * 1024] = [7; 64 * 1024];
