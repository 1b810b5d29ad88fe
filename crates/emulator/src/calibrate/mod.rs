//! Calibration: what each impairment of the emulator does to packets of the kernel, beside what it is
//! set to.
//!
//! Each measurement raises an emulated WAN of its own. What else runs on the machine makes packets late,
//! never early, so times are judged by those that are least late. A value out of bounds counts against
//! the emulator unless the emulator itself says that the machine was too slow for it.

mod ceiling;
mod fates;
mod line;
mod order;

use serde::Serialize;
use units::BitRate;
use wansim::PathConfig;

pub use ceiling::{Ceiling, ceilings};

use crate::{
    Report, Site, Wan, WanConfig, WanError,
    load::{FULL_PAYLOAD, LoadError, UdpLoad},
};

/// An impairment, and how it is measured.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    /// In a word or two.
    pub name: &'static str,
    measure: fn() -> Result<Vec<Row>, LoadError>,
}

/// One quantity: as set, and as measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The impairment and under which circumstances.
    pub name: String,
    /// Of all figures.
    pub unit: &'static str,
    /// What it is set to.
    pub set: f64,
    /// What it is.
    pub measured: f64,
    /// How far the two may be apart.
    pub bound: f64,
    /// Whether they are closer than that.
    pub verdict: Verdict,
}

/// What a measurement says of the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It does what it is set to.
    Within,
    /// It does not.
    Beyond,
    /// Nothing: the value is out of bounds, but the emulator reports that the machine was late or lost
    /// packets.
    MachineLate,
}

impl Subject {
    /// All, in the order in which a table has them.
    pub fn all() -> Vec<Self> {
        let all: [(_, fn() -> _); 14] = [
            ("rate", line::rate),
            ("asymmetric", line::asymmetric),
            ("queue", line::queue),
            ("radio", line::radio),
            ("delay", line::delay),
            ("jitter", order::jitter),
            ("reordering", order::reordering),
            ("loss", fates::loss),
            ("bursts", fates::bursts),
            ("corruption", fates::corruption),
            ("duplication", fates::duplication),
            ("mtu", fates::mtu),
            ("outage", fates::outage),
            ("ipv6", fates::ipv6),
        ];
        all.map(|(name, measure)| Self { name, measure }).into()
    }

    /// Measures it, again if the machine was late.
    ///
    /// # Errors
    /// [`WanError::Forbidden`] inside, if there can be no namespaces; others if the traffic fails.
    pub fn measure(&self) -> Result<Vec<Row>, LoadError> {
        let mut result = (self.measure)();
        for _ in 1..ATTEMPTS {
            match &result {
                Ok(rows) if rows.iter().all(|row| row.verdict != Verdict::MachineLate) => break,
                Err(LoadError::Nothing(_)) | Ok(_) => result = (self.measure)(),
                Err(_) => break,
            }
        }
        result
    }
}

impl Row {
    /// Judges what was measured over a WAN whose last word is `report`.
    fn judge(
        report: &Report,
        name: impl Into<String>,
        unit: &'static str,
        [set, measured, bound]: [f64; 3],
    ) -> Self {
        let verdict = if (measured - set).abs() <= bound {
            Verdict::Within
        } else if report.saturated() {
            Verdict::MachineLate
        } else {
            Verdict::Beyond
        };
        Self {
            name: name.into(),
            unit,
            set,
            measured,
            bound,
            verdict,
        }
    }

    /// A share of `n` packets in percent, which may be 3 standard errors off. Where the fate of a packet
    /// follows that of the one before, `correlation` tells how much.
    fn share(
        report: &Report,
        name: impl Into<String>,
        [hits, n]: [u64; 2],
        probability: f64,
        correlation: f64,
    ) -> Self {
        let independent = n as f64 * (1.0 - correlation) / (1.0 + correlation);
        let error = (probability * (1.0 - probability) / independent).sqrt();
        let measured = hits as f64 / n as f64;
        let percent = [probability, measured, 3.0 * error].map(|share| share * 100.0);
        Self::judge(report, name, "%", percent)
    }

    /// A count that has to be right.
    fn exact(report: &Report, name: impl Into<String>, set: u64, measured: u64) -> Self {
        Self::judge(report, name, "packets", [set as f64, measured as f64, 0.0])
    }
}

/// A WAN with the same path both ways.
fn up(offload: bool, path: &PathConfig) -> Result<Wan, WanError> {
    let paths = [path.clone(), path.clone()];
    Wan::up(WanConfig {
        offload,
        paths,
        ..WanConfig::default()
    })
}

/// From site A, in full packets.
fn load(offload: bool, rate: BitRate, packets: u64) -> UdpLoad {
    UdpLoad {
        from: Site::A,
        ipv6: false,
        payload: FULL_PAYLOAD,
        rate,
        packets,
        offload,
    }
}

/// The end of a row's name.
fn offloaded(offload: bool) -> &'static str {
    if offload {
        "with offload"
    } else {
        "without offload"
    }
}

/// A machine that is late three times in a row is late.
const ATTEMPTS: u32 = 3;
