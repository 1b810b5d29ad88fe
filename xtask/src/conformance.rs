//! `cargo xtask conformance`: runs the pytest suite in `conformance/` with the release build.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{self, Command},
};

use anyhow::{Context, Result};
use nix::unistd::geteuid;

use crate::{
    Failure, bench, browser, packages, previous,
    shell::{cargo, root, succeeds, target_folder},
    wheels,
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run only the tests in the file `conformance/test_NAME.py` [default: all tests]
    name: Option<String>,
    /// Arguments for pytest: `-- -k TEXT`, `-- --quick`, `-- --write`, `-- --help`
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Numbers of tests by outcome, as pytest reports them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// Names of former tests that are benches now, with their scripts.
const MEASURE: [(&str, bench::Script); 7] = [
    ("idle_sessions", bench::Script::IdleSessions),
    ("middlebox", bench::Script::Sessions),
    ("nothing_added", bench::Script::NothingAdded),
    ("probe", bench::Script::Probe),
    ("probe_ftp", bench::Script::Sessions),
    ("round_trips", bench::Script::RoundTrips),
    ("small_files", bench::Script::SmallFiles),
];

/// Name of the tests that run in a browser.
const DASHBOARD: &str = "dashboard";

/// Start of the names of the tests with SSH clients and servers.
const SSH: &str = "ssh";

/// Name of the tests with two gateways of different releases.
const RELEASES: &str = "releases";

/// File with the SSH libraries for tests and measuring scripts.
pub(crate) const SSH_LIBRARIES: &str = "ssh.txt";

/// Folder of the SSH libraries, in the target folder.
pub(crate) const SSH_FOLDER: &str = "ssh-python";

/// Path of Debian's Python, which can import Debian's pytest.
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
    if arguments
        .name
        .as_deref()
        .is_none_or(|it| it.starts_with(SSH))
    {
        wheels::provide(SSH_LIBRARIES, SSH_FOLDER)?;
    }
    let previous = if runs(RELEASES) {
        previous_or_skip(previous::program(), arguments.name.as_deref())?
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
    // Pytest writes no report if its arguments are wrong or contain `--help`.
    let Ok(text) = fs::read_to_string(&report) else {
        return Ok(succeeded.then_some(()).ok_or(Failure::Missing));
    };
    fs::remove_file(&report).with_context(|| report.display().to_string())?;
    let counts = Counts::read(&text).context("pytest's report has no counts")?;
    println!("{}", counts.line());
    // A run that skipped all tests proves nothing.
    Ok((succeeded && counts.failed == 0 && counts.passed > 0)
        .then_some(())
        .ok_or(Failure::Failed))
}

/// Installs the requirements of tests and measuring scripts, and builds the tested program.
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

/// Returns the program of the previous release. If all tests run, an error is not fatal: the
/// function returns `None`, and tests that need the program are skipped.
fn previous_or_skip(program: Result<PathBuf>, name: Option<&str>) -> Result<Option<PathBuf>> {
    match program {
        Err(error) if name.is_none() => {
            eprintln!("tests of a pair of releases are skipped: {error:#}");
            Ok(None)
        }
        program => program.map(Some),
    }
}

/// Returns a command that runs Python in the root of the workspace. It writes no cache files.
pub(crate) fn python() -> Command {
    let mut command = Command::new(PYTHON);
    command
        .current_dir(root())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Returns the `NAME` of each file `test_NAME.py`.
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
    /// Parses the counts from a report in JUnit's format. The first `testsuite` of the report
    /// covers the whole run.
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
    fn only_a_run_of_all_tests_skips_those_of_a_previous_release_that_is_missing() {
        let missing = || Err(anyhow::anyhow!("it does not build"));
        let skipped = previous_or_skip(missing(), None);
        assert_eq!(skipped.expect("a run of all tests goes on"), None);
        let failed = previous_or_skip(missing(), Some(RELEASES));
        let error = failed.expect_err("a run of these tests fails");
        assert_eq!(error.to_string(), "it does not build");
        let program = previous_or_skip(Ok("longhaul".into()), None);
        assert_eq!(program.expect("a program"), Some("longhaul".into()));
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
