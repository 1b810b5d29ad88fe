//! Paths for most benches of congestion control, and the start times of their flows.

use std::{ops::Range, time::Duration};

use units::{BitRate, ByteCount};
use wansim::PathConfig;

use super::{
    crowd::{Crowd, CrowdConfig},
    crowd_record::CrowdRecord,
};

/// Path with the same properties in both directions: a rate, a round-trip time, a queue and random
/// loss.
#[derive(Debug, Clone, Copy)]
pub struct SymmetricPath {
    /// Rate of the bottleneck.
    pub rate: BitRate,
    /// Round-trip time without queueing delay.
    pub rtt: Duration,
    /// Size of the queue, as a multiple of the bandwidth-delay product.
    pub queue_bdp: f64,
    /// Probability that the path loses a packet. The value applies to each direction.
    pub loss: f64,
}

impl SymmetricPath {
    /// Creates a path without random loss.
    pub fn new(mbit: u64, rtt_ms: u64, queue_bdp: f64) -> Self {
        Self {
            rate: BitRate::mbit(mbit),
            rtt: Duration::from_millis(rtt_ms),
            queue_bdp,
            loss: 0.0,
        }
    }

    /// Returns the same path with random loss. `loss` is the probability for each packet.
    pub fn losing(self, loss: f64) -> Self {
        Self { loss, ..self }
    }

    /// Returns the rate in bits per second.
    pub fn bits_per_s(&self) -> f64 {
        self.rate.as_bits_per_s() as f64
    }

    /// Returns the configuration of one direction. The queue holds at least 50 full packets.
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

    /// Returns a simulation on this path for one flow, without additional jitter.
    pub fn alone(&self, seed: u64) -> Crowd {
        self.with(self.path(), self.path(), Duration::ZERO, seed)
    }

    /// Returns a simulation on this path for several flows. Each packet gets a random delay of up
    /// to the sending time of one packet. Identical senders therefore do not synchronise.
    pub fn shared(&self, seed: u64) -> Crowd {
        self.with(self.path(), self.path(), self.packet_time(), seed)
    }

    /// Returns a simulation on two paths that the caller has derived from this path.
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

    /// Returns the time that the bottleneck needs to send a full packet.
    pub fn packet_time(&self) -> Duration {
        self.rate
            .time_to_send(ByteCount::new(PACKET_WIRE_BYTES as u64))
    }

    /// Returns the used fraction of the bottleneck during `span`. Random losses do not count as
    /// unused.
    pub fn used(&self, record: &CrowdRecord, span: &Range<Duration>) -> f64 {
        let rates: f64 = (0..record.flows())
            .map(|flow| record.rate(flow, span))
            .sum();
        rates / self.bits_per_s() / (1.0 - record.path_loss(span))
    }
}

/// Returns a start time between zero and `within`. The time depends on `seed` and `which`, so that
/// the flows of a run start at different times.
pub fn offset(seed: u64, which: u64, within: Duration) -> Duration {
    let mixed = (seed << 8 | which).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    within.mul_f64(mixed as f64 / (1u64 << 24) as f64)
}

/// Length of a full packet on the wire in bytes: an IP packet of 1500 bytes and 38 bytes of
/// Ethernet overhead.
pub const PACKET_WIRE_BYTES: f64 = 1538.0;

const SAMPLE_EVERY: Duration = Duration::from_millis(10);
