//! `longhaul eval`: runs a plan, or makes the report of records that exist.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, ensure};
use emulator::privilege;
use eval::{plan::Plan, record, report::Report, run};

use crate::output;

/// Runs an evaluation plan over an emulated WAN, and writes records and report
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The plan; see `plans/`
    #[arg(value_name = "PLAN.toml", required_unless_present_any = ["report", "compare"])]
    plan: Option<PathBuf>,
    /// Only what the plan publishes: an hour at most
    #[arg(long)]
    published: bool,
    /// Folder for NAME.jsonl, NAME.html and NAME.md
    #[arg(long, default_value = "eval-results", value_name = "FOLDER")]
    out: PathBuf,
    /// Show cells and the estimated time, and run nothing
    #[arg(long)]
    dry_run: bool,
    /// Make the report of a file of records again, beside it; the plan has its title and says what it is about
    #[arg(long, value_name = "RECORDS.jsonl", conflicts_with = "compare")]
    report: Option<PathBuf>,
    /// Compare two files of records, before and after
    #[arg(long, num_args = 2, value_names = ["BEFORE.jsonl", "AFTER.jsonl"], conflicts_with = "plan")]
    compare: Option<Vec<PathBuf>>,
}

const EXAMPLES: &str = "\
Examples:
  longhaul eval plans/smoke.toml
  longhaul eval plans/irt.toml --published --out docs/results
  longhaul eval plans/irt.toml --report docs/results/irt.jsonl
  longhaul eval --compare before/smoke.jsonl after/smoke.jsonl

An interrupted run goes on where it stopped: what has a record is not tried again, unless it could not be
tried, or was cut off by a shorter limit. All is tried again in an empty folder.
Exit codes: 0 all trials are recorded, whatever came of them; 1 the run could not go on; 2 wrong use or plan.";

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some([before, after]) = args.compare.as_deref() {
        let text = eval::report::compare(&record::read(before)?, &record::read(after)?);
        return output::print(&text).map(|()| ExitCode::SUCCESS);
    }
    let plan = args
        .plan
        .as_deref()
        .map(|path| read_plan(path, args.published));
    let plan = match plan.transpose() {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("longhaul: {error:#}");
            return Ok(ExitCode::from(2));
        }
    };
    if let Some(path) = &args.report {
        let records = record::read(path)?;
        let report = match &plan {
            Some(plan) => Report::new(&plan.title, &plan.about, &run::in_order(plan, records)),
            None => Report::new(&title_of(path), "", &records),
        };
        write(&report?, path)?;
        return Ok(ExitCode::SUCCESS);
    }
    let plan = plan.context("no plan")?;
    let minutes = |time: Duration| format!("{:.0} min", (time.as_secs_f64() / 60.0).max(1.0));
    output::print(&format!(
        "{}: {} trials in {} cells, about {}\n",
        plan.title,
        plan.trials(),
        plan.tasks.len(),
        minutes(plan.estimate())
    ))?;
    if args.dry_run {
        let cells = plan.tasks.iter().map(|task| format!("  {}\n", task.cell));
        return output::print(&cells.collect::<String>()).map(|()| ExitCode::SUCCESS);
    }
    privilege::acquire()?;
    fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    let records = args.out.join(format!("{}.jsonl", plan.name));
    let setting = run::Setting {
        program: std::env::current_exe().context("finding this program's own file")?,
        records: records.clone(),
        version: env!("LONGHAUL_VERSION").to_owned(),
    };
    let all = run::run(&plan, &setting)?;
    ensure!(!all.is_empty(), "there are no records");
    let report = Report::new(&plan.title, &plan.about, &all)?;
    write(&report, &records)?;
    output::print(&report.summary()).map(|()| ExitCode::SUCCESS)
}

fn read_plan(path: &Path, published: bool) -> anyhow::Result<Plan> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(Plan::parse(&text, path, published)?)
}

/// Writes the report beside its records, whole or not at all.
fn write(report: &Report, records: &Path) -> anyhow::Result<()> {
    for (extension, text) in [("html", report.html()), ("md", report.markdown())] {
        let path = records.with_extension(extension);
        let part = records.with_extension(format!("{extension}.part"));
        fs::write(&part, text)
            .and_then(|()| fs::rename(&part, &path))
            .with_context(|| path.display().to_string())?;
        output::print(&format!("{}\n", path.display()))?;
    }
    Ok(())
}

fn title_of(records: &Path) -> String {
    let stem = records.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}
