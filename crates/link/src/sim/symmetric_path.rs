//! Paths of most benches of congestion control, and the start times of their flows.

use std::{ops::Range, time::Duration};

use units::{BitRate, ByteCount};
use wansim::PathConfig;

use super::{
    crowd::{Crowd, CrowdConfig},
    crowd_record::CrowdRecord,
};

/// A path that is the same in both directions: a rate, a round-trip time, a queue and random loss.
#[derive(Debug, Clone, Copy)]
pub struct SymmetricPath {
    /// Rate of the bottleneck.
    pub rate: BitRate,
    /// Round-trip time without a queue.
    pub rtt: Duration,
    /// Size of the queue in bandwidth-delay products.
    pub queue_bdp: f64,
    /// Probability that the path loses a packet, in each direction.
    pub loss: f64,
}

impl SymmetricPath {
    /// A line without random loss.
    pub fn new(mbit: u64, rtt_ms: u64, queue_bdp: f64) -> Self {
        Self {
            rate: BitRate::mbit(mbit),
            rtt: Duration::from_millis(rtt_ms),
            queue_bdp,
            loss: 0.0,
        }
    }

    /// The same line with random loss.
    pub fn losing(self, loss: f64) -> Self {
        Self { loss, ..self }
    }

    /// The rate in bits per second.
    pub fn bits_per_s(&self) -> f64 {
        self.rate.as_bits_per_s() as f64
    }

    /// One direction of the line. Its queue holds at least 50 full packets.
    pub fn path(&self) -> PathConfig {
        let bdp = self.rate.bytes_in(self.rtt).bytes() as f64;
        let queue = (bdp * self.queue_bdp).max(50.0 * PACKET_WIRE_BYTES);
        PathConfig {
            rate: Some(self.rate),
            queue: ByteCount::new(queue as u64),
            delay: self.rtt / 2,
            loss: self.loss,
            ..PathConfig::default()
        }
    }

    /// An empty crowd on this line, for one flow.
    pub fn alone(&self, seed: u64) -> Crowd {
        self.with(self.path(), self.path(), Duration::ZERO, seed)
    }

    /// Returns an empty crowd on this line, for several flows. Each packet may be late by up to one
    /// packet's time, which breaks the patterns of equal senders.
    pub fn shared(&self, seed: u64) -> Crowd {
        self.with(self.path(), self.path(), self.packet_time(), seed)
    }

    /// An empty crowd on two paths that the caller has derived from this line.
    pub fn with(
        &self,
        forward: PathConfig,
        backward: PathConfig,
        jitter: Duration,
        seed: u64,
    ) -> Crowd {
        Crowd::new(&CrowdConfig {
            forward,
            backward,
            seed,
            jitter,
            sample_every: SAMPLE_EVERY,
        })
    }

    /// Time that the bottleneck needs for a full packet.
    pub fn packet_time(&self) -> Duration {
        self.rate
            .time_to_send(ByteCount::new(PACKET_WIRE_BYTES as u64))
    }

    /// Returns the arrived bytes in a span of time, as a fraction of the bytes that the line passes
    /// and the path does not lose.
    pub fn used(&self, record: &CrowdRecord, span: &Range<Duration>) -> f64 {
        let rates: f64 = (0..record.flows())
            .map(|flow| record.rate(flow, span))
            .sum();
        rates / self.bits_per_s() / (1.0 - record.path_loss(span))
    }
}

/// Returns a time between zero and `within` that depends on the seed and on `which`. The flows of a
/// run therefore begin at different times.
pub fn offset(seed: u64, which: u64, within: Duration) -> Duration {
    let mixed = (seed << 8 | which).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    within.mul_f64(mixed as f64 / (1u64 << 24) as f64)
}

/// Length of a full packet on the line: 1500 bytes of IP and Ethernet's overhead of 38.
pub const PACKET_WIRE_BYTES: f64 = 1538.0;

const SAMPLE_EVERY: Duration = Duration::from_millis(10);
