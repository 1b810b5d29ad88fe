//! Settings of one direction of a path.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{BitRate, ByteCount};

/// The settings of one direction of a path. The default is a perfect path without bottleneck, delay
/// and impairments.
///
/// Probabilities are between 0 and 1. A value outside this range counts as the nearer limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PathConfig {
    /// Rate of the bottleneck. As on an Ethernet cable, each packet counts with
    /// [`ETHERNET_OVERHEAD`] additional bytes. `None` means no bottleneck and no queue.
    #[serde(with = "plain::rate")]
    pub rate: Option<BitRate>,
    /// Size of the bottleneck's queue, including the packet in transmission. Packets count with the
    /// same overhead as in `rate`.
    ///
    /// A packet that does not fit is dropped. An idle bottleneck accepts any packet. The default is
    /// no limit. [`PathConfig::default_queue`] returns a realistic size.
    #[serde(with = "plain::bytes")]
    pub queue: ByteCount,
    /// A policer after the bottleneck. It drops packets above its rate instead of queueing them.
    pub policer: Option<Policer>,
    /// One-way propagation delay.
    pub delay: Duration,
    /// Variation of the delay.
    pub jitter: Jitter,
    /// Probability that a packet is lost, independent of all others.
    pub loss: f64,
    /// Loss in bursts, which adds to `loss`.
    pub bursts: Option<GilbertElliott>,
    /// Probability that one bit of the IP packet is flipped. Each bit is equally likely.
    pub corruption: f64,
    /// Reordering of packets.
    pub reordering: Reordering,
    /// Probability that a packet arrives twice. The copy is made after the bottleneck, so it uses
    /// no capacity. The copy has its own delay.
    pub duplication: f64,
    /// Whether all packets that leave the bottleneck are lost. Packets that are already in flight
    /// still arrive.
    pub outage: bool,
    /// Longest IP packet that passes, in bytes. Longer packets are dropped silently.
    pub mtu: usize,
}

/// A half-duplex radio medium that both directions of a path share.
///
/// Packets pass the medium before the [`Path`](crate::Path) of their direction. The paths then
/// usually have no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Radio {
    /// Rate at which the bytes of a frame are sent. Frames count with the same overhead as in
    /// [`PathConfig::rate`].
    ///
    /// The overhead of 802.11 (header 24, LLC and SNAP 8, check sequence 4) differs from Ethernet's
    /// by at most 2 bytes.
    #[serde(with = "plain::bit_rate")]
    pub rate: BitRate,
    /// Airtime of a frame in addition to the airtime of its bytes: waiting for the channel,
    /// preamble, and acknowledgement.
    pub frame_time: Duration,
    /// Number of transmissions of each frame. It is 2 if an access point relays the frames between
    /// both stations.
    pub hops: u32,
    /// Size of each station's queue. Packets are counted and limited as in [`PathConfig::queue`].
    #[serde(with = "plain::bytes")]
    pub queue: ByteCount,
}

/// Settings of a policer with a token bucket. Tokens for bytes arrive at `rate`, and the bucket
/// holds at most `burst`. A packet that lacks tokens is dropped, and uses no tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policer {
    /// Long-term rate of the packets that pass. Packets count with the same overhead as in
    /// [`PathConfig::rate`].
    #[serde(with = "plain::bit_rate")]
    pub rate: BitRate,
    /// Number of bytes that pass after a pause even if they exceed the rate.
    #[serde(with = "plain::bytes")]
    pub burst: ByteCount,
}

/// Variation of the propagation delay. The delay of each packet is a uniformly random value from
/// `delay - spread` to `delay + spread`, but never negative. netem has the same default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Jitter {
    /// Largest deviation from the delay. Zero means no jitter.
    pub spread: Duration,
    /// Whether packets keep their order, so that a packet waits for all packets sent before it.
    ///
    /// If packets follow each other at shorter intervals than the spread, their delay approaches
    /// `delay + spread`. Each packet then waits for the slowest packet before it.
    pub in_order: bool,
}

/// Settings for packets that arrive out of order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reordering {
    /// Fraction of packets that are reordered.
    pub probability: f64,
    /// Correlation between consecutive packets: the probability that a packet is treated like the
    /// packet before it. Unlike netem's correlation, it does not change the fraction of reordered
    /// packets.
    pub correlation: f64,
    /// Change of delay for a reordered packet.
    pub straggler: Straggler,
}

/// Change of delay for a reordered packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Straggler {
    /// The packet has no delay, and overtakes all packets in flight (netem's `reorder`).
    #[default]
    Early,
    /// The packet has this additional delay, and later packets overtake it.
    Late(Duration),
}

/// Loss in bursts, as a Markov chain with a good and a bad state. The chain advances before each
/// packet.
///
/// Source: E. N. Gilbert, "Capacity of a Burst-Noise Channel", 1960; E. O. Elliott, 1963.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// Probability that the chain changes from the good state to the bad state.
    pub enter: f64,
    /// Probability that the chain changes from the bad state to the good state.
    pub leave: f64,
    /// Probability that a packet is lost in the good state.
    pub loss_good: f64,
    /// Probability that a packet is lost in the bad state.
    pub loss_bad: f64,
}

impl GilbertElliott {
    /// Creates a chain that loses the fraction `loss` of all packets, in bursts with a mean length
    /// of `burst` packets. The mean is at least 1, and the lengths are geometrically distributed.
    ///
    /// The good state loses no packet, and the bad state loses every packet.
    pub fn bursts_of(burst: f64, loss: f64) -> Self {
        let leave = 1.0 / burst.max(1.0);
        let loss = loss.clamp(0.0, 1.0);
        // In equilibrium, good * enter = bad * leave, with bad = loss and good = 1 - loss.
        let enter = if loss < 1.0 {
            (leave * loss / (1.0 - loss)).min(1.0)
        } else {
            1.0
        };
        let leave = if loss < 1.0 { leave } else { 0.0 };
        Self {
            enter,
            leave,
            loss_good: 0.0,
            loss_bad: 1.0,
        }
    }

    /// Returns the fraction of packets lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        let moves = self.enter + self.leave;
        let bad = if moves > 0.0 { self.enter / moves } else { 0.0 };
        bad * self.loss_bad + (1.0 - bad) * self.loss_good
    }
}

impl PathConfig {
    /// Returns a queue size for a bottleneck of `rate` on a path with the round-trip time `rtt`. It
    /// is half the bandwidth-delay product.
    ///
    /// The minimum is 300 kB (200 full packets), so that short paths still accept a burst. Routers
    /// on long paths usually have a queue of half the product. A single loss-based TCP connection
    /// needs about this size to fill a path.
    pub fn default_queue(rate: BitRate, rtt: Duration) -> ByteCount {
        rate.bytes_in(rtt / 2).max(ByteCount::new(300_000))
    }

    /// Creates one direction of a path with the rate `rate` and the round-trip time `rtt`. It has
    /// the default queue and no impairment.
    pub fn line(rate: BitRate, rtt: Duration) -> Self {
        Self {
            rate: Some(rate),
            queue: Self::default_queue(rate, rtt),
            delay: rtt / 2,
            ..Self::default()
        }
    }

    /// Makes the fraction `share` of packets arrive earlier, by the fraction `part` of the delay.
    /// All other packets keep their delay.
    pub fn let_overtake(&mut self, share: f64, part: f64) {
        let ahead = self.delay.mul_f64(part.clamp(0.0, 1.0));
        let (probability, straggler) = if ahead == self.delay {
            (share, Straggler::Early)
        } else {
            // An early packet skips the whole delay. If an early packet must skip only a part of
            // the delay, the path has a shorter delay, and the other packets are late.
            self.delay -= ahead;
            (1.0 - share, Straggler::Late(ahead))
        };
        self.reordering = Reordering {
            probability,
            correlation: 0.0,
            straggler,
        };
    }
}

impl Radio {
    /// Returns the time for which an IP packet occupies the medium, on all its hops. A rate of zero
    /// counts as one bit per second.
    pub fn airtime(&self, ip_bytes: usize) -> Duration {
        let bits = (ip_bytes + ETHERNET_OVERHEAD) as u64 * 8;
        let bytes_time = bits * 1_000_000_000 / self.rate.as_bits_per_s().max(1);
        (self.frame_time + Duration::from_nanos(bytes_time)) * self.hops
    }
}

impl Default for PathConfig {
    fn default() -> Self {
        Self {
            rate: None,
            queue: ByteCount::new(u64::MAX),
            policer: None,
            delay: Duration::ZERO,
            jitter: Jitter::default(),
            loss: 0.0,
            bursts: None,
            corruption: 0.0,
            reordering: Reordering::default(),
            duplication: 0.0,
            outage: false,
            mtu: LONGEST_IP_PACKET,
        }
    }
}

/// Serialized forms as plain numbers, which are exact. The text forms of `units` are rounded for
/// human readers.
mod plain {
    pub(super) mod rate {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};
        use units::BitRate;

        pub(in crate::config) fn serialize<S: Serializer>(
            rate: &Option<BitRate>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            rate.map(BitRate::as_bits_per_s).serialize(serializer)
        }

        pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<BitRate>, D::Error> {
            Ok(Option::<u64>::deserialize(deserializer)?.map(BitRate::bits_per_s))
        }
    }

    pub(super) mod bit_rate {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};
        use units::BitRate;

        pub(in crate::config) fn serialize<S: Serializer>(
            rate: &BitRate,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            rate.as_bits_per_s().serialize(serializer)
        }

        pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<BitRate, D::Error> {
            u64::deserialize(deserializer).map(BitRate::bits_per_s)
        }
    }

    pub(super) mod bytes {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};
        use units::ByteCount;

        pub(in crate::config) fn serialize<S: Serializer>(
            bytes: &ByteCount,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            bytes.bytes().serialize(serializer)
        }

        pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<ByteCount, D::Error> {
            u64::deserialize(deserializer).map(ByteCount::new)
        }
    }
}

/// Bytes that Ethernet adds to an IP packet on the wire: preamble and start 8, header 14, check
/// sequence 4, gap 12 (IEEE 802.3).
pub const ETHERNET_OVERHEAD: usize = 38;

/// Longest IP packet without jumbograms, in bytes: a header of 40 bytes and a payload of 65,535
/// bytes (RFC 8200).
const LONGEST_IP_PACKET: usize = 65_575;
