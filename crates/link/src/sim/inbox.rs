//! The datagrams that wait at a site of the simulator, as they wait in a driver's socket.
//!
//! In: datagrams with the times at which they arrive, and for how long the site lets them wait. Out: when they are to be
//! handled, and then all of them.

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

/// Bytes that wait at most, as in the buffer that a driver asks for; what more comes is lost.
const ROOM_BYTES: usize = 4 << 20;

/// What has arrived at a site.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// With the times at which they came.
    waiting: VecDeque<(Datagram, Instant)>,
    waiting_bytes: usize,
    /// What comes is lost: the machine is suspended.
    pub(super) is_shut: bool,
    /// Until then they wait for each other, unless something else is due at the site.
    gathers_until: Option<Instant>,
}

impl Inbox {
    pub(super) fn push(&mut self, datagram: Datagram, now: Instant) {
        if !self.is_shut && self.waiting_bytes + datagram.bytes.len() <= ROOM_BYTES {
            self.waiting_bytes += datagram.bytes.len();
            self.waiting.push_back((datagram, now));
        }
    }

    /// What has arrived, in this order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (Datagram, Instant)> {
        self.waiting_bytes = 0;
        self.waiting.drain(..)
    }

    /// From now on datagrams wait for the next `turn`; `None`: each is to be handled at once.
    pub(super) fn wait(&mut self, turn: Option<Duration>, now: Instant) {
        self.gathers_until = turn.map(|turn| now + turn);
    }

    pub(super) fn gathers(&self, now: Instant) -> bool {
        self.gathers_until.is_some_and(|until| now < until)
    }

    /// When the datagrams that wait are to be handled at the latest.
    pub(super) fn due(&self) -> Option<Instant> {
        self.gathers_until.filter(|_| !self.waiting.is_empty())
    }
}

const IP_UDP_HEADERS: usize = 28;
