//! Two Longhaul endpoints that have each other's keys, and their applications.
//!
//! The input is datagrams and the time. The output is datagrams. The caller simulates the path
//! between the two sites.

mod applications;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use units::{BitRate, ByteCount};
use wansim::PathDirection;

use super::{
    clock::SiteClock,
    inbox::{Datagram, Inbox},
    reading_schedule::ReadingSchedule,
};
use crate::{
    Endpoint, EndpointConfig, EndpointPeer, Identity, LostReason, RestartState, StreamClass,
    StreamKey,
    congestion::{Controller, PathMemory},
};

/// One of the two sites of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SimSite {
    /// Site that starts the connection.
    A,
    /// Site that waits for the connection.
    B,
}

impl SimSite {
    /// Returns the other site.
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Returns the direction of packets that this site sends.
    pub(super) fn path_direction(self) -> PathDirection {
        match self {
            Self::A => PathDirection::Forward,
            Self::B => PathDirection::Backward,
        }
    }
}

/// Identifier of a transfer in a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimTransferId(usize);

/// State of a transfer in a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferProgress {
    /// Bytes that the receiving application has read in order.
    pub delivered: ByteCount,
    /// Start of the transfer, measured from the start of the simulation.
    pub began: Duration,
    /// Time at which the sending application wrote the last byte. `None` until that time.
    pub finished: Option<Duration>,
    /// Time at which the receiving application read the last byte. `None` until that time.
    pub arrived: Option<Duration>,
    /// Time at which the sender received the confirmation that all bytes arrived. `None` until that
    /// time.
    pub confirmed: Option<Duration>,
    /// Reason why the transfer failed. `None` if it has not failed.
    pub lost: Option<LostReason>,
}

/// Function that creates a congestion controller. The arguments are measurements from an earlier
/// connection and a maximum rate.
pub type FlowControllerFactory =
    Arc<dyn Fn(Option<PathMemory>, Option<BitRate>) -> Box<dyn Controller> + Send + Sync>;

/// Configuration of a pair of sites.
#[derive(Clone)]
pub(super) struct PairConfig {
    pub(super) seed: u64,
    pub(super) controller: FlowControllerFactory,
    pub(super) memory_max: ByteCount,
    pub(super) idle_timeout: Duration,
}

/// Two sites and their transfers.
pub(super) struct SimPair {
    start: Instant,
    sites: [Site; 2],
    transfers: Vec<PairTransfer>,
    by_stream: HashMap<(SimSite, StreamKey), usize>,
    seed: u64,
    scratch: Vec<u8>,
    /// Number of streams that each site's endpoint reported as lost.
    lost_streams: [u64; 2],
}

struct Site {
    endpoint: Endpoint,
    inbox: Inbox,
    address: SocketAddr,
    instance: u64,
    is_stopped: bool,
    clock: SiteClock,
    /// Time of day at the site's next restart, in nanoseconds since the Unix epoch.
    unix_ns: u64,
}

struct PairTransfer {
    from: SimSite,
    class: StreamClass,
    total: u64,
    key: Option<StreamKey>,
    written: u64,
    is_finished: bool,
    /// Whether the sending application keeps the stream open after the last byte.
    stays_open: bool,
    /// Whether the receiver opens the stream. The sender then waits until the stream exists.
    is_requested: bool,
    /// Reading rate of the receiving application. `None` if the application reads everything at
    /// once.
    reader: Option<ReadingSchedule>,
    /// Stream of the transfer at the receiver. `None` until the stream has arrived.
    incoming: Option<StreamKey>,
    /// Whether the receiving application reads nothing.
    is_unread: bool,
    progress: TransferProgress,
}

impl SimPair {
    /// Creates two sites. Each site has the public key of the other site. Site A has the address of
    /// site B, and starts a handshake at once.
    pub(super) fn new(config: PairConfig, start: Instant) -> Self {
        let addresses = ["10.77.0.1:4810", "10.77.0.2:4810"]
            .map(|text| text.parse().expect("the address is well formed"));
        let sites = [SimSite::A, SimSite::B].map(|side| Site {
            endpoint: endpoint(&config, side, 1, UNIX_NS, RestartState::default(), start),
            inbox: Inbox::default(),
            address: addresses[side as usize],
            instance: 1,
            is_stopped: false,
            clock: SiteClock::default(),
            unix_ns: UNIX_NS,
        });
        Self {
            start,
            sites,
            transfers: Vec::new(),
            by_stream: HashMap::new(),
            seed: config.seed,
            scratch: Vec::new(),
            lost_streams: [0; 2],
        }
    }

    pub(super) fn send(
        &mut self,
        from: SimSite,
        class: StreamClass,
        size: ByteCount,
        now: Instant,
    ) -> SimTransferId {
        let progress = TransferProgress {
            delivered: ByteCount::ZERO,
            began: now - self.start,
            finished: None,
            arrived: None,
            confirmed: None,
            lost: None,
        };
        self.transfers.push(PairTransfer {
            from,
            class,
            total: size.bytes(),
            key: None,
            written: 0,
            is_finished: false,
            stays_open: false,
            is_requested: false,
            reader: None,
            incoming: None,
            is_unread: false,
            progress,
        });
        SimTransferId(self.transfers.len() - 1)
    }

    pub(super) fn keep_open(&mut self, id: SimTransferId) {
        self.transfers[id.0].stays_open = true;
    }

    pub(super) fn write_more(&mut self, id: SimTransferId, size: ByteCount) {
        let transfer = &mut self.transfers[id.0];
        transfer.total += size.bytes();
        transfer.is_finished = false;
    }

    pub(super) fn deny(&mut self, side: SimSite, now: Instant) {
        let other = self.sites[1 - side as usize].address;
        let site = &mut self.sites[side as usize];
        let local = site.clock.local(now);
        site.endpoint.handle_unreachable(other.ip(), local);
    }

    pub(super) fn await_request(&mut self, id: SimTransferId) {
        self.transfers[id.0].is_requested = true;
    }

    pub(super) fn swallow(&mut self, id: SimTransferId, size: ByteCount) {
        if let Some(reader) = &mut self.transfers[id.0].reader {
            reader.swallow(size);
        }
    }

    pub(super) fn set_reading_rate(&mut self, id: SimTransferId, rate: BitRate, now: Instant) {
        self.transfers[id.0].reader = Some(ReadingSchedule::new(rate.as_bytes_per_s(), now));
    }

    pub(super) fn leave_unread(&mut self, id: SimTransferId) {
        self.transfers[id.0].is_unread = true;
    }

    pub(super) fn progress(&self, id: SimTransferId) -> TransferProgress {
        self.transfers[id.0].progress
    }

    pub(super) fn endpoint(&self, side: SimSite) -> &Endpoint {
        &self.sites[side as usize].endpoint
    }

    /// Restarts a site. The site loses all state except the state stored for a restart.
    pub(super) fn restart(&mut self, side: SimSite, config: PairConfig, now: Instant) {
        let site = &mut self.sites[side as usize];
        site.instance += 1;
        let local = site.clock.local(now);
        let remembered = site.endpoint.remembered(local);
        site.endpoint = endpoint(
            &config,
            side,
            site.instance,
            site.unix_ns,
            remembered,
            local,
        );
        site.inbox = Inbox::default();
        // The site's applications have also ended.
        let own = self.transfers.iter_mut().filter(|it| it.from == side);
        for transfer in own.filter(|it| it.progress.confirmed.is_none()) {
            transfer
                .progress
                .lost
                .get_or_insert(LostReason::PeerRestarted);
        }
    }

    pub(super) fn set_rate_max(
        &mut self,
        side: SimSite,
        all: Option<BitRate>,
        peer: Option<BitRate>,
    ) {
        self.sites[side as usize]
            .endpoint
            .set_rate_max(all, &[peer]);
    }

    /// Stops or continues a site. Datagrams that arrive during the stop wait in the site's socket,
    /// or are lost if `is_deaf` is set.
    pub(super) fn set_stopped(&mut self, side: SimSite, is_stopped: bool, is_deaf: bool) {
        let site = &mut self.sites[side as usize];
        site.is_stopped = is_stopped;
        site.inbox.is_shut = is_deaf;
    }

    pub(super) fn addresses(&self) -> [SocketAddr; 2] {
        [self.sites[0].address, self.sites[1].address]
    }

    pub(super) fn set_unix_ns(&mut self, side: SimSite, unix_ns: u64) {
        self.sites[side as usize].unix_ns = unix_ns;
    }

    /// Moves the clock of a site forward by `by`.
    pub(super) fn advance_clock(&mut self, side: SimSite, by: Duration) {
        self.sites[side as usize].clock.ahead += by;
    }

    /// Moves the clock of a site back by `by`, as if the clock had stopped for that time.
    pub(super) fn hold_clock(&mut self, side: SimSite, by: Duration) {
        self.sites[side as usize].clock.behind += by;
    }

    pub(super) fn set_address(&mut self, side: SimSite, address: SocketAddr) {
        self.sites[side as usize].address = address;
    }

    /// Returns the number of streams that a site's endpoint reported as lost.
    pub(super) fn lost_streams(&self, side: SimSite) -> u64 {
        self.lost_streams[side as usize]
    }

    /// Returns the state of the first transfer.
    pub(super) fn progress_of_first(&self) -> Option<TransferProgress> {
        self.transfers.first().map(|transfer| transfer.progress)
    }

    /// Delivers bytes to one site as if they had crossed the network. The site handles them at
    /// once.
    pub(super) fn inject(&mut self, to: SimSite, from: SocketAddr, bytes: &[u8], now: Instant) {
        let mut bytes = bytes.to_vec();
        let site = &mut self.sites[to as usize];
        let local = site.clock.local(now);
        site.endpoint.handle_datagram(&mut bytes, from, local);
    }

    /// Adds a datagram to the socket of one site. A datagram with another destination address is
    /// dropped.
    ///
    /// The site handles the datagram in its next step, or in
    /// [`handle_arrivals`](Self::handle_arrivals).
    pub(super) fn deliver(&mut self, to: SimSite, datagram: Datagram, now: Instant) {
        let site = &mut self.sites[to as usize];
        if datagram.to == site.address {
            site.inbox.push(datagram, now);
        }
    }

    /// Handles the datagrams that wait in the socket of one site.
    pub(super) fn handle_arrivals(&mut self, side: SimSite) {
        let site = &mut self.sites[side as usize];
        if site.is_stopped {
            return;
        }
        for (mut datagram, arrived) in site.inbox.drain() {
            let local = site.clock.local(arrived);
            site.endpoint
                .handle_datagram(&mut datagram.bytes, datagram.from, local);
        }
    }

    /// Returns the time at which the caller must call [`Self::step`] even if no datagram arrives.
    /// Returns `None` if no call is due.
    pub(super) fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        let readers = self.transfers.iter().filter_map(|transfer| {
            let reader = transfer.incoming.and(transfer.reader)?;
            reader.next_due().map(|due| due.max(now))
        });
        let sites = self
            .sites
            .iter_mut()
            .filter(|site| !site.is_stopped)
            .filter_map(|site| {
                let local = site.clock.local(now);
                let timeout = site.endpoint.next_timeout(local);
                // A due time may be earlier than the start of the world.
                let timeout = timeout.map(|it| site.clock.of_world(it.max(local)));
                timeout.into_iter().chain(site.inbox.due()).min()
            });
        sites.chain(readers).min()
    }

    /// Whether a site still collects arriving datagrams. Any due event of its endpoint ends the
    /// collection.
    fn is_gathering(&mut self, side: SimSite, now: Instant) -> bool {
        let site = &mut self.sites[side as usize];
        let local = site.clock.local(now);
        site.inbox.gathers(now)
            && site
                .endpoint
                .next_timeout(local)
                .is_none_or(|due| local < due)
    }

    /// Runs one step of a site: handles datagrams and timers, moves data between application and
    /// endpoint, and passes outgoing datagrams to `send`.
    pub(super) fn step(&mut self, side: SimSite, now: Instant, send: &mut impl FnMut(Datagram)) {
        if self.sites[side as usize].is_stopped || self.is_gathering(side, now) {
            return;
        }
        self.handle_arrivals(side);
        let site = &mut self.sites[side as usize];
        site.endpoint.handle_timeout(site.clock.local(now));
        self.handle_events(side, now);
        self.read_slowly(side, now);
        self.write(side, now);
        self.transmit(side, now, send);
        let site = &mut self.sites[side as usize];
        let turn = site.endpoint.turn(site.clock.local(now));
        site.inbox.wait(turn, now);
    }

    fn transmit(&mut self, side: SimSite, now: Instant, send: &mut impl FnMut(Datagram)) {
        let site = &mut self.sites[side as usize];
        loop {
            self.scratch.clear();
            let local = site.clock.local(now);
            let transmit = site.endpoint.poll_transmit(&mut self.scratch, 44, local);
            let Some(transmit) = transmit else {
                return;
            };
            for bytes in self.scratch.chunks(transmit.segment_bytes) {
                send(Datagram {
                    from: site.address,
                    to: transmit.to,
                    bytes: bytes.to_vec(),
                });
            }
        }
    }
}

fn endpoint(
    config: &PairConfig,
    side: SimSite,
    instance: u64,
    unix_ns: u64,
    remembered: RestartState,
    epoch: Instant,
) -> Endpoint {
    let make = config.controller.clone();
    let endpoint = EndpointConfig {
        identity: identity(side),
        peers: vec![EndpointPeer {
            public_keys: vec![identity(side.other()).public_key()],
            has_endpoint: side == SimSite::A,
            rate_max: None,
            is_guest: false,
        }],
        rate_max: None,
        memory_max: config.memory_max,
        idle_timeout: config.idle_timeout,
        seed: config.seed ^ (instance << 32) ^ (side as u64) << 48,
        generation: None,
        instance: instance << 1 | side as u64,
        remembered,
        unix_ns,
        controller: make,
    };
    Endpoint::new(endpoint, epoch).expect("seeded keys are valid")
}

pub(super) fn identity(side: SimSite) -> Identity {
    Identity::from_seed([1 + side as u8; 32])
}

/// Time of day at which the sites start, in nanoseconds since the Unix epoch.
const UNIX_NS: u64 = 1_700_000_000_000_000_000;
