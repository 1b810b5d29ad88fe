//! Datagrams that have arrived at a simulated site and wait there, like datagrams in a driver's
//! socket.
//!
//! The input is datagrams with their arrival times, and the time for which the site lets datagrams
//! wait. The output is the time at which to handle the datagrams, and then the datagrams
//! themselves.

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
        // On a real path, the checksums of the headers detect a flipped bit in the headers. The
        // simulation changes the first byte instead.
        let byte = (bit / 8).saturating_sub(IP_UDP_HEADERS);
        self.bytes[byte] ^= 1 << (bit % 8);
    }
}

/// Maximum number of waiting bytes: the size of the socket buffer that a driver requests. Further
/// datagrams are lost.
const ROOM_BYTES: usize = 4 << 20;

/// Datagrams that have arrived at a site and wait to be handled.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Waiting datagrams with their arrival times.
    waiting: VecDeque<(Datagram, Instant)>,
    waiting_bytes: usize,
    /// Whether arriving datagrams are lost because the site's machine is suspended.
    pub(super) is_shut: bool,
    /// Time until which the site collects datagrams before it handles them together. Any other
    /// event at the site ends the wait earlier.
    gathers_until: Option<Instant>,
}

impl Inbox {
    pub(super) fn push(&mut self, datagram: Datagram, now: Instant) {
        if !self.is_shut && self.waiting_bytes + datagram.bytes.len() <= ROOM_BYTES {
            self.waiting_bytes += datagram.bytes.len();
            self.waiting.push_back((datagram, now));
        }
    }

    /// Removes and returns all waiting datagrams in the order of their arrival.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (Datagram, Instant)> {
        self.waiting_bytes = 0;
        self.waiting.drain(..)
    }

    /// Delays the handling of later arrivals by up to `turn`. With `None`, the site handles each
    /// datagram at once.
    pub(super) fn wait(&mut self, turn: Option<Duration>, now: Instant) {
        self.gathers_until = turn.map(|turn| now + turn);
    }

    pub(super) fn gathers(&self, now: Instant) -> bool {
        self.gathers_until.is_some_and(|until| now < until)
    }

    /// Returns the latest time at which the site must handle the waiting datagrams. Returns `None`
    /// if no datagram waits.
    pub(super) fn due(&self) -> Option<Instant> {
        self.gathers_until.filter(|_| !self.waiting.is_empty())
    }
}

const IP_UDP_HEADERS: usize = 28;
