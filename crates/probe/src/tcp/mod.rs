//! Bulk TCP tests that are limited by time or size. A record contains the goodput of each interval,
//! the kernels' data about each connection, and the window scales.

mod stream;

use std::{
    io::{self, Write as _},
    net::{SocketAddr, TcpStream},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use socket2::{Domain, SockRef, Socket, Type};
use units::ByteCount;

use super::{
    Failure, ProbeError, TcpInfo, clock,
    hello::{GO, ProbeHello, StreamsBegun, StreamsJoined, TestReady},
    line,
};

use crate::Payload;
pub(super) use crate::task::tcp::STALL_MAX;
pub use crate::task::tcp::{StreamLimit, TcpDirection, TcpTask};
pub use stream::StreamEnd;
pub(super) use stream::{STEP_BYTES, is_timeout, receive, send, unusable};

/// Settings of a test.
#[derive(Debug, Clone)]
pub struct TcpProbe {
    /// Address of the probe's peer, or of a forward that leads to the peer.
    pub peer: SocketAddr,
    /// The task of the test.
    pub task: TcpTask,
    /// Longest time for connecting, and for each answer of the peer.
    pub timeout: Duration,
}

/// Record of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TcpRecord {
    /// Time at which the streams began, in microseconds since 1970.
    pub begun_unix_us: u64,
    /// The task of the test.
    pub task: TcpTask,
    /// Records of the streams, in the order of their numbers.
    pub streams: Vec<TcpStreamRecord>,
}

/// Record of a stream, with the measurements of its sender and of its receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TcpStreamRecord {
    /// Whether the client was the sender.
    pub is_up: bool,
    /// Measurements of the sender.
    pub sender: StreamEnd,
    /// Measurements of the receiver.
    pub receiver: StreamEnd,
}

impl TcpRecord {
    /// Returns the goodput of a direction in bits per second: the received bytes of all streams,
    /// divided by the transfer time. The transfer time begins with the common start of the streams
    /// and ends with the last byte of the last stream.
    pub fn goodput_bits_per_s(&self, is_up: bool) -> f64 {
        let mine = || self.streams.iter().filter(|stream| stream.is_up == is_up);
        let bytes: u64 = mine().map(|stream| stream.receiver.bytes).sum();
        let seconds = mine()
            .map(|stream| stream.receiver.seconds)
            .fold(0.0, f64::max);
        if seconds > 0.0 {
            bytes as f64 * 8.0 / seconds
        } else {
            0.0
        }
    }

    /// Returns the number of bytes that all streams of a direction received in each
    /// [`Self::INTERVAL`].
    pub fn intervals(&self, is_up: bool) -> Vec<ByteCount> {
        let mut sums = Vec::new();
        for stream in self.streams.iter().filter(|stream| stream.is_up == is_up) {
            let intervals = &stream.receiver.interval_bytes;
            if sums.len() < intervals.len() {
                sums.resize(intervals.len(), 0);
            }
            for (sum, bytes) in sums.iter_mut().zip(intervals) {
                *sum += bytes;
            }
        }
        sums.into_iter().map(ByteCount::new).collect()
    }

    /// Returns the number of retransmitted segments in a direction.
    pub fn retransmissions(&self, is_up: bool) -> u64 {
        let mine = self.streams.iter().filter(|stream| stream.is_up == is_up);
        mine.map(|stream| u64::from(stream.sender.info.retransmissions))
            .sum()
    }

    /// Length of the intervals in which bytes are counted.
    pub const INTERVAL: Duration = Duration::from_secs(1);
}

impl TcpStreamRecord {
    /// Returns the client's measurements, and then the peer's measurements.
    pub fn client_and_peer(&self) -> (&StreamEnd, &StreamEnd) {
        if self.is_up {
            (&self.sender, &self.receiver)
        } else {
            (&self.receiver, &self.sender)
        }
    }

    /// Returns whether a middlebox changed a window scale, or split the connection into two
    /// connections. In either case, the window scale that one host sent differs from the window
    /// scale that the other host received.
    pub fn is_rewritten(&self) -> bool {
        let is_other =
            |sender: &TcpInfo, receiver: &TcpInfo| sender.sent_wscale != receiver.received_wscale;
        is_other(&self.sender.info, &self.receiver.info)
            || is_other(&self.receiver.info, &self.sender.info)
    }

    /// Returns whether the peer sees the client at an address or port that is not the client's own.
    /// The cause is address translation or a proxy.
    pub fn is_translated(&self) -> bool {
        let (client, peer) = self.client_and_peer();
        client.local != peer.remote || client.remote != peer.local
    }
}

/// Runs a test. Calls `progress` with the elapsed time several times a second.
///
/// # Errors
/// [`ProbeError::Invalid`] if the task exceeds its limits. [`ProbeError::Failed`] if the test
/// failed.
pub fn run(probe: &TcpProbe, progress: impl Fn(Duration)) -> Result<TcpRecord, ProbeError> {
    let task = &probe.task;
    task.check()
        .map_err(|what| ProbeError::Invalid(format!("out of bounds: {what}")))?;
    Payload::Random.prepare();
    let mut control = line::connect(probe.peer, &ProbeHello::Tcp(task.clone()), probe.timeout)?;
    let ready: TestReady = line::answer(&mut control, "starting", probe.timeout)?;
    let mut sockets = Vec::new();
    let mut to = probe.peer;
    to.set_port(ready.port.unwrap_or(to.port()));
    for index in 0..task.all_streams() as u16 {
        let reply_timeout = match index {
            0 if to != probe.peer => probe.timeout.min(STREAM_PORT_TIMEOUT),
            _ => probe.timeout,
        };
        let stream = match open(probe, to, ready.id, index, reply_timeout) {
            // Perhaps a forward or a firewall permits only the peer's usual port.
            Err(_) if index == 0 && to != probe.peer => {
                to = probe.peer;
                open(probe, to, ready.id, index, probe.timeout)
            }
            opened => opened,
        };
        sockets.push((index, stream?));
    }
    // All streams join before the first stream starts, so that no stream's time includes the
    // set-up.
    let joined: StreamsJoined = line::answer(&mut control, "joining", probe.timeout)?;
    if let Some(failure) = joined.failure {
        return Err(failure.into());
    }
    let (up, down): (Vec<_>, Vec<_>) = sockets
        .into_iter()
        .partition(|(index, _)| task.client_sends(*index));
    let go = control.write_all(GO.as_bytes());
    go.map_err(|error| Failure::io("starting", &error))?;
    let (began, begun_unix_us) = (Instant::now(), clock::unix_us());
    let mut threads = start(task, up, began);
    // The answer arrives at the same time as the first bytes of the peer's streams.
    let StreamsBegun {} = line::answer(&mut control, "starting", probe.timeout)?;
    threads.extend(start(task, down, Instant::now()));
    while threads.iter().any(|thread| !thread.is_finished()) {
        progress(began.elapsed());
        thread::sleep(Duration::from_millis(50));
    }
    let own: Vec<StreamEnd> = threads
        .into_iter()
        .map(|thread| thread.join().expect("a stream's failure is in its record"))
        .collect();
    let reply_timeout = probe.timeout + STALL_MAX;
    let peers: Vec<StreamEnd> = line::answer(&mut control, "the peer's part", reply_timeout)?;
    let mut streams = Vec::new();
    for mine in own {
        let theirs = peers.iter().find(|theirs| theirs.index == mine.index);
        let Some(theirs) = theirs.cloned() else {
            let detail = format!("stream {} is missing", mine.index);
            let kind = super::FailureKind::UnexpectedReply;
            return Err(Failure::new(kind, "the peer's part", detail).into());
        };
        let is_up = task.client_sends(mine.index);
        let (sender, receiver) = if is_up {
            (mine, theirs)
        } else {
            (theirs, mine)
        };
        streams.push(TcpStreamRecord {
            is_up,
            sender,
            receiver,
        });
    }
    Ok(TcpRecord {
        begun_unix_us,
        task: task.clone(),
        streams,
    })
}

/// Starts a thread for each stream of a direction. All streams have the same start time.
fn start(
    task: &TcpTask,
    sockets: Vec<(u16, TcpStream)>,
    began: Instant,
) -> Vec<JoinHandle<StreamEnd>> {
    let deadline = began + task.time_max();
    let start = |(index, mut socket): (u16, TcpStream)| {
        let task = task.clone();
        thread::spawn(move || {
            let is_stopped = || Instant::now() > deadline;
            if task.client_sends(index) {
                send(&mut socket, index, task.limit, began, is_stopped)
            } else {
                receive(&mut socket, index, began, is_stopped)
            }
        })
    };
    sockets.into_iter().map(start).collect()
}

fn open(
    probe: &TcpProbe,
    to: SocketAddr,
    id: u64,
    index: u16,
    reply_timeout: Duration,
) -> Result<TcpStream, ProbeError> {
    let failed = |error: io::Error| Failure::io("connecting a stream", &error);
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).map_err(failed)?;
    // The window is set before the connection is opened, because the SYN contains the window scale.
    probe.task.prepare(&socket).map_err(failed)?;
    socket
        .connect_timeout(&to.into(), reply_timeout)
        .map_err(failed)?;
    socket.set_nonblocking(false).map_err(failed)?;
    let mut stream: TcpStream = socket.into();
    stream.set_nodelay(true).map_err(failed)?;
    let hello = ProbeHello::Stream { id, index }.line();
    stream.write_all(hello.as_bytes()).map_err(failed)?;
    Ok(stream)
}

/// Sets an option of the connection: at its close, the kernel discards the queued bytes and resets
/// the connection.
fn cut_off(stream: &TcpStream) {
    // The connection may be closed already.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Longest time to connect to the test's own port. A firewall may silently drop packets to that
/// port. The time is sufficient for one retransmitted SYN.
const STREAM_PORT_TIMEOUT: Duration = Duration::from_secs(3);
