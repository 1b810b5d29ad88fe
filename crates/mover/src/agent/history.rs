//! History of a job for people and programs. Each day has one history file. It contains one line
//! of JSON for each moved or failed file, for each command call and for each run.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde::Serialize;

/// The history of one job.
#[derive(Debug)]
pub struct JobHistory {
    folder: PathBuf,
    keep: Duration,
    today: Mutex<Option<(Date, File)>>,
}

/// A line of the history.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum HistoryLine<'a> {
    /// A file is complete at the destination.
    Copied {
        /// Path below the job's source.
        path: &'a str,
        /// Size of the file in bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
    },
    /// A file or a directory could not be moved.
    Failed {
        /// Path below the job's source.
        path: &'a str,
        /// The reason of the failure.
        reason: &'a str,
    },
    /// A command was called for a file.
    Called {
        /// Path below the job's source.
        path: &'a str,
        /// Result of the command call.
        result: &'a str,
    },
    /// A run has ended.
    Run {
        /// Number of moved files.
        moved: u64,
        /// Number of files that needed no transfer. The destination had them, or an earlier run had
        /// moved them.
        same: u64,
        /// Number of files and directories that failed.
        failed: u64,
        /// Number of files that the run left for a later run, because programs may still be writing
        /// the files.
        unsettled: u64,
        /// Number of files removed at the source.
        removed: u64,
        /// Number of commands that have failed since the history last recorded a run.
        failed_calls: u64,
        /// Total size of the moved files in bytes.
        bytes: u64,
        /// Duration of the run in seconds.
        elapsed_s: f64,
        /// Whether the run was interrupted.
        interrupted: bool,
        /// The error of a run that could not start, ended early, or could not be recorded as ended.
        /// `None` for any other run.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
    },
}

impl HistoryLine<'_> {
    /// Logs the result of a run, if the line is about a run. A run without work is logged at level
    /// DEBUG. A run that ended early has an error message of its own.
    pub fn log_run(&self, job: &str) {
        if let Self::Run {
            moved: copied,
            same,
            failed,
            removed,
            failed_calls,
            bytes,
            elapsed_s,
            interrupted,
            reason: None,
            ..
        } = self
        {
            let seconds = format!("{elapsed_s:.1}");
            let result = match interrupted {
                false => "the run has ended",
                true => "the run was interrupted",
            };
            match self.has_work() {
                true => {
                    tracing::info!(job, copied, same, failed, removed, failed_calls, bytes, %seconds, "{result}")
                }
                false => {
                    tracing::debug!(job, copied, same, failed, removed, failed_calls, bytes, %seconds, "{result}")
                }
            }
        }
    }

    /// Returns whether the line is about work: a moved, failed or removed file, or a failed call.
    pub fn has_work(&self) -> bool {
        match self {
            Self::Run {
                moved,
                failed,
                removed,
                failed_calls,
                ..
            } => moved + failed + removed + failed_calls > 0,
            Self::Copied { .. } | Self::Failed { .. } | Self::Called { .. } => true,
        }
    }
}

#[derive(Serialize)]
struct DatedLine<'a> {
    at: String,
    #[serde(flatten)]
    line: &'a HistoryLine<'a>,
}

impl JobHistory {
    /// Opens the history in `folder`. At the start of each day, the history deletes its files that
    /// are older than `keep`.
    ///
    /// # Errors
    /// An error if the folder cannot be made.
    pub fn open(folder: &Path, keep: Duration) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            keep,
            today: Mutex::default(),
        })
    }

    /// Writes a line. If the line cannot be written, the line is lost, and the program logs the
    /// error.
    pub fn write(&self, now: Timestamp, line: &HistoryLine<'_>) {
        let dated = DatedLine {
            at: format!("{now:.3}"),
            line,
        };
        let mut text = serde_json::to_vec(&dated).expect("plain text and numbers");
        text.push(b'\n');
        let date = now.to_zoned(TimeZone::UTC).date();
        let mut today = self.today.lock().expect("nobody panics with it");
        if let Err(error) = self.append(&mut today, date, &text) {
            let folder = self.folder.display();
            tracing::warn!(%folder, %error, "the history cannot be written");
        }
    }

    fn append(&self, today: &mut Option<(Date, File)>, date: Date, text: &[u8]) -> io::Result<()> {
        if today.as_ref().is_none_or(|(day, _)| *day != date) {
            let path = self.folder.join(format!("{date}.jsonl"));
            let file = OpenOptions::new().create(true).append(true).open(path)?;
            *today = Some((date, file));
            self.delete_old(date);
        }
        let (_, file) = today.as_mut().expect("opened above");
        file.write_all(text)
    }

    fn delete_old(&self, today: Date) {
        let Ok(first) = today.checked_sub(self.keep) else {
            return;
        };
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let day = name.to_str().and_then(|it| it.strip_suffix(".jsonl"));
            let day = day.and_then(|it| Date::strptime("%Y-%m-%d", it).ok());
            if day.is_some_and(|it| it < first) {
                // A file that cannot be deleted now is deleted on the next day.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_day_has_a_file_and_old_days_go() {
        let folder = tempfile::tempdir().expect("room");
        let history =
            JobHistory::open(folder.path(), Duration::from_secs(2 * 86_400)).expect("room");
        let day = |day: u32| -> Timestamp {
            let text = format!("2026-11-{day:02}T12:00:00Z");
            text.parse().expect("a time")
        };
        for number in 1..=5 {
            let line = HistoryLine::Called {
                path: "a/b",
                result: "done",
            };
            history.write(day(number), &line);
            history.write(day(number), &line);
        }
        let mut names: Vec<String> = fs::read_dir(folder.path())
            .expect("there")
            .map(|it| {
                it.expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        names.sort();
        assert_eq!(
            names,
            ["2026-11-03.jsonl", "2026-11-04.jsonl", "2026-11-05.jsonl"]
        );
        let text = fs::read_to_string(folder.path().join("2026-11-05.jsonl")).expect("there");
        let line = "{\"at\":\"2026-11-05T12:00:00.000Z\",\"event\":\"called\",\"path\":\"a/b\",\"result\":\"done\"}\n";
        assert_eq!(text, line.repeat(2));
    }
}
