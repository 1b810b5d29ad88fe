//! Packets in flight, which have left the bottleneck and have not arrived yet.
//!
//! Nearly all packets keep their order, and are stored in a ring. All other packets are stored in a
//! heap.

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, VecDeque},
    time::Instant,
};

#[derive(Debug)]
pub(crate) struct PacketsInFlight<P> {
    /// Packets sorted by arrival time.
    ring: VecDeque<ScheduledArrival<P>>,
    heap: BinaryHeap<ScheduledArrival<P>>,
    departures: u64,
}

#[derive(Debug)]
struct ScheduledArrival<P> {
    at: Instant,
    /// Number of the packet in the order of departures. Packets with the same arrival time keep
    /// this order.
    number: u64,
    packet: P,
}

impl<P> PacketsInFlight<P> {
    pub(crate) fn new() -> Self {
        Self {
            ring: VecDeque::new(),
            heap: BinaryHeap::new(),
            departures: 0,
        }
    }

    /// Adds a packet that should arrive after all packets that were added with this function. A
    /// packet that arrives earlier, because the delay has decreased, is stored in the heap.
    pub(crate) fn push_in_order(&mut self, packet: P, at: Instant) {
        if self.latest_in_order().is_some_and(|latest| at < latest) {
            return self.push_apart(packet, at);
        }
        let arrival = self.arrival(packet, at);
        self.ring.push_back(arrival);
    }

    /// Adds a packet that may arrive out of order, early or late.
    pub(crate) fn push_apart(&mut self, packet: P, at: Instant) {
        let arrival = self.arrival(packet, at);
        self.heap.push(arrival);
    }

    /// Returns the arrival time of the last packet added with [`Self::push_in_order`], if that
    /// packet is still in flight.
    pub(crate) fn latest_in_order(&self) -> Option<Instant> {
        self.ring.back().map(|arrival| arrival.at)
    }

    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        match (self.ring.front(), self.heap.peek()) {
            (Some(ring), Some(heap)) => Some(ring.at.min(heap.at)),
            (ring, heap) => ring.or(heap).map(|arrival| arrival.at),
        }
    }

    /// Removes the next packet that has arrived by `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<P> {
        let ring = self.ring.front().filter(|arrival| arrival.at <= now);
        let heap = self.heap.peek().filter(|arrival| arrival.at <= now);
        let arrival = match (ring, heap) {
            (Some(ring), Some(heap)) if heap.key() < ring.key() => self.heap.pop(),
            (Some(_), _) => self.ring.pop_front(),
            (None, Some(_)) => self.heap.pop(),
            (None, None) => None,
        };
        arrival.map(|arrival| arrival.packet)
    }

    fn arrival(&mut self, packet: P, at: Instant) -> ScheduledArrival<P> {
        self.departures += 1;
        ScheduledArrival {
            at,
            number: self.departures,
            packet,
        }
    }
}

impl<P> ScheduledArrival<P> {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.number)
    }
}

// The heap returns its greatest element first, so the earliest arrival is the greatest.
impl<P> Ord for ScheduledArrival<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<P> PartialOrd for ScheduledArrival<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for ScheduledArrival<P> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<P> Eq for ScheduledArrival<P> {}
