//! Paced UDP with numbered packets.

use std::{
    io::{self, IoSliceMut},
    net::UdpSocket,
    os::fd::AsRawFd,
    thread,
    time::{Duration, Instant, SystemTime},
};

use nix::{
    errno::Errno,
    sys::{
        socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt},
        time::TimeSpec,
    },
};
use units::{BitRate, ByteCount};

use super::{LoadError, address};
use crate::{Site, Wan};

/// A stream of equal UDP packets at a steady rate.
#[derive(Clone, Copy, Debug)]
pub struct UdpLoad {
    /// The sending site; the other site receives.
    pub from: Site,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Payload of each packet in bytes, 8 at least.
    pub payload: usize,
    /// Rate on the wire, with Ethernet framing.
    pub rate: BitRate,
    /// Number of packets.
    pub packets: u64,
    /// Whether sender and receiver use super-packets (UDP_SEGMENT, UDP_GRO).
    pub offload: bool,
}

/// The sent and the received packets of a load.
#[derive(Debug, Default)]
pub struct LoadResult {
    /// The number of each packet that arrived, in the order of arrival.
    pub numbers: Vec<u64>,
    /// Arrival times by the kernel; the packets of a super-packet share one time.
    pub at: Vec<SystemTime>,
    /// When the kernel took the packet of each number.
    pub sent: Vec<SystemTime>,
    /// Packets with wrong content.
    pub wrong: u64,
}

impl LoadResult {
    /// Delay of each packet, in the order of arrival.
    pub fn delays(&self) -> Vec<Duration> {
        let times = self.numbers.iter().zip(&self.at);
        times
            .map(|(&number, at)| at.duration_since(self.sent[number as usize]))
            .map(|delay| delay.expect("the machine's clock was set back meanwhile"))
            .collect()
    }

    /// For each number: whether the packet arrived.
    pub fn has_arrived(&self) -> Vec<bool> {
        let mut arrived = vec![false; self.sent.len()];
        for &number in &self.numbers {
            arrived[number as usize] = true;
        }
        arrived
    }

    /// Returns the arrivals during which a drop-tail queue cannot have run empty. Empty if no
    /// packet was lost.
    ///
    /// This is the longest period in which each loss follows the previous one within half the time
    /// that the queue lasts. The times are sending times, so a pause of the sender ends a period.
    pub fn while_queue_lasts(mut self, queue: Duration) -> Self {
        let arrived = self.has_arrived();
        let lost: Vec<usize> = (0..arrived.len()).filter(|&n| !arrived[n]).collect();
        let is_close = |a: &usize, b: &usize| {
            let pause = self.sent[*b].duration_since(self.sent[*a]);
            pause.is_ok_and(|pause| pause < queue / 2)
        };
        let stretch = lost
            .chunk_by(is_close)
            .map(|stretch| stretch[0] as u64..stretch[stretch.len() - 1] as u64)
            .max_by_key(|stretch| stretch.end - stretch.start)
            .unwrap_or_default();
        let arrivals = self.numbers.into_iter().zip(self.at);
        (self.numbers, self.at) = arrivals.filter(|(n, _)| stretch.contains(n)).unzip();
        self
    }

    /// Returns the rate of arrival on the wire, in bits per second, for packets that should arrive
    /// at `rate`.
    ///
    /// The machine makes packets late and never early. The rate is therefore taken between the
    /// least late packets of the first and the last quarter.
    pub fn rate_bits_per_s(&self, payload: usize, rate: BitRate) -> f64 {
        let count = self.at.len();
        if count < 8 {
            return 0.0;
        }
        let bits = (payload + UDP_OVERHEAD) as f64 * 8.0;
        let gap = bits / rate.as_bits_per_s() as f64;
        let seconds = |i: usize| {
            let since = self.at[i].duration_since(self.sent[0]);
            since
                .expect("nothing arrives before it was sent")
                .as_secs_f64()
        };
        let late = |i: usize| seconds(i) - i as f64 * gap;
        let least_late = |range: std::ops::Range<usize>| {
            range
                .min_by(|&a, &b| late(a).total_cmp(&late(b)))
                .expect("a quarter is not empty")
        };
        let first = least_late(0..count / 4);
        let last = least_late(count - count / 4..count);
        (last - first) as f64 * bits / (seconds(last) - seconds(first))
    }
}

/// A load in progress.
#[derive(Debug)]
pub struct UdpFlow {
    receiver: thread::JoinHandle<Result<LoadResult, LoadError>>,
}

impl UdpLoad {
    /// Starts the load. The load ends when the sender has ended and nothing has arrived for the
    /// path's delay and another half second.
    ///
    /// # Errors
    /// [`LoadError`] if the sockets cannot be made.
    pub fn start(self, wan: &Wan) -> Result<UdpFlow, LoadError> {
        let load = self;
        let bind = |site| -> Result<UdpSocket, LoadError> {
            let address = address(wan, site, load.ipv6, 0);
            wan.enter(site, || UdpSocket::bind(address))?
                .map_err(LoadError::io("binding a UDP socket"))
        };
        let (sender, receiver) = (bind(load.from)?, bind(load.from.other())?);
        load.prepare(&sender, &receiver)
            .map_err(LoadError::io("preparing UDP sockets"))?;
        let path = &wan.report().directions[load.from.index()].config;
        let patience = path.delay + path.jitter.spread + SILENCE;
        let receiver = thread::Builder::new()
            .name("udp".to_owned())
            .spawn(move || {
                let sending = thread::spawn(move || send_paced(&sender, load));
                let mut received = receive_all(&receiver, load, patience, || sending.is_finished())
                    .map_err(LoadError::io("receiving by UDP"))?;
                let sent = sending.join();
                received.sent = sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                Ok(received)
            })
            .map_err(LoadError::io("starting a thread"))?;
        Ok(UdpFlow { receiver })
    }

    /// Runs the load to its end.
    ///
    /// # Errors
    /// [`LoadError`] if a socket fails.
    pub fn run(self, wan: &Wan) -> Result<LoadResult, LoadError> {
        self.start(wan)?.wait()
    }

    fn prepare(&self, sender: &UdpSocket, receiver: &UdpSocket) -> io::Result<()> {
        sender.connect(receiver.local_addr()?)?;
        receiver.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
        setsockopt(receiver, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES).or_else(|_| {
            setsockopt(
                receiver,
                sockopt::RcvBuf,
                &RECEIVE_BUFFER_UNPRIVILEGED_BYTES,
            )
        })?;
        if self.offload {
            setsockopt(sender, sockopt::UdpGsoSegment, &(self.payload as i32))?;
            setsockopt(receiver, sockopt::UdpGroSegment, &true)?;
        }
        setsockopt(receiver, sockopt::ReceiveTimestampns, &true)?;
        Ok(())
    }
}

impl UdpFlow {
    /// Waits for the end of the load.
    ///
    /// # Errors
    /// [`LoadError::Io`] if the receiver's socket fails.
    pub fn wait(self) -> Result<LoadResult, LoadError> {
        let received = self.receiver.join();
        received.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Sends the load, and returns the time of each packet.
fn send_paced(socket: &UdpSocket, load: UdpLoad) -> Vec<SystemTime> {
    let start = Instant::now();
    let bytes = ByteCount::new((load.payload + UDP_OVERHEAD) as u64);
    let gap = load.rate.time_to_send(bytes);
    let per_call = if load.offload {
        (64_000 / load.payload).min(64) as u64
    } else {
        1
    };
    let mut buffer = vec![0u8; load.payload * per_call as usize];
    let mut sent = Vec::with_capacity(load.packets as usize);
    let mut number = 0;
    while number < load.packets {
        let due = start + gap.mul_f64(number as f64);
        let now = Instant::now();
        if due > now {
            thread::sleep((due - now).max(SLEEP_MIN));
            continue;
        }
        let count = per_call.min(load.packets - number);
        for packet in buffer.chunks_exact_mut(load.payload).take(count as usize) {
            packet[..8].copy_from_slice(&number.to_be_bytes());
            packet[8..].fill(number as u8);
            number += 1;
        }
        sent.resize(number as usize, SystemTime::now());
        // An interface that is down has a full queue: that is part of the test.
        let _ = socket.send(&buffer[..load.payload * count as usize]);
    }
    sent
}

/// Receives until the sender has ended and nothing arrives for `patience`.
fn receive_all(
    socket: &UdpSocket,
    load: UdpLoad,
    patience: Duration,
    is_sent: impl Fn() -> bool,
) -> io::Result<LoadResult> {
    let mut received = LoadResult::default();
    let mut buffer = vec![0; 1 << 16];
    // A timestamp, and the segment size of a super-packet.
    let mut control = nix::cmsg_space!(TimeSpec, i32);
    let mut heard = Instant::now();
    loop {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let message = recvmsg::<()>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::empty(),
        );
        let message = match message {
            Ok(message) => message,
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN) if !is_sent() => {
                heard = Instant::now();
                continue;
            }
            Err(Errno::EAGAIN) if heard.elapsed() < patience => continue,
            Err(Errno::EAGAIN) => return Ok(received),
            Err(error) => return Err(error.into()),
        };
        heard = Instant::now();
        let length = message.bytes;
        let at = message
            .cmsgs()?
            .find_map(|control| match control {
                ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
                _ => None,
            })
            .expect("the kernel notes the time of each datagram");
        for packet in buffer[..length].chunks_exact(load.payload) {
            let (number, content) = packet.split_first_chunk().expect("8 bytes at least");
            let number = u64::from_be_bytes(*number);
            let is_wrong = content.iter().any(|byte| *byte != number as u8);
            received.wrong += u64::from(is_wrong || number >= load.packets);
            received.numbers.push(number.min(load.packets - 1));
            received.at.push(SystemTime::UNIX_EPOCH + at);
        }
    }
}

/// UDP payload of a 1500-byte IPv4 packet, in bytes.
pub const FULL_PAYLOAD: usize = 1472;

/// Bytes that a UDP packet adds to its payload on the wire: UDP and IPv4 headers 28, Ethernet with
/// preamble and gap 38.
pub const UDP_OVERHEAD: usize = 28 + 38;

/// Silence that ends a load: longer than a busy machine keeps the emulator's thread from
/// delivering.
const SILENCE: Duration = Duration::from_millis(500);
/// Longest wait for a packet before the receiver checks whether the load has ended.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(50);
/// Shortest sleep of the sender: the kernel's timer makes shorter ones about as long.
const SLEEP_MIN: Duration = Duration::from_micros(100);
/// Receive buffer as root: room for a burst while the receiver waits for a processor.
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;
/// Receive buffer for users other than root, within the system's maximum.
const RECEIVE_BUFFER_UNPRIVILEGED_BYTES: usize = 4 << 20;
