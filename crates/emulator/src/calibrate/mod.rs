//! Calibration: measures each impairment of the emulator with packets of the kernel, and compares
//! the result with the setting.
//!
//! Each measurement creates a new emulated WAN. Other load on the machine can only make packets
//! late. Time measurements therefore use the packets with the least delay. If a value exceeds its
//! tolerance, the emulator fails the calibration. If the emulator reports that the machine was too
//! slow, the value does not count.

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

/// An impairment, and the function that measures it.
#[derive(Debug, Clone, Copy)]
pub struct CalibrationSubject {
    /// Name of the impairment.
    pub name: &'static str,
    measure: fn() -> Result<Vec<CalibrationRow>, LoadError>,
}

/// A quantity with its configured value and its measured value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CalibrationRow {
    /// Name of the impairment, with the circumstances of the measurement.
    pub name: String,
    /// Unit of `set`, `measured` and `bound`.
    pub unit: &'static str,
    /// Value that the emulator was configured with.
    pub set: f64,
    /// Value measured with packets of the kernel.
    pub measured: f64,
    /// Largest permitted difference between `set` and `measured`.
    pub bound: f64,
    /// Result of the comparison.
    pub verdict: CalibrationVerdict,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CalibrationVerdict {
    /// The difference is within the permitted bound.
    Within,
    /// The difference exceeds the permitted bound.
    Beyond,
    /// No result: the difference exceeds the bound, but the emulator reports that the machine was
    /// too slow, or that it lost packets.
    MachineLate,
}

impl CalibrationSubject {
    /// Returns all impairments, in the order of the table.
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

    /// Measures the impairment. Repeats the measurement if the machine was too slow.
    ///
    /// # Errors
    /// [`LoadError`] if the traffic fails. The error contains a [`WanError::Forbidden`] if the
    /// namespaces cannot be created.
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
    /// Compares a measured value with its setting. `report` is the last report of the WAN in which
    /// the value was measured.
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

    /// Compares a fraction of `n` packets with `probability`, in percent. The bound is three
    /// standard errors. `correlation` is the correlation between consecutive packets.
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

    /// Compares a count that must equal its setting exactly.
    fn exact(report: &WanReport, name: impl Into<String>, set: u64, measured: u64) -> Self {
        Self::judge(report, name, "packets", [set as f64, measured as f64, 0.0])
    }
}

/// Starts a WAN with the same path in both directions.
fn up(offload: bool, path: &PathConfig) -> Result<Wan, WanError> {
    let paths = [path.clone(), path.clone()];
    Wan::up(WanConfig {
        offload,
        paths,
        ..WanConfig::default()
    })
}

/// Returns a load of full packets that site A sends.
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

/// Returns the end of a row's name, which states the offload setting.
fn offloaded(offload: bool) -> &'static str {
    if offload {
        "with offload"
    } else {
        "without offload"
    }
}

/// Maximum number of attempts. After the last attempt the result is that the machine was too slow.
const ATTEMPTS: u32 = 3;
