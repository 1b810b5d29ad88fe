//! `longhaul wan calibrate`: measures whether the emulator's impairments have the configured
//! strength.

use std::process::ExitCode;

use emulator::{
    calibrate::{CalibrationRow, CalibrationSubject, CalibrationVerdict, Ceiling, ceilings},
    privilege,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    exit::misuse,
    output::{self, Format},
};

#[derive(clap::Args)]
#[command(after_help = "\
Exit codes: 0 all errors are within their limits; 1 an error exceeds its limit; 2 wrong use.")]
pub(super) struct Calibrate {
    #[command(flatten)]
    format: Format,
    /// Measure only this impairment, such as rate, delay or loss, or only the emulator's capacity
    /// ('ceiling')
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

impl Calibrate {
    /// Runs the measurements and prints the results. Fails if any result is out of its limits.
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let is_chosen = |name: &str| self.only.as_deref().is_none_or(|only| only == name);
        let mut subjects = CalibrationSubject::all();
        let known: Vec<_> = subjects.iter().map(|subject| subject.name).collect();
        subjects.retain(|subject| is_chosen(subject.name));
        if subjects.is_empty() && !is_chosen(CEILING) {
            let known = known.join(", ");
            return Err(misuse(format!(
                "there is no measurement with this name; there are {known}, {CEILING}"
            )));
        }
        // The permission must be acquired before the process starts a thread.
        privilege::acquire()?;
        let bar = progress(subjects.len() as u64);
        let mut rows = Vec::new();
        for subject in subjects {
            bar.set_message(subject.name);
            rows.extend(subject.measure()?);
            bar.inc(1);
        }
        let ceilings = if is_chosen(CEILING) {
            ceilings(|what| bar.set_message(what.to_owned()))?
        } else {
            Vec::new()
        };
        bar.finish_and_clear();
        let value = serde_json::json!({ "impairments": rows, "ceilings": ceilings });
        self.format.print(&value, |_| page(&rows, &ceilings))?;
        let is_calibrated = rows
            .iter()
            .all(|row| row.verdict == CalibrationVerdict::Within);
        Ok(if is_calibrated {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// Creates a progress bar that shows the name of the current measurement.
fn progress(subjects: u64) -> ProgressBar {
    let bar = output::progress(subjects + 1);
    let template = "{elapsed_precise}  {bar:20} {pos}/{len}  {msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
    bar
}

fn page(rows: &[CalibrationRow], ceilings: &[Ceiling]) -> String {
    let mut text = String::new();
    if !rows.is_empty() {
        text += &format!(
            "{:<46} {:>10} {:>10} {:>9} {:>9}  {:<9} verdict\n",
            "impairment", "set", "measured", "error", "bound", "unit"
        );
    }
    for row in rows {
        text += &format!(
            "{:<46} {:>10} {:>10} {:>9} {:>9}  {:<9} {}\n",
            row.name,
            figure(row.set),
            figure(row.measured),
            figure(row.measured - row.set),
            figure(row.bound),
            row.unit,
            verdict(row.verdict)
        );
    }
    if let Some(first) = ceilings.first() {
        let thread = if first.real_time {
            "a real-time thread"
        } else {
            "a thread that ordinary ones may keep waiting"
        };
        text += &format!(
            "\nThe emulator is {thread}. As much as it carries beside sender and receiver, one way:\n\
             {:<8} {:<8} {:>8} {:>11} {:>13} {:>10}\n",
            "traffic", "offload", "Gbit/s", "packets/s", "CPU s per GB", "processor"
        );
    }
    for ceiling in ceilings {
        text += &format!(
            "{:<8} {:<8} {:>8.2} {:>11.0} {:>13.2} {:>8.0} %\n",
            ceiling.traffic,
            if ceiling.offload { "on" } else { "off" },
            ceiling.bits_per_s / 1e9,
            ceiling.packets_per_s,
            ceiling.cpu_s_per_gb,
            ceiling.busy * 100.0
        );
    }
    text
}

fn verdict(verdict: CalibrationVerdict) -> &'static str {
    match verdict {
        CalibrationVerdict::Within => "ok",
        CalibrationVerdict::Beyond => "OUT OF BOUNDS",
        CalibrationVerdict::MachineLate => "not judged: machine was late",
    }
}

/// Formats a number with its significant decimals only.
fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        value if value >= 10_000.0 => 0,
        value if value.fract() == 0.0 => 0,
        value if value >= 100.0 => 1,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

const CEILING: &str = "ceiling";
