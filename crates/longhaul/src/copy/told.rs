//! What a running copy tells: a progress line on a terminal, a line for each failure, JSON for programs.
#![allow(clippy::disallowed_methods, reason = "measures how long a copy takes")]

use std::{sync::Arc, time::Instant};

use indicatif::{ProgressBar, ProgressStyle};
use mover::{
    job::Job,
    plan::{Note, Result, Tally},
    run::{Progress, Summary},
};
use serde::Serialize;
use units::{BitRate, ByteCount};

use crate::output;

/// Hears what becomes of each file.
pub(super) struct Told {
    is_json: bool,
    bar: ProgressBar,
    progress: Arc<Progress>,
    begun: Instant,
    /// URLs or paths of the roots, in front of paths below them.
    roots: Vec<String>,
}

/// A line of `--json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    File {
        path: &'a str,
        result: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
    },
    Result {
        moved: u64,
        same: u64,
        left_out: u64,
        failed: u64,
        bytes: u64,
        elapsed_s: f64,
        interrupted: bool,
    },
}

impl Told {
    pub(super) fn new(is_json: bool, job: &Job, progress: Arc<Progress>) -> Self {
        let bar = if is_json || !super::is_seen() {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(0).with_style(style())
        };
        let roots = job.roots.iter();
        let roots = roots.map(|it| ftp::command::escape(&it.source));
        Self {
            is_json,
            bar,
            progress,
            begun: Instant::now(),
            roots: roots.collect(),
        }
    }

    pub(super) fn hear(&mut self, note: Option<Note>, tally: Tally) {
        self.bar.set_length(tally.bytes_wanted);
        self.bar.set_position(self.progress.moved_bytes());
        self.bar
            .set_message(format!("{} of {} files", tally.moved, tally.wanted));
        let Some(note) = note else {
            return;
        };
        let path = self.path(&note);
        if self.is_json {
            return self.say_json(&path, &note.result);
        }
        match &note.result {
            Result::Failed(reason) => self.bar.suspend(|| eprintln!("failed: {path}: {reason}")),
            Result::Retried(reason) => tracing::info!("again: {path}: {reason}"),
            Result::NoConnection(reason) => {
                self.bar
                    .suspend(|| eprintln!("longhaul: {reason}; trying again"));
            }
            Result::LeftOut(reason) => tracing::info!("left out: {path}: {reason}"),
            Result::Moved(_) | Result::Same => tracing::debug!(path, "done"),
        }
    }

    pub(super) fn end(&mut self, summary: &Summary) -> anyhow::Result<()> {
        self.bar.finish_and_clear();
        let tally = summary.tally;
        let elapsed = self.begun.elapsed();
        let bytes = ByteCount::new(self.progress.moved_bytes());
        if self.is_json {
            return output::print(&output::json(&Line::Result {
                moved: tally.moved,
                same: tally.same,
                left_out: tally.left_out,
                failed: tally.failed,
                bytes: bytes.bytes(),
                elapsed_s: elapsed.as_secs_f64(),
                interrupted: summary.is_interrupted,
            }));
        }
        if output::is_quiet() {
            return Ok(());
        }
        let rate = BitRate::from_transfer(bytes, elapsed);
        let mut text = format!(
            "{} files copied, {bytes} in {:.1} s, {rate}",
            tally.moved,
            elapsed.as_secs_f64()
        );
        for (count, what) in [
            (tally.same, "there already"),
            (tally.left_out, "left out"),
            (tally.failed, "failed"),
        ] {
            if count > 0 {
                text += &format!("; {count} {what}");
            }
        }
        if summary.is_interrupted {
            text += "; interrupted: the same command goes on";
        }
        output::print(&(text + "\n"))
    }

    fn path(&self, note: &Note) -> String {
        let root = &self.roots[note.root];
        match (note.path.names().is_empty(), root.is_empty()) {
            (true, true) => ".".to_owned(),
            (true, false) => root.clone(),
            (false, true) => note.path.to_string(),
            (false, false) => format!("{}/{}", root.trim_end_matches('/'), note.path),
        }
    }

    fn say_json(&self, path: &str, result: &Result) {
        let (result, bytes, reason) = match result {
            Result::Moved(bytes) => ("copied", Some(*bytes), None),
            Result::Same => ("same", None, None),
            Result::LeftOut(reason) => ("left_out", None, Some(*reason)),
            Result::Retried(reason) => ("retried", None, Some(reason.as_str())),
            Result::NoConnection(reason) => ("no_connection", None, Some(reason.as_str())),
            Result::Failed(reason) => ("failed", None, Some(reason.as_str())),
        };
        let line = Line::File {
            path,
            result,
            bytes,
            reason,
        };
        // A reader that has gone away is no reason to stop copying.
        let _ = output::print(&output::json(&line));
    }
}

fn style() -> ProgressStyle {
    let style = "{bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left; {msg}";
    ProgressStyle::with_template(style).expect("the template is right")
}
