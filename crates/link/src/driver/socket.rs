//! UDP socket that exchanges batches of datagrams with the kernel.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{BATCH_SIZE, RecvMeta, TransportErrorPayload, UdpSocketState};
use units::ByteCount;

use super::clock::DriverClock;
use crate::{Transmit, snapshot::SocketBuffers};

/// UDP socket that sends with segmentation offload and receives in batches.
pub(super) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
    buffers: Vec<Vec<u8>>,
    is_v6: bool,
    /// Time at which the socket was last empty. Every datagram that waits in the socket arrived
    /// after this time.
    emptied: Option<Instant>,
    pub(super) granted: SocketBuffers,
}

/// Result of one receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveResult {
    /// All receive buffers were filled, so more datagrams may wait in the socket.
    Full,
    /// Some receive buffers stayed empty, so the socket was empty.
    Last,
}

/// Size of the kernel buffer requested for each direction, in bytes. The buffer holds the data of
/// 30 ms at 1 Gbit/s, so that no datagram is lost while the machine is busy.
const BUFFER_BYTES: usize = 4 << 20;
/// Size of one receive buffer in bytes: the maximum that the kernel merges into one buffer.
const RECEIVE_BYTES: usize = 64 * 1024;

impl Socket {
    pub(super) fn new(socket: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        // The library has space for three control messages per datagram but requests four. The
        // message with the destination address is disabled, because it is not needed. The receive
        // time and the size of merged datagrams are needed.
        let _ = setsockopt(&socket, sockopt::Ipv4PacketInfo, &false);
        let _ = setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &false);
        // With this option, the socket distinguishes a closed port from a path that loses packets.
        let _ = state.enable_transport_errors((&socket).into());
        // With the required privilege, the buffer may exceed the limit for ordinary users. Without
        // the privilege, the limit applies.
        if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).is_err() {
            state.set_recv_buffer_size((&socket).into(), BUFFER_BYTES)?;
        }
        if setsockopt(&socket, sockopt::SndBufForce, &BUFFER_BYTES).is_err() {
            state.set_send_buffer_size((&socket).into(), BUFFER_BYTES)?;
        }
        // The kernel counts its own overhead: it reports twice the granted size (socket(7)).
        let granted = |bytes: usize| ByteCount::new(bytes as u64 / 2);
        let granted = SocketBuffers {
            asked: ByteCount::new(BUFFER_BYTES as u64),
            receive_granted: granted(state.recv_buffer_size((&socket).into())?),
            send_granted: granted(state.send_buffer_size((&socket).into())?),
        };
        let is_v6 = socket.local_addr()?.is_ipv6();
        let buffers = (0..BATCH_SIZE.min(16))
            .map(|_| vec![0; RECEIVE_BYTES])
            .collect();
        Ok(Self {
            socket,
            state,
            buffers,
            is_v6,
            emptied: None,
            granted,
        })
    }

    pub(super) fn is_v6(&self) -> bool {
        self.is_v6
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the maximum number of datagrams in one call of [`send`](Self::send).
    pub(super) fn segments_max(&self) -> usize {
        self.state.max_gso_segments().clamp(1, 44)
    }

    /// Sends a batch of datagrams. Returns `Ok(false)` if the kernel's buffer is full. The caller
    /// must then try again later.
    pub(super) fn send(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<bool> {
        let transmit = quinn_udp::Transmit {
            destination: self.native(transmit.to),
            ecn: None,
            contents: bytes,
            segment_size: (bytes.len() > transmit.segment_bytes).then_some(transmit.segment_bytes),
            src_ip: None,
        };
        let send = || self.state.try_send((&self.socket).into(), &transmit);
        // The kernel reports an error of an earlier datagram once, and sends nothing in that call.
        match send().or_else(|_| send()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the address from the next ICMP error, if any. No program listens at that address, or
    /// a router reported it as unreachable.
    pub(super) fn unreachable(&self) -> Option<IpAddr> {
        let error = self
            .state
            .recv_transport_error((&self.socket).into())
            .ok()
            .flatten()?;
        matches!(error.payload, TransportErrorPayload::Unreachable).then_some(error.addr?.ip())
    }

    /// Receives one batch of datagrams and calls `handle` for each datagram. The arguments include
    /// the time on `clock` at which the kernel received the datagram.
    pub(super) fn receive(
        &mut self,
        clock: &DriverClock,
        mut handle: impl FnMut(&mut [u8], SocketAddr, Instant),
    ) -> io::Result<ReceiveResult> {
        let began = clock.now();
        let mut meta = [RecvMeta::default(); BATCH_SIZE];
        let count = {
            let mut slices: Vec<_> = self
                .buffers
                .iter_mut()
                .map(|buffer| IoSliceMut::new(buffer))
                .collect();
            let len = slices.len();
            match self
                .state
                .recv((&self.socket).into(), &mut slices, &mut meta[..len])
            {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            }
        };
        let reading = clock.reading();
        for (meta, buffer) in meta.iter().zip(&mut self.buffers).take(count) {
            if meta.len == 0 {
                continue;
            }
            let received = meta
                .timestamp
                .map_or(reading.now(), |unix| reading.instant(unix, self.emptied));
            for datagram in buffer[..meta.len].chunks_mut(meta.stride.max(1)) {
                handle(datagram, meta.addr, received);
            }
        }
        if count == self.buffers.len() {
            return Ok(ReceiveResult::Full);
        }
        self.emptied = Some(began);
        Ok(ReceiveResult::Last)
    }

    /// Converts an address to the form that this socket uses: an IPv6 socket uses IPv4-mapped
    /// addresses.
    pub(super) fn native(&self, address: SocketAddr) -> SocketAddr {
        match address {
            SocketAddr::V4(v4) if self.is_v6 => {
                SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into()
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns two sockets bound to `local`, or `None` if this machine has no such address.
    fn two_at(local: &str) -> Option<(Socket, Socket)> {
        let bind = || UdpSocket::bind(local).and_then(Socket::new).ok();
        let both = bind().zip(bind());
        if both.is_none() {
            println!("{local}: this machine has no such address");
        }
        both
    }

    #[test]
    fn a_batch_arrives_as_the_datagrams_that_it_was_made_of() {
        let clock = DriverClock::new();
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let Some((mut a, b)) = two_at(local) else {
                continue;
            };
            let to = a.socket.local_addr().expect("it is bound");
            let transmit = Transmit {
                to,
                segment_bytes: 100,
            };
            assert!(b.send(&transmit, &[7; 250]).expect("loopback works"));
            let mut seen = Vec::new();
            let deadline = Instant::now() + Duration::from_secs(5);
            while seen.len() < 3 && Instant::now() < deadline {
                a.receive(&clock, |datagram, _, _| seen.push(datagram.len()))
                    .expect("loopback works");
            }
            assert_eq!(seen, [100, 100, 50]);
        }
    }

    /// Tests that measure real time. `cargo xtask test` runs them without other tests in parallel.
    mod real_time {
        use super::*;

        #[test]
        fn a_datagram_has_the_time_at_which_it_came() {
            let clock = DriverClock::new();
            for local in ["127.0.0.1:0", "[::1]:0"] {
                let Some((mut a, b)) = two_at(local) else {
                    continue;
                };
                let transmit = Transmit {
                    to: a.socket.local_addr().expect("it is bound"),
                    segment_bytes: 100,
                };
                // The kernel begins to stamp datagrams some time after the program requests it.
                std::thread::sleep(Duration::from_millis(200));
                let before = clock.now();
                assert!(b.send(&transmit, &[7; 100]).expect("loopback works"));
                let after = clock.now();
                // The datagram waits in the socket until it is received.
                std::thread::sleep(Duration::from_millis(50));
                let mut times = Vec::new();
                let batch = a.receive(&clock, |_, _, received| times.push(received));
                assert_eq!(batch.expect("loopback works"), ReceiveResult::Last);
                assert_eq!(times.len(), 1);
                let slack = Duration::from_millis(5);
                assert!(before < times[0] + slack && times[0] < after + slack);
            }
        }
    }
}
