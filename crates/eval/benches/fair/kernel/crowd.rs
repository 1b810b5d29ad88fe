//! Experiments in which several flows share one emulated path. A flow is a pair of links, or a
//! connection of the kernel's TCP.
//!
//! The rates and queues over time are recorded in the same form as in the simulator.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use bytes::Bytes;
use emulator::{Site, Wan, WanConfig, WanReport};
use eval::bulk::{BulkSender, ByteSink};
use link::{
    Identity, Link, LinkConfig, LinkSnapshot, PeerConfig, PeerId, PeerSnapshot, Policy,
    StreamClass,
    sim::{CrowdRecord, FlowSample, PACKET_WIRE_BYTES, SymmetricPath},
};
use units::ByteCount;
use wansim::{Counters, ETHERNET_OVERHEAD};

use crate::MS;

/// A sender that always has data, and its receiver.
#[derive(Debug, Clone)]
pub struct KernelFlow {
    pub kind: FlowSender,
    /// Time from the beginning of the run to the start of this flow.
    pub starts: Duration,
}

#[derive(Debug, Clone)]
pub enum FlowSender {
    /// A pair of links, one at each site.
    Link,
    /// A connection of the kernel's TCP.
    Tcp {
        congestion_control: &'static str,
        /// Size of the receive buffer. With `None` the kernel chooses the size.
        buffer: Option<ByteCount>,
    },
}

/// Outcome of a run.
#[derive(Debug)]
pub struct KernelOutcome {
    pub record: CrowdRecord,
    /// Whether the machine was too slow to emulate the path, according to the emulator's counters.
    pub is_distorted: bool,
}

/// State of the path and of all flows at one time.
struct Observation {
    at: Duration,
    path: Counters,
    /// One sample for each flow.
    flows: Vec<FlowSample>,
}

/// Receiver of a flow. The links of a flow exist only after the flow has started.
enum FlowReceiver {
    Tcp(ByteSink),
    Link(OnceLock<[Link; 2]>),
}

/// Runs flows over an emulated path in new namespaces until `end`. Each flow begins at its start
/// time.
pub fn run(
    line: &SymmetricPath,
    flows: &[KernelFlow],
    end: Duration,
) -> anyhow::Result<KernelOutcome> {
    let mut config = WanConfig {
        paths: [line.path(), line.path()],
        ..WanConfig::default()
    };
    for site in &mut config.sites {
        site.name = format!("fair-{}-{}", std::process::id(), site.name);
    }
    let wan = Wan::up(config)?;
    wan.prepare_tcp(TCP_BUFFER)?;
    let receiver = |(index, flow): (usize, &KernelFlow)| -> anyhow::Result<FlowReceiver> {
        Ok(match flow.kind {
            FlowSender::Link => FlowReceiver::Link(OnceLock::new()),
            FlowSender::Tcp { buffer, .. } => {
                let sink = ByteSink::start(&wan, Site::B, 6200 + index as u16)?;
                if let Some(size) = buffer {
                    sink.set_buffer(size)?;
                }
                FlowReceiver::Tcp(sink)
            }
        })
    };
    let receivers: Vec<FlowReceiver> = flows
        .iter()
        .enumerate()
        .map(receiver)
        .collect::<Result<_, _>>()?;
    let began = Instant::now();
    let before = wan.report();
    let looks = thread::scope(|scope| {
        let senders: Vec<_> = flows
            .iter()
            .zip(&receivers)
            .enumerate()
            .map(|(index, (flow, receiver))| {
                let wan = &wan;
                scope.spawn(move || {
                    thread::sleep(flow.starts);
                    match (&flow.kind, receiver) {
                        (
                            FlowSender::Tcp {
                                congestion_control, ..
                            },
                            FlowReceiver::Tcp(sink),
                        ) => {
                            let bulk = BulkSender {
                                limit: end.saturating_sub(began.elapsed()),
                                congestion_control: Some((*congestion_control).to_owned()),
                                ..BulkSender::new(sink.address(), ENDLESS)
                            };
                            wan.enter(Site::A, || bulk.send())??;
                            Ok(())
                        }
                        (FlowSender::Link, FlowReceiver::Link(links)) => {
                            let pair = start_links(wan, index)?;
                            let pair = links.get_or_init(|| pair);
                            send_by_link(pair, end.saturating_sub(began.elapsed()))
                        }
                        _ => unreachable!("each flow has a receiver of its kind"),
                    }
                })
            })
            .collect();
        let looks = watch(&wan, &receivers, began, end);
        for sender in senders {
            let sent: anyhow::Result<()> = sender.join().expect("no sender panics");
            sent?;
        }
        anyhow::Ok(looks)
    })?;
    let after = wan.report();
    Ok(KernelOutcome {
        record: record(line, flows.len(), &looks),
        is_distorted: after.distorted_since(&before),
    })
}

/// Samples the path and all flows a hundred times a second.
fn watch(wan: &Wan, receivers: &[FlowReceiver], began: Instant, end: Duration) -> Vec<Observation> {
    let mut looks = Vec::new();
    loop {
        let at = began.elapsed();
        let WanReport { directions, .. } = wan.report();
        looks.push(Observation {
            at,
            path: directions[0].counters,
            flows: receivers.iter().map(FlowReceiver::sample).collect(),
        });
        if at >= end {
            return looks;
        }
        let next = EVERY * looks.len() as u32;
        thread::sleep(next.saturating_sub(began.elapsed()));
    }
}

impl FlowReceiver {
    fn sample(&self) -> FlowSample {
        match self {
            Self::Tcp(sink) => FlowSample {
                arrived_bytes: (sink.received().bytes() as f64 * TCP_WIRE_BY_PAYLOAD) as u64,
                state: "TCP",
                ..FlowSample::default()
            },
            Self::Link(links) => links.get().map(sample_links).unwrap_or_default(),
        }
    }
}

fn sample_links([sender, receiver]: &[Link; 2]) -> FlowSample {
    let peer =
        |snapshot: LinkSnapshot| -> Option<PeerSnapshot> { snapshot.peers.into_iter().next() };
    let (Some(sender), Some(receiver)) = (peer(sender.snapshot()), peer(receiver.snapshot()))
    else {
        return FlowSample::default();
    };
    let arrived = receiver.received;
    FlowSample {
        arrived_bytes: arrived.bytes.bytes() + arrived.datagrams * ETHERNET_OVERHEAD as u64,
        sent: sender.sent.datagrams,
        drops: 0,
        allowed_bytes_per_s: sender.allowed_rate.as_bytes_per_s(),
        queue_seen: sender.queue_delay.unwrap_or_default(),
        state: sender.controller_state,
    }
}

/// Converts observations to samples at equal intervals. A link updates its counters ten times a
/// second, and its bytes are assumed to arrive evenly between two updates.
fn record(line: &SymmetricPath, flows: usize, looks: &[Observation]) -> CrowdRecord {
    let bytes_per_s = line.rate.as_bytes_per_s();
    let mut record = CrowdRecord::new(EVERY);
    let mut counts = Vec::new();
    for flow in 0..flows {
        record.add_flow();
        let mut changes: Vec<(Duration, u64)> = Vec::new();
        for look in looks {
            let bytes = look.flows[flow].arrived_bytes;
            if changes.last().is_none_or(|(_, before)| *before != bytes) {
                changes.push((look.at, bytes));
            }
        }
        counts.push(changes);
    }
    let last = looks.last().map_or(Duration::ZERO, |look| look.at);
    let mut at = Duration::ZERO;
    let mut index = 0;
    while at <= last {
        while looks.get(index + 1).is_some_and(|next| next.at <= at) {
            index += 1;
        }
        let look = &looks[index];
        let queue_s = look.path.queue_bytes as f64 / bytes_per_s;
        record.begin_sample(Duration::from_secs_f64(queue_s), &look.path);
        for (flow, changes) in counts.iter().enumerate() {
            let sample = FlowSample {
                arrived_bytes: between(changes, at),
                ..look.flows[flow]
            };
            record.add_sample(flow, sample);
        }
        at += EVERY;
    }
    record
}

/// Returns the number of bytes received at time `at`, by linear interpolation between the
/// neighbouring changes.
fn between(changes: &[(Duration, u64)], at: Duration) -> u64 {
    let next = changes.partition_point(|(time, _)| *time <= at);
    match (
        next.checked_sub(1).map(|index| changes[index]),
        changes.get(next),
    ) {
        (None, _) => changes.first().map_or(0, |(_, bytes)| *bytes),
        (Some((_, bytes)), None) => bytes,
        (Some((from, low)), Some((to, high))) => {
            let share = (at - from).as_secs_f64() / (*to - from).as_secs_f64();
            low + ((high - low) as f64 * share) as u64
        }
    }
}

/// Starts a link at each site, each with its own key. The link at site A connects to the link at
/// site B.
fn start_links(wan: &Wan, index: usize) -> anyhow::Result<[Link; 2]> {
    let port = 4810 + index as u16;
    let keys = [1, 2].map(|side| Identity::from_seed([10 * (1 + index as u8) + side; 32]));
    let addresses = [0, 1].map(|side: usize| {
        let site = &wan.config().sites[side];
        SocketAddr::from((site.ipv4, port))
    });
    let start = |site: Site| -> anyhow::Result<Link> {
        let (us, other) = (site as usize, site.other() as usize);
        let socket = wan.enter(site, || UdpSocket::bind(addresses[us]))??;
        let config = LinkConfig {
            identity: keys[us].clone(),
            peers: vec![PeerConfig {
                name: format!("site-{other}"),
                public_keys: vec![keys[other].public_key()],
                endpoint: (site == Site::A).then(|| addresses[other].to_string()),
                rate_max: None,
                is_guest: false,
            }],
            policy: Policy::Fair,
            rate_max: None,
            memory_max: ByteCount::mebibytes(256),
            idle_timeout: Duration::from_secs(60),
            memory_file: None,
        };
        Ok(Link::start(socket, config)?)
    };
    // The link that waits for connections starts first.
    let b = start(Site::B)?;
    Ok([start(Site::A)?, b])
}

/// Sends data on one stream for the duration `time`.
fn send_by_link([sender, receiver]: &[Link; 2], time: Duration) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let work = async {
        let reading = async {
            let mut incoming = receiver.accept().await.context("no stream came")?;
            while incoming.recv.read().await?.is_some() {}
            anyhow::Ok(())
        };
        let writing = async {
            let (mut send, _recv) = sender.open(PeerId(0), StreamClass::Bulk).await?;
            let block = Bytes::from(vec![7; BLOCK_BYTES]);
            loop {
                send.write(block.clone()).await?;
            }
            #[expect(unreachable_code, reason = "gives the block its type")]
            anyhow::Ok(())
        };
        tokio::try_join!(reading, writing).map(|_| ())
    };
    // The sender must end only because its time is over.
    match runtime.block_on(async { tokio::time::timeout(time, work).await }) {
        Err(_) => Ok(()),
        Ok(result) => result.context("a link ended early"),
    }
}

/// TCP buffer that is large enough for any path of this bench.
const TCP_BUFFER: ByteCount = ByteCount::mebibytes(32);
/// Time between two samples.
const EVERY: Duration = MS.saturating_mul(10);
/// Number of bytes of an endless transfer. It exceeds the number of bytes that any path of this
/// bench can carry during a run.
const ENDLESS: ByteCount = ByteCount::gibibytes(1 << 20);
const BLOCK_BYTES: usize = 128 << 10;
/// Bytes on the wire for each byte of TCP payload, for full packets with TCP timestamps.
const TCP_WIRE_BY_PAYLOAD: f64 = PACKET_WIRE_BYTES / 1448.0;
