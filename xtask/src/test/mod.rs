//! `cargo xtask test`: runs every test of the workspace in tiers, and counts the tests.
//!
//! The module of a test states the requirement of the test. Tests in `real_time` must not compete
//! with other tests for the processor. Tests in `namespaces` need network namespaces, and tests in
//! `installed` need programs of Debian's packages. All other tests run in parallel, on any machine.

mod examples;
mod programs;
mod suites;

use std::{
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{
    Failure, eval, packages,
    shell::{cargo, read_lines, root},
};
use programs::{Program, Tier};
use suites::{Origin, Suites, timed};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run only the tests that need no privilege and no package and do not measure real time
    #[arg(long)]
    quick: bool,
    /// Build the test programs, but run no test
    #[arg(long, conflicts_with = "quick")]
    no_run: bool,
    /// Arguments for `cargo test`: a filter, or `-p longhaul-link`, or `-p longhaul-link --
    /// --nocapture`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        conflicts_with_all = ["quick", "no_run"]
    )]
    cargo_arguments: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    let mut suites = Suites::default();
    if arguments.quick {
        let skip = [REAL_TIME, NAMESPACES, INSTALLED].map(|module| ["--skip", module]);
        if let Some(programs) = build(&mut suites)? {
            programs::run(&programs, &side_by_side(&skip.concat()), &mut suites)?;
        }
        println!(
            "\n{} tests are left out: they need the machine alone, namespaces or packages",
            suites.left_out()
        );
        return Ok(suites.report());
    }
    packages::announce(packages::TEST);
    if let Err(failure) = packages::provide(packages::TEST)? {
        return Ok(Err(failure));
    }
    if !arguments.cargo_arguments.is_empty() {
        let chosen: Vec<_> = arguments
            .cargo_arguments
            .iter()
            .map(String::as_str)
            .collect();
        workspace(&chosen, &mut suites)?;
        return Ok(suites.report());
    }
    let Some(programs) = build(&mut suites)? else {
        return Ok(suites.report());
    };
    if arguments.no_run {
        return Ok(Ok(()));
    }
    let tier = side_by_side(&["--skip", REAL_TIME]);
    programs::run(&programs, &tier, &mut suites)?;
    patient(&programs, &mut suites)?;
    calibrated(&programs, &mut suites)?;
    documentation(&mut suites)?;
    retry(&programs, 0, &mut suites)?;
    // The production build comes last, because it replaces the program that the other tests call.
    let first = suites.len();
    production(&mut suites)?;
    retry(&programs, first, &mut suites)?;
    Ok(suites.report())
}

/// Builds the test programs. Returns `None` and records a failed suite if the build fails.
fn build(suites: &mut Suites) -> Result<Option<Vec<Program>>> {
    let programs = programs::build()?;
    if programs.is_none() {
        suites.begin("workspace (build)".to_owned());
    }
    Ok(programs)
}

/// Returns the tier of tests that run in parallel. These tests wait more than they compute, and
/// none of them measures durations.
fn side_by_side<'a>(filters: &'a [&'a str]) -> Tier<'a> {
    Tier {
        mark: "",
        programs_at_once: 3,
        threads: 6,
        filters,
    }
}

/// Runs the tests whose time limits are in seconds. These tests wait most of the time, so the
/// smallest evaluation plan runs at the same time.
fn patient(programs: &[Program], suites: &mut Suites) -> Result<()> {
    let program = eval::copied_program()?;
    let smoke = thread::spawn(move || timed(|| eval::smoke(&program)));
    let patient = programs.iter().filter(|it| !is_calibrated(it));
    let ended = programs::run(patient, &real_time(2, 2), suites);
    let (checks, took) = smoke.join().expect("the checks return");
    suites.add("eval smoke", took, checks);
    ended
}

/// Runs the tests that measure the machine itself. Each program runs its tests one after the other,
/// and needs only a twentieth of a processor.
fn calibrated(programs: &[Program], suites: &mut Suites) -> Result<()> {
    let calibrated = programs.iter().filter(|it| is_calibrated(it));
    programs::run(calibrated, &real_time(3, 1), suites)
}

fn is_calibrated(program: &Program) -> bool {
    CALIBRATED.contains(&program.package.as_str())
}

fn real_time(programs_at_once: usize, threads: usize) -> Tier<'static> {
    Tier {
        mark: " (real time)",
        programs_at_once,
        threads,
        filters: &[REAL_TIME],
    }
}

/// Runs all tests of the workspace that match the arguments.
fn workspace(arguments: &[&str], suites: &mut Suites) -> Result<()> {
    let mut command = vec!["test", "--workspace", "--all-features", "--no-fail-fast"];
    // The arguments of a caller may already select targets.
    if arguments.first() == Some(&"--") {
        command.extend(["--lib", "--bins", "--tests"]);
    }
    command.extend(arguments);
    read("workspace", "", &command, suites)
}

/// Runs the examples in the documentation, if it contains any. Cargo also starts all test programs,
/// since it can then reuse their build. The filter excludes the tests of these programs.
fn documentation(suites: &mut Suites) -> Result<()> {
    if !examples::exist(&root().join("crates"))? {
        return Ok(());
    }
    let command = [
        "test",
        "--workspace",
        "--all-features",
        "--no-fail-fast",
        "--",
        DOCUMENTATION,
    ];
    read("documentation", "", &command, suites)
}

/// Runs the tests of the production build's commands. The libraries keep all their features, so
/// that cargo builds only the program again.
fn production(suites: &mut Suites) -> Result<()> {
    let features = library_features()?;
    let command = [
        "test",
        "--workspace",
        "--no-default-features",
        "--features",
        &features,
        "--test",
        "commands",
    ];
    let mark = " (production build)";
    read("production build", mark, &command, suites)
}

/// Returns the features of all crates but `longhaul`, in the form that cargo's `--features` takes.
fn library_features() -> Result<String> {
    let mut command = cargo(["metadata", "--no-deps", "--format-version=1"]);
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "`cargo metadata` has failed");
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array();
    let packages = packages.context("`cargo metadata` lists no packages")?;
    let mut features = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        if name != "longhaul" {
            let of_package = package["features"].as_object().into_iter().flatten();
            features.extend(of_package.map(|(feature, _)| format!("{name}/{feature}")));
        }
    }
    Ok(features.join(","))
}

/// Runs each failed test again, one after the other. A busy machine can make a test with real
/// traffic fail. The report names each test that passes in a later attempt, and fails if there are
/// too many such tests.
fn retry(programs: &[Program], first: usize, suites: &mut Suites) -> Result<()> {
    for failed in suites.failures(first) {
        let name = &failed.name;
        for attempt in 2..=ATTEMPTS_MAX {
            println!("\nattempt {attempt}: {name}");
            let mut again = Suites::default();
            match &failed.origin {
                Some(Origin::Program(path)) => {
                    programs::run_test(programs, path, name, &mut again)?;
                }
                Some(Origin::Cargo(command)) => {
                    let exact = ["--", name, "--exact", "--test-threads=1"];
                    let command: Vec<_> = command.iter().map(String::as_str).collect();
                    read(name, "", &[&command[..], &exact].concat(), &mut again)?;
                }
                None => {}
            }
            if again.have_passed() {
                suites.forgive(&failed, attempt);
                break;
            }
        }
    }
    Ok(())
}

/// Runs cargo, and parses the output of the test programs.
fn read(name: &str, mark: &str, command: &[&str], suites: &mut Suites) -> Result<()> {
    // The arguments after `--` are omitted, because a retry uses its own filter.
    let unfiltered = command.iter().take_while(|it| **it != "--");
    let arguments = unfiltered.map(|&it| it.to_owned()).collect();
    let mut command = cargo(command);
    set_environment(&mut command);
    let first = suites.len();
    suites.mark(mark);
    suites.set_origin(Some(Origin::Cargo(arguments)));
    let succeeded = read_lines(&mut command, |line| {
        println!("{line}");
        suites.on_line(line);
    })?;
    if !succeeded && !suites.have_failure(first) {
        // No test has failed, so the build has failed.
        suites.begin(format!("{name} (build)"));
    }
    Ok(())
}

/// Sets environment variables of cargo. They disable colours. In CI they also disable incremental
/// builds, because no second build follows.
fn set_environment(command: &mut Command) {
    command.env("CARGO_TERM_COLOR", "never");
    if std::env::var_os("CI").is_some() {
        command.env("CARGO_INCREMENTAL", "0");
    }
}

/// Maximum number of attempts of a test.
const ATTEMPTS_MAX: u32 = 3;
/// Crates whose tests measure and emulate with an accuracy of a thousandth.
const CALIBRATED: [&str; 2] = ["emulator", "probe"];
/// Text in the name of each documentation example, such as `crates/link/src/lib.rs - Link (line
/// 12)`.
const DOCUMENTATION: &str = " (line ";
/// Prefix of the names of tests that measure real time.
const REAL_TIME: &str = "real_time::";
/// Prefix of the names of tests that create network namespaces.
const NAMESPACES: &str = "namespaces::";
/// Prefix of the names of tests that call programs of Debian's packages.
const INSTALLED: &str = "installed::";
