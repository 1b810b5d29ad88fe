//! What a path does to packets: the settings of one direction.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{BitRate, ByteCount};

/// The settings of one direction of a path. The default is a perfect wire: no bottleneck, no delay
/// and no impairment.
///
/// Probabilities lie between 0 and 1; what lies outside counts as the nearer end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PathConfig {
    /// Rate of the bottleneck, Ethernet overhead included ([`ETHERNET_OVERHEAD`] per packet), so
    /// that 1 Gbit/s means what it means on a cable. `None`: no bottleneck, and no queue.
    #[serde(with = "plain::rate")]
    pub rate: Option<BitRate>,
    /// What the bottleneck's queue holds, the packet being transmitted included, counted like
    /// `rate`. A packet that does not fit is dropped; an idle line takes any packet. Default: no
    /// bound; see [`PathConfig::default_queue`] for a sensible one.
    #[serde(with = "plain::bytes")]
    pub queue: ByteCount,
    /// A policer behind the bottleneck: drops what exceeds its rate, and queues nothing.
    pub policer: Option<Policer>,
    /// One-way propagation delay.
    pub delay: Duration,
    /// Variation of the delay.
    pub jitter: Jitter,
    /// Probability that a packet vanishes, independent of all others.
    pub loss: f64,
    /// Loss in bursts, beside `loss`.
    pub bursts: Option<GilbertElliott>,
    /// Probability that one bit of the IP packet is flipped, any bit of it.
    pub corruption: f64,
    /// Packets that overtake, or are overtaken.
    pub reordering: Reordering,
    /// Probability that a second copy of a packet arrives. It is made behind the bottleneck, so it
    /// costs no capacity, and is delayed on its own.
    pub duplication: f64,
    /// Whether everything that leaves the bottleneck is lost. Packets already on their way arrive.
    pub outage: bool,
    /// Longest IP packet that passes, in bytes; longer ones vanish without a notice.
    pub mtu: usize,
}

/// A half-duplex radio medium that both directions of a path share. It stands before both
/// [`Path`](crate::Path)s, whose rates are then best left away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Radio {
    /// Rate at which the bytes of a frame are sent, counted like [`PathConfig::rate`]: what 802.11 adds
    /// to an IP packet (header 24, LLC and SNAP 8, check sequence 4) is within 2 bytes of Ethernet's.
    #[serde(with = "plain::bit_rate")]
    pub rate: BitRate,
    /// Airtime of a frame beside its bytes: waiting for the channel, preamble, acknowledgement.
    pub frame_time: Duration,
    /// How many times each frame is sent: 2 where both stations hang on one access point, which
    /// relays.
    pub hops: u32,
    /// What each station's queue holds, counted and bounded like [`PathConfig::queue`].
    #[serde(with = "plain::bytes")]
    pub queue: ByteCount,
}

/// A token bucket: tokens for bytes come in at `rate`, up to `burst`; a packet that finds too few is
/// dropped, and takes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policer {
    /// What passes in the long run, counted like [`PathConfig::rate`].
    #[serde(with = "plain::bit_rate")]
    pub rate: BitRate,
    /// What passes at once after a pause.
    #[serde(with = "plain::bytes")]
    pub burst: ByteCount,
}

/// Variation of the propagation delay, drawn for each packet uniformly from `delay - spread` to
/// `delay + spread` (never below zero), as netem does by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Jitter {
    /// Largest deviation from the delay; zero means no jitter.
    pub spread: Duration,
    /// Whether a packet waits for those sent before it. A stream of packets that come faster than
    /// the spread then approaches `delay + spread`, since each one waits for the slowest before it.
    pub in_order: bool,
}

/// Packets that leave their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reordering {
    /// Share of packets concerned.
    pub probability: f64,
    /// Correlation between the choices for neighbouring packets: with this probability a packet
    /// follows the choice made for the one before. Unlike netem's, it leaves the share unchanged.
    pub correlation: f64,
    /// What happens to the packets concerned.
    pub straggler: Straggler,
}

/// Which way a packet leaves its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Straggler {
    /// It skips the delay and overtakes all that are on their way (netem's `reorder`).
    #[default]
    Early,
    /// It takes this much longer than the delay, and others overtake it.
    Late(Duration),
}

/// Loss in bursts: a chain of two states that moves before each packet. Source: E. N. Gilbert,
/// "Capacity of a Burst-Noise Channel", 1960; E. O. Elliott, 1963.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// Probability of going from the good state to the bad one.
    pub enter: f64,
    /// Probability of going from the bad state to the good one.
    pub leave: f64,
    /// Probability that a packet is lost in the good state.
    pub loss_good: f64,
    /// Probability that a packet is lost in the bad state.
    pub loss_bad: f64,
}

impl GilbertElliott {
    /// The chain that loses a share `loss` of all packets, in bursts of `burst` packets on average
    /// (at least 1; lengths are geometrically distributed). Nothing is lost in the good state, and
    /// everything in the bad one.
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

    /// Share of packets lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        let moves = self.enter + self.leave;
        let bad = if moves > 0.0 { self.enter / moves } else { 0.0 };
        bad * self.loss_bad + (1.0 - bad) * self.loss_good
    }
}

impl PathConfig {
    /// A queue for a bottleneck of `rate` on a path of round-trip time `rtt`: half the
    /// bandwidth-delay product, at least 300 kB (200 full packets), so that short paths still take
    /// a burst. Half is what routers on long paths tend to have; loss-based TCP fills a path alone
    /// with about that much.
    pub fn default_queue(rate: BitRate, rtt: Duration) -> ByteCount {
        rate.bytes_in(rtt / 2).max(ByteCount::new(300_000))
    }

    /// One direction of a path of `rate` and round-trip time `rtt`, with the default queue and nothing that disturbs.
    pub fn line(rate: BitRate, rtt: Duration) -> Self {
        Self {
            rate: Some(rate),
            queue: Self::default_queue(rate, rtt),
            delay: rtt / 2,
            ..Self::default()
        }
    }

    /// Lets a share of the packets arrive earlier than the others by `part` of the delay, at most all of
    /// it. The others take the delay as before.
    pub fn let_overtake(&mut self, share: f64, part: f64) {
        let ahead = self.delay.mul_f64(part.clamp(0.0, 1.0));
        let (probability, straggler) = if ahead == self.delay {
            (share, Straggler::Early)
        } else {
            // A path has no packets that are early by less than the delay; so the others are late.
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
    /// How long an IP packet keeps the medium, on all its hops. A rate of zero counts as one bit a
    /// second.
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

/// Serialised forms as plain numbers, which survive a round trip (the text forms of `units` are for
/// people).
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

/// What Ethernet adds to an IP packet on the wire, in bytes: preamble and start 8, header 14, check
/// sequence 4, gap 12 (IEEE 802.3).
pub const ETHERNET_OVERHEAD: usize = 38;

/// Longest IP packet without jumbograms, in bytes: a header of 40 and 65,535 more (RFC 8200).
const LONGEST_IP_PACKET: usize = 65_575;
