//! Traffic for tests and examples of the emulator: paced UDP with numbered packets, and bulk TCP.
//!
//! When a packet arrived is the kernel's word (`SO_TIMESTAMPNS`): the emulator's own thread passes it
//! there, so a receiver that waits for a processor does not make the path look slow.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(missing_docs, unreachable_pub, reason = "test support")]

use std::{
    io::{IoSliceMut, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsRawFd,
    sync::mpsc,
    thread,
    time::{Duration, Instant, SystemTime},
};

use lab::wan::{Site, Wan};
use nix::sys::{
    socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt},
    time::TimeSpec,
};
use units::BitRate;

/// UDP payload of a packet that fills Ethernet's MTU with IPv4.
pub const FULL_PAYLOAD: usize = 1472;

/// What a UDP packet adds to its payload on the wire: UDP and IPv4 headers, Ethernet with preamble
/// and gap.
const OVERHEAD: usize = 28 + 38;

/// A stream of equal UDP packets at a steady rate.
#[derive(Clone, Copy, Debug)]
pub struct UdpLoad {
    pub from: Site,
    pub ipv6: bool,
    pub payload: usize,
    /// Rate on the wire, Ethernet included.
    pub rate: BitRate,
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

    /// What arrived while a queue, which drops only when it is full, cannot have run empty: the
    /// longest stretch in which loss followed upon loss in less than half the time that the queue
    /// lasts. It is sent time that counts, so a sender that had no processor for a while ends a
    /// stretch.
    pub fn while_queue_lasts(mut self, queue: Duration) -> Self {
        let mut arrived = vec![false; self.sent.len()];
        for &number in &self.numbers {
            arrived[number as usize] = true;
        }
        let lost: Vec<usize> = (0..arrived.len()).filter(|&n| !arrived[n]).collect();
        let is_close = |a: &usize, b: &usize| {
            let pause = self.sent[*b].duration_since(self.sent[*a]);
            pause.is_ok_and(|pause| pause < queue / 2)
        };
        let stretch = lost
            .chunk_by(is_close)
            .map(|stretch| stretch[0] as u64..stretch[stretch.len() - 1] as u64)
            .max_by_key(|stretch| stretch.end - stretch.start)
            .expect("the queue must have been full");
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
        let bits = (payload + OVERHEAD) as f64 * 8.0;
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

pub fn address(wan: &Wan, site: Site, ipv6: bool, port: u16) -> SocketAddr {
    let config = &wan.config().sites[site as usize];
    match config.ipv6.filter(|_| ipv6) {
        Some(address) => (address, port).into(),
        None => (config.ipv4, port).into(),
    }
}

/// Starts the load and returns what its receiver saw; `join` the handle. The receiver gives up
/// after a second of silence.
pub fn start_udp(wan: &Wan, load: UdpLoad) -> thread::JoinHandle<Received> {
    let bind = |site| wan.enter(site, || UdpSocket::bind(address(wan, site, load.ipv6, 0)));
    let sender = bind(load.from).expect("enter").expect("bind");
    let receiver = bind(load.from.other()).expect("enter").expect("bind");
    sender
        .connect(receiver.local_addr().expect("bound"))
        .expect("connect");
    setsockopt(&receiver, sockopt::RcvBufForce, &(64 << 20))
        .or_else(|_| setsockopt(&receiver, sockopt::RcvBuf, &(4 << 20)))
        .expect("receive buffer");
    if load.offload {
        setsockopt(&sender, sockopt::UdpGsoSegment, &(load.payload as i32)).expect("UDP_SEGMENT");
        setsockopt(&receiver, sockopt::UdpGroSegment, &true).expect("UDP_GRO");
    }
    setsockopt(&receiver, sockopt::ReceiveTimestampns, &true).expect("SO_TIMESTAMPNS");
    let (begun, sender_begun) = mpsc::channel();
    let sending = thread::spawn(move || {
        begun.send(()).expect("the receiver waits");
        send_paced(&sender, load)
    });
    thread::spawn(move || {
        sender_begun.recv().expect("the sender starts");
        let mut received = receive_all(&receiver, load);
        received.sent = sending.join().expect("the sender does not panic");
        received
    })
}

/// Returns when each packet was sent.
fn send_paced(socket: &UdpSocket, load: UdpLoad) -> Vec<SystemTime> {
    let start = Instant::now();
    let bytes = units::ByteCount::new((load.payload + OVERHEAD) as u64);
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

fn receive_all(socket: &UdpSocket, load: UdpLoad) -> Received {
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .expect("timeout");
    let mut received = Received::default();
    let mut buffer = vec![0; 1 << 16];
    // A time, and the size of the segments of a super-packet.
    let mut control = nix::cmsg_space!(TimeSpec, i32);
    loop {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let message = recvmsg::<()>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::empty(),
        );
        let Ok(message) = message else {
            return received;
        };
        let length = message.bytes;
        let at = message
            .cmsgs()
            .expect("room for the control messages")
            .find_map(|control| match control {
                ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
                _ => None,
            })
            .expect("the kernel notes the time of each datagram");
        for packet in buffer[..length].chunks_exact(load.payload) {
            let number = u64::from_be_bytes(packet[..8].try_into().expect("8 bytes"));
            received.numbers.push(number);
            received.at.push(SystemTime::UNIX_EPOCH + at);
            received.wrong += u64::from(packet[8..].iter().any(|byte| *byte != number as u8));
        }
    }
}

/// Sends by TCP for `time` and returns the rate at which the receiver's program got data.
pub fn tcp_goodput(wan: &Wan, from: Site, ipv6: bool, time: Duration) -> BitRate {
    let to = address(wan, from.other(), ipv6, 0);
    let listener = wan
        .enter(from.other(), || TcpListener::bind(to))
        .expect("enter")
        .expect("bind");
    let to = listener.local_addr().expect("bound");
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut buffer = vec![0; 256 << 10];
        let (start, mut total) = (Instant::now(), 0u64);
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            total += length as u64;
        }
        BitRate::from_transfer(units::ByteCount::new(total), start.elapsed())
    });
    let mut stream = wan
        .enter(from, || TcpStream::connect(to))
        .expect("enter")
        .expect("connect");
    let block = vec![7; 256 << 10];
    let start = Instant::now();
    while start.elapsed() < time {
        stream.write_all(&block).expect("write");
    }
    drop(stream);
    receiver.join().expect("the receiver does not panic")
}
