//! The emulator's own capacity on this machine, and its processor time.

use std::time::Duration;

use serde::Serialize;
use units::BitRate;
use wansim::PathConfig;

use super::{load, up};
use crate::{
    Site, Wan,
    load::{LoadError, tcp_goodput},
};

/// The emulator's capacity for one kind of traffic, with sender and receiver on the same
/// processors.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ceiling {
    /// TCP or UDP.
    pub traffic: &'static str,
    /// Whether the sites send super-packets.
    pub offload: bool,
    /// Delivered bits per second, IP headers included.
    pub bits_per_s: f64,
    /// Delivered packets per second on the wire, acknowledgements included.
    pub packets_per_s: f64,
    /// Processor seconds of the emulator's thread for each 10^9 bytes.
    pub cpu_s_per_gb: f64,
    /// Share of a processor that the emulator's thread used.
    pub busy: f64,
    /// Whether the thread has real-time priority.
    pub real_time: bool,
}

/// Measures all kinds of traffic. Calls `begin` with the name of each before it starts.
///
/// # Errors
/// [`LoadError`] if the namespaces cannot be made, or the traffic fails.
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

/// Sends more than the emulator can carry, and returns the time from the first arrival to the last.
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
/// Fewest packets that make a measurement.
const PACKETS_MIN: u64 = 1000;
