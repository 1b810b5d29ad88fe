//! Test programs of the workspace. Cargo builds the programs. Several programs run in parallel,
//! because most tests wait more than they compute.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use anyhow::Result;
use serde_json::Value;

use super::suites::{Origin, Suites};
use crate::shell::{cargo, read_lines};

/// A program that runs tests of one package.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Name of the package, such as `link`.
    pub(super) package: String,
    /// Source of the tests: `unit tests`, or the path of a source file.
    source: String,
    path: PathBuf,
    /// Folder of the package, in which the program runs.
    folder: PathBuf,
    /// Whether the program has its own `main` function. Such a program runs its tests in a single
    /// thread.
    pub(super) is_own_main: bool,
}

/// Settings for running a tier of tests.
pub(super) struct Tier<'a> {
    /// Suffix for the names of the test suites in this tier.
    pub(super) mark: &'a str,
    pub(super) programs_at_once: usize,
    /// Number of threads of each program.
    pub(super) threads: usize,
    /// Filters that select the tests of the tier.
    pub(super) filters: &'a [&'a str],
}

/// Builds all test programs. Returns `None` if the build fails.
pub(super) fn build() -> Result<Option<Vec<Program>>> {
    let mut command = cargo([
        "test",
        "--workspace",
        "--all-features",
        "--lib",
        "--bins",
        "--tests",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    super::set_environment(&mut command);
    let mut programs = Vec::new();
    let succeeded = read_lines(&mut command, |line| {
        if line.starts_with('{') {
            programs.extend(program(line));
        } else {
            println!("{line}");
        }
    })?;
    // Programs with many tests start first, so that the last ones are short.
    programs.sort_by_key(|it| it.source == UNIT_TESTS);
    Ok(succeeded.then_some(programs))
}

/// Parses a line that describes a test program, from cargo's output.
fn program(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let path = text(&message["executable"])?.into();
    let folder = Path::new(&text(&message["manifest_path"])?)
        .parent()?
        .to_owned();
    let target = &message["target"];
    let source = PathBuf::from(text(&target["src_path"])?);
    let is_unit = target["kind"][0] != "test";
    let source = match is_unit {
        true => UNIT_TESTS.to_owned(),
        false => source.strip_prefix(&folder).ok()?.display().to_string(),
    };
    Some(Program {
        package: folder.file_name()?.display().to_string(),
        is_own_main: !is_unit && OWN_MAIN.iter().any(|name| target["name"] == *name),
        source,
        path,
        folder,
    })
}

/// Runs only the test with exactly this name in the program at `path`.
pub(super) fn run_test(
    programs: &[Program],
    path: &Path,
    name: &str,
    suites: &mut Suites,
) -> Result<()> {
    let tier = Tier {
        mark: "",
        programs_at_once: 1,
        threads: 1,
        filters: &[name, "--exact"],
    };
    run(programs.iter().filter(|it| it.path == path), &tier, suites)
}

/// Runs programs in parallel. Parses the output of each program when the program has ended.
pub(super) fn run<'a>(
    programs: impl IntoIterator<Item = &'a Program>,
    tier: &Tier<'_>,
    suites: &mut Suites,
) -> Result<()> {
    suites.mark(tier.mark);
    let programs: Vec<_> = programs.into_iter().collect();
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..tier.programs_at_once {
            let (sender, next, programs) = (sender.clone(), &next, &programs);
            scope.spawn(move || {
                while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut lines = Vec::new();
                    let succeeded = read_lines(&mut tier.command(program), |line| {
                        lines.push(line.to_owned());
                    });
                    if sender.send((*program, lines, succeeded)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (program, lines, succeeded) in results {
            println!("\n{} {}", program.package, program.source);
            let first = suites.len();
            suites.set_origin(Some(Origin::Program(program.path.clone())));
            suites.begin(format!("{} {}", program.package, program.source));
            for line in &lines {
                println!("{line}");
                suites.on_line(line);
            }
            if !succeeded? && !suites.have_failure(first) {
                // The program has reported success for all tests, but has then failed.
                suites.begin(format!("{} {} (end)", program.package, program.source));
            }
        }
        Ok(())
    })
}

impl Tier<'_> {
    fn command(&self, program: &Program) -> Command {
        let threads = if program.is_own_main { 1 } else { self.threads };
        let mut command = Command::new(&program.path);
        command
            .args(self.filters)
            .arg(format!("--test-threads={threads}"))
            .current_dir(&program.folder)
            // Cargo sets the same variable when it runs tests.
            .env("CARGO_MANIFEST_DIR", &program.folder);
        command
    }
}

/// Name of unit tests in a report.
const UNIT_TESTS: &str = "unit tests";
/// Test programs with their own `main` function, which creates namespaces.
const OWN_MAIN: [&str; 3] = ["wan", "probe", "transparent"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_runs_again_in_its_own_program_alone() {
        let program = |package: &str, path: &str| Program {
            package: package.to_owned(),
            source: UNIT_TESTS.to_owned(),
            path: path.into(),
            folder: "/".into(),
            is_own_main: false,
        };
        let programs = [program("link", "/bin/false"), program("ftp", "/bin/true")];
        let mut suites = Suites::default();
        let path = Path::new("/bin/true");
        run_test(&programs, path, "it_is_wrong", &mut suites).expect("it starts");
        // If the other program had run, it would have failed, and its failure would be a second
        // suite.
        assert_eq!(suites.len(), 1);
    }

    #[test]
    fn programs_are_read_from_messages_of_cargo() {
        let message = |kind: &str, name: &str, source: &str, is_test: bool| {
            let message = serde_json::json!({
                "reason": "compiler-artifact",
                "manifest_path": "/w/crates/link/Cargo.toml",
                "target": {"kind": [kind], "name": name, "src_path": format!("/w/crates/link/{source}")},
                "profile": {"test": is_test},
                "executable": format!("/w/target/debug/deps/{name}-0123"),
            });
            program(&message.to_string())
        };
        let name = |program: Option<Program>| {
            program.map(|it| format!("{} {} {}", it.package, it.source, it.is_own_main))
        };
        let unit = name(message("lib", "probe", "src/lib.rs", true));
        assert_eq!(unit.as_deref(), Some("link unit tests false"));
        let all = name(message("test", "all", "tests/all/main.rs", true));
        assert_eq!(all.as_deref(), Some("link tests/all/main.rs false"));
        let wan = name(message("test", "wan", "tests/wan.rs", true));
        assert_eq!(wan.as_deref(), Some("link tests/wan.rs true"));
        assert_eq!(message("bin", "longhaul", "src/main.rs", false), None);
        assert_eq!(program(r#"{"reason": "build-finished"}"#), None);
    }
}
