//! `cargo xtask fuzz`: runs every fuzz target for a set time, and prints a table of the results.
//!
//! cargo-fuzz builds the targets with the pinned toolchain. Coverage instrumentation is an unstable
//! flag, which the compiler accepts because of `RUSTC_BOOTSTRAP`.
//!
//! No sanitizer is used unless one is requested. The targets are safe Rust, whose faults are panics
//! and overflows. Without a sanitizer, the targets run twice as fast.

use std::{fs, process::Command};

use anyhow::{Context, Result};

use crate::{
    Failure, packages,
    shell::{Build, read_lines, root, succeeds, target_folder, tool},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds for which each target runs
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Run only this target; may be given several times [default: all targets]
    #[arg(long)]
    target: Vec<String>,
    /// Build with deliberate faults (`cfg(fuzz_canary)`), and fail unless each target finds a fault
    #[arg(long)]
    canary: bool,
    /// Use this sanitizer: `none`, or `address` to detect memory errors in dependencies
    #[arg(long, default_value = "none")]
    sanitizer: String,
    /// Seed of the fuzzing engine; 0 means a random seed
    #[arg(long, default_value_t = 0)]
    seed: u32,
}

const CARGO_FUZZ_VERSION: &str = "0.13.2";
/// Maximum processing time of a single input. A longer time counts as a fault.
const INPUT_SECONDS_MAX: u32 = 10;
const MEMORY_MB_MAX: u32 = 2048;

/// Outcome of fuzzing one target.
#[derive(Debug, Default)]
struct Outcome {
    target: String,
    executions: u64,
    /// Code edges and features that the fuzzing engine counted.
    coverage: u64,
    features: u64,
    /// Location and message of the first fault.
    finding: Option<String>,
    /// Path of the input that causes the fault.
    input: Option<String>,
    wants_message: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    if let Err(failure) = packages::provide(packages::FUZZ)? {
        return Ok(Err(failure));
    }
    let targets = targets()?;
    if let Some(unknown) = arguments.target.iter().find(|name| !targets.contains(name)) {
        eprintln!("no target {unknown}; there are: {}", targets.join(", "));
        return Ok(Err(Failure::Missing));
    }
    build(arguments)?;
    let mut outcomes = Vec::new();
    for target in targets {
        if arguments.target.is_empty() || arguments.target.contains(&target) {
            outcomes.push(fuzz(arguments, target)?);
        }
    }
    Ok(report(arguments, &outcomes))
}

/// Returns the names of the fuzz targets: the files in `fuzz/fuzz_targets`.
fn targets() -> Result<Vec<String>> {
    let folder = root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        if let Some(name) = entry?.path().file_stem() {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn build(arguments: &Arguments) -> Result<()> {
    let program = tool("cargo-fuzz", CARGO_FUZZ_VERSION, Build::Optimised)?;
    let mut command = Command::new(program);
    command
        .args(["fuzz", "build"])
        .args(["--sanitizer", &arguments.sanitizer])
        .arg("--target-dir")
        .arg(build_folder(arguments))
        .current_dir(root())
        .env("RUSTC_BOOTSTRAP", "1");
    if arguments.canary {
        command.env("RUSTFLAGS", "--cfg fuzz_canary");
    }
    anyhow::ensure!(succeeds(&mut command)?, "the fuzz targets do not build");
    Ok(())
}

fn build_folder(arguments: &Arguments) -> std::path::PathBuf {
    let name = if arguments.canary {
        "fuzz-canary"
    } else {
        "fuzz"
    };
    target_folder().join(name)
}

fn fuzz(arguments: &Arguments, target: String) -> Result<Outcome> {
    let kind = if arguments.canary { "canary-" } else { "" };
    let corpus = root().join("fuzz/corpus").join(format!("{kind}{target}"));
    let artifacts = root()
        .join("fuzz/artifacts")
        .join(format!("{kind}{target}"));
    if arguments.canary && corpus.exists() {
        // The folder may contain a fault that an earlier run found.
        fs::remove_dir_all(&corpus)?;
    }
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&artifacts)?;
    let program = build_folder(arguments)
        .join(env!("XTASK_TARGET"))
        .join("release")
        .join(&target);
    // The target itself writes the seeds: valid messages, made by the code that sends them.
    let mut seeds = Command::new(&program);
    seeds.env("FUZZ_WRITE_SEEDS", &corpus).arg("-runs=0");
    anyhow::ensure!(succeeds(&mut seeds)?, "{target} cannot write its seeds");
    let mut command = Command::new(&program);
    command
        .arg(&corpus)
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(format!("-max_total_time={}", arguments.seconds))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-rss_limit_mb={MEMORY_MB_MAX}"))
        .arg(format!("-seed={}", arguments.seed))
        .args(["-print_final_stats=1", "-use_value_profile=1"])
        .env("RUST_BACKTRACE", "1");
    let mut outcome = Outcome {
        target,
        ..Outcome::default()
    };
    let succeeded = read_lines(&mut command, |line| {
        outcome.on_line(line);
        let is_chatter = line.starts_with(['"', '#'])
            && !["pulse", "INITED", "DONE"]
                .iter()
                .any(|word| line.contains(word));
        if !is_chatter {
            println!("{line}");
        }
    })?;
    if !succeeded {
        outcome.finding.get_or_insert("ended abnormally".into());
    }
    Ok(outcome)
}

fn report(arguments: &Arguments, outcomes: &[Outcome]) -> Result<(), Failure> {
    println!(
        "\n{:<18}{:>14}{:>10}{:>10}  findings",
        "target", "executions", "edges", "features"
    );
    for outcome in outcomes {
        println!(
            "{:<18}{:>14}{:>10}{:>10}  {}",
            outcome.target,
            outcome.executions,
            outcome.coverage,
            outcome.features,
            outcome.finding.as_deref().unwrap_or("none")
        );
    }
    for outcome in outcomes {
        if let Some(input) = &outcome.input {
            println!("{}: {input}", outcome.target);
        }
    }
    let found = outcomes
        .iter()
        .filter(|outcome| outcome.finding.is_some())
        .count();
    println!(
        "\n{} targets, {} s each, {found} with a finding",
        outcomes.len(),
        arguments.seconds
    );
    let is_canary = |outcome: &Outcome| {
        outcome
            .finding
            .as_ref()
            .is_some_and(|finding| finding.contains("canary"))
    };
    let is_good = if arguments.canary {
        outcomes.iter().all(is_canary)
    } else {
        found == 0
    };
    if arguments.canary && is_good {
        println!("each planted fault was found");
    }
    is_good.then_some(()).ok_or(Failure::Failed)
}

impl Outcome {
    fn on_line(&mut self, line: &str) {
        let after = |text: &str, key: &str| -> Option<u64> {
            let rest = text.split_once(key)?.1.trim_start();
            rest.split(|c: char| !c.is_ascii_digit())
                .next()?
                .parse()
                .ok()
        };
        if let Some(rest) = line.strip_prefix('#') {
            // `#4096 pulse  cov: 612 ft: 1903 corp: 88/12Kb exec/s: 2048 rss: 61Mb`
            self.executions = after(rest, "").unwrap_or(self.executions);
            self.coverage = after(rest, "cov: ").unwrap_or(self.coverage);
            self.features = after(rest, "ft: ").unwrap_or(self.features);
        } else if let Some(count) = after(line, "stat::number_of_executed_units:") {
            self.executions = count;
        } else if let Some((_, place)) = line.split_once("panicked at ") {
            let place = place
                .strip_prefix(&format!("{}/", root().display()))
                .unwrap_or(place);
            self.finding.get_or_insert_with(|| place.to_owned());
            self.wants_message = true;
        } else if std::mem::take(&mut self.wants_message) {
            // The message is on the line after the location.
            self.finding
                .get_or_insert_default()
                .push_str(&format!(" {line}"));
        } else if let Some(kind) = line.strip_prefix("SUMMARY: ") {
            self.finding.get_or_insert_with(|| kind.to_owned());
        } else if let Some((_, input)) = line.split_once("Test unit written to ") {
            self.input = Some(input.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_findings_are_read_from_the_engines_output() {
        let mut outcome = Outcome::default();
        for line in [
            "#4096\tpulse  cov: 612 ft: 1903 corp: 88/12Kb exec/s: 2048 rss: 61Mb",
            "#9000\tDONE   cov: 700 ft: 2000 corp: 90/13Kb exec/s: 2048 rss: 61Mb",
            "stat::number_of_executed_units: 9001",
        ] {
            outcome.on_line(line);
        }
        assert_eq!(
            (outcome.executions, outcome.coverage, outcome.features),
            (9001, 700, 2000)
        );
        assert!(outcome.finding.is_none());
        outcome.on_line("thread 'main' panicked at crates/link/src/wire/frame.rs:1:1:");
        outcome.on_line("canary: planted");
        assert!(
            outcome
                .finding
                .is_some_and(|finding| finding.contains("canary"))
        );
    }
}
