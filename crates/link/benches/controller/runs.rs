//! Functions that all scenarios use: they run a simulation to its end, and check the invariants.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use link::{
    Policy,
    sim::{Crowd, CrowdRecord, FlowKind, SymmetricPath},
};
use units::BitRate;
use wansim::{PathConfig, Policer};

use crate::{INVARIANTS, S};

/// Whether the bench prints samples of each run over time.
pub(crate) static TRACED: AtomicBool = AtomicBool::new(false);

/// Descriptions of the invariants that any run of the bench has violated.
static BROKEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records a violation if a flow's permitted rate is not finite, not positive, or far above the
/// capacity of the path.
fn check_invariants(line: &SymmetricPath, seed: u64, record: &CrowdRecord) {
    let mut broken = Vec::new();
    for flow in 0..record.flows() {
        let samples = record.samples(flow).iter();
        for sample in samples.filter(|sample| sample.allowed_bytes_per_s != 0.0) {
            let rate = sample.allowed_bytes_per_s * 8.0;
            let is_start = sample.state == "start";
            if !rate.is_finite() || rate <= 0.0 || (!is_start && rate > 4.0 * line.bits_per_s()) {
                broken.push(format!(
                    "{line:?}, seed {seed}: {rate:.3e} bit/s in state {}",
                    sample.state
                ));
                break;
            }
        }
    }
    let mut all = BROKEN
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    all.append(&mut broken);
}

pub(crate) fn print_invariants() -> bool {
    let mut broken = BROKEN
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    broken.sort();
    println!(
        "{:>2}  {:<52} {:<28} {:>9} {:>9} {:>9}  {:>7}",
        INVARIANTS,
        "invariants of every run above",
        "rate > 4x the line, or none",
        "<= 0",
        "",
        broken.len(),
        broken.len()
    );
    for text in broken.iter().take(5) {
        println!("    {text}");
    }
    println!(
        "    {}",
        if broken.is_empty() {
            "reached"
        } else {
            "MISSED"
        }
    );
    broken.is_empty()
}

pub(crate) fn fair() -> FlowKind {
    FlowKind::for_policy(Policy::Fair)
}

/// Returns a policer of 100 Mbit/s behind a line of 1 Gbit/s. The policer's token bucket holds the
/// bytes that the policer passes in the time `bucket`.
pub(crate) fn policed(bucket: Duration, loss: f64) -> (SymmetricPath, PathConfig) {
    let line = SymmetricPath::new(100, 40, 1.0).losing(loss);
    let path = PathConfig {
        rate: Some(BitRate::gbit(1)),
        policer: Some(Policer {
            rate: line.rate,
            burst: line.rate.bytes_in(bucket),
        }),
        ..line.path()
    };
    (line, path)
}

/// Runs the simulation until `end`, and checks the invariants.
pub(crate) fn finish(crowd: &mut Crowd, line: &SymmetricPath, seed: u64, end: Duration) {
    crowd.run_to(end);
    check_invariants(line, seed, crowd.record());
    if TRACED.load(Ordering::Relaxed) {
        print!("{}", crowd.record().trace());
    }
}

/// Runs the simulation until `time` has passed since the first flow connected, and checks the
/// invariants. Returns the time at which that flow connected.
///
/// At 64 % loss a handshake may take ten seconds. Another bench measures that time.
pub(crate) fn finish_connected(
    crowd: &mut Crowd,
    line: &SymmetricPath,
    seed: u64,
    time: Duration,
) -> Duration {
    while crowd.connected(0).is_none() && crowd.now() < HANDSHAKE_MAX {
        crowd.run_to(crowd.now() + S);
    }
    let connected = crowd.connected(0).unwrap_or(HANDSHAKE_MAX);
    finish(crowd, line, seed, connected + time);
    connected
}

const HANDSHAKE_MAX: Duration = Duration::from_secs(120);
