//! `cargo xtask eval`: runs plans with all compared programs installed, and checks the results of
//! the smallest plan.

#![allow(clippy::disallowed_methods, reason = "says how long the plan took")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    Failure, packages,
    shell::{cargo, root, succeeds, target_folder},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of a plan in `plans/`, without the suffix `.toml`
    name: String,
    /// Arguments for `longhaul eval`, such as `-- --published`
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    let plan = plan(&arguments.name);
    if !plan.exists() {
        eprintln!("{}: there is no such plan", plan.display());
        return Ok(Err(Failure::Missing));
    }
    if let Err(failure) = packages::provide(packages::EVAL)? {
        return Ok(Err(failure));
    }
    let build = [
        "build",
        "--release",
        "-p",
        "longhaul",
        "-p",
        "longhaul-eval",
        "--examples",
        "--bins",
    ];
    anyhow::ensure!(succeeds(&mut cargo(build))?, "longhaul does not build");
    let release = target_folder().join("release");
    if arguments.name == "smoke" && arguments.arguments.is_empty() {
        let checks = checked(&release.join("longhaul"))?;
        let failed = checks.iter().filter(|(_, passed)| !passed).count();
        for (what, passed) in &checks {
            println!("{what} ... {}", if *passed { "ok" } else { "FAILED" });
        }
        println!("{} passed, {failed} failed", checks.len() - failed);
        return Ok(if failed == 0 {
            Ok(())
        } else {
            Err(Failure::Failed)
        });
    }
    let mut command = Command::new(release.join("longhaul"));
    command.arg("eval").arg(plan).args(&arguments.arguments);
    let succeeded = succeeds(command.current_dir(root()))?;
    Ok(if succeeded {
        Ok(())
    } else {
        Err(Failure::Failed)
    })
}

/// Copies the program that the tests have built, since a later build replaces the original.
pub(crate) fn copied_program() -> Result<PathBuf> {
    let built = target_folder().join("debug/longhaul");
    let copy = target_folder().join(format!("debug/longhaul-smoke-{}", std::process::id()));
    fs::copy(&built, &copy).with_context(|| built.display().to_string())?;
    Ok(copy)
}

/// Runs the smallest plan with `program`, removes the program, and checks the report. Returns the
/// name and the result of each check.
pub(crate) fn smoke(program: &Path) -> Result<Vec<(String, bool)>> {
    let checks = checked(program);
    fs::remove_file(program)?;
    checks
}

fn plan(name: &str) -> PathBuf {
    root().join("plans").join(name).with_extension("toml")
}

fn checked(program: &Path) -> Result<Vec<(String, bool)>> {
    let folder = target_folder().join(format!("eval-smoke-{}", std::process::id()));
    let eval = || {
        let mut command = Command::new(program);
        command
            .arg("eval")
            .arg(plan("smoke"))
            .arg("--out")
            .arg(&folder);
        succeeds(&mut command)
    };
    let begun = Instant::now();
    let mut checks = vec![("the plan runs".to_owned(), eval()?)];
    let took = begun.elapsed();
    checks.push((
        format!(
            "it took {:.0} s of {} s",
            took.as_secs_f64(),
            SMOKE_MAX.as_secs()
        ),
        took < SMOKE_MAX,
    ));
    let read = |extension: &str| {
        let path = folder.join("smoke").with_extension(extension);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let (records, markdown, page) = (read("jsonl")?, read("md")?, read("html")?);
    let parsed: Vec<Value> = records
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    // On a slow machine, a plain transfer may be cut off.
    let ended = ["complete", "cut-off"];
    let complete = parsed
        .iter()
        .filter(|record| ended.iter().any(|end| record["outcome"] == *end));
    let complete = complete.count();
    checks.push((
        format!("{complete} of {} trials have not failed", parsed.len()),
        complete == parsed.len(),
    ));
    let expected = expected_cells(&parsed)?;
    let found = [&markdown, &page].map(|report| in_order(report, &expected));
    let ([in_markdown, in_page], all) = (found, expected.len());
    checks.push((
        format!("{in_markdown} and {in_page} of {all} figures are what the records give, in their places"),
        in_markdown == all && in_page == all && all > 0,
    ));
    checks.push((
        "nothing is tried twice".to_owned(),
        eval()? && read("jsonl")? == records,
    ));
    checks.extend(opens(&folder.join("smoke.html"))?);
    fs::remove_dir_all(&folder)?;
    Ok(checks)
}

/// Returns the number of `figures` that the report contains in this order. Counts up to the first
/// missing figure.
fn in_order(report: &str, figures: &[String]) -> usize {
    let mut rest = report;
    let found = figures.iter().take_while(|figure| {
        let place = rest.find(figure.as_str());
        rest = place.map_or("", |at| &rest[at + figure.len()..]);
        place.is_some()
    });
    found.count()
}

/// Computes the expected figures of the report with independent code, from the ideals in
/// [`IDEALS_S`].
///
/// For each cell and each compared program, the figures are the median, the least and the greatest
/// efficiency. The efficiency is the ideal time divided by the measured time. The cells have the
/// order of the records, and the programs have the order of the plan.
fn expected_cells(records: &[Value]) -> Result<Vec<String>> {
    let (mut cells, mut sides) = (Vec::new(), Vec::new());
    let mut efficiencies: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for record in records {
        let (path, work) = (&record["cell"]["path"], &record["cell"]["work"]);
        let number = |value: &Value| {
            value
                .as_f64()
                .with_context(|| format!("no number in {record}"))
        };
        let bytes = number(&work["size_bytes"])? * number(&work["files"])?;
        let rtt_ms = number(&path["rtt_ms"])?;
        let ideal = IDEALS_S.iter().find(|(rtt, _)| *rtt == rtt_ms);
        let (_, ideal_s) = ideal.with_context(|| format!("no ideal for {rtt_ms} ms"))?;
        let arrived = number(&record["bytes"])?;
        let full_s = number(&record["seconds"])? * bytes / arrived;
        let place =
            [(&mut cells, &record["cell"]), (&mut sides, &record["side"])].map(|(all, one)| {
                let known = all.iter().position(|other| *other == one);
                known.unwrap_or_else(|| {
                    all.push(one);
                    all.len() - 1
                })
            });
        let trials = efficiencies.entry(place.into()).or_default();
        trials.push(ideal_s / full_s);
    }
    let shown = efficiencies.into_values().map(|mut values| {
        values.sort_by(f64::total_cmp);
        let (least, most) = (values[0], values[values.len() - 1]);
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        format!("{median:.3} ({least:.3}..{most:.3})")
    });
    Ok(shown.collect())
}

/// Opens the page in a browser. Checks that the browser shows the page, and that the browser
/// reports no error.
fn opens(page: &Path) -> Result<Vec<(String, bool)>> {
    let profile = page.with_extension("profile");
    let mut browser = Command::new("chromium");
    browser
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()));
    let shown = browser.output().context("chromium")?;
    let (dom, log) = (
        String::from_utf8_lossy(&shown.stdout),
        String::from_utf8_lossy(&shown.stderr),
    );
    let complaints: Vec<_> = log
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    let plots = dom.matches("<svg").count();
    let lines = dom.matches("<polyline").count() + dom.matches("<path").count();
    Ok(vec![
        (
            format!("a browser opens it: {complaints:?}"),
            shown.status.success() && complaints.is_empty(),
        ),
        (
            format!("{plots} plots with {lines} lines"),
            plots >= 3 && lines >= 3 * plots,
        ),
    ])
}

/// Ideal times in seconds for the cells of the smallest plan, by round-trip time in ms. The times
/// were computed by hand.
///
/// 40 Mbit take 0.42553 s at 94 Mbit/s of payload. With a loss of 0.1 %, they take 40 / 93.906 s.
/// Two round trips are added.
const IDEALS_S: [(f64, f64); 2] = [(20.0, 0.465_957_872_766), (200.0, 0.825_957_872_766)];

/// Time limit for the smallest plan.
const SMOKE_MAX: Duration = Duration::from_secs(180);
