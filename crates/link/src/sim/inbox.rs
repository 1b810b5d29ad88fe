//! Datagrams that wait at a site of the simulator, as they wait in a driver's socket.
//!
//! The input is datagrams with the times at which they arrive, and the time for which the site lets
//! them wait. The output is the time at which to handle them, and then all of them.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use wansim::Packet;

#[derive(Debug, Clone)]
pub(super) struct Datagram {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

impl Packet for Datagram {
    fn ip_bytes(&self) -> usize {
        self.bytes.len() + IP_UDP_HEADERS
    }

    fn flip_bit(&mut self, bit: usize) {
        // A flipped bit in the headers dies in their checksums; here it breaks the first byte.
        let byte = (bit / 8).saturating_sub(IP_UDP_HEADERS);
        self.bytes[byte] ^= 1 << (bit % 8);
    }
}

/// Maximum number of bytes that wait, as in the buffer that a driver requests. Further datagrams
/// are lost.
const ROOM_BYTES: usize = 4 << 20;

/// Datagrams that have arrived at a site.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Datagrams with the times at which they came.
    waiting: VecDeque<(Datagram, Instant)>,
    waiting_bytes: usize,
    /// Whether arriving datagrams are lost, since the machine is suspended.
    pub(super) is_shut: bool,
    /// Time until which datagrams wait for each other, unless another event is due at the site.
    gathers_until: Option<Instant>,
}

impl Inbox {
    pub(super) fn push(&mut self, datagram: Datagram, now: Instant) {
        if !self.is_shut && self.waiting_bytes + datagram.bytes.len() <= ROOM_BYTES {
            self.waiting_bytes += datagram.bytes.len();
            self.waiting.push_back((datagram, now));
        }
    }

    /// Returns the datagrams that have arrived, in this order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (Datagram, Instant)> {
        self.waiting_bytes = 0;
        self.waiting.drain(..)
    }

    /// Lets datagrams wait for the next `turn`. `None` if each is to be handled at once.
    pub(super) fn wait(&mut self, turn: Option<Duration>, now: Instant) {
        self.gathers_until = turn.map(|turn| now + turn);
    }

    pub(super) fn gathers(&self, now: Instant) -> bool {
        self.gathers_until.is_some_and(|until| now < until)
    }

    /// Returns the latest time at which to handle the waiting datagrams.
    pub(super) fn due(&self) -> Option<Instant> {
        self.gathers_until.filter(|_| !self.waiting.is_empty())
    }
}

const IP_UDP_HEADERS: usize = 28;
