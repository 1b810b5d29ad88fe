//! Transfer over a radio medium that both directions share. Every report needs airtime of the
//! medium.
//!
//! The study behind the profile `wifi-11b` defines the file and the medium. Each transfer uses a
//! new connection, so the measured time includes the handshake.

use std::time::Duration;

use bench_kit::{jobs, stats::Summary};
use link::{
    Policy, StreamClass, congestion,
    sim::{Crowd, CrowdConfig, FlowKind, SimSite, SimWorld, WorldConfig},
};
use units::ByteCount;
use wansim::{Radio, profile::Profile};

use super::{MissedFigure, median_and_worst};

/// Size of the file in the study.
const SIZE: ByteCount = ByteCount::new(11_844_459);
const LIMIT: Duration = Duration::from_secs(300);
/// Required rate of the link as a multiple of CUBIC's rate.
const OF_CUBIC: f64 = 1.15;
/// Required rate of the link as a multiple of the rate of a sender without feedback.
const OF_SILENT: f64 = 0.95;
/// Payload of a full packet in bytes.
const PAYLOAD_BYTES: u64 = 1448;
/// Size of a full packet in bytes, including its headers.
const IP_BYTES: usize = 1500;

/// Measurements of one transfer.
#[derive(Clone, Copy)]
struct RadioRun {
    time_s: f64,
    /// Number of packets from the receiver, divided by the number of packets from the sender.
    answers: f64,
    drops: u64,
}

pub fn print(seeds: u64) -> Vec<MissedFigure> {
    let seeds: Vec<u64> = (1..=seeds).collect();
    let profile = Profile::wifi_11b();
    let radio = profile.radio.expect("it is one of a radio");
    println!("\n{} over {}, {}", SIZE, profile.name, profile.summary);
    println!(
        "{:<32} {:>15} {:>18} {:>8}",
        "sender", "s, median/worst", "answers by packets", "drops"
    );
    let silent_s = silent(&radio);
    row(
        "without feedback",
        &[RadioRun {
            time_s: silent_s,
            answers: 0.0,
            drops: 0,
        }],
    );
    let cubic = jobs::map(&seeds, |seed| tcp(*seed, FlowKind::cubic().delaying_acks()));
    row("CUBIC", &cubic);
    let window = FlowKind::cubic_with_window(ByteCount::kibibytes(64)).delaying_acks();
    let bounded = jobs::map(&seeds, |seed| tcp(*seed, window.clone()));
    row("CUBIC, window of 64 KiB", &bounded);
    let ours = jobs::map(&seeds, |seed| link(*seed));
    row("link", &ours);
    // The link must beat the better of the two CUBIC senders.
    let cubic_s = times(&cubic).median.min(times(&bounded).median);
    let mut missed = Vec::new();
    for (name, reference_s, required) in [
        ("link by CUBIC", cubic_s, OF_CUBIC),
        ("link by a sender without feedback", silent_s, OF_SILENT),
    ] {
        let ratios = ours.iter().map(|run| reference_s / run.time_s);
        let (median, worst) = median_and_worst(ratios);
        let is_missed = worst < required;
        println!(
            "{name:<40} {median:.3}/{worst:.3}{} required {required}",
            if is_missed { '!' } else { ' ' }
        );
        if is_missed {
            missed.push(MissedFigure::new(
                format!("wifi-11b, {name}"),
                worst,
                required,
            ));
        }
    }
    missed
}

fn row(name: &str, runs: &[RadioRun]) {
    let times = times(runs);
    let (answers, _) = median_and_worst(runs.iter().map(|run| run.answers));
    let drops = runs.iter().map(|run| run.drops).max().unwrap_or(0);
    println!(
        "{name:<32} {:>15} {answers:>18.3} {drops:>8}",
        format!("{:.2} / {:.2}", times.median, times.max)
    );
}

fn times(runs: &[RadioRun]) -> Summary {
    let times: Vec<f64> = runs.iter().map(|run| run.time_s).collect();
    Summary::of(&times).expect("each sender has a run at least")
}

/// Returns the duration of an ideal sender's transfer in seconds. Such a sender needs no reports,
/// and has all airtime of the medium.
fn silent(radio: &Radio) -> f64 {
    let packets = SIZE.bytes().div_ceil(PAYLOAD_BYTES);
    radio.airtime(IP_BYTES).as_secs_f64() * packets as f64
}

fn tcp(seed: u64, kind: FlowKind) -> RadioRun {
    let profile = Profile::wifi_11b();
    let mut crowd = Crowd::with_radio(
        &CrowdConfig {
            forward: profile.forward,
            backward: profile.backward,
            seed,
            jitter: Duration::from_millis(1),
            sample_every: Duration::from_secs(1),
        },
        profile.radio,
    );
    crowd.add(kind.flow());
    while crowd.delivered(0) < SIZE && crowd.now() < LIMIT {
        crowd.run_to(crowd.now() + Duration::from_millis(10));
    }
    let [forward, backward] = [SimSite::A, SimSite::B].map(|side| crowd.path_counters(side));
    RadioRun {
        time_s: crowd.now().as_secs_f64(),
        answers: backward.delivered as f64 / forward.delivered as f64,
        drops: forward.queue_drops,
    }
}

/// Runs one transfer over the link until the peer confirms that all bytes arrived.
fn link(seed: u64) -> RadioRun {
    let profile = Profile::wifi_11b();
    let mut world = SimWorld::with_radio(
        &WorldConfig {
            forward: profile.forward,
            backward: profile.backward,
            seed,
            controller: |memory, max| congestion::for_policy(Policy::Fair, memory, max),
            memory_max: ByteCount::gibibytes(1),
            idle_timeout: Duration::from_secs(600),
        },
        profile.radio,
    );
    let id = world.send(SimSite::A, StreamClass::Bulk, SIZE);
    let time = world.run_to_end(id, LIMIT).unwrap_or(LIMIT);
    let [forward, backward] = [SimSite::A, SimSite::B].map(|side| world.path_counters(side));
    RadioRun {
        time_s: time.as_secs_f64(),
        answers: backward.delivered as f64 / forward.delivered as f64,
        drops: forward.queue_drops,
    }
}
