//! The bottleneck: a transmitter with a fixed rate, behind a FIFO queue with a limit in bytes.
//!
//! When a packet is accepted, the end of its transmission is computed, so the queue needs no timer.
//! Each queued packet stores its departure time. A change of the rate updates the departure times
//! of queued packets.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use units::{BitRate, ByteCount};

#[derive(Debug)]
pub(crate) struct Bottleneck<P> {
    /// Packets in the queue or in transmission, sorted by departure time.
    queue: VecDeque<QueuedPacket<P>>,
    queue_bytes: u64,
    line: Transmitter,
}

#[derive(Debug)]
struct QueuedPacket<P> {
    packet: P,
    wire_bytes: u64,
    departure: Instant,
}

/// The transmitter, with the time at which it finishes its present packets.
///
/// The time is exact to a fraction of a nanosecond, so rounding errors do not accumulate.
#[derive(Debug, Clone, Copy)]
struct Transmitter {
    rate_bits_per_s: u64,
    free_at: Option<Instant>,
    /// Fraction of a nanosecond to add to `free_at`. The value is the numerator of a fraction whose
    /// denominator is `rate_bits_per_s`.
    carry: u64,
}

impl<P> Bottleneck<P> {
    pub(crate) fn new(rate: BitRate) -> Self {
        Self {
            queue: VecDeque::new(),
            queue_bytes: 0,
            line: Transmitter::new(rate),
        }
    }

    /// Returns the bytes in the queue at the time of the last [`Self::pop`].
    pub(crate) fn queue_bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// Adds a packet to the queue. Returns the packet if the queue would exceed `limit`. An empty
    /// queue accepts any packet. The caller must first remove the packets that have departed by
    /// `now`.
    pub(crate) fn push(
        &mut self,
        packet: P,
        wire_bytes: usize,
        limit: ByteCount,
        now: Instant,
    ) -> Result<(), P> {
        let wire_bytes = wire_bytes as u64;
        if !self.queue.is_empty() && self.queue_bytes.saturating_add(wire_bytes) > limit.bytes() {
            return Err(packet);
        }
        let departure = self.line.transmit(wire_bytes, now);
        self.queue.push_back(QueuedPacket {
            packet,
            wire_bytes,
            departure,
        });
        self.queue_bytes += wire_bytes;
        Ok(())
    }

    /// Removes the next packet that has departed by `now`. Returns it with its departure time.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(P, Instant)> {
        if self.queue.front()?.departure > now {
            return None;
        }
        let QueuedPacket {
            packet,
            wire_bytes,
            departure,
        } = self.queue.pop_front()?;
        self.queue_bytes -= wire_bytes;
        Some((packet, departure))
    }

    /// Returns the departure time of the next packet.
    pub(crate) fn next_departure(&self) -> Option<Instant> {
        self.queue.front().map(|waiting| waiting.departure)
    }

    /// Changes the rate. The already transmitted bytes of the first packet are not transmitted
    /// again.
    pub(crate) fn set_rate(&mut self, rate: BitRate, now: Instant) {
        let mut line = Transmitter::new(rate);
        let mut first_left_bytes = self.queue.front().map(|first| {
            let left = first.departure.saturating_duration_since(now);
            let rate = BitRate::bits_per_s(self.line.rate_bits_per_s);
            rate.bytes_in(left).bytes().min(first.wire_bytes)
        });
        for waiting in &mut self.queue {
            let bytes = first_left_bytes.take().unwrap_or(waiting.wire_bytes);
            waiting.departure = line.transmit(bytes, now);
        }
        self.line = line;
    }

    /// Removes all packets, in the order of the queue.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = P> {
        self.queue_bytes = 0;
        self.line.free_at = None;
        self.queue.drain(..).map(|waiting| waiting.packet)
    }
}

impl Transmitter {
    fn new(rate: BitRate) -> Self {
        Self {
            rate_bits_per_s: rate.as_bits_per_s(),
            free_at: None,
            carry: 0,
        }
    }

    /// Transmits `bytes` bytes as soon as the transmitter is free. Returns the time at which the
    /// last byte departs.
    fn transmit(&mut self, bytes: u64, now: Instant) -> Instant {
        let start = match self.free_at {
            Some(free_at) if free_at > now => free_at,
            _ => {
                self.carry = 0;
                now
            }
        };
        let numerator = bytes * 8_000_000_000 + self.carry;
        let time = match numerator.checked_div(self.rate_bits_per_s) {
            Some(ns) => {
                self.carry = numerator % self.rate_bits_per_s;
                Duration::from_nanos(ns).min(NEVER)
            }
            None => NEVER,
        };
        // A line of rate zero never becomes free. The sum must not overflow the clock.
        let end = (start + time).min(now + NEVER);
        self.free_at = Some(end);
        end
    }
}

/// Duration that exceeds every run. It is short enough to be added to any instant.
const NEVER: Duration = Duration::from_secs(10 * 365 * 86_400);
