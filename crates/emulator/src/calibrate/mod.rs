//! Calibration: measures each impairment of the emulator with packets of the kernel, and compares
//! the result with the setting.
//!
//! Each measurement makes an emulated WAN of its own. Other load on the machine makes packets late,
//! never early, so times are judged by the least late packets. A value out of bounds counts against
//! the emulator, unless the emulator reports that the machine was too slow.

mod ceiling;
mod fates;
mod line;
mod order;

use serde::Serialize;
use units::BitRate;
use wansim::PathConfig;

pub use ceiling::{Ceiling, ceilings};

use crate::{
    Site, Wan, WanConfig, WanError, WanReport,
    load::{FULL_PAYLOAD, LoadError, UdpLoad},
};

/// An impairment and its measurement.
#[derive(Debug, Clone, Copy)]
pub struct CalibrationSubject {
    /// Name of the impairment.
    pub name: &'static str,
    measure: fn() -> Result<Vec<CalibrationRow>, LoadError>,
}

/// A quantity as set and as measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CalibrationRow {
    /// The impairment and the circumstances.
    pub name: String,
    /// Unit of `set`, `measured` and `bound`.
    pub unit: &'static str,
    /// Value in the settings.
    pub set: f64,
    /// Value that the kernel's packets show.
    pub measured: f64,
    /// Largest allowed distance between `set` and `measured`.
    pub bound: f64,
    /// Result of the comparison.
    pub verdict: CalibrationVerdict,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CalibrationVerdict {
    /// The distance is within the bound.
    Within,
    /// The distance is beyond the bound.
    Beyond,
    /// No result: the value is out of bounds, but the emulator reports that the machine was late or
    /// lost packets.
    MachineLate,
}

impl CalibrationSubject {
    /// All impairments, in the order of the table.
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

    /// Measures the impairment, and again if the machine was late.
    ///
    /// # Errors
    /// A [`WanError::Forbidden`] inside if the namespaces cannot be made; another error if the
    /// traffic fails.
    pub fn measure(&self) -> Result<Vec<CalibrationRow>, LoadError> {
        let mut result = (self.measure)();
        for _ in 1..ATTEMPTS {
            match &result {
                Ok(rows)
                    if rows
                        .iter()
                        .all(|row| row.verdict != CalibrationVerdict::MachineLate) =>
                {
                    break;
                }
                Err(LoadError::Nothing(_)) | Ok(_) => result = (self.measure)(),
                Err(_) => break,
            }
        }
        result
    }
}

impl CalibrationRow {
    /// Compares a value that was measured over a WAN with the final report `report`.
    fn judge(
        report: &WanReport,
        name: impl Into<String>,
        unit: &'static str,
        [set, measured, bound]: [f64; 3],
    ) -> Self {
        let verdict = if (measured - set).abs() <= bound {
            CalibrationVerdict::Within
        } else if report.saturated() {
            CalibrationVerdict::MachineLate
        } else {
            CalibrationVerdict::Beyond
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

    /// A share of `n` packets in percent, with a bound of three standard errors. `correlation` is
    /// that between the fates of consecutive packets.
    fn share(
        report: &WanReport,
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

    /// A count that must be exact.
    fn exact(report: &WanReport, name: impl Into<String>, set: u64, measured: u64) -> Self {
        Self::judge(report, name, "packets", [set as f64, measured as f64, 0.0])
    }
}

/// A WAN with the same path in both directions.
fn up(offload: bool, path: &PathConfig) -> Result<Wan, WanError> {
    let paths = [path.clone(), path.clone()];
    Wan::up(WanConfig {
        offload,
        paths,
        ..WanConfig::default()
    })
}

/// A load from site A in full packets.
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

/// The end of a row's name for this setting.
fn offloaded(offload: bool) -> &'static str {
    if offload {
        "with offload"
    } else {
        "without offload"
    }
}

/// Attempts until a late machine counts as the result.
const ATTEMPTS: u32 = 3;
