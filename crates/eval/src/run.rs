//! Run of a plan, cell by cell. In a cell, the compared programs run in turn. Each trial is
//! recorded as soon as it ends.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    cell::{Cell, OUTAGE_AFTER},
    competing_connection::RunningConnection,
    movers::{self, TrialFailure, TrialResult},
    plan::{CellTask, EvaluationPlan},
    record::{self, RecordFile, TrialEnd, TrialKey, TrialRecord},
    side::Side,
    stage::Stage,
};
use bench_kit::machine;
use emulator::WanError;

/// Settings that a run needs in addition to the plan.
#[derive(Debug, Clone)]
pub struct RunSettings {
    /// Path of the `longhaul` program, which runs as both gateways.
    pub program: PathBuf,
    /// Path of the file of records. Trials with a record in this file do not run again.
    pub records: PathBuf,
    /// Version and commit of the program.
    pub version: String,
    /// Version of the records' format.
    pub schema: u32,
    /// Whether to print the progress of the run on standard error.
    pub shows_progress: bool,
}

/// Runs the trials that have no record yet, and returns all records of the plan. Trials run again
/// if they were not tried, or if they were aborted at a limit shorter than the present limit.
///
/// The process must have a single thread when this function is called, since the function creates
/// the namespaces of the sites.
///
/// # Errors
/// If the sites cannot be created or the records cannot be written. A failed trial is recorded, and
/// is not an error.
pub fn run(plan: &EvaluationPlan, setting: &RunSettings) -> anyhow::Result<Vec<TrialRecord>> {
    let (mut file, known) = RecordFile::open(&setting.records)?;
    let by_others = known
        .iter()
        .filter(|record| record.version != setting.version);
    if !known.is_empty() && setting.shows_progress {
        let (all, others) = (known.len(), by_others.count());
        eprintln!("{all} trials are on record, {others} of them by other versions");
    }
    let known: HashMap<TrialKey, &TrialRecord> =
        known.iter().map(|record| (record.key(), record)).collect();
    let is_left = |task: &CellTask, side: Side, repetition| {
        let record = known.get(&TrialKey::new(&task.cell, side, repetition));
        record.is_none_or(|record| !record.is_final(task.limit))
    };
    let machine = machine::describe();
    let bar = progress(plan.trials(), setting.shows_progress);
    let tell = |text: &str| {
        if setting.shows_progress {
            say(&bar, text);
        }
    };
    for task in &plan.tasks {
        let turns: Vec<_> = (0..task.repetitions)
            .flat_map(|repetition| task.turn(repetition).map(move |side| (repetition, side)))
            .filter(|(repetition, side)| is_left(task, *side, *repetition))
            .collect();
        bar.inc((task.sides.len() * task.repetitions as usize - turns.len()) as u64);
        if turns.is_empty() {
            continue;
        }
        tell(&task.cell.to_string());
        let mut stage = match Stage::set_up(&task.cell, &setting.program, SEED) {
            Ok(stage) => Ok(stage),
            // No cell can run without sites.
            Err(error) if error.is::<WanError>() => return Err(error.context("the sites")),
            // Possible reasons: this machine is too slow for the path, or the gateways do not
            // start.
            Err(error) => Err(format!("{error:#}")),
        };
        for (repetition, side) in turns {
            bar.set_message(format!("{}, {}", side.title(), task.cell));
            let begun = SystemTime::now();
            let tried = match &mut stage {
                Ok(stage) => trial(stage, task, side)?,
                Err(why) => TrialMeasurement::not_tried(why.clone()),
            };
            let record = TrialRecord {
                schema: setting.schema,
                plan: plan.name.clone(),
                cell: task.cell.clone(),
                side,
                repetition,
                seed: SEED,
                outcome: tried.outcome,
                bytes: tried.moved.bytes,
                seconds: tried.moved.time.as_secs_f64(),
                ideal_seconds: task.cell.transfer().ideal_time().as_secs_f64(),
                cpu_seconds: tried.cpu_seconds,
                wire_bytes: tried.wire_bytes,
                answers: tried.moved.answers,
                beside_bits_per_s: tried.beside_bits_per_s,
                saturated: tried.saturated,
                machine: machine.clone(),
                version: setting.version.clone(),
                begun_unix_s: begun
                    .duration_since(SystemTime::UNIX_EPOCH)
                    .unwrap_or_default()
                    .as_secs(),
            };
            file.add(&record)?;
            tell(&line(&record));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(in_order(plan, record::read(&setting.records)?))
}

/// Returns the records of the plan's trials, in the plan's order. Excludes records of cells that
/// the plan no longer contains.
pub fn in_order(plan: &EvaluationPlan, mut records: Vec<TrialRecord>) -> Vec<TrialRecord> {
    let wanted = plan.tasks.iter().flat_map(|task| {
        task.sides.iter().flat_map(move |side| {
            (0..task.repetitions).map(move |number| TrialKey::new(&task.cell, *side, number))
        })
    });
    let places: HashMap<TrialKey, usize> = wanted.zip(0..).collect();
    records.retain(|record| places.contains_key(&record.key()));
    records.sort_by_key(|record| places[&record.key()]);
    records
}

/// The outcome of a trial, and the values that were measured during the trial.
struct TrialMeasurement {
    outcome: TrialEnd,
    moved: TrialResult,
    cpu_seconds: BTreeMap<String, f64>,
    wire_bytes: [u64; 2],
    saturated: bool,
    beside_bits_per_s: Option<f64>,
}

impl TrialMeasurement {
    fn not_tried(why: String) -> Self {
        Self {
            outcome: TrialEnd::NotTried(why),
            moved: TrialResult::default(),
            cpu_seconds: BTreeMap::new(),
            wire_bytes: [0; 2],
            saturated: false,
            beside_bits_per_s: None,
        }
    }
}

fn trial(stage: &mut Stage, task: &CellTask, side: Side) -> anyhow::Result<TrialMeasurement> {
    let cell = &task.cell;
    if let Some(why) = movers::missing(side, stage, cell) {
        return Ok(TrialMeasurement::not_tried(why));
    }
    let neighbour = cell.work.beside.zip(cell.neighbour_head_start());
    let neighbour = neighbour.map(|(neighbour, head_start)| {
        RunningConnection::start(&stage.wan, neighbour, cell.work.direction, head_start)
    });
    let neighbour = neighbour.transpose().context("a neighbour")?;
    let prepared = movers::prepare(side, stage, cell);
    let stage = &*stage;
    let before = stage.read()?;
    let moved = prepared.and_then(|()| {
        thread::scope(|scope| {
            let (over, is_over) = mpsc::channel::<()>();
            if !cell.work.outage().is_zero() {
                scope.spawn(move || strike(stage, cell, &is_over));
            }
            let moved = movers::run(side, stage, cell, task.limit);
            drop(over);
            moved
        })
    });
    let beside_bits_per_s = moved.as_ref().ok().and_then(|moved| {
        let neighbour = neighbour.as_ref()?;
        Some(neighbour.bits_per_s(moved.time))
    });
    let after = stage.read()?;
    let (outcome, moved) = match moved {
        Ok(moved) if moved.is_complete => (TrialEnd::Complete, moved),
        Ok(moved) => (TrialEnd::CutOff, moved),
        Err(TrialFailure::NotTried(why)) => (TrialEnd::NotTried(why), TrialResult::default()),
        Err(TrialFailure::Failed(error)) => (
            TrialEnd::Failed(format!("{error:#}")),
            TrialResult::default(),
        ),
    };
    Ok(TrialMeasurement {
        outcome,
        moved,
        cpu_seconds: after.cpu_seconds_since(&before),
        wire_bytes: after.wire_bytes_since(&before),
        saturated: after.is_distorted_since(&before),
        beside_bits_per_s,
    })
}

/// Waits until the outage must begin, and interrupts the path for the length of the cell's outage.
/// Returns early if the trial ends. When the function returns, the path delivers packets again.
fn strike(stage: &Stage, cell: &Cell, is_over: &mpsc::Receiver<()>) {
    for (time, outage) in [(OUTAGE_AFTER, true), (cell.work.outage(), false)] {
        let over = is_over.recv_timeout(time) != Err(RecvTimeoutError::Timeout);
        stage.set_outage(cell, outage && !over);
        if over {
            return;
        }
    }
}

/// Prints a line above the progress bar. Without a visible bar, prints it on standard error.
fn say(bar: &ProgressBar, text: &str) {
    if bar.is_hidden() {
        eprintln!("{text}");
    } else {
        bar.println(text);
    }
}

fn line(record: &TrialRecord) -> String {
    let side = record.side.title();
    let rate = record.goodput_bits_per_s() / 1e6;
    if let Some(answers) = &record.answers {
        return format!("  {side:<20} {}", answers.summary());
    }
    match &record.outcome {
        TrialEnd::Complete => format!(
            "  {side:<20} {:>8.2} s {rate:>8.1} Mbit/s {:>6.3} of ideal",
            record.seconds,
            record.efficiency().unwrap_or_default()
        ),
        TrialEnd::CutOff => format!(
            "  {side:<20} {:>8.2} s {rate:>8.1} Mbit/s {:>6.3} of ideal (cut off)",
            record.seconds,
            record.efficiency().unwrap_or_default()
        ),
        TrialEnd::Failed(why) => format!("  {side:<20} failed: {why}"),
        TrialEnd::NotTried(why) => format!("  {side:<20} not tried: {why}"),
    }
}

fn progress(trials: usize, is_shown: bool) -> ProgressBar {
    if !is_shown {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(trials as u64);
    let template = "{pos} of {len} trials, {elapsed} elapsed, {eta} left: {msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// Seed of the emulator's impairments. All compared programs have the same seed.
const SEED: u64 = 1;
