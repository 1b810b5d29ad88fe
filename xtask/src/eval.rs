//! `cargo xtask eval`: plans with everything that they compare with, and the checks of the smallest one.

#![allow(clippy::disallowed_methods, reason = "says how long the plan took")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    Failure, packages,
    shell::{cargo, root, succeeds, target_folder},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A plan of `plans/`, without `.toml`
    name: String,
    /// Passed to `longhaul eval`, such as `--published`
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    if let Err(failure) = packages::provide(packages::EVAL)? {
        return Ok(Err(failure));
    }
    let build = [
        "build",
        "--release",
        "-p",
        "longhaul",
        "-p",
        "lab",
        "--examples",
        "--bins",
    ];
    anyhow::ensure!(succeeds(&mut cargo(build))?, "longhaul does not build");
    let release = target_folder().join("release");
    let plan = plan(&arguments.name);
    if !plan.exists() {
        eprintln!("{}: there is no such plan", plan.display());
        return Ok(Err(Failure::Missing));
    }
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

/// The smallest plan with the program that the tests have built, and what its report is worth.
pub(crate) fn smoke() -> Result<Vec<(String, bool)>> {
    let build = ["build", "--workspace", "--all-features", "--bins"];
    anyhow::ensure!(succeeds(&mut cargo(build))?, "longhaul does not build");
    checked(&target_folder().join("debug/longhaul"))
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
    println!("eval smoke: {:.0} s", begun.elapsed().as_secs_f64());
    let read = |extension: &str| {
        let path = folder.join("smoke").with_extension(extension);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let (records, markdown, page) = (read("jsonl")?, read("md")?, read("html")?);
    let parsed: Vec<Value> = records
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    // A slow machine may cut a plain transfer off.
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
    let found = expected
        .iter()
        .filter(|text| markdown.contains(text.as_str()) && page.contains(text.as_str()));
    let (found, all) = (found.count(), expected.len());
    checks.push((
        format!("{found} of {all} figures are what the records give"),
        found == all && all > 0,
    ));
    checks.push((
        "nothing is tried twice".to_owned(),
        eval()? && read("jsonl")? == records,
    ));
    checks.extend(opens(&folder.join("smoke.html"))?);
    fs::remove_dir_all(&folder)?;
    Ok(checks)
}

/// The report's figures, made by other code than the report's: each side's median, least and most fraction
/// of the ideal in each cell.
fn expected_cells(records: &[Value]) -> Result<Vec<String>> {
    let mut efficiencies: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for record in records {
        let (path, work) = (&record["cell"]["path"], &record["cell"]["work"]);
        let number = |value: &Value| {
            value
                .as_f64()
                .with_context(|| format!("no number in {record}"))
        };
        let bytes = number(&work["size_bytes"])? * number(&work["files"])?;
        let loss = number(&path["loss"])?;
        let goodput = 0.94 * number(&path["rate_bits_per_s"])? * (1.0 - loss);
        let trips = if loss > 0.0 { 2.0 } else { 1.0 };
        let ideal_s = bytes * 8.0 / goodput + trips * number(&path["rtt_ms"])? / 1e3;
        let arrived = number(&record["bytes"])?;
        let full_s = number(&record["seconds"])? * bytes / arrived;
        let cell = format!("{}{}", record["cell"], record["side"]);
        efficiencies.entry(cell).or_default().push(ideal_s / full_s);
    }
    let shown = efficiencies.into_values().map(|mut values| {
        values.sort_by(f64::total_cmp);
        let (least, most) = (values[0], values[values.len() - 1]);
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        format!("{median:.3} ({least:.3}..{most:.3})")
    });
    Ok(shown.collect())
}

/// Whether a browser shows the page, and nothing in it is wrong.
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
