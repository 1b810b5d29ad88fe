//! `cargo xtask conformance`: the pytest suite in `conformance/`, with the release build.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
};

use anyhow::{Context, Result};
use nix::unistd::geteuid;

use crate::{
    Failure, bench, browser, packages,
    shell::{cargo, root, succeeds, target_folder},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Which tests: the file `conformance/test_NAME.py`; all of them if left out
    name: Option<String>,
    /// Passed to pytest: `-- -k TEXT`, `-- --quick`, `-- --write`, `-- --help`
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Counts of pytest.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// Names that were tests and measure: now benches.
const MEASURE: [(&str, bench::Script); 7] = [
    ("idle_sessions", bench::Script::IdleSessions),
    ("middlebox", bench::Script::Sessions),
    ("nothing_added", bench::Script::NothingAdded),
    ("probe", bench::Script::Probe),
    ("probe_ftp", bench::Script::Sessions),
    ("round_trips", bench::Script::RoundTrips),
    ("small_files", bench::Script::SmallFiles),
];

/// Tests that a browser runs.
const DASHBOARD: &str = "dashboard";

/// Tests of a pair of gateways of different releases.
const RELEASES: &str = "releases";

/// The last commit whose gateways have version 5 of the gateway protocol as their latest. It stands
/// for the previous release until that has a tag. A change of the latest version moves it.
const PREVIOUS: &str = "eafbd92452dc89db43e96414970edad63f8b7783";

/// Debian's, which has Debian's pytest.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    let folder = root().join("conformance");
    let mut tests = folder.clone();
    if let Some(name) = &arguments.name {
        if let Some((_, script)) = MEASURE.iter().find(|(old, _)| old == name) {
            println!(
                "{name} measures: it is now `cargo xtask bench {}`",
                script.name()
            );
            return bench::measure(*script, &arguments.arguments);
        }
        let names = names(&folder)?;
        if !names.contains(name) {
            eprintln!("no such tests; there are: {}", names.join(", "));
            return Ok(Err(Failure::Missing));
        }
        tests.push(format!("test_{name}.py"));
    }
    let program = match prepare()? {
        Ok(program) => program,
        Err(failure) => return Ok(Err(failure)),
    };
    let runs = |name| arguments.name.as_deref().is_none_or(|it| it == name);
    if runs(DASHBOARD) {
        browser::prepare()?;
    }
    let previous = if runs(RELEASES) {
        build_previous()?
    } else {
        None
    };
    let report = target_folder().join(format!("conformance-{}.xml", process::id()));
    let mut pytest = python();
    pytest
        .args(["-m", "pytest"])
        .arg(tests)
        .arg("--longhaul")
        .arg(program)
        .arg("--junit-xml")
        .arg(&report);
    if let Some(previous) = previous {
        pytest.arg("--previous").arg(previous);
    }
    pytest.args(&arguments.arguments);
    let succeeded = succeeds(&mut pytest)?;
    // Pytest writes none where it was used wrongly, and for `--help`.
    let Ok(text) = fs::read_to_string(&report) else {
        return Ok(succeeded.then_some(()).ok_or(Failure::Missing));
    };
    fs::remove_file(&report).with_context(|| report.display().to_string())?;
    let counts = Counts::read(&text).context("pytest's report has no counts")?;
    println!("{}", counts.line());
    // A run in which everything was skipped shows nothing.
    Ok((succeeded && counts.failed == 0 && counts.passed > 0)
        .then_some(())
        .ok_or(Failure::Failed))
}

/// Provides the requirements of tests and measuring scripts, and builds the tested program.
pub(crate) fn prepare() -> Result<Result<PathBuf, Failure>> {
    if let Err(failure) = packages::provide(packages::CONFORMANCE)? {
        return Ok(Err(failure));
    }
    if !geteuid().is_root() {
        eprintln!("needs root, for network namespaces and FTP servers");
        return Ok(Err(Failure::Missing));
    }
    anyhow::ensure!(
        succeeds(&mut cargo(["build", "--release", "-p", "longhaul"]))?,
        "longhaul does not build"
    );
    Ok(Ok(target_folder().join("release/longhaul")))
}

/// Builds the program of the previous release from the history of the repository, once. `None` if
/// that commit is not there, as in an archive of the sources.
fn build_previous() -> Result<Option<PathBuf>> {
    let folder = target_folder().join("previous");
    let program = folder.join(format!("longhaul-{PREVIOUS}"));
    if program.exists() {
        return Ok(Some(program));
    }
    let commit = format!("{PREVIOUS}^{{commit}}");
    if !succeeds(git(["cat-file", "-e", &commit]).stderr(Stdio::null())).unwrap_or(false) {
        eprintln!("no commit {PREVIOUS} here: tests of a pair of releases are skipped");
        return Ok(None);
    }
    // Runs that overlap build their own.
    let work = folder.join(process::id().to_string());
    let (source, build) = (work.join("source"), work.join("build"));
    let mut clone = git(["clone", "--quiet", "--shared", "--no-checkout"]);
    let mut checkout = git(["checkout", "--quiet", PREVIOUS]);
    anyhow::ensure!(
        succeeds(clone.arg(root()).arg(&source))? && succeeds(checkout.current_dir(&source))?,
        "commit {PREVIOUS} cannot be checked out"
    );
    let mut cargo = cargo([
        "build",
        "--locked",
        "--release",
        "-p",
        "longhaul",
        "--manifest-path",
    ]);
    cargo.arg(source.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(&build);
    anyhow::ensure!(
        succeeds(&mut cargo)?,
        "longhaul of commit {PREVIOUS} does not build"
    );
    fs::rename(build.join("release/longhaul"), &program)
        .with_context(|| program.display().to_string())?;
    fs::remove_dir_all(&work).with_context(|| work.display().to_string())?;
    Ok(Some(program))
}

fn git<const N: usize>(arguments: [&str; N]) -> Command {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(root());
    command
}

/// Python in the root of the workspace, where it leaves nothing behind.
pub(crate) fn python() -> Command {
    let mut command = Command::new(PYTHON);
    command
        .current_dir(root())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// NAME of each `test_NAME.py`.
fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let file = entry?.file_name();
        let name = file.to_str().and_then(|file| file.strip_prefix("test_"));
        names.extend(
            name.and_then(|name| name.strip_suffix(".py"))
                .map(str::to_owned),
        );
    }
    names.sort();
    Ok(names)
}

impl Counts {
    /// From a report in JUnit's format, whose first `testsuite` is the whole run.
    fn read(xml: &str) -> Option<Self> {
        let (_, suite) = xml.split_once("<testsuite ")?;
        let (head, _) = suite.split_once('>')?;
        let count = |name: &str| -> Option<usize> {
            let (_, behind) = head.split_once(&format!("{name}=\""))?;
            behind.split('"').next()?.parse().ok()
        };
        let failed = count("failures")? + count("errors")?;
        let skipped = count("skipped")?;
        Some(Self {
            passed: count("tests")?.checked_sub(failed + skipped)?,
            failed,
            skipped,
        })
    }

    fn line(&self) -> String {
        let mut line = format!("{} passed, {} failed", self.passed, self.failed);
        if self.skipped > 0 {
            line += &format!(", {} skipped", self.skipped);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_the_whole_run() {
        let xml = "<?xml version=\"1.0\"?><testsuites><testsuite name=\"pytest\" errors=\"1\" \
                   failures=\"2\" skipped=\"3\" tests=\"10\" time=\"1.5\"><testcase name=\"a>b\"/>";
        let counts = Counts::read(xml).expect("counts");
        assert_eq!(counts.line(), "4 passed, 3 failed, 3 skipped");
        assert_eq!(Counts::default().line(), "0 passed, 0 failed");
        assert_eq!(Counts::read("<testsuites/>"), None);
    }

    #[test]
    fn names_that_measure_are_no_longer_tests() {
        let tests = names(&root().join("conformance")).expect("the folder can be read");
        assert!(tests.contains(&"main_job".to_owned()));
        assert!(tests.contains(&DASHBOARD.to_owned()));
        for (name, script) in MEASURE {
            assert!(!tests.contains(&name.to_owned()), "{name}");
            assert!(script.path().exists(), "{}", script.path().display());
        }
    }
}
