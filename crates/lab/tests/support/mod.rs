//! Traffic for tests and examples of the emulator: paced UDP with numbered packets, and bulk TCP.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(missing_docs, unreachable_pub, reason = "test support")]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use lab::wan::{Site, Wan};
use nix::sys::socket::{setsockopt, sockopt};
use units::BitRate;

/// UDP payload of a packet that fills Ethernet's MTU with IPv4.
pub const FULL_PAYLOAD: usize = 1472;

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

/// What arrived: the number of each packet, how long it took, and when, since the first was sent.
#[derive(Debug, Default)]
pub struct Received {
    pub numbers: Vec<u64>,
    pub delays: Vec<Duration>,
    pub at: Vec<Duration>,
    /// How long the sender took.
    pub sending: Duration,
    /// Packets whose content is not what was sent.
    pub wrong: u64,
}

impl Received {
    /// The rate of arrival on the wire, first to last packet.
    pub fn rate_bits_per_s(&self, payload: usize) -> f64 {
        let (Some(first), Some(last)) = (self.at.first(), self.at.last()) else {
            return 0.0;
        };
        let bits = (self.numbers.len() - 1) as f64 * (payload + 28 + 38) as f64 * 8.0;
        bits / (*last - *first).as_secs_f64()
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
    let origin = Instant::now();
    let (sent, first_sent) = mpsc::channel();
    let sending = thread::spawn(move || {
        sent.send(Instant::now()).expect("the receiver waits");
        send_paced(&sender, load, origin)
    });
    thread::spawn(move || {
        let start = first_sent.recv().expect("the sender starts");
        let mut received = receive_all(&receiver, load, origin, start);
        received.sending = sending.join().expect("the sender does not panic");
        received
    })
}

fn send_paced(socket: &UdpSocket, load: UdpLoad, origin: Instant) -> Duration {
    let start = Instant::now();
    let gap = load
        .rate
        .time_to_send(units::ByteCount::new(load.payload as u64 + 28 + 38));
    let per_call = if load.offload {
        (64_000 / load.payload).min(64) as u64
    } else {
        1
    };
    let mut buffer = vec![0u8; load.payload * per_call as usize];
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
            let stamp = (Instant::now() - origin).as_nanos() as u64;
            packet[8..16].copy_from_slice(&stamp.to_be_bytes());
            packet[16..].fill(number as u8);
            number += 1;
        }
        // A full queue at an interface that is down is the path's business.
        let _ = socket.send(&buffer[..load.payload * count as usize]);
    }
    start.elapsed()
}

fn receive_all(socket: &UdpSocket, load: UdpLoad, origin: Instant, start: Instant) -> Received {
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .expect("timeout");
    let mut received = Received::default();
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length) = socket.recv(&mut buffer) {
        let now = Instant::now();
        for packet in buffer[..length].chunks_exact(load.payload) {
            let word = |at: usize| u64::from_be_bytes(packet[at..at + 8].try_into().expect("8"));
            received.numbers.push(word(0));
            received.wrong += u64::from(packet[16..].iter().any(|byte| *byte != word(0) as u8));
            let sent = origin + Duration::from_nanos(word(8));
            received.delays.push(now.saturating_duration_since(sent));
            received.at.push(now - start);
        }
    }
    received
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
