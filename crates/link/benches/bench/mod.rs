//! What the benches of congestion control share: cells that run on all cores, figures with their
//! bounds, and the paths and flows that most of them take.
#![allow(dead_code, reason = "each bench uses a part")]

mod jobs;
pub(crate) mod page;

use std::{fmt::Write, ops::Range, path::PathBuf, time::Duration};

use link::{
    Policy, congestion,
    sim::{Crowd, CrowdConfig, FlowKind, Record},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

#[allow(
    unused_imports,
    reason = "what runs on the kernel's path runs one at a time"
)]
pub(crate) use self::jobs::map as parallel;

pub(crate) const S: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

/// What is measured, and what it has to be.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) label: &'static str,
    pub(crate) bound: Bound,
    pub(crate) value: f64,
    /// The bound is for the mean of the seeds, not for each.
    pub(crate) is_mean: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// Printed only.
    None,
}

/// One setting of a scenario: a name, and a function from the seed.
pub(crate) struct Cell<T> {
    pub(crate) name: String,
    pub(crate) run: Box<dyn Fn(u64) -> T + Send + Sync>,
}

impl<T> Cell<T> {
    pub(crate) fn new(
        name: impl Into<String>,
        run: impl Fn(u64) -> T + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            run: Box::new(run),
        }
    }

    /// The seed of this cell: each draws apart from the others, or one lost packet of the handshake
    /// would be in a whole column, and the same whichever cells run beside it. FNV-1a over the name.
    pub(crate) fn seed(&self, seed: u64) -> u64 {
        let mix =
            |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        let hash = self.name.bytes().fold(0xCBF2_9CE4_8422_2325, mix);
        (hash >> 40) * 1000 + seed
    }
}

impl Figure {
    pub(crate) fn at_least(label: &'static str, bound: f64, value: f64) -> Self {
        Self {
            label,
            bound: Bound::AtLeast(bound),
            value,
            is_mean: false,
        }
    }

    pub(crate) fn at_most(label: &'static str, bound: f64, value: f64) -> Self {
        Self {
            label,
            bound: Bound::AtMost(bound),
            value,
            is_mean: false,
        }
    }

    pub(crate) fn shown(label: &'static str, value: f64) -> Self {
        Self {
            label,
            bound: Bound::None,
            value,
            is_mean: false,
        }
    }

    pub(crate) fn by_mean(self) -> Self {
        Self {
            is_mean: true,
            ..self
        }
    }

    pub(crate) fn is_reached(&self) -> bool {
        self.bound.holds(self.value)
    }
}

impl Bound {
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
            Self::None => true,
        }
    }

    /// The value of several that is farthest on the wrong side.
    pub(crate) fn worst(self, values: &[f64]) -> f64 {
        match self {
            Self::AtLeast(_) | Self::None => values.iter().copied().fold(f64::INFINITY, f64::min),
            Self::AtMost(_) => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(bound) => f.pad(&format!(">= {}", rounded(*bound))),
            Self::AtMost(bound) => f.pad(&format!("<= {}", rounded(*bound))),
            Self::None => f.pad("-"),
        }
    }
}

/// The middle one; of an even number the lower.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// To three digits behind the point, so that products of settings print as they read.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// What each flow did, ten times a second: arriving Mbit/s, and for ours the state, the Mbit/s
/// allowed and the queue seen; then the queue as it was, and what it dropped of each flow.
pub(crate) fn trace(record: &Record) -> String {
    let mut text = String::new();
    let every = 100 * MS;
    let end = record.every() * (record.len() - 1) as u32;
    let mut at = Duration::ZERO;
    while at + every <= end {
        let _ = write!(text, "{:7.1}", at.as_secs_f64());
        let index = (at.as_nanos() / record.every().as_nanos()) as usize;
        let queue_ms = record.queue_delays()[index].as_secs_f64() * 1e3;
        let _ = write!(text, "  queue {queue_ms:6.1} ms");
        for flow in 0..record.flows() {
            let sample = record.sample(flow, at);
            let rate = record.rate(flow, &(at..at + every)) / 1e6;
            let _ = write!(
                text,
                " | {rate:6.1} {:12} dropped {:5}",
                sample.state, sample.drops
            );
            if sample.allowed_bytes_per_s > 0.0 {
                let allowed = sample.allowed_bytes_per_s * 8e-6;
                let seen_ms = sample.queue_seen.as_secs_f64() * 1e3;
                let _ = write!(text, " allowed {allowed:6.1} sees {seen_ms:5.1} ms");
            }
        }
        text.push('\n');
        at += every;
    }
    text
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let found = program
        .ancestors()
        .find(|folder| folder.join("CACHEDIR.TAG").is_file());
    found.map_or_else(std::env::temp_dir, PathBuf::from)
}

/// A path of a rate and a round-trip time, with a queue in bandwidth-delay products.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    pub(crate) rate: BitRate,
    pub(crate) rtt: Duration,
    pub(crate) queue_bdp: f64,
    /// Both ways.
    pub(crate) loss: f64,
}

impl Line {
    pub(crate) fn new(mbit: u64, rtt_ms: u64, queue_bdp: f64) -> Self {
        Self {
            rate: BitRate::mbit(mbit),
            rtt: Duration::from_millis(rtt_ms),
            queue_bdp,
            loss: 0.0,
        }
    }

    pub(crate) fn losing(self, loss: f64) -> Self {
        Self { loss, ..self }
    }

    pub(crate) fn bits_per_s(&self) -> f64 {
        self.rate.as_bits_per_s() as f64
    }

    /// One direction; the queue holds at least 50 full packets.
    pub(crate) fn path(&self) -> PathConfig {
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

    /// The same line in both directions, for one flow.
    pub(crate) fn alone(&self, seed: u64) -> Crowd {
        self.with(self.path(), self.path(), Duration::ZERO, seed)
    }

    /// The same line in both directions, for several: jitter of a packet's time breaks the patterns
    /// that equal senders fall into.
    pub(crate) fn shared(&self, seed: u64) -> Crowd {
        self.with(self.path(), self.path(), self.packet_time(), seed)
    }

    pub(crate) fn with(
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
            sample_every: 10 * MS,
        })
    }

    pub(crate) fn packet_time(&self) -> Duration {
        self.rate
            .time_to_send(ByteCount::new(PACKET_WIRE_BYTES as u64))
    }

    /// What arrives in a span of time, as a fraction of what the line passes and the path does not
    /// lose.
    pub(crate) fn used(&self, record: &Record, span: &Range<Duration>) -> f64 {
        let rates: f64 = (0..record.flows())
            .map(|flow| record.rate(flow, span))
            .sum();
        rates / self.bits_per_s() / (1.0 - record.path_loss(span))
    }
}

/// A pair of link cores under a policy.
pub(crate) fn ours(policy: Policy) -> FlowKind {
    FlowKind::longhaul(move |memory, max| congestion::for_policy(policy, memory, max))
}

/// A time within the first `within` that depends on the seed and on `which`.
pub(crate) fn offset(seed: u64, which: u64, within: Duration) -> Duration {
    let mixed = (seed << 8 | which).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    within.mul_f64(mixed as f64 / (1u64 << 24) as f64)
}

/// A full packet as it counts on the line.
pub(crate) const PACKET_WIRE_BYTES: f64 = 1538.0;
