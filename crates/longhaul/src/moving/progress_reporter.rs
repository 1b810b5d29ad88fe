//! Output of a running job: a progress line on a terminal, lines about failures, or JSON for
//! programs.
#![allow(clippy::disallowed_methods, reason = "measures how long a copy takes")]

use std::{
    collections::HashSet,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressState, ProgressStyle};
use mover::{
    job::Job,
    names::printable,
    plan::{
        ContentProof, DIRECTORY_FAILED, DryRunStep, FileEvent, FileOutcome, JobCounts, JobPurpose,
    },
    run::{JobProgress, JobSummary},
};
use serde::Serialize;
use units::{BitRate, ByteCount};

use super::calls::Call;
use crate::output;

/// Format in which a job reports its progress and its result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputFormat {
    /// One line of JSON for each file.
    Json,
    /// A progress line on a terminal, which is updated in place.
    Bar,
    /// A new progress line every few seconds.
    Lines,
    /// Only the final result.
    Result,
}

/// Prints the progress and the results of a job.
pub(super) struct ProgressReporter {
    format: OutputFormat,
    /// Time at which progress was last printed.
    shown: Instant,
    /// The job's destination. `None` if the command line has only one destination.
    to: Option<String>,
    bar: ProgressBar,
    progress: Arc<JobProgress>,
    begun: Instant,
    /// Duration of all transfers. `None` while files are moving.
    took: Option<Duration>,
    failed_calls: u64,
    purpose: JobPurpose,
    is_dry_run: bool,
    /// Source path of each root. The output shows this path in front of each path below the root.
    roots: Vec<String>,
    /// Destination path of each root.
    destinations: Vec<String>,
    repeated: RepeatedFailures,
}

/// Failures of files whose directory cannot be made. The output has one line for each such
/// directory, instead of one line for each file.
#[derive(Default)]
struct RepeatedFailures {
    /// Number of failures that have no separate line.
    files: u64,
    /// Reasons that were printed.
    printed: HashSet<String>,
}

/// One line of the JSON output.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    File {
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<&'a str>,
        path: &'a str,
        result: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        proof: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
    },
    Progress {
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<&'a str>,
        moved: u64,
        wanted: u64,
        bytes: u64,
        bytes_wanted: u64,
        elapsed_s: f64,
    },
    Called {
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<&'a str>,
        path: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        failure: Option<&'a str>,
    },
    Result {
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<&'a str>,
        moved: u64,
        same: u64,
        left_out: u64,
        failed: u64,
        differing: u64,
        missing: u64,
        surplus: u64,
        doomed: u64,
        deleted: u64,
        #[serde(skip_serializing_if = "is_zero")]
        failed_calls: u64,
        dry_run: bool,
        bytes: u64,
        elapsed_s: f64,
        interrupted: bool,
    },
}

impl ProgressReporter {
    /// Creates a reporter. `to` is the job's destination if the command line has several
    /// destinations.
    pub(super) fn new(
        format: OutputFormat,
        job: &Job,
        to: Option<String>,
        progress: Arc<JobProgress>,
        bars: &MultiProgress,
    ) -> Self {
        let bar = if format != OutputFormat::Bar {
            ProgressBar::hidden()
        } else {
            let to = to.as_ref().map(|to| format!("{to}: "));
            let bar = ProgressBar::new(0).with_style(style());
            bars.add(bar.with_prefix(to.unwrap_or_default()))
        };
        let roots = job.roots.iter();
        let roots = roots.map(|it| printable(&it.source));
        let destinations = job.roots.iter();
        let destinations = destinations.map(|it| printable(it.destination.directory()));
        Self {
            format,
            shown: Instant::now(),
            to,
            bar,
            progress,
            begun: Instant::now(),
            took: None,
            failed_calls: 0,
            purpose: job.plan.purpose.clone(),
            is_dry_run: job.plan.is_dry_run,
            roots: roots.collect(),
            destinations: destinations.collect(),
            repeated: RepeatedFailures::default(),
        }
    }

    pub(super) fn report(&mut self, note: Option<FileEvent>, tally: JobCounts) {
        self.bar.set_length(tally.bytes_wanted);
        self.bar.set_position(self.progress.moved_bytes());
        self.bar.set_message(format!(
            "{} of {}",
            tally.moved,
            output::counted(tally.wanted, "file")
        ));
        if self.shown.elapsed() >= LINE_INTERVAL {
            match self.format {
                OutputFormat::Lines => self.print_progress(tally),
                OutputFormat::Json if !self.is_check() => self.print_progress_json(tally),
                _ => {}
            }
        }
        let Some(note) = note else {
            return;
        };
        let path = self.path(&note);
        if self.format == OutputFormat::Json {
            return self.print_json(&path, &note.result);
        }
        let path = self.path_with_destination(&path);
        match &note.result {
            FileOutcome::Failed(reason) if self.repeated.count(reason) => {
                tracing::info!("failed: {path}: {reason}");
            }
            FileOutcome::Failed(reason) => {
                self.bar.suspend(|| eprintln!("failed: {path}: {reason}"))
            }
            FileOutcome::Retried(reason) => tracing::info!("again: {path}: {reason}"),
            FileOutcome::NoConnection(reason) => {
                self.bar
                    .suspend(|| eprintln!("longhaul: {reason}; trying again"));
            }
            FileOutcome::Waiting(what) => self.bar.suspend(|| eprintln!("longhaul: {what}")),
            FileOutcome::LeftOut(reason) => tracing::info!("left out: {path}: {reason}"),
            FileOutcome::Unknown(reason) => {
                self.bar.suspend(|| {
                    eprintln!(
                        "longhaul: the entries of {path} are unknown, so all files are copied: {reason}"
                    );
                });
            }
            FileOutcome::Warning(what) => {
                self.bar.suspend(|| eprintln!("longhaul: {path}: {what}"));
            }
            FileOutcome::Moved(..) | FileOutcome::Same(_) | FileOutcome::TakenBefore => {
                tracing::debug!(path, "done");
            }
            FileOutcome::Deleted => tracing::info!("deleted: {path}"),
            FileOutcome::Removed => tracing::info!("removed at SRC: {path}"),
            FileOutcome::Extra if self.is_check() => {
                self.print_line(&format!("only at DST: {path}"))
            }
            FileOutcome::Extra => tracing::info!("only at DST: {path}"),
            FileOutcome::Missing => self.print_line(&format!("missing: {path}")),
            FileOutcome::Differs(what) => self.print_line(&format!("differs: {path}: {what}")),
            FileOutcome::Planned(DryRunStep::Move(_)) => {
                self.print_line(&format!("would copy {path}"))
            }
            FileOutcome::Planned(DryRunStep::Make) => {
                self.print_line(&format!("would make {path}/"))
            }
            FileOutcome::Planned(DryRunStep::Delete) => {
                self.print_line(&format!("would delete {path}"))
            }
        }
    }

    /// Prints the progress as a JSON object.
    fn print_progress_json(&mut self, tally: JobCounts) {
        self.shown = Instant::now();
        let line = Line::Progress {
            to: self.to.as_deref(),
            moved: tally.moved,
            wanted: tally.wanted,
            bytes: self.progress.moved_bytes(),
            bytes_wanted: tally.bytes_wanted,
            elapsed_s: self.begun.elapsed().as_secs_f64(),
        };
        // If the output is closed, the job still continues.
        let _ = output::print(&output::json(&line));
    }

    /// Prints the progress as a line of text.
    fn print_progress(&mut self, tally: JobCounts) {
        self.shown = Instant::now();
        let moved = ByteCount::new(self.progress.moved_bytes());
        let wanted = ByteCount::new(tally.bytes_wanted);
        let rate = BitRate::from_transfer(moved, self.begun.elapsed());
        let files = format!(
            "{} of {}",
            tally.moved,
            output::counted(tally.wanted, "file")
        );
        let to = self.to.as_ref().map(|to| format!("{to}: "));
        let to = to.unwrap_or_default();
        eprintln!(
            "{to}{} of {}, {rate}; {files}",
            moved.measured(),
            wanted.measured()
        );
    }

    /// Records the end of all transfers.
    pub(super) fn end_transfers(&mut self) {
        self.took = Some(self.begun.elapsed());
    }

    pub(super) fn failed_calls(&self) -> u64 {
        self.failed_calls
    }

    /// Returns a path for output. If the command line has several destinations, the destination is
    /// in front.
    fn path_with_destination(&self, path: &str) -> String {
        match &self.to {
            Some(to) => format!("{path} -> {to}"),
            None => path.to_owned(),
        }
    }

    /// Prints the outcome of a call of the user's command.
    pub(super) fn report_call(&mut self, call: &Call) {
        self.failed_calls += u64::from(call.failure.is_some());
        if self.format == OutputFormat::Json {
            let line = Line::Called {
                to: self.to.as_deref(),
                path: &call.path,
                failure: call.failure.as_deref(),
            };
            // If the output is closed, the job still continues.
            let _ = output::print(&output::json(&line));
        } else if let Some(failure) = &call.failure {
            let path = self.path_with_destination(&call.path);
            self.bar
                .suspend(|| eprintln!("failed: --on-file for {path}: {failure}"));
        }
    }

    fn is_check(&self) -> bool {
        matches!(self.purpose, JobPurpose::Check { .. })
    }

    /// Prints one line to standard output.
    fn print_line(&self, line: &str) {
        // If the output is closed, the job still continues.
        let _ = self.bar.suspend(|| output::print(&format!("{line}\n")));
    }

    pub(super) fn print_result(&mut self, summary: &JobSummary) -> anyhow::Result<()> {
        self.bar.finish_and_clear();
        let tally = summary.tally;
        let elapsed = self.took.unwrap_or_else(|| self.begun.elapsed());
        let bytes = ByteCount::new(self.progress.moved_bytes());
        if self.format == OutputFormat::Json {
            return output::print(&output::json(&Line::Result {
                to: self.to.as_deref(),
                moved: tally.moved,
                same: tally.same,
                left_out: tally.left_out,
                failed: tally.failed,
                differing: tally.differing,
                missing: tally.missing,
                surplus: tally.surplus,
                doomed: tally.doomed,
                deleted: tally.deleted,
                failed_calls: self.failed_calls,
                dry_run: self.is_dry_run,
                bytes: bytes.bytes(),
                elapsed_s: elapsed.as_secs_f64(),
                interrupted: summary.is_interrupted,
            }));
        }
        if let Some(line) = self.repeated.summary() {
            self.bar.suspend(|| eprintln!("{line}"));
        }
        if output::is_quiet() {
            return Ok(());
        }
        let mut text = if self.is_check() {
            let verb = if tally.same == 1 { "is" } else { "are" };
            format!("{} {verb} the same", output::counted(tally.same, "file"))
        } else if self.is_dry_run {
            let bytes = ByteCount::new(tally.bytes_wanted).measured();
            let files = output::counted(tally.wanted, "file");
            format!("{files} would be copied, {bytes}")
        } else {
            let rate = BitRate::from_transfer(bytes, elapsed);
            let elapsed_s = elapsed.as_secs_f64();
            format!(
                "{} copied, {} in {elapsed_s:.1} s, {rate}",
                output::counted(tally.moved, "file"),
                bytes.measured()
            )
        };
        let (same, doomed) = match (self.is_check(), self.is_dry_run && tally.failed == 0) {
            (true, _) => (0, 0),
            (false, true) => (tally.same, tally.doomed),
            (false, false) => (tally.same, 0),
        };
        for (count, what) in [
            (same, "there already"),
            (
                tally.differing,
                one_or("differs", "differ", tally.differing),
            ),
            (tally.missing, "missing at DST"),
            (tally.surplus, "only at DST"),
            (doomed, "would be deleted"),
            (tally.deleted, "deleted"),
            (tally.left_out, left_out(tally.left_out)),
            (tally.failed, "failed"),
            (
                self.failed_calls,
                one_or("command failed", "commands failed", self.failed_calls),
            ),
        ] {
            if count > 0 {
                text += &format!("; {count} {what}");
            }
        }
        if summary.is_interrupted {
            text += "; interrupted: run the same command to resume";
        }
        if let Some(to) = &self.to {
            text = format!("{to}: {text}");
        }
        self.bar.suspend(|| output::print(&(text + "\n")))
    }

    /// Returns the path in an event as the user would write it: below the source, or below the
    /// destination.
    pub(super) fn path(&self, note: &FileEvent) -> String {
        let is_theirs = matches!(
            note.result,
            FileOutcome::Deleted
                | FileOutcome::Extra
                | FileOutcome::Unknown(_)
                | FileOutcome::Planned(DryRunStep::Make | DryRunStep::Delete)
        );
        let roots = match is_theirs {
            true => &self.destinations,
            false => &self.roots,
        };
        let root = &roots[note.root];
        match (note.path.names().is_empty(), root.is_empty()) {
            (true, true) => ".".to_owned(),
            (true, false) => root.clone(),
            (false, true) => printable(&note.path.to_bytes()),
            (false, false) => {
                let below = printable(&note.path.to_bytes());
                format!("{}/{below}", root.trim_end_matches('/'))
            }
        }
    }

    fn print_json(&self, path: &str, result: &FileOutcome) {
        let proof = match result {
            FileOutcome::Moved(_, proof) => Some(name(*proof)),
            _ => None,
        };
        let (result, bytes, reason) = match result {
            FileOutcome::Moved(version, _) => ("copied", version.size_bytes, None),
            FileOutcome::Same(_) | FileOutcome::TakenBefore => ("same", None, None),
            FileOutcome::LeftOut(reason) => ("left_out", None, Some(*reason)),
            FileOutcome::Retried(reason) => ("retried", None, Some(reason.as_str())),
            FileOutcome::Waiting(what) => ("waiting", None, Some(what.as_str())),
            FileOutcome::NoConnection(reason) => ("no_connection", None, Some(reason.as_str())),
            FileOutcome::Failed(reason) => ("failed", None, Some(reason.as_str())),
            FileOutcome::Unknown(reason) => ("unknown", None, Some(reason.as_str())),
            FileOutcome::Warning(what) => ("warning", None, Some(what.as_str())),
            FileOutcome::Planned(DryRunStep::Move(version)) => {
                ("would_copy", version.size_bytes, None)
            }
            FileOutcome::Planned(DryRunStep::Make) => ("would_make", None, None),
            FileOutcome::Planned(DryRunStep::Delete) => ("would_delete", None, None),
            FileOutcome::Differs(what) => ("differs", None, Some(*what)),
            FileOutcome::Missing => ("missing", None, None),
            FileOutcome::Extra => ("only_at_destination", None, None),
            FileOutcome::Deleted => ("deleted", None, None),
            FileOutcome::Removed => ("removed", None, None),
        };
        let line = Line::File {
            to: self.to.as_deref(),
            path,
            result,
            bytes,
            proof,
            reason,
        };
        // If the output is closed, the job still continues.
        let _ = output::print(&output::json(&line));
    }
}

impl RepeatedFailures {
    /// Counts a failure if another line of the output already states its cause. Returns false if
    /// the failure needs its own line.
    fn count(&mut self, reason: &str) -> bool {
        let Some(cause) = reason.strip_prefix(DIRECTORY_FAILED) else {
            return false;
        };
        // If the reason contains no cause, another line reports the failure of the directory.
        let is_repeated = cause.is_empty() || !self.printed.insert(cause.to_owned());
        self.files += u64::from(is_repeated);
        is_repeated
    }

    fn summary(&self) -> Option<String> {
        let text = match self.files {
            0 => return None,
            1 => "one more file, because its directory cannot be made".to_owned(),
            more => format!("{more} more files, because their directories cannot be made"),
        };
        let hint = if is_verbose() { "" } else { " (-v lists them)" };
        Some(format!("failed: {text}{hint}"))
    }
}

/// Returns the word for skipped entries, with the option that lists them.
fn left_out(count: u64) -> &'static str {
    match is_verbose() {
        true => "left out",
        false => one_or("left out (-v lists it)", "left out (-v lists them)", count),
    }
}

/// Whether the log shows skipped entries and repeated failures.
fn is_verbose() -> bool {
    tracing::enabled!(tracing::Level::INFO)
}

/// Returns `singular` if `count` is 1, and otherwise `plural`.
fn one_or(singular: &'static str, plural: &'static str, count: u64) -> &'static str {
    if count == 1 { singular } else { plural }
}

fn name(proof: ContentProof) -> &'static str {
    match proof {
        ContentProof::None => "none",
        ContentProof::Size => "size",
        ContentProof::Link => "link",
        ContentProof::Hash => "hash",
        ContentProof::Content => "content",
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Interval between two progress lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

fn style() -> ProgressStyle {
    let style =
        "{prefix}{decimal_bytes} of {decimal_total_bytes}, {decimal_bytes_per_sec}{left}; {msg}";
    let style = ProgressStyle::with_template(style).expect("the template is right");
    style.with_key("left", |state: &ProgressState, f: &mut dyn fmt::Write| {
        // The bar shows an incomplete line if this write fails.
        let _ = f.write_str(&time_left(state.pos(), state.eta()));
    })
}

/// Returns the remaining time for the progress line. Before the first byte, the time is unknown.
fn time_left(moved_bytes: u64, left: Duration) -> String {
    match moved_bytes {
        0 => String::new(),
        _ => format!(", {:#} left", HumanDuration(left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_made_has_one_line() {
        let mut repeated = RepeatedFailures::default();
        assert!(!repeated.count("the server refused MKD: 550 no"));
        assert_eq!(repeated.summary(), None);
        let with_cause = format!("{DIRECTORY_FAILED}: 550 no");
        let counted: Vec<bool> = [
            with_cause.as_str(),
            &with_cause,
            DIRECTORY_FAILED,
            DIRECTORY_FAILED,
        ]
        .map(|reason| repeated.count(reason))
        .to_vec();
        assert_eq!(counted, [false, true, true, true]);
        let words = "failed: 3 more files, because their directories cannot be made";
        let summary = repeated.summary().expect("three were counted");
        assert!(summary.starts_with(words), "{summary}");
    }

    #[test]
    fn the_time_left_is_shown_only_after_the_first_byte() {
        assert_eq!(time_left(0, Duration::ZERO), "");
        assert_eq!(time_left(1, Duration::from_secs(30)), ", 30s left");
    }
}
