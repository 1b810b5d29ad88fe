//! Goodput of a warm link for combinations of round-trip time and loss.

use std::time::Duration;

use bench_kit::jobs;
use units::{BitRate, ByteCount};

use super::{
    MissedFigure, median_and_worst,
    trial::{Trial, TrialOutcome},
};

const RTTS_MS: [u64; 7] = [1, 20, 50, 200, 400, 600, 1000];
const LOSSES: [f64; 9] = [0.0, 0.0001, 0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 0.64];

/// Returns the required goodput at the loss fraction `loss`, as a fraction of the ideal goodput.
pub fn required(loss: f64) -> f64 {
    match loss {
        0.0 => 0.97,
        _ if loss <= 0.01 => 0.96,
        _ if loss <= 0.1 => 0.95,
        _ if loss <= 0.3 => 0.92,
        _ if loss <= 0.5 => 0.88,
        _ => 0.82,
    }
}

pub fn trial(rtt_ms: u64, loss: f64, seed: u64, is_quick: bool) -> Trial {
    let rate = BitRate::mbit(if is_quick { 100 } else { 1000 });
    let mut trial = Trial::symmetric(rate, Duration::from_millis(rtt_ms), loss);
    trial.size = ByteCount::megabytes(if is_quick { 50 } else { 500 });
    trial.seed = seed;
    trial.at_least_twenty_rtts()
}

pub fn print(seeds: u64, is_quick: bool) -> Vec<MissedFigure> {
    let mut cells = Vec::new();
    for rtt_ms in RTTS_MS {
        for loss in LOSSES {
            cells.extend((1..=seeds).map(|seed| (rtt_ms, loss, seed)));
        }
    }
    let outcomes = jobs::map(&cells, |(rtt_ms, loss, seed)| {
        trial(*rtt_ms, *loss, *seed, is_quick).run()
    });
    let mut missed = Vec::new();
    println!("goodput by ideal, median and worst of {seeds} seeds; ! is below what is required\n");
    print!("{:>8}", "loss");
    for loss in LOSSES {
        print!("{:>14}", format!("{} %", loss * 100.0));
    }
    print!("\n{:>8}", "required");
    for loss in LOSSES {
        print!("{:>14}", format!("{:.2}", required(loss)));
    }
    println!();
    table(&outcomes, seeds, |outcomes, rtt_ms, loss| {
        let (median, worst) = median_and_worst(outcomes.iter().map(|o| o.fraction));
        let is_missed = worst < required(loss);
        if is_missed {
            let row = format!("RTT {rtt_ms} ms, loss {} %", loss * 100.0);
            missed.push(MissedFigure::new(row, worst, required(loss)));
        }
        let mark = if is_missed { '!' } else { ' ' };
        format!("{median:.3}/{worst:.3}{mark}")
    });
    println!("\nreports by bytes sent, in thousandths, median");
    table(&outcomes, seeds, |outcomes, _, _| {
        format!(
            "{:.2} ",
            1e3 * median_and_worst(outcomes.iter().map(|o| o.feedback)).0
        )
    });
    println!("\nreceive memory, MB, worst; needless retransmissions, %, worst");
    table(&outcomes, seeds, |outcomes, _, _| {
        let peak = outcomes
            .iter()
            .map(|o| o.memory_peak_bytes)
            .max()
            .unwrap_or(0);
        let needless = outcomes.iter().map(|o| o.needless).fold(0.0, f64::max);
        format!("{:.0} {:.2} ", peak as f64 * 1e-6, needless * 100.0)
    });
    println!("\nlost in the bottleneck's queue, %, worst");
    table(&outcomes, seeds, |outcomes, _, _| {
        let caused = outcomes.iter().map(|o| o.caused_loss).fold(0.0, f64::max);
        format!("{:.2} ", caused * 100.0)
    });
    missed
}

fn table(
    outcomes: &[TrialOutcome],
    seeds: u64,
    mut cell: impl FnMut(&[TrialOutcome], u64, f64) -> String,
) {
    let mut cells = outcomes.chunks(seeds as usize);
    for rtt_ms in RTTS_MS {
        print!("{:>8}", format!("{rtt_ms} ms"));
        for loss in LOSSES {
            let outcomes = cells.next().expect("there is one outcome for each seed");
            print!("{:>14}", cell(outcomes, rtt_ms, loss));
        }
        println!();
    }
}
