//! Handover of the UDP socket to another process, and forwarding of datagrams to earlier processes.
//!
//! Only the newest process reads the socket. The first byte of a connection ID identifies the
//! process that owns the connection. The newest process forwards the datagrams for earlier
//! processes over a Unix socket. One message contains several datagrams in this format:
//!
//! ```text
//! length (2) IP version (1) address (16) port (2) receive time, ns since the epoch (8) datagram
//! ```
//!
//! Numbers are big-endian. Each process sends its own datagrams directly over the shared UDP
//! socket.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixDatagram,
    },
    time::Duration,
};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};

use crate::wire::packet;

/// State that a process needs to take over the socket from another process.
#[derive(Debug)]
pub struct LinkHandover {
    /// Number that identifies the process and its connections.
    pub generation: u8,
    /// Instance number of the gateway. The new process keeps this number, so that the peers keep
    /// their connections to the earlier processes.
    pub instance: u64,
    /// Text of the memory file.
    pub remembered: String,
    /// Earlier processes that still have connections: the generation of each process, and the
    /// socket for forwarding datagrams to it.
    pub older: Vec<(u8, UnixDatagram)>,
}

/// Reason why a link cannot be handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandoverError {
    /// Too many earlier processes still have transfers.
    #[error("{OLDER_MAX} earlier processes still have transfers")]
    TooManyOlder,
    /// The link was already handed over, or has ended.
    #[error("the link was handed over or closed")]
    Gone,
    /// The socket between the processes could not be created.
    #[error("no socket between the processes: {0}")]
    Socket(io::ErrorKind),
}

/// Maximum number of earlier processes that share the socket with the newest process. A peer keeps
/// enough retired connections for this number of processes.
pub(super) const OLDER_MAX: usize = 31;

/// Earlier processes that still have connections.
#[derive(Debug, Default)]
pub(super) struct EarlierProcesses {
    processes: Vec<EarlierProcess>,
}

#[derive(Debug)]
struct EarlierProcess {
    generation: u8,
    channel: UnixDatagram,
    /// Message with the datagrams that have not been forwarded yet.
    message: Vec<u8>,
}

/// Source of forwarded datagrams, for a process that has handed the socket over.
#[derive(Debug)]
pub(super) struct DatagramFeed {
    channel: UnixDatagram,
    buffer: Vec<u8>,
}

/// Datagram that another process has received and forwarded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FedDatagram<'a> {
    pub(super) datagram: &'a mut [u8],
    pub(super) from: SocketAddr,
    /// Receive time, as a duration since the Unix epoch.
    pub(super) received: Duration,
}

/// Result of reading forwarded datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FeedResult {
    /// A message with datagrams was received.
    Message,
    Nothing,
    /// The process that reads the socket has ended.
    Gone,
}

const HEADER_BYTES: usize = 2 + 1 + 16 + 2 + 8;
/// Size in bytes at which a message is sent. Smaller messages wait for more datagrams.
const MESSAGE_BYTES: usize = 48 * 1024;
/// Maximum message size in bytes: a message just below the sending threshold plus the largest
/// datagram.
const MESSAGE_BYTES_MAX: usize = MESSAGE_BYTES + HEADER_BYTES + 64 * 1024;
/// Buffer size of the socket between two processes, in bytes. The buffer holds the datagrams of 30
/// ms at 1 Gbit/s.
const BUFFER_BYTES: usize = 4 << 20;

/// Creates a connected pair of sockets for messages. Unlike a plain datagram socket, each socket of
/// the pair detects when its counterpart is closed.
pub(super) fn datagram_channel() -> io::Result<(UnixDatagram, UnixDatagram)> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (near, far) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    let (near, far) = (UnixDatagram::from(near), UnixDatagram::from(far));
    for end in [&near, &far] {
        end.set_nonblocking(true)?;
        // Without the required privilege, the usual buffer size applies. Datagrams that do not fit
        // are lost, as on a network.
        if setsockopt(end, sockopt::SndBufForce, &BUFFER_BYTES).is_err() {
            let _ = setsockopt(end, sockopt::SndBuf, &BUFFER_BYTES);
        }
    }
    Ok((near, far))
}

impl EarlierProcesses {
    pub(super) fn new(processes: Vec<(u8, UnixDatagram)>) -> io::Result<Self> {
        let processes = processes.into_iter().map(|(generation, channel)| {
            channel.set_nonblocking(true)?;
            Ok(EarlierProcess {
                generation,
                channel,
                message: Vec::new(),
            })
        });
        Ok(Self {
            processes: processes.collect::<io::Result<_>>()?,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Queues a datagram for forwarding if it belongs to an earlier process. Returns whether the
    /// datagram was queued.
    pub(super) fn take(&mut self, datagram: &[u8], from: SocketAddr, received: Duration) -> bool {
        let Ok((kind, id)) = packet::classify(datagram) else {
            return false;
        };
        if kind == packet::DatagramKind::Hello {
            return false;
        }
        let owner = self.processes.iter_mut();
        let Some(owner) = owner.into_iter().find(|it| it.generation == id.0[0]) else {
            return false;
        };
        put(&mut owner.message, datagram, from, received);
        if owner.message.len() >= MESSAGE_BYTES {
            owner.flush();
        }
        true
    }

    /// Forwards all queued datagrams. Processes that have ended are removed.
    pub(super) fn flush(&mut self) {
        self.processes.retain_mut(EarlierProcess::flush);
    }

    /// Returns the earlier processes that still run, for the next process.
    pub(super) fn living(&mut self) -> io::Result<Vec<(u8, UnixDatagram)>> {
        // An empty message would look like the end of the process, so one byte is sent.
        self.processes.retain(|it| is_there(it.channel.send(&[0])));
        let ways = self.processes.iter();
        ways.map(|it| Ok((it.generation, it.channel.try_clone()?)))
            .collect()
    }
}

impl EarlierProcess {
    /// Sends the queued message. Returns whether the process still runs.
    fn flush(&mut self) -> bool {
        if self.message.is_empty() {
            return true;
        }
        let sent = self.channel.send(&self.message);
        self.message.clear();
        is_there(sent)
    }
}

/// Whether the process still runs, according to the result of a send. Datagrams that do not fit
/// into the socket are dropped, as on a network.
fn is_there(sent: io::Result<usize>) -> bool {
    match sent {
        Ok(_) => true,
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::NotConnected
        ),
    }
}

impl DatagramFeed {
    pub(super) fn new(channel: UnixDatagram) -> Self {
        Self {
            channel,
            buffer: vec![0; MESSAGE_BYTES_MAX],
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Receives one message and calls `handle` for each datagram in it.
    pub(super) fn receive(&mut self, mut handle: impl FnMut(FedDatagram<'_>)) -> FeedResult {
        let len = match self.channel.recv(&mut self.buffer) {
            Ok(0) => return FeedResult::Gone,
            Ok(len) => len,
            Err(_) => return FeedResult::Nothing,
        };
        let mut message = &mut self.buffer[..len];
        while let Some((handed, rest)) = next(message) {
            handle(handed);
            message = rest;
        }
        FeedResult::Message
    }
}

fn put(message: &mut Vec<u8>, datagram: &[u8], from: SocketAddr, received: Duration) {
    let (version, ip) = match from.ip() {
        IpAddr::V4(ip) => (4, ip.to_ipv6_mapped()),
        IpAddr::V6(ip) => (6, ip),
    };
    message.extend_from_slice(&(datagram.len() as u16).to_be_bytes());
    message.push(version);
    message.extend_from_slice(&ip.octets());
    message.extend_from_slice(&from.port().to_be_bytes());
    message.extend_from_slice(&(received.as_nanos() as u64).to_be_bytes());
    message.extend_from_slice(datagram);
}

/// Splits a message into its first datagram and the remaining bytes.
fn next(message: &mut [u8]) -> Option<(FedDatagram<'_>, &mut [u8])> {
    let (header, rest) = message.split_first_chunk_mut::<HEADER_BYTES>()?;
    let len = u16::from_be_bytes([header[0], header[1]]);
    let ip: [u8; 16] = header[3..19].try_into().expect("sixteen bytes");
    let ip = Ipv6Addr::from(ip);
    let ip = match header[2] {
        4 => IpAddr::V4(ip.to_ipv4_mapped()?),
        _ => IpAddr::V6(ip),
    };
    let port = u16::from_be_bytes([header[19], header[20]]);
    let nanos = u64::from_be_bytes(header[21..].try_into().expect("eight bytes"));
    let (datagram, rest) = rest.split_at_mut_checked(usize::from(len))?;
    let handed = FedDatagram {
        datagram,
        from: SocketAddr::new(ip, port),
        received: Duration::from_nanos(nanos),
    };
    Some((handed, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(generation: u8, len: usize) -> Vec<u8> {
        let mut datagram = vec![7; len];
        datagram[0] = 0b0100_0011;
        datagram[1] = generation;
        datagram
    }

    #[test]
    fn each_process_gets_its_own_datagrams_as_they_came() {
        let (to_first, first) = datagram_channel().expect("sockets can be made");
        let (to_second, second) = datagram_channel().expect("sockets can be made");
        let mut older =
            EarlierProcesses::new(vec![(3, to_first), (9, to_second)]).expect("they are sockets");
        let from_v4: SocketAddr = ([192, 0, 2, 1], 4810).into();
        let from_v6: SocketAddr = "[2001:db8::1]:5".parse().expect("an address");
        let at = Duration::from_nanos(1_795_264_200_123_456_789);
        assert!(older.take(&data(3, 1500), from_v4, at));
        assert!(older.take(&data(9, 100), from_v6, at));
        assert!(older.take(&data(3, 99), from_v6, at));
        assert!(!older.take(&data(4, 99), from_v4, at), "our own");
        assert!(
            !older.take(&[packet::HELLO; 300], from_v4, at),
            "a new connection"
        );
        assert!(!older.take(&[], from_v4, at));
        older.flush();
        let mut seen = Vec::new();
        let mut take = |channel| {
            DatagramFeed::new(channel)
                .receive(|it| seen.push((it.datagram.to_vec(), it.from, it.received)))
        };
        assert_eq!([take(first), take(second)], [FeedResult::Message; 2]);
        assert_eq!(
            seen,
            [
                (data(3, 1500), from_v4, at),
                (data(3, 99), from_v6, at),
                (data(9, 100), from_v6, at)
            ]
        );
    }

    #[test]
    fn a_process_that_has_ended_is_forgotten_and_one_that_does_not_read_is_not() {
        let (to_first, first) = datagram_channel().expect("sockets can be made");
        let (to_second, _second) = datagram_channel().expect("sockets can be made");
        let mut older =
            EarlierProcesses::new(vec![(3, to_first), (9, to_second)]).expect("they are sockets");
        drop(first);
        let at = Duration::from_secs(1);
        for _ in 0..100_000 {
            older.take(&data(9, 1500), ([192, 0, 2, 1], 1).into(), at);
            older.take(&data(3, 1500), ([192, 0, 2, 1], 1).into(), at);
        }
        older.flush();
        let left = older.living().expect("they can be cloned");
        assert_eq!(left.iter().map(|(it, _)| *it).collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn a_message_that_was_cut_off_ends_where_it_ends() {
        let mut message = Vec::new();
        put(
            &mut message,
            &[1; 50],
            ([192, 0, 2, 1], 1).into(),
            Duration::ZERO,
        );
        for len in 0..message.len() {
            assert_eq!(next(&mut message.clone()[..len]), None);
        }
        assert!(next(&mut message).is_some());
    }
}
