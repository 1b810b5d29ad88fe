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
    /// Where it comes from; it goes to the other site.
    pub from: Site,
    /// By IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Payload of each packet, in bytes; 8 at least.
    pub payload: usize,
    /// Rate on the wire, Ethernet included.
    pub rate: BitRate,
    /// How many.
    pub packets: u64,
    /// Whether super-packets are sent and received (UDP_SEGMENT, UDP_GRO).
    pub offload: bool,
}

/// What was sent and what arrived.
#[derive(Debug, Default)]
pub struct Received {
    /// The number of each packet that arrived.
    pub numbers: Vec<u64>,
    /// When the kernel got it; the packets of a super-packet share one time.
    pub at: Vec<SystemTime>,
    /// When the packet of each number was given to the kernel.
    pub sent: Vec<SystemTime>,
    /// Packets whose content is not what was sent.
    pub wrong: u64,
}

impl Received {
    /// How long each packet took, in the order of arrival.
    pub fn delays(&self) -> Vec<Duration> {
        let times = self.numbers.iter().zip(&self.at);
        times
            .map(|(&number, at)| at.duration_since(self.sent[number as usize]))
            .map(|delay| delay.expect("the machine's clock was set back meanwhile"))
            .collect()
    }

    /// By number, whether a packet arrived.
    pub fn has_arrived(&self) -> Vec<bool> {
        let mut arrived = vec![false; self.sent.len()];
        for &number in &self.numbers {
            arrived[number as usize] = true;
        }
        arrived
    }

    /// What arrived while a queue, which drops only when it is full, cannot have run empty: the
    /// longest stretch in which loss followed upon loss in less than half the time that the queue
    /// lasts. It is sent time that counts, so a sender that had no processor for a while ends a
    /// stretch. Nothing, if nothing was lost.
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

    /// The rate of arrival on the wire, where packets should come at `rate`.
    ///
    /// The machine makes packets late and never early, so it is taken between the least late packet
    /// of the first quarter and that of the last.
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

/// A load on its way.
#[derive(Debug)]
pub struct UdpFlow {
    receiver: thread::JoinHandle<Result<Received, LoadError>>,
}

impl UdpLoad {
    /// Starts the load. It ends when the sender has, and nothing has arrived for half a second longer
    /// than the path's delay.
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

    /// Starts the load and waits for its end.
    ///
    /// # Errors
    /// [`LoadError`] if a socket fails.
    pub fn run(self, wan: &Wan) -> Result<Received, LoadError> {
        self.start(wan)?.wait()
    }

    fn prepare(&self, sender: &UdpSocket, receiver: &UdpSocket) -> io::Result<()> {
        sender.connect(receiver.local_addr()?)?;
        receiver.set_read_timeout(Some(Duration::from_millis(50)))?;
        setsockopt(receiver, sockopt::RcvBufForce, &(64 << 20))
            .or_else(|_| setsockopt(receiver, sockopt::RcvBuf, &(4 << 20)))?;
        if self.offload {
            setsockopt(sender, sockopt::UdpGsoSegment, &(self.payload as i32))?;
            setsockopt(receiver, sockopt::UdpGroSegment, &true)?;
        }
        setsockopt(receiver, sockopt::ReceiveTimestampns, &true)?;
        Ok(())
    }
}

impl UdpFlow {
    /// Waits for its end.
    ///
    /// # Errors
    /// [`LoadError::Io`] if the receiver's socket fails.
    pub fn wait(self) -> Result<Received, LoadError> {
        let received = self.receiver.join();
        received.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Returns when each packet was sent.
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
            thread::sleep((due - now).max(Duration::from_micros(100)));
            continue;
        }
        let count = per_call.min(load.packets - number);
        for packet in buffer.chunks_exact_mut(load.payload).take(count as usize) {
            packet[..8].copy_from_slice(&number.to_be_bytes());
            packet[8..].fill(number as u8);
            number += 1;
        }
        sent.resize(number as usize, SystemTime::now());
        // A full queue at an interface that is down is the path's business.
        let _ = socket.send(&buffer[..load.payload * count as usize]);
    }
    sent
}

/// Receives until the sender is done and has been silent for `patience`.
fn receive_all(
    socket: &UdpSocket,
    load: UdpLoad,
    patience: Duration,
    is_sent: impl Fn() -> bool,
) -> io::Result<Received> {
    let mut received = Received::default();
    let mut buffer = vec![0; 1 << 16];
    // A time, and the size of the segments of a super-packet.
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

/// UDP payload of a packet that fills Ethernet's MTU with IPv4.
pub const FULL_PAYLOAD: usize = 1472;

/// What a UDP packet adds to its payload on the wire, in bytes: UDP and IPv4 headers 28, Ethernet with
/// preamble and gap 38.
pub const UDP_OVERHEAD: usize = 28 + 38;

/// Longer than a machine keeps the emulator's thread from delivering.
const SILENCE: Duration = Duration::from_millis(500);
