//! A relay on loopback that delays and drops datagrams like a WAN path. The demonstration uses the
//! relay on systems that forbid namespaces.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context;
use wansim::{Packet, Path, profile::Profile};

/// A relay between two gateways, with one emulated path for each direction. One gateway sends to
/// [`PathRelay::address`], the other gateway listens at its own address.
#[derive(Debug)]
pub(super) struct PathRelay {
    address: SocketAddr,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Clone)]
struct RelayedDatagram(Vec<u8>);

impl Packet for RelayedDatagram {
    fn ip_bytes(&self) -> usize {
        self.0.len() + 28
    }

    fn flip_bit(&mut self, bit: usize) {
        let byte = (bit / 8).saturating_sub(28);
        self.0[byte] ^= 1 << (bit % 8);
    }
}

/// Receive buffer for one datagram. It exceeds the largest datagram that the link sends.
const DATAGRAM_MAX: usize = 2048;
const TICK: Duration = Duration::from_micros(250);

impl PathRelay {
    pub(super) fn start(target: SocketAddr, profile: &Profile) -> anyhow::Result<Self> {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("a port on loopback");
        let (near, far) = (bind()?, bind()?);
        for socket in [&near, &far] {
            socket.set_nonblocking(true)?;
            let _ = socket2::SockRef::from(socket).set_recv_buffer_size(4 << 20);
        }
        let address = near.local_addr()?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let paths = [
            Path::new(profile.forward.clone(), 1),
            Path::new(profile.backward.clone(), 2),
        ];
        let stop = is_stopping.clone();
        let thread = thread::spawn(move || relay([near, far], paths, target, &stop));
        Ok(Self {
            address,
            is_stopping,
            thread: Some(thread),
        })
    }

    /// Returns the address to which the near gateway sends.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PathRelay {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn relay(
    sockets: [UdpSocket; 2],
    mut paths: [Path<RelayedDatagram>; 2],
    target: SocketAddr,
    stop: &AtomicBool,
) {
    // The near socket sends to the last sender, and the far socket sends to the target.
    let mut peers = [None, Some(target)];
    let mut buffer = [0; DATAGRAM_MAX];
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        for side in 0..2 {
            while let Some((len, from)) = receive(&sockets[side], &mut buffer) {
                if side == 0 {
                    peers[0] = Some(from);
                }
                paths[side].send(RelayedDatagram(buffer[..len].to_vec()), now);
            }
        }
        for side in 0..2 {
            while let Some(datagram) = paths[side].poll(now) {
                if let Some(peer) = peers[1 - side] {
                    let _ = sockets[1 - side].send_to(&datagram.0, peer);
                }
            }
        }
        thread::sleep(TICK);
    }
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Ok(received) => return Some(received),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => return None,
        }
    }
}
