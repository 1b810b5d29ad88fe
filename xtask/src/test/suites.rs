//! Parser of the output of test programs: suites, outcomes and durations.

#![allow(clippy::disallowed_methods, reason = "says how long checks took")]

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::Failure;

/// The suites of a run, in the order of their starts.
#[derive(Debug, Default)]
pub(super) struct Suites {
    suites: Vec<Suite>,
    /// Name of the crate whose unit tests ran last. Its integration tests follow.
    crate_name: String,
    /// Suffix for the names of suites that start later.
    mark: String,
    /// Origin of suites that start later.
    origin: Option<Origin>,
    /// Names of tests that first failed and then passed, each with the number of the attempt that
    /// passed.
    flaky: Vec<String>,
}

/// Origin of a suite: the command that ran its tests, and that can run a single test again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// A test program at this path.
    Program(PathBuf),
    /// Cargo with these arguments. The arguments contain no filter for tests.
    Cargo(Vec<String>),
}

/// A test that failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failed {
    /// Number of the suite to which the test belongs.
    pub(super) suite: usize,
    pub(super) name: String,
    /// Origin of the suite to which the test belongs. Two crates may have tests with the same name.
    pub(super) origin: Option<Origin>,
}

#[derive(Debug)]
struct Suite {
    name: String,
    origin: Option<Origin>,
    /// Numbers of tests by outcome. `None` until the suite has reported its result.
    counts: Option<Counts>,
    took: Duration,
    /// Names of the tests that failed.
    failed: Vec<String>,
    /// Panic message of each test that panicked.
    said: BTreeMap<String, String>,
    /// Name of the test whose panic message is the next line of the output.
    panicking: Option<String>,
    /// Load of the machine when the last failure was reported.
    load: String,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
    left_out: u64,
}

impl Suites {
    pub(super) fn len(&self) -> usize {
        self.suites.len()
    }

    /// Sets the suffix for the names of suites that start from now on.
    pub(super) fn mark(&mut self, mark: &str) {
        mark.clone_into(&mut self.mark);
    }

    /// Sets the origin of suites that start from now on.
    pub(super) fn set_origin(&mut self, origin: Option<Origin>) {
        self.origin = origin;
    }

    pub(super) fn begin(&mut self, name: String) {
        self.suites.push(Suite {
            name: name + &self.mark,
            origin: self.origin.clone(),
            counts: None,
            took: Duration::ZERO,
            failed: Vec::new(),
            said: BTreeMap::new(),
            panicking: None,
            load: String::new(),
        });
    }

    /// Adds a suite of checks. Each check is a name, with true if the check passed.
    pub(super) fn add(&mut self, name: &str, took: Duration, checks: Result<Vec<(String, bool)>>) {
        self.mark("");
        self.set_origin(None);
        self.begin(name.to_owned());
        // If an error prevented the checks, the error counts as a failed check.
        let checks = checks.unwrap_or_else(|error| vec![(format!("{error:#}"), false)]);
        let mut counts = Counts::default();
        for (what, passed) in checks {
            let (verdict, count) = if passed {
                ("ok", &mut counts.passed)
            } else {
                ("FAILED", &mut counts.failed)
            };
            println!("{name}: {what} ... {verdict}");
            *count += 1;
        }
        if let Some(suite) = self.suites.last_mut() {
            suite.counts = Some(counts);
            suite.took = took;
        }
    }

    /// Parses a line that cargo or a test program has printed.
    pub(super) fn on_line(&mut self, line: &str) {
        let line = line.trim_start();
        if let Some(rest) = line.strip_prefix("Running ") {
            self.begin_program(rest);
        } else if let Some(package) = line.strip_prefix("Doc-tests ") {
            self.begin(format!("{package} documentation"));
        } else if let Some(suite) = self.suites.last_mut() {
            if let Some(test) = suite.panicking.take() {
                suite.said.entry(test).or_insert_with(|| line.to_owned());
            } else if let Some(result) = line.strip_prefix("test result: ") {
                // Several programs may test the documentation of one crate, so the results are
                // added.
                let mut counts = suite.counts.unwrap_or_default();
                counts.add(result);
                suite.counts = Some(counts);
                suite.took += duration(result);
            } else if let Some(name) = failed_test(line) {
                suite.failed.push(name.to_owned());
                suite.load = load();
            } else if let Some(test) = panicked_test(line) {
                suite.panicking = Some(test.to_owned());
            }
        }
    }

    /// Starts the suite of a test program. `running` is a text such as `tests/transfer.rs
    /// (target/debug/deps/transfer-0123)`.
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

    /// Returns whether any suite has failed, or has not reported its result. Ignores the suites
    /// before number `first`.
    pub(super) fn have_failure(&self, first: usize) -> bool {
        self.suites[first..]
            .iter()
            .any(|suite| suite.counts.is_none_or(|counts| counts.failed > 0))
    }

    /// Returns the number of tests that filters have excluded.
    pub(super) fn left_out(&self) -> u64 {
        self.sum().left_out
    }

    /// Returns whether at least one test passed and no test failed.
    pub(super) fn have_passed(&self) -> bool {
        let sum = self.sum();
        sum.passed > 0 && sum.failed == 0
    }

    /// Returns the failed tests of all suites, starting with suite number `first`.
    pub(super) fn failures(&self, first: usize) -> Vec<Failed> {
        let numbered = self.suites.iter().enumerate().skip(first);
        let failed = numbered.flat_map(|(number, suite)| {
            suite.failed.iter().map(move |name| Failed {
                suite: number,
                name: name.clone(),
                origin: suite.origin.clone(),
            })
        });
        failed.collect()
    }

    /// Counts a failed test as passed, because a later attempt passed.
    pub(super) fn forgive(&mut self, failed: &Failed, attempt: u32) {
        let name = &failed.name;
        let suite = &mut self.suites[failed.suite];
        if let Some(counts) = &mut suite.counts {
            counts.failed -= 1;
            counts.passed += 1;
        }
        let said = suite.said.get(name).map_or("", String::as_str);
        self.flaky.push(format!(
            "attempt {attempt}: {}: {name}; load {}; {said}",
            suite.name, suite.load
        ));
    }

    /// Prints a line for each suite, starting with the slowest suite. The sum is the last line.
    pub(super) fn report(&self) -> Result<(), Failure> {
        let mut by_duration: Vec<_> = self.suites.iter().collect();
        by_duration.sort_by_key(|suite| std::cmp::Reverse(suite.took));
        println!();
        for suite in by_duration {
            match &suite.counts {
                Some(counts) if counts.all() == 0 => {}
                Some(counts) => {
                    let took = suite.took.as_secs_f64();
                    println!("{took:7.1} s  {:<44} {counts}", suite.name);
                }
                None => println!("           {:<44} did not end in order", suite.name),
            }
        }
        for test in &self.flaky {
            println!("flaky, passed at {test}");
        }
        let sum = self.sum();
        let flaky_max = sum.passed / TESTS_PER_FLAKY;
        let is_too_flaky = self.flaky.len() as u64 > flaky_max;
        println!(
            "{} of {} tests are flaky, at most {flaky_max} may be",
            self.flaky.len(),
            sum.passed
        );
        println!("{sum}");
        if sum.failed > 0 || sum.passed == 0 || is_too_flaky {
            return Err(Failure::Failed);
        }
        Ok(())
    }

    /// Returns the counts of all suites. A suite that has not reported its result counts as one
    /// failed test.
    fn sum(&self) -> Counts {
        let crashed = Counts {
            failed: 1,
            ..Counts::default()
        };
        let counts = self.suites.iter().map(|s| s.counts.unwrap_or(crashed));
        counts.fold(Counts::default(), |sum, counts| Counts {
            passed: sum.passed + counts.passed,
            failed: sum.failed + counts.failed,
            skipped: sum.skipped + counts.skipped,
            left_out: sum.left_out + counts.left_out,
        })
    }
}

impl Counts {
    /// Returns the number of tests that were selected to run.
    fn all(self) -> u64 {
        self.passed + self.failed + self.skipped
    }

    /// Adds the counts of a result such as `ok. 12 passed; 0 failed; 1 ignored; ...`.
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
                "filtered" => self.left_out += count,
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

/// Calls a function. Returns its result and its duration.
pub(super) fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    (what(), began.elapsed())
}

/// Number of passed tests for each permitted flaky test. A flaky test passes only in a later
/// attempt.
const TESTS_PER_FLAKY: u64 = 200;

/// Returns the `NAME` in a line `test NAME ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?
        .strip_suffix("FAILED")?
        .trim_end()
        .strip_suffix("...")
        .map(str::trim)
}

/// Returns the `NAME` of the test in a line `thread 'NAME' (1234) panicked at FILE:LINE:COLUMN:`.
/// The next line of the output is the message.
fn panicked_test(line: &str) -> Option<&str> {
    let (name, rest) = line.strip_prefix("thread '")?.split_once('\'')?;
    rest.contains(" panicked at ").then_some(name)
}

/// Returns the averages of the machine's load over 1, 5 and 15 minutes, as text.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<_> = text.split(' ').take(3).collect();
    averages.join(" ")
}

/// Returns the time in a text such as `...; finished in 0.21s`. Returns zero if the text contains
/// no time.
fn duration(result: &str) -> Duration {
    let seconds = result
        .rsplit_once("finished in ")
        .and_then(|(_, time)| time.trim().strip_suffix('s')?.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or_default())
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

    const OUTPUT: &str = "     Running unittests src/lib.rs (target/debug/deps/link-0123)\n\
        running 2 tests\n\
        test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
        \x20    Running tests/wan.rs (target/debug/deps/wan-4567)\n\
        test real_time::it_is_late ... FAILED\n\
        test it_is_wrong ... FAILED\n\
        thread 'it_is_wrong' (4711) panicked at tests/wan.rs:7:5:\n\
        seed 12: 3 of 4\n\
        test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 2.50s\n\
        \x20  Doc-tests link\n\
        test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
        test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";

    #[test]
    fn the_counts_and_times_of_all_suites_are_read() {
        let suites = suites(OUTPUT);
        let read: Vec<_> = suites
            .suites
            .iter()
            .map(|suite| (suite.name.as_str(), suite.counts, suite.took.as_millis()))
            .collect();
        let counts = |passed, failed, skipped| {
            Some(Counts {
                passed,
                failed,
                skipped,
                left_out: 0,
            })
        };
        assert_eq!(
            read,
            [
                ("link unit tests", counts(12, 0, 1), 100),
                ("link tests/wan.rs", counts(3, 2, 0), 2500),
                ("link documentation", counts(5, 0, 0), 0),
            ]
        );
    }

    #[test]
    fn a_failed_test_that_passes_in_a_later_attempt_is_named_and_counted_as_passed() {
        let mut suites = suites(OUTPUT);
        let failures = suites.failures(0);
        let names = ["real_time::it_is_late", "it_is_wrong"];
        let named: Vec<_> = failures.iter().map(|it| (it.suite, &*it.name)).collect();
        assert_eq!(named, names.map(|name| (1, name)));
        for failed in failures {
            suites.forgive(&failed, 2);
        }
        assert!(suites.have_passed());
        assert_eq!(suites.sum().passed, 22);
        assert!(
            suites.flaky[0]
                .starts_with("attempt 2: link tests/wan.rs: real_time::it_is_late; load ")
        );
        assert!(suites.flaky[1].ends_with("; seed 12: 3 of 4"));
        assert!(suites.report().is_err(), "2 of 22 are too many");
    }

    /// Output of a test program in which one test failed.
    const FAILED: &[&str] = &[
        "test it_is_wrong ... FAILED",
        "test result: FAILED. 3 passed; 1 failed; 0 ignored; finished in 0.10s",
    ];

    #[test]
    fn failed_tests_of_one_name_in_two_programs_are_counted_apart() {
        let mut suites = Suites::default();
        let programs = ["link-0123", "ftp-4567"].map(|name| Origin::Program(name.into()));
        for program in &programs {
            suites.set_origin(Some(program.clone()));
            suites.begin("unit tests".to_owned());
            FAILED.iter().for_each(|line| suites.on_line(line));
        }
        let failures = suites.failures(0);
        let origins: Vec<_> = failures.iter().flat_map(|it| it.origin.clone()).collect();
        assert_eq!(origins, programs);
        suites.forgive(&failures[0], 2);
        assert_eq!((suites.sum().passed, suites.sum().failed), (7, 1));
        assert!(!suites.have_passed());
        suites.forgive(&failures[1], 3);
        assert_eq!((suites.sum().passed, suites.sum().failed), (8, 0));
    }

    #[test]
    fn a_suite_that_crashed_is_no_success() {
        let suites = suites(
            "Running unittests src/lib.rs (target/debug/deps/ftp-0123)\n\
             test result: ok. 9 passed; 0 failed; 0 ignored\n\
             Running tests/wan.rs (target/debug/deps/wan-4567)\n",
        );
        assert!(suites.have_failure(0) && suites.failures(0).is_empty());
        assert!(suites.report().is_err());
    }
}
