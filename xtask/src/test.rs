//! `cargo xtask test`: every test of the workspace and of the fuzz crate, and their count.

use anyhow::Result;

use crate::{
    Failure, eval, packages,
    shell::{cargo, read_lines, root, target_folder},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Passed to `cargo test`: a filter, or `-p link`, or `-- --nocapture`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    cargo_arguments: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    if let Err(failure) = packages::provide(packages::TEST)? {
        return Ok(Err(failure));
    }
    let mut suites = Suites::default();
    let workspace = ["test", "--workspace", "--all-features", "--no-fail-fast"];
    suites.read("workspace", &workspace, &arguments.cargo_arguments)?;
    if arguments.cargo_arguments.is_empty() && root().join("fuzz/Cargo.toml").exists() {
        // The harness over its seeds and a few thousand mutations, without the fuzzing engine. In the
        // folder of the workspace, which has built most of its dependencies already.
        let fuzz = ["test", "--manifest-path", "fuzz/Cargo.toml", "--lib"];
        let folder = ["--target-dir".into(), target_folder().display().to_string()];
        suites.read("fuzz", &fuzz, &folder)?;
    }
    if arguments.cargo_arguments.is_empty() {
        suites.add("eval smoke", eval::smoke()?);
    }
    Ok(suites.report())
}

/// What the test programs have printed.
#[derive(Debug, Default)]
struct Suites {
    suites: Vec<Suite>,
    /// The crate whose unit tests ran last; its integration tests follow.
    crate_name: String,
}

#[derive(Debug)]
struct Suite {
    name: String,
    /// `None` until it has ended in order.
    counts: Option<Counts>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Suites {
    fn read(&mut self, name: &str, command: &[&str], more: &[String]) -> Result<()> {
        let mut command = cargo(command);
        command.args(more).env("CARGO_TERM_COLOR", "never");
        if std::env::var_os("CI").is_some() {
            command.env("CARGO_INCREMENTAL", "0");
        }
        let before = self.suites.len();
        let succeeded = read_lines(&mut command, |line| {
            println!("{line}");
            self.on_line(line);
        })?;
        let has_failure = self.suites[before..]
            .iter()
            .any(|suite| suite.counts.is_none_or(|counts| counts.failed > 0));
        if !succeeded && !has_failure {
            // It did not even build.
            self.begin(format!("{name} (build)"));
        }
        Ok(())
    }

    /// A suite of checks, each with what it is about.
    fn add(&mut self, name: &str, checks: Vec<(String, bool)>) {
        let mut counts = Counts::default();
        for (what, passed) in checks {
            println!(
                "{name}: {what} ... {}",
                if passed { "ok" } else { "FAILED" }
            );
            *(if passed {
                &mut counts.passed
            } else {
                &mut counts.failed
            }) += 1;
        }
        self.begin(name.to_owned());
        if let Some(suite) = self.suites.last_mut() {
            suite.counts = Some(counts);
        }
    }

    fn begin(&mut self, name: String) {
        self.suites.push(Suite { name, counts: None });
    }

    /// `running` is `tests/transfer.rs (target/debug/deps/transfer-0123)`.
    fn begin_program(&mut self, running: &str) {
        let Some((source, program)) = running.split_once(" (") else {
            return;
        };
        if source.starts_with("unittests ") {
            let file = program.rsplit('/').next().unwrap_or_default();
            file.split('-')
                .next()
                .unwrap_or_default()
                .clone_into(&mut self.crate_name);
            self.begin(format!("{} unit tests", self.crate_name));
        } else {
            self.begin(format!("{} {source}", self.crate_name));
        }
    }

    fn on_line(&mut self, line: &str) {
        let line = line.trim_start();
        if let Some(rest) = line.strip_prefix("Running ") {
            self.begin_program(rest);
        } else if let Some(package) = line.strip_prefix("Doc-tests ") {
            self.begin(format!("{package} documentation"));
        } else if let Some(result) = line.strip_prefix("test result: ")
            && let Some(suite) = self.suites.last_mut()
        {
            // The documentation of one crate may be tested by several programs.
            let mut counts = suite.counts.unwrap_or_default();
            counts.add(result);
            suite.counts = Some(counts);
        }
    }

    /// Prints a line for each suite, and the sum as the very last line.
    fn report(&self) -> Result<(), Failure> {
        let mut sum = Counts::default();
        println!();
        for Suite { name, counts } in &self.suites {
            match counts {
                Some(Counts {
                    passed: 0,
                    failed: 0,
                    skipped: 0,
                }) => {}
                Some(counts) => println!("{name:<40} {counts}"),
                None => println!("{name:<40} did not end in order"),
            }
            // A suite that ended out of order counts as one failed test.
            let counts = counts.unwrap_or(Counts {
                failed: 1,
                ..Counts::default()
            });
            sum.passed += counts.passed;
            sum.failed += counts.failed;
            sum.skipped += counts.skipped;
        }
        println!("{sum}");
        if sum.failed > 0 || sum.passed == 0 {
            return Err(Failure::Failed);
        }
        Ok(())
    }
}

impl Counts {
    /// Adds `ok. 12 passed; 0 failed; 1 ignored; ...`.
    fn add(&mut self, result: &str) {
        let words: Vec<_> = result
            .split([' ', ';'])
            .filter(|word| !word.is_empty())
            .collect();
        for pair in words.windows(2) {
            let Ok(count) = pair[0].parse::<u64>() else {
                continue;
            };
            match pair[1] {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.skipped += count,
                _ => {}
            }
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suites(output: &str) -> Suites {
        let mut suites = Suites::default();
        for line in output.lines() {
            suites.on_line(line);
        }
        suites
    }

    #[test]
    fn the_counts_of_all_suites_are_read() {
        let suites = suites(
            "     Running unittests src/lib.rs (target/debug/deps/link-0123)\n\
             running 2 tests\n\
             test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
             \x20    Running tests/wan.rs (target/debug/deps/wan-4567)\n\
             test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n\
             \x20  Doc-tests link\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
             test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n",
        );
        let read: Vec<_> = suites
            .suites
            .iter()
            .map(|suite| (suite.name.as_str(), suite.counts))
            .collect();
        let counts = |passed, failed, skipped| {
            Some(Counts {
                passed,
                failed,
                skipped,
            })
        };
        assert_eq!(
            read,
            [
                ("link unit tests", counts(12, 0, 1)),
                ("link tests/wan.rs", counts(3, 2, 0)),
                ("link documentation", counts(5, 0, 0)),
            ]
        );
    }

    #[test]
    fn a_suite_that_crashed_is_no_success() {
        let suites = suites(
            "Running unittests src/lib.rs (target/debug/deps/ftp-0123)\n\
             test result: ok. 9 passed; 0 failed; 0 ignored\n\
             Running tests/wan.rs (target/debug/deps/wan-4567)\n",
        );
        assert!(suites.report().is_err());
    }
}
