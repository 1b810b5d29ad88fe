//! Runs a plan: cell by cell, the sides by turns, and each trial recorded as soon as it is over.

use std::{
    collections::HashSet,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    cell::Cell,
    movers::{self, Unmoved},
    plan::Plan,
    record::{Outcome, Record, Records, TrialKey},
    side::Side,
    stage::Stage,
};
use crate::machine;

/// What a run needs beside its plan.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The `longhaul` program, from which gateways are started.
    pub program: PathBuf,
    /// Where records go; those that are there already are not tried again.
    pub records: PathBuf,
    /// Version and commit.
    pub version: String,
}

/// Runs what the records do not have yet, and returns all of them. Call it before the process has any
/// thread.
///
/// # Errors
/// If sites cannot be made or records not kept. A trial that fails is a record.
pub fn run(plan: &Plan, setting: &Setting) -> anyhow::Result<Vec<Record>> {
    let (mut file, mut records) = Records::open(&setting.records)?;
    let done: HashSet<TrialKey> = records.iter().map(Record::key).collect();
    let is_left = |cell: &Cell, side: Side, repetition| {
        !done.contains(&TrialKey::new(cell, side, repetition))
    };
    let machine = machine::describe();
    let bar = progress(plan.trials());
    bar.inc(done.len() as u64);
    for cell in &plan.cells {
        let turns = (0..plan.repetitions).flat_map(|repetition| {
            let sides = plan.sides.iter().map(move |side| (repetition, *side));
            sides.filter(|(repetition, side)| is_left(cell, *side, *repetition))
        });
        let turns: Vec<_> = turns.collect();
        if turns.is_empty() {
            continue;
        }
        bar.println(format!("{cell}"));
        let mut stage = Stage::set_up(cell, &setting.program, SEED).context("the sites")?;
        for (repetition, side) in turns {
            bar.set_message(format!("{}, {cell}", side.title()));
            let begun = SystemTime::now();
            let prepared = movers::prepare(side, &stage, cell);
            let before = stage.read()?;
            let moved = match prepared {
                Ok(()) => movers::run(side, &mut stage, cell, plan.limit),
                Err(error) => Err(error.into()),
            };
            let after = stage.read()?;
            let (outcome, bytes, time) = match moved {
                Ok(moved) if moved.is_complete => (Outcome::Complete, moved.bytes, moved.time),
                Ok(moved) => (Outcome::CutOff, moved.bytes, moved.time),
                Err(Unmoved::NotTried(why)) => (Outcome::NotTried(why), 0, Duration::ZERO),
                Err(Unmoved::Failed(error)) => {
                    (Outcome::Failed(format!("{error:#}")), 0, Duration::ZERO)
                }
            };
            let record = Record {
                plan: plan.name.clone(),
                cell: cell.clone(),
                side,
                repetition,
                seed: SEED,
                outcome,
                bytes,
                seconds: time.as_secs_f64(),
                ideal_seconds: cell.transfer().ideal_time().as_secs_f64(),
                cpu_seconds: after.cpu_seconds_since(&before),
                wire_bytes: after.wire_bytes_since(&before),
                saturated: after.is_distorted_since(&before),
                machine: machine.clone(),
                version: setting.version.clone(),
                begun_unix_s: begun
                    .duration_since(SystemTime::UNIX_EPOCH)
                    .unwrap_or_default()
                    .as_secs(),
            };
            file.add(&record)?;
            bar.println(line(&record));
            bar.inc(1);
            records.push(record);
        }
    }
    bar.finish_and_clear();
    // What other plans or an earlier, longer version of this one left is not this one's.
    let wanted: HashSet<TrialKey> = plan
        .cells
        .iter()
        .flat_map(|cell| {
            let sides = plan.sides.iter();
            sides.flat_map(move |side| {
                (0..plan.repetitions).map(move |number| TrialKey::new(cell, *side, number))
            })
        })
        .collect();
    records.retain(|record| wanted.contains(&record.key()));
    Ok(records)
}

fn line(record: &Record) -> String {
    let side = record.side.title();
    let rate = record.goodput_bits_per_s() / 1e6;
    match &record.outcome {
        Outcome::Complete => format!(
            "  {side:<20} {:>8.2} s {rate:>8.1} Mbit/s {:>6.3} of ideal",
            record.seconds,
            record.efficiency().unwrap_or_default()
        ),
        Outcome::CutOff => format!(
            "  {side:<20} {:>8.2} s {rate:>8.1} Mbit/s {:>6.3} of ideal (cut off)",
            record.seconds,
            record.efficiency().unwrap_or_default()
        ),
        Outcome::Failed(why) => format!("  {side:<20} failed: {why}"),
        Outcome::NotTried(why) => format!("  {side:<20} not tried: {why}"),
    }
}

fn progress(trials: usize) -> ProgressBar {
    let bar = ProgressBar::new(trials as u64);
    let template = "{pos} of {len} trials, {elapsed} gone, {eta} left: {msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// Of the impairments: the same for all sides.
const SEED: u64 = 1;
