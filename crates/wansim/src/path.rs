//! One direction of a path, which combines bottleneck, policer, impairments and propagation.

use std::time::{Duration, Instant};

use crate::{
    bottleneck::Bottleneck,
    bucket::TokenBucket,
    config::{ETHERNET_OVERHEAD, PathConfig, Straggler},
    counters::Counters,
    fate::{RandomDraws, Transit},
    flight::PacketsInFlight,
};

/// A packet that can be sent over a path.
pub trait Packet: Clone {
    /// Returns the length of the IP packet in bytes.
    fn ip_bytes(&self) -> usize;
    /// Flips one bit of the IP packet. `bit` counts from the first bit, and is less than `8 *
    /// ip_bytes()`.
    fn flip_bit(&mut self, bit: usize);
}

/// One direction of a WAN path.
///
/// The caller passes the time to each function. The time must not run backwards. The fate of a
/// packet depends on the settings, the seed and the packets before it. It does not depend on the
/// calls of [`Path::poll`].
#[derive(Debug)]
pub struct Path<P> {
    config: PathConfig,
    bottleneck: Bottleneck<P>,
    bucket: TokenBucket,
    dice: RandomDraws,
    flight: PacketsInFlight<P>,
    counters: Counters,
}

impl<P: Packet> Path<P> {
    /// Creates an empty path. With equal seeds, equal packets have equal fates.
    pub fn new(config: PathConfig, seed: u64) -> Self {
        Self {
            bottleneck: Bottleneck::new(config.rate.unwrap_or_default()),
            config,
            bucket: TokenBucket::default(),
            dice: RandomDraws::new(seed),
            flight: PacketsInFlight::new(),
            counters: Counters::default(),
        }
    }

    /// Changes the settings while traffic flows.
    ///
    /// The new rate and the new impairments apply to packets that are still in the bottleneck's
    /// queue. Packets after the bottleneck arrive as before. If the queue becomes smaller, packets
    /// that are already queued are not dropped.
    pub fn configure(&mut self, config: PathConfig, now: Instant) {
        self.let_depart(now);
        if config.rate != self.config.rate {
            self.bottleneck
                .set_rate(config.rate.unwrap_or_default(), now);
        }
        self.config = config;
        if self.config.rate.is_none() {
            let waiting: Vec<P> = self.bottleneck.drain().collect();
            self.counters.queue_bytes = 0;
            for packet in waiting {
                self.depart(packet, now);
            }
        }
    }

    /// Returns the present settings.
    pub fn config(&self) -> &PathConfig {
        &self.config
    }

    /// Sends a packet over the path.
    pub fn send(&mut self, packet: P, now: Instant) {
        if self.admit(&packet) {
            self.carry(packet, now);
        }
    }

    /// Counts a packet as sent. Returns whether the packet fits the MTU.
    pub(crate) fn admit(&mut self, packet: &P) -> bool {
        let ip_bytes = packet.ip_bytes();
        self.counters.sent += 1;
        self.counters.sent_bytes += ip_bytes as u64;
        let passes = ip_bytes <= self.config.mtu;
        self.counters.mtu_drops += u64::from(!passes);
        passes
    }

    /// Sends a packet that [`Self::admit`] has accepted.
    pub(crate) fn carry(&mut self, packet: P, now: Instant) {
        if self.config.rate.is_none() {
            return self.depart(packet, now);
        }
        self.let_depart(now);
        let wire_bytes = packet.ip_bytes() + ETHERNET_OVERHEAD;
        let pushed = self
            .bottleneck
            .push(packet, wire_bytes, self.config.queue, now);
        self.count_queue(self.bottleneck.queue_bytes(), pushed.is_err());
    }

    /// Records the number of bytes in the queue in front of the path. `dropped` states whether the
    /// queue has just dropped a packet.
    pub(crate) fn count_queue(&mut self, queue_bytes: u64, dropped: bool) {
        let counters = &mut self.counters;
        counters.queue_drops += u64::from(dropped);
        counters.queue_bytes = queue_bytes;
        counters.queue_bytes_max = counters.queue_bytes_max.max(queue_bytes);
    }

    /// Returns the next packet that has arrived by `now`, in the order of arrival.
    pub fn poll(&mut self, now: Instant) -> Option<P> {
        self.let_depart(now);
        let packet = self.flight.pop(now)?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += packet.ip_bytes() as u64;
        Some(packet)
    }

    /// Returns the time at which [`Path::poll`] must be called next. Returns `None` if the path is
    /// empty.
    ///
    /// The returned time may be too early, since a queued packet may still be lost or delayed. It
    /// is never too late.
    pub fn next_arrival(&self) -> Option<Instant> {
        let queued = self
            .bottleneck
            .next_departure()
            .map(|at| at + self.shortest_delay());
        match (self.flight.next_arrival(), queued) {
            (Some(flying), Some(queued)) => Some(flying.min(queued)),
            (flying, queued) => flying.or(queued),
        }
    }

    /// Updates the counters to the time `now`. Without this call, the counters change only when a
    /// packet is sent or polled.
    pub fn catch_up(&mut self, now: Instant) {
        self.let_depart(now);
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Processes the packets that have departed from the bottleneck by `now`.
    fn let_depart(&mut self, now: Instant) {
        while let Some((packet, departure)) = self.bottleneck.pop(now) {
            self.counters.queue_bytes = self.bottleneck.queue_bytes();
            self.depart(packet, departure);
        }
    }

    /// Determines the fate of a packet that left the bottleneck at `departure`.
    fn depart(&mut self, mut packet: P, departure: Instant) {
        let Self {
            config,
            bucket,
            dice,
            counters,
            ..
        } = self;
        let wire_bytes = packet.ip_bytes() + ETHERNET_OVERHEAD;
        if let Some(policer) = &config.policer
            && !bucket.passes(policer, wire_bytes, departure)
        {
            counters.policer_drops += 1;
            return;
        }
        if config.outage {
            counters.outage_drops += 1;
            return;
        }
        if dice.loses(config.loss) {
            counters.random_losses += 1;
            return;
        }
        if config
            .bursts
            .as_ref()
            .is_some_and(|chain| dice.loses_in_burst(chain))
        {
            counters.burst_losses += 1;
            return;
        }
        if let Some(bit) = dice.corrupts(config.corruption, packet.ip_bytes()) {
            packet.flip_bit(bit);
            counters.corrupted += 1;
        }
        if dice.duplicates(config.duplication) {
            counters.duplicated += 1;
            self.propagate(packet.clone(), departure);
        }
        self.propagate(packet, departure);
    }

    fn propagate(&mut self, packet: P, departure: Instant) {
        let Self {
            config,
            dice,
            flight,
            counters,
            ..
        } = self;
        let straggler = dice
            .reorders(&config.reordering)
            .then_some(config.reordering.straggler);
        counters.reordered += u64::from(straggler.is_some());
        match dice.transit(config.delay, &config.jitter, straggler) {
            Transit::InOrder(delay) => flight.push_in_order(packet, departure + delay),
            Transit::Held(delay) => {
                let earliest = flight.latest_in_order().unwrap_or(departure);
                flight.push_in_order(packet, (departure + delay).max(earliest));
            }
            Transit::OutOfOrder(delay) => flight.push_apart(packet, departure + delay),
        }
    }

    /// Returns the shortest time between a packet's departure from the bottleneck and its arrival.
    pub(crate) fn shortest_delay(&self) -> Duration {
        let reordering = &self.config.reordering;
        if reordering.probability > 0.0 && reordering.straggler == Straggler::Early {
            return Duration::ZERO;
        }
        self.config.delay.saturating_sub(self.config.jitter.spread)
    }
}
