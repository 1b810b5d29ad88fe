//! Measurement of the emulator's capacity on this machine, and of its processor time.

use std::time::Duration;

use serde::Serialize;
use units::BitRate;
use wansim::PathConfig;

use super::{load, up};
use crate::{
    Site, Wan,
    load::{LoadError, tcp_goodput},
};

/// The emulator's capacity for one kind of traffic. The sender and the receiver run on the same
/// machine, and also use its processors.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ceiling {
    /// Kind of traffic: TCP or UDP.
    pub traffic: &'static str,
    /// Whether the sites send super-packets (segmentation offload).
    pub offload: bool,
    /// Delivered bits per second, including IP headers.
    pub bits_per_s: f64,
    /// Delivered packets per second on the wire, including acknowledgements.
    pub packets_per_s: f64,
    /// Processor seconds of the emulator's thread for each 10^9 bytes.
    pub cpu_s_per_gb: f64,
    /// Processor time of the emulator's thread as a fraction of the elapsed time.
    pub busy: f64,
    /// Whether the emulator's thread has real-time priority.
    pub real_time: bool,
}

/// Measures the capacity for all kinds of traffic. Calls `begin` with the name of each kind before
/// its measurement.
///
/// # Errors
/// [`LoadError`] if the namespaces cannot be created, or the traffic fails.
pub fn ceilings(mut begin: impl FnMut(&str)) -> Result<Vec<Ceiling>, LoadError> {
    let mut all = Vec::new();
    for offload in [false, true] {
        for traffic in ["TCP", "UDP"] {
            begin(&format!("ceiling of {traffic}"));
            all.push(ceiling(traffic, offload)?);
        }
    }
    Ok(all)
}

fn ceiling(traffic: &'static str, offload: bool) -> Result<Ceiling, LoadError> {
    let wan = up(offload, &PathConfig::default())?;
    let before = wan.report();
    let time = match traffic {
        "TCP" => tcp_goodput(&wan, Site::A, false, TIME).map(|_| TIME)?,
        _ => flood(&wan, offload)?,
    };
    let report = wan.report();
    let directions = || report.directions.iter().map(|way| &way.counters);
    let bytes: u64 = directions().map(|way| way.delivered_bytes).sum();
    let packets: u64 = directions().map(|way| way.delivered).sum();
    if packets < PACKETS_MIN {
        return Err(LoadError::Nothing(format!("{packets} packets passed")));
    }
    let cpu_s = (report.thread.cpu_time - before.thread.cpu_time).as_secs_f64();
    let seconds = time.as_secs_f64();
    Ok(Ceiling {
        traffic,
        offload,
        bits_per_s: bytes as f64 * 8.0 / seconds,
        packets_per_s: packets as f64 / seconds,
        cpu_s_per_gb: cpu_s / bytes as f64 * 1e9,
        busy: cpu_s / seconds,
        real_time: report.thread.real_time,
    })
}

/// Sends more packets than the emulator can deliver. Returns the time from the first arrival to the
/// last arrival.
fn flood(wan: &Wan, offload: bool) -> Result<Duration, LoadError> {
    let packets = if offload { 600_000 } else { 150_000 };
    let received = load(offload, BitRate::gbit(100), packets).run(wan)?;
    let (Some(first), Some(last)) = (received.at.first(), received.at.last()) else {
        return Err(LoadError::Nothing("no packet passed".to_owned()));
    };
    let time = last.duration_since(*first).unwrap_or_default();
    Ok(time.max(Duration::from_millis(1)))
}

const TIME: Duration = Duration::from_millis(1500);
/// Minimum number of packets for a valid measurement.
const PACKETS_MIN: u64 = 1000;
