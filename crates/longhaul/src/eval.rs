//! `longhaul eval`: runs an evaluation plan, and creates or compares reports of stored records.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::Subcommand;
use emulator::privilege;
use eval::{
    plan::EvaluationPlan,
    record::{self, TrialRecord},
    report::{EvaluationReport, RecordComparison},
    run,
};
use serde_json::json;

use crate::{
    exit,
    output::{self, Format},
};

/// Run an evaluation plan over an emulated WAN, and write records and a report
///
/// An interrupted run continues where it stopped, because the command does not repeat a trial that
/// has a record. There are two exceptions: trials that lacked a program, and trials that ended at a
/// time limit shorter than the plan's limit. An empty folder makes the command run all trials.
#[derive(clap::Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// File with an evaluation plan, such as plans/smoke.toml; if the file has the name of a
    /// subcommand, write a path such as ./report
    #[arg(value_name = "PLAN.toml")]
    plan: Option<PathBuf>,
    /// Run only the published part of the plan, which takes an hour at most
    #[arg(long)]
    published: bool,
    /// Write NAME.jsonl, NAME.html and NAME.md into this folder [default: eval-results]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Print the cells and the estimated time, and run no trial
    #[arg(long)]
    dry_run: bool,
    /// Print the result as JSON
    #[arg(long, global = true)]
    json: bool,
    // Spellings of version 0.1 for `report` and `compare`.
    #[arg(
        long,
        hide = true,
        value_name = "RECORDS.jsonl",
        conflicts_with = "compare"
    )]
    report: Option<PathBuf>,
    #[arg(
        long,
        hide = true,
        num_args = 2,
        value_names = ["BEFORE.jsonl", "AFTER.jsonl"],
        conflicts_with = "plan"
    )]
    compare: Option<Vec<PathBuf>>,
}

#[derive(Subcommand)]
enum Action {
    /// Make a report of existing records
    ///
    /// The command writes RECORDS.html and RECORDS.md into the folder of the records. With --plan,
    /// the report has the title and introduction of the plan, and contains only trials of the plan.
    #[command(after_help = "\
Example:
  longhaul eval report docs/results/irt.jsonl --plan plans/irt.toml")]
    Report {
        /// File with the records of an evaluation
        #[arg(value_name = "RECORDS.jsonl")]
        records: PathBuf,
        /// Read the title, the introduction and the selection of trials from this plan
        #[arg(long, value_name = "PLAN.toml")]
        plan: Option<PathBuf>,
        /// Report only the published part of the plan
        #[arg(long, requires = "plan")]
        published: bool,
    },
    /// Compare the records of two evaluations, before and after a change
    ///
    /// The command prints a table with the medians in both files, for each cell and each compared
    /// program.
    #[command(after_help = "\
Example:
  longhaul eval compare before/smoke.jsonl after/smoke.jsonl")]
    Compare {
        /// File with the records before the change
        #[arg(value_name = "BEFORE.jsonl")]
        before: PathBuf,
        /// File with the records after the change
        #[arg(value_name = "AFTER.jsonl")]
        after: PathBuf,
    },
}

const USAGE: &str = "longhaul eval [OPTIONS] <PLAN.toml>
       longhaul eval <COMMAND>";

const EXAMPLES: &str = "\
Examples:
  longhaul eval plans/smoke.toml
  longhaul eval plans/irt.toml --published --out docs/results
  longhaul eval report docs/results/irt.jsonl --plan plans/irt.toml
  longhaul eval compare before/smoke.jsonl after/smoke.jsonl

Exit codes: 0 all trials have a record, including failed trials; 1 the run could not continue;
2 wrong use or an invalid plan.";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let format = Format { json: args.json };
    match &args.action {
        Some(action) => {
            let alone = args.plan.is_none() && args.report.is_none() && args.compare.is_none();
            exit::ensure(
                alone && !args.published && !args.dry_run && args.out.is_none(),
                "a plan, --out and --dry-run do not go with a subcommand; put --published and --plan after `report`",
            )?;
            match action {
                Action::Report {
                    records,
                    plan,
                    published,
                } => report(records, plan.as_deref(), *published, format),
                Action::Compare { before, after } => compare(before, after, format),
            }
        }
        None => match (&args.report, args.compare.as_deref(), &args.plan) {
            (Some(records), _, plan) => report(records, plan.as_deref(), args.published, format),
            (None, Some([before, after]), _) => compare(before, after, format),
            (None, _, Some(plan)) => run_plan(args, plan, format),
            (None, _, None) => Err(exit::misuse("a plan is missing: longhaul eval PLAN.toml")),
        },
    }
}

fn compare(before: &Path, after: &Path, format: Format) -> anyhow::Result<()> {
    let read = |path: &Path| {
        let records = record::read(path)?;
        ensure!(!records.is_empty(), "{}: no records", path.display());
        Ok(records)
    };
    let comparison = RecordComparison::of(&read(before)?, &read(after)?);
    format.print(&comparison, RecordComparison::text)
}

fn report(
    records: &Path,
    plan: Option<&Path>,
    published: bool,
    format: Format,
) -> anyhow::Result<()> {
    let plan = plan.map(|path| read_plan(path, published)).transpose()?;
    let all = record::read(records)?;
    let report = match &plan {
        Some(plan) => EvaluationReport::new(&plan.title, &plan.about, &run::in_order(plan, all)),
        None => EvaluationReport::new(&title_of(records), "", &all),
    };
    let report = report?;
    let files = write(&report, records)?;
    print(&report, &files, format, |_| String::new())
}

fn run_plan(args: &Args, path: &Path, format: Format) -> anyhow::Result<()> {
    let plan = read_plan(path, args.published)?;
    if args.dry_run {
        let value = json!({
            "plan": plan.name,
            "title": plan.title,
            "trials": plan.trials(),
            "estimate_s": plan.estimate().as_secs_f64(),
            "cells": plan.tasks.iter().map(|task| &task.cell).collect::<Vec<_>>(),
        });
        return format.print(&value, |_| {
            let cells = plan.tasks.iter().map(|task| format!("  {}\n", task.cell));
            head(&plan) + &cells.collect::<String>()
        });
    }
    if !format.json {
        output::print(&head(&plan))?;
    }
    privilege::acquire()?;
    let folder = args.out.as_deref().unwrap_or(Path::new(DEFAULT_FOLDER));
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let records = folder.join(format!("{}.jsonl", plan.name));
    let setting = run::RunSettings {
        program: std::env::current_exe().context("finding this program's own file")?,
        records: records.clone(),
        version: env!("LONGHAUL_VERSION").to_owned(),
        schema: output::SCHEMA,
        shows_progress: !output::is_quiet(),
    };
    let all: Vec<TrialRecord> = run::run(&plan, &setting)?;
    ensure!(!all.is_empty(), "there are no records");
    let report = EvaluationReport::new(&plan.title, &plan.about, &all)?;
    let files = write(&report, &records)?;
    print(&report, &files, format, EvaluationReport::summary)
}

fn read_plan(path: &Path, published: bool) -> anyhow::Result<EvaluationPlan> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| exit::misuse(format!("{}: {error}", path.display())))?;
    EvaluationPlan::parse(&text, path, published).map_err(exit::wrong_use)
}

/// Returns a line that describes the planned run.
fn head(plan: &EvaluationPlan) -> String {
    let minutes = |time: Duration| format!("{:.0} min", (time.as_secs_f64() / 60.0).max(1.0));
    format!(
        "{}: {} trials in {} cells, about {}\n",
        plan.title,
        plan.trials(),
        plan.tasks.len(),
        minutes(plan.estimate())
    )
}

/// Writes the report's files to the folder of the records. Replaces each file atomically. Returns
/// the paths.
fn write(report: &EvaluationReport, records: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for (extension, text) in [("html", report.html()), ("md", report.markdown())] {
        let path = records.with_extension(extension);
        let part = records.with_extension(format!("{extension}.part"));
        fs::write(&part, text)
            .and_then(|()| fs::rename(&part, &path))
            .with_context(|| path.display().to_string())?;
        files.push(path);
    }
    Ok(files)
}

/// Prints the paths of the files and the text of `summary`. With `--json`, prints all figures as
/// JSON.
fn print(
    report: &EvaluationReport,
    files: &[PathBuf],
    format: Format,
    summary: impl FnOnce(&EvaluationReport) -> String,
) -> anyhow::Result<()> {
    let value = json!({ "files": files, "report": report.figures() });
    format.print(&value, |_| {
        let names = files.iter().map(|path| format!("{}\n", path.display()));
        names.collect::<String>() + &summary(report)
    })
}

fn title_of(records: &Path) -> String {
    let stem = records.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// Default folder of records and reports.
const DEFAULT_FOLDER: &str = "eval-results";
