//! A UDP test, which sends numbered datagrams at a fixed rate. The test measures loss, delay
//! variation, duplication and reordering.
//!
//! UDP has no congestion control. At a rate above the free capacity, the test displaces all other
//! traffic. Therefore the rate has no default value. The receiver's kernel records the arrival
//! times.

mod receiver;
mod socket;

use std::{
    io::Write,
    net::{SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use units::ByteCount;

use super::{
    Failure, FailureKind, ProbeError, clock,
    datagram::{self, HEADER_BYTES, Header},
    hello::{ProbeHello, TestReady},
    line, tcp,
};

pub use crate::task::udp::{UdpDirection, UdpTask};
pub use receiver::{ReceiverRecord, UdpReceiver};
pub(super) use socket::{prepare_receiver, receive};

/// Settings of a test.
#[derive(Debug, Clone)]
pub struct UdpProbe {
    /// Address of the probe's peer.
    pub peer: SocketAddr,
    /// The task of the test.
    pub task: UdpTask,
    /// Longest time for connecting, and for each answer of the peer.
    pub timeout: Duration,
}

/// Record of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UdpRecord {
    /// Time at which the test began, in microseconds since 1970.
    pub begun_unix_us: u64,
    /// The task of the test.
    pub task: UdpTask,
    /// Measurements of the sender.
    pub sent: SenderRecord,
    /// Measurements of the receiver.
    pub received: ReceiverRecord,
}

/// Measurements of the sender of a UDP test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SenderRecord {
    /// Number of datagrams that the kernel accepted.
    pub packets: u64,
    /// Number of datagrams that the kernel refused.
    pub refused: u64,
    /// Time from the first datagram to the last datagram, in seconds.
    pub seconds: f64,
    /// Payload rate in bits per second: the payload of all datagrams except the first, divided by
    /// `seconds`.
    pub rate_bits_per_s: f64,
}

/// State of a UDP test at the peer.
#[derive(Debug)]
pub(super) struct UdpPeerTest {
    receiver: UdpReceiver,
    last: Instant,
    dropped_before: Option<u64>,
    /// UDP address of the client. `None` until its first datagram has arrived.
    pub(super) client: Option<SocketAddr>,
}

/// Returns the maximum memory of a test's receiver in bytes: a bitmap of the datagrams, and a
/// constant amount.
pub(super) fn receiver_bytes(task: &UdpTask) -> u64 {
    task.packets / 8 + receiver::FIXED_BYTES
}

impl UdpRecord {
    /// Returns the number of datagrams that were sent and did not arrive.
    pub fn lost(&self) -> u64 {
        self.sent.packets.saturating_sub(self.received.packets)
    }

    /// Returns the fraction of the sent datagrams that were lost.
    pub fn loss(&self) -> f64 {
        self.lost() as f64 / self.sent.packets.max(1) as f64
    }
}

/// Runs a test. Calls `progress` several times a second with the elapsed fraction of the test's
/// time.
///
/// # Errors
/// [`ProbeError::Invalid`] if the task exceeds its limits. [`ProbeError::Failed`] if the peer
/// refuses the test or fails.
pub fn run(probe: &UdpProbe, progress: impl Fn(f64)) -> Result<UdpRecord, ProbeError> {
    let checked = probe.task.check();
    checked.map_err(|what| ProbeError::Invalid(format!("out of bounds: {what}")))?;
    let begun_unix_us = clock::unix_us();
    let (sent, received) = match probe.task.direction {
        UdpDirection::Up => up(probe, progress)?,
        UdpDirection::Down => down(probe, progress)?,
    };
    Ok(UdpRecord {
        begun_unix_us,
        task: probe.task,
        sent,
        received,
    })
}

fn up(
    probe: &UdpProbe,
    progress: impl Fn(f64),
) -> Result<(SenderRecord, ReceiverRecord), ProbeError> {
    let mut control = line::connect(probe.peer, &ProbeHello::Udp(probe.task), probe.timeout)?;
    let ready: TestReady = line::answer(&mut control, "starting", probe.timeout)?;
    let socket = connected(probe.peer)?;
    let began = Instant::now();
    let time = probe.task.time().as_secs_f64();
    let is_stopped = || {
        progress((began.elapsed().as_secs_f64() / time).min(1.0));
        false
    };
    let sent = send_paced(probe.task, ready.id, |bytes| socket.send(bytes), is_stopped);
    let told = control.write_all(b"sent\n");
    told.map_err(|error| Failure::io("telling the end", &error))?;
    let reply_timeout = probe.timeout + tcp::STALL_MAX;
    let received = line::answer(&mut control, "the peer's part", reply_timeout)?;
    Ok((sent, received))
}

fn down(
    probe: &UdpProbe,
    progress: impl Fn(f64),
) -> Result<(SenderRecord, ReceiverRecord), ProbeError> {
    let mut control = line::connect(probe.peer, &ProbeHello::Udp(probe.task), probe.timeout)?;
    let ready: TestReady = line::answer(&mut control, "starting", probe.timeout)?;
    let socket = connected(probe.peer)?;
    prepare_receiver(&socket).map_err(ProbeError::system("a UDP port"))?;
    let mut side =
        UdpPeerTest::new(probe.task, &socket).map_err(ProbeError::system("a UDP port"))?;
    let task_time = probe.task.time();
    let reply_timeout = task_time + SLACK + probe.timeout;
    let answering =
        thread::spawn(move || line::answer(&mut control, "the peer's part", reply_timeout));
    let mut open = [0; HEADER_BYTES];
    Header {
        kind: datagram::DatagramPurpose::Open,
        id: ready.id,
        number: 0,
        sent_ns: 0,
    }
    .write(&mut open);
    let mut buffer = vec![0; 1 << 16];
    let mut told = None::<Instant>;
    let (mut began, mut answered) = (None::<Instant>, None::<Instant>);
    loop {
        if began.is_none() && told.is_none_or(|told| told.elapsed() > OPEN_INTERVAL) {
            let _ = socket.send(&open);
            told = Some(Instant::now());
        }
        if let Ok(arrival) = receive(&socket, &mut buffer)
            && let Some(header) = Header::parse(&buffer[..arrival.bytes])
            && (header.kind, header.id) == (datagram::DatagramPurpose::Data, ready.id)
        {
            side.arrive(&header, arrival.at_ns, arrival.bytes as u64);
            let began = began.get_or_insert_with(Instant::now);
            let share = began.elapsed().as_secs_f64() / task_time.as_secs_f64();
            progress(share.min(1.0));
        }
        if answering.is_finished() {
            if side.silence() > GRACE {
                break;
            }
            let answered = *answered.get_or_insert_with(Instant::now);
            if answered.elapsed() > tcp::STALL_MAX {
                let detail = "datagrams come without an end";
                return Err(Failure::new(FailureKind::UnexpectedReply, "ending", detail).into());
            }
        }
    }
    let sent = answering.join().expect("it does not panic")?;
    let received = side
        .report(&socket)
        .map_err(ProbeError::system("a UDP port"))?;
    Ok((sent, received))
}

fn connected(peer: SocketAddr) -> Result<UdpSocket, ProbeError> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(peer)?;
        Ok(socket)
    });
    socket.map_err(ProbeError::system("a UDP port"))
}

/// Sends datagrams at the task's rate. Stops when all datagrams are sent, when the time is over, or
/// when `is_stopped` returns true. If the machine is too slow for the rate, fewer datagrams are
/// sent.
pub(super) fn send_paced(
    task: UdpTask,
    id: u64,
    send: impl Fn(&[u8]) -> std::io::Result<usize>,
    is_stopped: impl Fn() -> bool,
) -> SenderRecord {
    let mut bytes = vec![0; usize::from(task.payload_bytes)];
    // Random payload, which no device on the path can compress.
    Pcg64::seed_from_u64(id).fill_bytes(&mut bytes);
    let size = ByteCount::new(u64::from(task.payload_bytes));
    let gap_s = size.bytes() as f64 * 8.0 / task.rate_bits_per_s as f64;
    let mut sent = SenderRecord::default();
    let time_max = task.time() + SLACK;
    let (start, mut last, mut looked) = (Instant::now(), Duration::ZERO, Duration::ZERO);
    for number in 0..task.packets {
        let due = Duration::from_secs_f64(number as f64 * gap_s);
        let now = loop {
            let now = start.elapsed();
            if now.saturating_sub(looked) > LOOK_INTERVAL {
                looked = now;
                if is_stopped() {
                    return finished(sent, last, size);
                }
            }
            if now > time_max {
                return finished(sent, last, size);
            }
            if now >= due {
                break now;
            }
            thread::sleep((due - now).clamp(SLEEP_LEAST, LOOK_INTERVAL));
        };
        let header = Header {
            kind: datagram::DatagramPurpose::Data,
            id,
            number,
            sent_ns: clock::unix_ns(),
        };
        header.write(&mut bytes);
        match send(&bytes) {
            Ok(_) => {
                sent.packets += 1;
                last = now;
            }
            Err(_) => sent.refused += 1,
        }
    }
    finished(sent, last, size)
}

fn finished(mut sent: SenderRecord, last: Duration, size: ByteCount) -> SenderRecord {
    sent.seconds = last.as_secs_f64();
    if sent.packets > 1 && !last.is_zero() {
        let bytes = ByteCount::new((sent.packets - 1) * size.bytes());
        sent.rate_bits_per_s = bytes.bytes() as f64 * 8.0 / sent.seconds;
    }
    sent
}

impl UdpPeerTest {
    pub(super) fn new(task: UdpTask, socket: &UdpSocket) -> std::io::Result<Self> {
        Ok(Self {
            receiver: UdpReceiver::new(task.packets),
            last: Instant::now(),
            dropped_before: socket::dropped(socket)?,
            client: None,
        })
    }

    pub(super) fn arrive(&mut self, header: &Header, at_ns: u64, bytes: u64) {
        self.last = Instant::now();
        self.receiver
            .arrive(header.number, header.sent_ns, at_ns, bytes);
    }

    /// Returns the time since the last datagram arrived.
    pub(super) fn silence(&self) -> Duration {
        self.last.elapsed()
    }

    /// Returns the measurements of the receiver. The number of dropped datagrams includes all
    /// datagrams that the socket dropped during the test.
    pub(super) fn report(&self, socket: &UdpSocket) -> std::io::Result<ReceiverRecord> {
        let mut report = self.receiver.report();
        let dropped = socket::dropped(socket)?.zip(self.dropped_before);
        report.dropped_here = dropped.map(|(now, before)| now.saturating_sub(before));
        Ok(report)
    }
}

/// Time without datagrams after which the test ends. The probe assumes that no path delays packets
/// longer.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// Longest time that a sender may take in addition to the task's time. A slower sender cannot keep
/// the rate.
pub(super) const SLACK: Duration = Duration::from_secs(1);
const OPEN_INTERVAL: Duration = Duration::from_millis(200);
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Shortest sleep. The kernel's timer would extend shorter sleeps to about this time.
const SLEEP_LEAST: Duration = Duration::from_micros(60);
