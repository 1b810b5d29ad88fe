//! Several flows over one simulated path, in virtual time. A flow is a pair of Longhaul endpoints
//! or a model of TCP.
//!
//! All flows send from A to B through one `wansim::Duplex`. The acknowledgements cross the same
//! duplex from B to A. A flow may have additional delay before the path. This delay has a little
//! jitter, like the delay of real machines.
//!
//! Without jitter, the order of events alone would decide which flow's packets a full queue drops
//! (S. Floyd and V. Jacobson, "On traffic phase effects", 1992).
//!
//! The result is a [`CrowdRecord`] with samples at equal intervals.

use std::time::{Duration, Instant};

use rivals::{Ack, Receiver, Segment, Sender};
use units::ByteCount;
use wansim::{Counters, Duplex, ETHERNET_OVERHEAD, Jitter, Packet, Path, PathConfig, Radio};

use super::{
    GRANULARITY, SimSite,
    crowd_record::{CrowdRecord, FlowSample},
    flow::{FlowConfig, FlowKind},
    inbox::Datagram,
    pair::{PairConfig, SimPair},
};
use crate::{PeerView, StreamClass};

/// Configuration of a simulation with several flows.
#[derive(Debug, Clone)]
pub struct CrowdConfig {
    /// Path from A to B, which carries the data.
    pub forward: PathConfig,
    /// Path from B to A, which carries the acknowledgements.
    pub backward: PathConfig,
    /// Seed of all random decisions.
    pub seed: u64,
    /// Maximum additional delay of a packet before it enters the path. Packets stay in order. The
    /// sending time of one packet is enough to avoid patterns.
    pub jitter: Duration,
    /// Time between two samples of the record.
    pub sample_every: Duration,
}

/// Several flows and their common path.
pub struct Crowd {
    start: Instant,
    now: Instant,
    seed: u64,
    jitter: Duration,
    /// Common path of all flows. The forward direction is from A to B.
    paths: Duplex<CrowdPacket>,
    flows: Vec<CrowdFlow>,
    record: CrowdRecord,
    next_sample: Instant,
    /// Number from which the first flow of a step is computed. The number grows with each step, so
    /// that each flow is sometimes first.
    turn: usize,
}

struct CrowdFlow {
    config: FlowConfig,
    traffic: Option<Traffic>,
    /// Additional delay of the flow before the path, at A and at B. `None` if the flow has no
    /// additional delay.
    access: Option<[Path<CrowdPacket>; 2]>,
    is_touched: bool,
    wake: Option<Instant>,
    connected: Option<Duration>,
    /// Number of data packets that the flow sent into the path.
    sent: u64,
    /// Number of the flow's data packets that the full queue dropped.
    drops: u64,
    arrived_bytes: u64,
}

enum Traffic {
    Longhaul(Box<SimPair>),
    Tcp(Box<TcpFlow>),
}

struct TcpFlow {
    sender: Sender,
    receiver: Receiver,
    is_ack_delayed: bool,
}

/// Packet of a Longhaul flow or a TCP flow.
#[derive(Debug, Clone)]
struct CrowdPacket {
    flow: usize,
    load: PacketContent,
    is_corrupt: bool,
}

#[derive(Debug, Clone)]
enum PacketContent {
    Datagram(Datagram),
    Segment(Segment),
    Ack(Ack),
}

impl Packet for CrowdPacket {
    fn ip_bytes(&self) -> usize {
        match &self.load {
            PacketContent::Datagram(datagram) => datagram.ip_bytes(),
            PacketContent::Segment(_) => rivals::SEGMENT_IP_BYTES,
            PacketContent::Ack(_) => rivals::ACK_IP_BYTES,
        }
    }

    fn flip_bit(&mut self, bit: usize) {
        match &mut self.load {
            PacketContent::Datagram(datagram) => datagram.flip_bit(bit),
            // TCP's checksum detects the corruption.
            PacketContent::Segment(_) | PacketContent::Ack(_) => self.is_corrupt = true,
        }
    }
}

impl Crowd {
    /// Creates a simulation without flows.
    pub fn new(config: &CrowdConfig) -> Self {
        Self::with_radio(config, None)
    }

    /// Creates a simulation without flows. If `radio` is set, both directions share a radio medium.
    pub fn with_radio(config: &CrowdConfig, radio: Option<Radio>) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "any origin does: only differences count"
        )]
        let start = Instant::now();
        let seed = config.seed.wrapping_mul(2);
        Self {
            start,
            now: start,
            seed: config.seed,
            jitter: config.jitter,
            paths: Duplex::new(
                [
                    (config.forward.clone(), seed + 1),
                    (config.backward.clone(), seed + 2),
                ],
                radio,
            ),
            flows: Vec::new(),
            record: CrowdRecord::new(config.sample_every),
            next_sample: start,
            turn: 0,
        }
    }

    /// Adds a flow. Flows are numbered from 0 in the order in which they are added.
    pub fn add(&mut self, config: FlowConfig) {
        let number = self.flows.len();
        let is_direct = config.extra_rtt.is_zero() && self.jitter.is_zero();
        let access = (!is_direct).then(|| {
            let way = |spread: Duration, seed| {
                let settings = PathConfig {
                    delay: config.extra_rtt / 2 + spread,
                    jitter: Jitter {
                        spread,
                        in_order: true,
                    },
                    ..PathConfig::default()
                };
                Path::new(settings, seed)
            };
            let seed = self.seed.wrapping_mul(1000) + 2 * number as u64;
            [way(self.jitter / 2, seed), way(Duration::ZERO, seed + 1)]
        });
        self.flows.push(CrowdFlow {
            wake: Some(self.start + config.begins),
            config,
            traffic: None,
            access,
            is_touched: false,
            connected: None,
            sent: 0,
            drops: 0,
            arrived_bytes: 0,
        });
        self.record.add_flow();
    }

    /// Returns the time since the start of the simulation.
    pub fn now(&self) -> Duration {
        self.now - self.start
    }

    /// Runs the simulation until `end`, measured from the start.
    pub fn run_to(&mut self, end: Duration) {
        let end = self.start + end;
        self.step();
        while self.now < end {
            let next = self.next_event().max(self.now + GRANULARITY).min(end);
            while self.next_sample <= next {
                self.sample();
            }
            self.now = next;
            self.step();
        }
    }

    /// Applies `change` to the configuration of both directions.
    pub fn change_paths(&mut self, change: impl Fn(&mut PathConfig)) {
        for side in [SimSite::A, SimSite::B] {
            let mut config = self.paths.path(side.path_direction()).config().clone();
            change(&mut config);
            self.paths
                .configure(side.path_direction(), config, self.now);
        }
    }

    /// Returns the record of the simulation so far.
    pub fn record(&self) -> &CrowdRecord {
        &self.record
    }

    /// Returns the counters of the path for packets that site `from` sent.
    pub fn path_counters(&self, from: SimSite) -> &Counters {
        self.paths.counters(from.path_direction())
    }

    /// Returns the time at which the flow's connection was established. For TCP, returns the start
    /// time of the flow. Returns `None` before that time.
    pub fn connected(&self, flow: usize) -> Option<Duration> {
        self.flows[flow].connected
    }

    /// Returns the bytes that the receiving application has received in order.
    pub fn delivered(&self, flow: usize) -> ByteCount {
        match &self.flows[flow].traffic {
            Some(Traffic::Longhaul(pair)) => pair
                .progress_of_first()
                .map_or(ByteCount::ZERO, |progress| progress.delivered),
            Some(Traffic::Tcp(tcp)) => {
                ByteCount::new(tcp.receiver.in_order() * rivals::SEGMENT_PAYLOAD_BYTES as u64)
            }
            None => ByteCount::ZERO,
        }
    }

    /// Returns the sender's snapshot of its peer. Returns `None` for a TCP flow and before the flow
    /// starts.
    pub fn view(&self, flow: usize) -> Option<PeerView> {
        self.flows[flow].view()
    }

    fn next_event(&self) -> Instant {
        let arrival = self.paths.next_arrival();
        let flows = self.flows.iter().flat_map(|flow| {
            let access = flow.access.iter().flatten();
            access.filter_map(Path::next_arrival).chain(flow.wake)
        });
        let far = self.now + Duration::from_secs(3600);
        flows.chain(arrival).min().unwrap_or(far)
    }

    fn step(&mut self) {
        let now = self.now;
        let since_start = now - self.start;
        let Self { paths, flows, .. } = self;
        for from in [SimSite::A, SimSite::B] {
            while let Some(crossing) = paths.poll(from.path_direction(), now) {
                let flow = &mut flows[crossing.flow];
                flow.arrive(crossing, from, now, since_start, paths);
            }
        }
        self.turn += 1;
        let count = flows.len();
        for offset in 0..count {
            let index = (self.turn + offset) % count;
            let flow = &mut flows[index];
            for from in [SimSite::A, SimSite::B] {
                while let Some(crossing) = flow.leave_access(from, now) {
                    flow.enter(crossing, from, paths, now);
                }
            }
            if flow.is_touched || flow.wake.is_some_and(|at| at <= now) {
                flow.is_touched = false;
                let seed = self.seed.wrapping_mul(100) + index as u64;
                flow.step(index, seed, self.start, now, paths);
            }
        }
    }

    fn sample(&mut self) {
        let at = self.next_sample;
        let direction = SimSite::A.path_direction();
        self.paths.catch_up(at);
        let queue_delay = self.paths.queue_delay(direction);
        self.record
            .begin_sample(queue_delay, self.paths.counters(direction));
        for (index, flow) in self.flows.iter().enumerate() {
            let view = flow.view();
            let state = match (&flow.traffic, &view) {
                (Some(Traffic::Tcp(tcp)), _) => tcp.sender.law().state(),
                (_, Some(view)) => view.controller_state,
                _ => "",
            };
            self.record.add_sample(
                index,
                FlowSample {
                    arrived_bytes: flow.arrived_bytes,
                    sent: flow.sent,
                    drops: flow.drops,
                    allowed_bytes_per_s: view.as_ref().map_or(0.0, |view| view.allowed_bytes_per_s),
                    queue_seen: view.map_or(Duration::ZERO, |view| view.queue_delay),
                    state,
                },
            );
        }
        self.next_sample += self.record.every();
    }
}

impl CrowdFlow {
    fn view(&self) -> Option<PeerView> {
        match &self.traffic {
            Some(Traffic::Longhaul(pair)) => Some(pair.endpoint(SimSite::A).peer_view(0)),
            _ => None,
        }
    }

    /// Sends a packet through the flow's additional delay. If the flow has no additional delay, the
    /// packet enters the path at once.
    fn send(
        &mut self,
        crossing: CrowdPacket,
        from: SimSite,
        paths: &mut Duplex<CrowdPacket>,
        now: Instant,
    ) {
        match &mut self.access {
            Some(access) => access[from as usize].send(crossing, now),
            None => self.enter(crossing, from, paths, now),
        }
    }

    fn leave_access(&mut self, from: SimSite, now: Instant) -> Option<CrowdPacket> {
        self.access.as_mut()?[from as usize].poll(now)
    }

    fn enter(
        &mut self,
        crossing: CrowdPacket,
        from: SimSite,
        paths: &mut Duplex<CrowdPacket>,
        now: Instant,
    ) {
        let drops_before = paths.counters(from.path_direction()).queue_drops;
        paths.send(from.path_direction(), crossing, now);
        if from == SimSite::A {
            self.sent += 1;
            self.drops += paths.counters(from.path_direction()).queue_drops - drops_before;
        }
    }

    /// Delivers a packet that has crossed the path.
    fn arrive(
        &mut self,
        crossing: CrowdPacket,
        from: SimSite,
        now: Instant,
        since_start: Duration,
        paths: &mut Duplex<CrowdPacket>,
    ) {
        if from == SimSite::A && self.connected.is_some() {
            self.arrived_bytes += (crossing.ip_bytes() + ETHERNET_OVERHEAD) as u64;
        }
        let answer = match (&mut self.traffic, crossing.load) {
            (Some(Traffic::Longhaul(pair)), PacketContent::Datagram(datagram)) => {
                pair.deliver(from.other(), datagram, now);
                None
            }
            _ if crossing.is_corrupt => None,
            (Some(Traffic::Tcp(tcp)), PacketContent::Segment(segment)) => {
                tcp.answer(segment, since_start)
            }
            (Some(Traffic::Tcp(tcp)), PacketContent::Ack(ack)) => {
                tcp.sender.handle_ack(&ack, since_start);
                None
            }
            // The flow has ended.
            _ => return,
        };
        self.is_touched = true;
        if let Some(ack) = answer {
            let crossing = CrowdPacket {
                flow: crossing.flow,
                load: PacketContent::Ack(ack),
                is_corrupt: false,
            };
            self.send(crossing, SimSite::B, paths, now);
        }
    }

    /// Runs the flow's endpoints and timers at the time `now`.
    fn step(
        &mut self,
        index: usize,
        seed: u64,
        start: Instant,
        now: Instant,
        paths: &mut Duplex<CrowdPacket>,
    ) {
        let since_start = now - start;
        if self.config.ends.is_some_and(|end| end <= since_start) {
            self.traffic = None;
            self.wake = None;
            return;
        }
        if self.config.begins > since_start {
            return;
        }
        let mut traffic = match self.traffic.take() {
            Some(traffic) => traffic,
            None => Traffic::begin(&self.config.kind, seed, now),
        };
        let crossing = |load| CrowdPacket {
            flow: index,
            load,
            is_corrupt: false,
        };
        match &mut traffic {
            Traffic::Longhaul(pair) => {
                for side in [SimSite::A, SimSite::B] {
                    pair.step(side, now, &mut |datagram| {
                        self.send(
                            crossing(PacketContent::Datagram(datagram)),
                            side,
                            paths,
                            now,
                        );
                    });
                }
                if self.connected.is_none() {
                    let view = pair.endpoint(SimSite::A).peer_view(0);
                    self.connected = view.connected.map(|at| at - start);
                }
                self.wake = pair.next_timeout(now);
            }
            Traffic::Tcp(tcp) => {
                let sender = &mut tcp.sender;
                self.connected.get_or_insert(since_start);
                sender.handle_timeout(since_start);
                while let Some(segment) = sender.poll_transmit(since_start) {
                    self.send(
                        crossing(PacketContent::Segment(segment)),
                        SimSite::A,
                        paths,
                        now,
                    );
                }
                if let Some(ack) = tcp.receiver.handle_timeout(since_start) {
                    self.send(crossing(PacketContent::Ack(ack)), SimSite::B, paths, now);
                }
                let timeouts = [tcp.sender.next_timeout(), tcp.receiver.next_timeout()];
                self.wake = timeouts.into_iter().flatten().min().map(|at| start + at);
            }
        }
        if let Some(end) = self.config.ends {
            self.wake = self.wake.into_iter().chain([start + end]).min();
        }
        self.traffic = Some(traffic);
    }
}

impl Traffic {
    fn begin(kind: &FlowKind, seed: u64, now: Instant) -> Self {
        match kind {
            FlowKind::Longhaul {
                controller,
                memory_max,
            } => {
                let config = PairConfig {
                    seed,
                    controller: controller.clone(),
                    memory_max: *memory_max,
                    idle_timeout: Duration::from_secs(600),
                };
                let mut pair = SimPair::new(config, now);
                pair.send(SimSite::A, StreamClass::Bulk, ENDLESS, now);
                Self::Longhaul(Box::new(pair))
            }
            FlowKind::Tcp {
                law,
                window_max,
                is_ack_delayed,
            } => Self::Tcp(Box::new(TcpFlow {
                sender: Sender::new(law(seed), *window_max),
                receiver: Receiver::default(),
                is_ack_delayed: *is_ack_delayed,
            })),
        }
    }
}

impl TcpFlow {
    fn answer(&mut self, segment: Segment, now: Duration) -> Option<Ack> {
        if self.is_ack_delayed {
            self.receiver.handle_segment_delayed(segment, now)
        } else {
            Some(self.receiver.handle_segment(segment))
        }
    }
}

impl std::fmt::Debug for Crowd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crowd")
            .field("now", &self.now())
            .field("seed", &self.seed)
            .field("flows", &self.flows.len())
            .finish_non_exhaustive()
    }
}

/// Number of bytes that no simulation can finish sending.
const ENDLESS: ByteCount = ByteCount::new(1 << 50);
