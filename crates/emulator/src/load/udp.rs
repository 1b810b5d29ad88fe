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

/// A stream of equal UDP packets at a constant rate.
#[derive(Clone, Copy, Debug)]
pub struct UdpLoad {
    /// The sending site. The opposite site receives.
    pub from: Site,
    /// Whether to use IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Payload of each packet in bytes, at least 8.
    pub payload: usize,
    /// Rate on the wire, including Ethernet framing.
    pub rate: BitRate,
    /// Number of packets to send.
    pub packets: u64,
    /// Whether sender and receiver use super-packets (UDP_SEGMENT, UDP_GRO).
    pub offload: bool,
}

/// The sent and the received packets of a [`UdpLoad`].
#[derive(Debug, Default)]
pub struct LoadResult {
    /// Numbers of the packets that arrived, in the order of arrival.
    pub numbers: Vec<u64>,
    /// Arrival times, recorded by the kernel. All packets of a super-packet have the same time.
    pub at: Vec<SystemTime>,
    /// Time at which the kernel accepted each packet from the sender, indexed by packet number.
    pub sent: Vec<SystemTime>,
    /// Number of packets that arrived with wrong content.
    pub wrong: u64,
}

impl LoadResult {
    /// Returns the delay of each received packet, in the order of arrival.
    pub fn delays(&self) -> Vec<Duration> {
        let times = self.numbers.iter().zip(&self.at);
        times
            .map(|(&number, at)| at.duration_since(self.sent[number as usize]))
            .map(|delay| delay.expect("the machine's clock was set back meanwhile"))
            .collect()
    }

    /// Returns, for each packet number, whether the packet arrived.
    pub fn has_arrived(&self) -> Vec<bool> {
        let mut arrived = vec![false; self.sent.len()];
        for &number in &self.numbers {
            arrived[number as usize] = true;
        }
        arrived
    }

    /// Returns the arrivals of the longest period in which a drop-tail queue was never empty.
    /// Returns no arrivals if no packet was lost.
    ///
    /// `queue` is the time in which the full queue drains. In the period, each lost packet was sent
    /// less than `queue` / 2 after the previous lost packet. A pause of the sender therefore ends
    /// the period.
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

    /// Returns the arrival rate on the wire in bits per second. `rate` is the rate at which the
    /// packets should arrive.
    ///
    /// The machine can make packets late, but cannot make them early. The function therefore
    /// measures from the least delayed packet of the first quarter to the least delayed packet of
    /// the last quarter.
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

/// A [`UdpLoad`] in progress.
#[derive(Debug)]
pub struct UdpFlow {
    receiver: thread::JoinHandle<Result<LoadResult, LoadError>>,
}

impl UdpLoad {
    /// Starts the load. After the last packet is sent, the load ends when no packet arrives for a
    /// certain time. This time is the path's delay plus half a second.
    ///
    /// # Errors
    /// [`LoadError`] if the sockets cannot be created.
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
        let timeout = path.delay + path.jitter.spread + SILENCE;
        let receiver = thread::Builder::new()
            .name("udp".to_owned())
            .spawn(move || {
                let sending = thread::spawn(move || send_paced(&sender, load));
                let mut received = receive_all(&receiver, load, timeout, || sending.is_finished())
                    .map_err(LoadError::io("receiving by UDP"))?;
                let sent = sending.join();
                received.sent = sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                Ok(received)
            })
            .map_err(LoadError::io("starting a thread"))?;
        Ok(UdpFlow { receiver })
    }

    /// Runs the load, and waits until it ends.
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
    /// Waits until the load ends, and returns its result.
    ///
    /// # Errors
    /// [`LoadError::Io`] if the receiver's socket fails.
    pub fn wait(self) -> Result<LoadResult, LoadError> {
        let received = self.receiver.join();
        received.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Sends the load, and returns the sending time of each packet.
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
        // While the interface is down, its queue is full and sending fails. This is part of the
        // test.
        let _ = socket.send(&buffer[..load.payload * count as usize]);
    }
    sent
}

/// Receives packets until the sender has ended and nothing has arrived for the duration `timeout`.
fn receive_all(
    socket: &UdpSocket,
    load: UdpLoad,
    timeout: Duration,
    is_sent: impl Fn() -> bool,
) -> io::Result<LoadResult> {
    let mut received = LoadResult::default();
    let mut buffer = vec![0; 1 << 16];
    // The control data contain a timestamp, and the segment size of a super-packet.
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
            Err(Errno::EAGAIN) if heard.elapsed() < timeout => continue,
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

/// Bytes on the wire in addition to the payload of a UDP packet: UDP and IPv4 headers (28), and
/// Ethernet with preamble and gap (38).
pub const UDP_OVERHEAD: usize = 28 + 38;

/// Time without arrivals after which a load ends. A busy machine delays the emulator's thread for a
/// shorter time.
const SILENCE: Duration = Duration::from_millis(500);
/// Longest time for which one receive call blocks, before the receiver checks whether the load has
/// ended.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(50);
/// Shortest sleep of the sender. The kernel's timer would extend a shorter sleep to about this
/// time.
const SLEEP_MIN: Duration = Duration::from_micros(100);
/// Receive buffer that root can set. It has room for a burst while the receiver waits for a
/// processor.
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;
/// Receive buffer for users other than root, within the system's maximum.
const RECEIVE_BUFFER_UNPRIVILEGED_BYTES: usize = 4 << 20;
