//! Settings of one direction of a path.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{BitRate, ByteCount};

/// The settings of one direction of a path. The default is a perfect wire: no bottleneck, no delay
/// and no impairment.
///
/// Probabilities lie between 0 and 1. A value outside counts as the nearer limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PathConfig {
    /// Rate of the bottleneck, including Ethernet overhead ([`ETHERNET_OVERHEAD`] per packet) as on
    /// a cable. `None`: no bottleneck, and no queue.
    #[serde(with = "plain::rate")]
    pub rate: Option<BitRate>,
    /// Size of the bottleneck's queue, including the packet in transmission, counted like `rate`.
    ///
    /// A packet that does not fit is dropped. An idle line accepts any packet. Default: no bound.
    /// See [`PathConfig::default_queue`] for a sensible one.
    #[serde(with = "plain::bytes")]
    pub queue: ByteCount,
    /// A policer after the bottleneck. It drops packets above its rate without queueing any.
    pub policer: Option<Policer>,
    /// One-way propagation delay.
    pub delay: Duration,
    /// Variation of the delay.
    pub jitter: Jitter,
    /// Probability that a packet is lost, independent of all others.
    pub loss: f64,
    /// Loss in bursts, in addition to `loss`.
    pub bursts: Option<GilbertElliott>,
    /// Probability that one bit of the IP packet is flipped. Each bit is equally likely.
    pub corruption: f64,
    /// Packets that overtake others, or are overtaken.
    pub reordering: Reordering,
    /// Probability that a second copy of a packet arrives. The copy is made after the bottleneck,
    /// so it costs no capacity. It has its own delay.
    pub duplication: f64,
    /// Whether all packets that leave the bottleneck are lost. Packets already in flight arrive.
    pub outage: bool,
    /// Longest IP packet that passes, in bytes. Longer packets are dropped without a notice.
    pub mtu: usize,
}

/// A half-duplex radio medium that both directions of a path share.
///
/// It stands before both [`Path`](crate::Path)s. Their rates are then best left unset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Radio {
    /// Rate of a frame's bytes, counted like [`PathConfig::rate`].
    ///
    /// The overhead of 802.11 (header 24, LLC and SNAP 8, check sequence 4) is within 2 bytes of
    /// Ethernet's.
    #[serde(with = "plain::bit_rate")]
    pub rate: BitRate,
    /// Airtime of a frame in addition to its bytes: waiting for the channel, preamble,
    /// acknowledgement.
    pub frame_time: Duration,
    /// Number of times that each frame is sent: 2 if an access point relays between both stations.
    pub hops: u32,
    /// Size of each station's queue, counted and bounded like [`PathConfig::queue`].
    #[serde(with = "plain::bytes")]
    pub queue: ByteCount,
}

/// A token bucket: tokens for bytes arrive at `rate`, up to `burst`. A packet that finds too few
/// tokens is dropped, and uses none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policer {
    /// Long-term rate of packets that pass, counted like [`PathConfig::rate`].
    #[serde(with = "plain::bit_rate")]
    pub rate: BitRate,
    /// Bytes that pass at once after a pause.
    #[serde(with = "plain::bytes")]
    pub burst: ByteCount,
}

/// Variation of the propagation delay. Each packet draws a delay uniformly from `delay - spread` to
/// `delay + spread`, never below zero, as netem does by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Jitter {
    /// Largest deviation from the delay; zero means no jitter.
    pub spread: Duration,
    /// Whether a packet waits for the packets sent before it.
    ///
    /// If packets arrive faster than the spread, their delay then approaches `delay + spread`: each
    /// packet waits for the slowest one before it.
    pub in_order: bool,
}

/// Packets that are reordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reordering {
    /// Share of reordered packets.
    pub probability: f64,
    /// Correlation between neighbouring packets: the probability that a packet follows the choice
    /// made for the one before. Unlike netem's, it leaves the share unchanged.
    pub correlation: f64,
    /// Effect on a reordered packet.
    pub straggler: Straggler,
}

/// Effect of reordering on a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Straggler {
    /// The packet skips the delay and overtakes all packets in flight (netem's `reorder`).
    #[default]
    Early,
    /// The packet takes this much longer than the delay, and others overtake it.
    Late(Duration),
}

/// Loss in bursts: a chain of two states that advances before each packet.
///
/// Source: E. N. Gilbert, "Capacity of a Burst-Noise Channel", 1960; E. O. Elliott, 1963.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// Probability of a transition from the good state to the bad one.
    pub enter: f64,
    /// Probability of a transition from the bad state to the good one.
    pub leave: f64,
    /// Probability that a packet is lost in the good state.
    pub loss_good: f64,
    /// Probability that a packet is lost in the bad state.
    pub loss_bad: f64,
}

impl GilbertElliott {
    /// Creates the chain that loses a share `loss` of all packets, in bursts of `burst` packets on
    /// average. The average is at least 1, and the lengths are geometrically distributed.
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

    /// Returns the share of packets lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        let moves = self.enter + self.leave;
        let bad = if moves > 0.0 { self.enter / moves } else { 0.0 };
        bad * self.loss_bad + (1.0 - bad) * self.loss_good
    }
}

impl PathConfig {
    /// Returns a queue for a bottleneck of `rate` on a path of round-trip time `rtt`: half the
    /// bandwidth-delay product.
    ///
    /// The least size is 300 kB (200 full packets), so that short paths still accept a burst.
    /// Routers on long paths tend to have half the product, and a loss-based TCP connection needs
    /// about that much to fill a path alone.
    pub fn default_queue(rate: BitRate, rtt: Duration) -> ByteCount {
        rate.bytes_in(rtt / 2).max(ByteCount::new(300_000))
    }

    /// Creates one direction of a path of `rate` and round-trip time `rtt`, with the default queue
    /// and no impairment.
    pub fn line(rate: BitRate, rtt: Duration) -> Self {
        Self {
            rate: Some(rate),
            queue: Self::default_queue(rate, rtt),
            delay: rtt / 2,
            ..Self::default()
        }
    }

    /// Makes a share of the packets arrive earlier than the others by `part` of the delay, at most
    /// by all of it. The others keep their delay.
    pub fn let_overtake(&mut self, share: f64, part: f64) {
        let ahead = self.delay.mul_f64(part.clamp(0.0, 1.0));
        let (probability, straggler) = if ahead == self.delay {
            (share, Straggler::Early)
        } else {
            // A path cannot deliver packets early by less than the delay, so the others are late.
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
    /// Returns the time that an IP packet occupies the medium, on all its hops. A rate of zero
    /// counts as one bit a second.
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

/// Serialized forms as plain numbers, which survive a round trip. The text forms of `units` are for
/// people.
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

/// Overhead of Ethernet for an IP packet on the wire, in bytes: preamble and start 8, header 14,
/// check sequence 4, gap 12 (IEEE 802.3).
pub const ETHERNET_OVERHEAD: usize = 38;

/// Longest IP packet without jumbograms, in bytes: a header of 40 and 65,535 more (RFC 8200).
const LONGEST_IP_PACKET: usize = 65_575;
