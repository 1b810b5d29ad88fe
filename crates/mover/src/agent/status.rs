//! Status of an agent: one snapshot, as JSON for programs and as metrics for Prometheus.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex},
};

use serde::Serialize;

use crate::{plan::JobCounts, run::JobProgress};

/// Status of an agent. The agent updates the status, and the HTTP pages show it.
#[derive(Debug)]
pub struct AgentStatus {
    started_unix_s: i64,
    jobs: Mutex<Vec<StatusEntry>>,
}

#[derive(Debug)]
struct StatusEntry {
    status: JobStatus,
    /// Progress of the present run. `None` if no run is in progress.
    progress: Option<Arc<JobProgress>>,
}

/// Present state of an agent, and its counters since the agent started.
#[derive(Debug, Serialize)]
pub struct AgentSnapshot {
    /// Start time of the agent, in seconds since 1970.
    pub started_unix_s: i64,
    /// The jobs, in the order of the configuration.
    pub jobs: Vec<JobStatus>,
}

/// Status of one job.
#[derive(Debug, Clone, Serialize)]
pub struct JobStatus {
    /// Name of the job.
    pub name: String,
    /// The source location.
    pub from: String,
    /// The destination location.
    pub to: String,
    /// Whether a run is in progress.
    pub is_running: bool,
    /// Time of the next start, in seconds since 1970.
    pub next_start_unix_s: Option<i64>,
    /// The present run. If no run is in progress, the last run.
    pub run: Option<LastRun>,
    /// Number of runs that have ended since the agent started.
    pub runs_total: u64,
    /// Number of runs that have ended with failures since the agent started.
    pub runs_failed_total: u64,
    /// Number of files moved since the agent started. It does not include files of the present run.
    pub files_total: u64,
    /// Number of bytes moved since the agent started. It does not include bytes of the present run.
    pub bytes_total: u64,
    /// Number of command calls that have failed since the agent started.
    pub calls_failed_total: u64,
}

/// A run of a job.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LastRun {
    /// Start time of the run, in seconds since 1970.
    pub started_unix_s: i64,
    /// Duration of the run in seconds. `None` while the run is in progress.
    pub elapsed_s: Option<f64>,
    /// Number of files that the run has found so far and has to move.
    pub files_wanted: u64,
    /// Number of files that the run has moved.
    pub files_moved: u64,
    /// Total size, in bytes, of the files that the run has found so far and has to move.
    pub bytes_wanted: u64,
    /// Number of bytes that the run has moved.
    pub bytes_moved: u64,
    /// Number of files and directories that failed.
    pub files_failed: u64,
    /// Number of files that the run left for a later run, because programs may still be writing the
    /// files.
    pub files_unsettled: u64,
    /// The last error of the run.
    pub error: Option<String>,
}

impl AgentStatus {
    /// Creates the status of an agent that has just started. Each job is given by name, source and
    /// destination.
    pub fn new(started_unix_s: i64, jobs: impl IntoIterator<Item = [String; 3]>) -> Self {
        let jobs = jobs.into_iter().map(|[name, from, to]| StatusEntry {
            status: JobStatus {
                name,
                from: without_queries(&from),
                to: without_queries(&to),
                is_running: false,
                next_start_unix_s: None,
                run: None,
                runs_total: 0,
                runs_failed_total: 0,
                files_total: 0,
                bytes_total: 0,
                calls_failed_total: 0,
            },
            progress: None,
        });
        Self {
            started_unix_s,
            jobs: Mutex::new(jobs.collect()),
        }
    }

    /// Returns the present status.
    pub fn snapshot(&self) -> AgentSnapshot {
        let jobs = self.jobs.lock().expect("nobody panics with it");
        let now = jobs.iter().map(|it| {
            let mut status = it.status.clone();
            if let (Some(run), Some(progress)) = (&mut status.run, &it.progress) {
                run.bytes_moved = progress.moved_bytes();
            }
            status
        });
        AgentSnapshot {
            started_unix_s: self.started_unix_s,
            jobs: now.collect(),
        }
    }

    pub(super) fn waits(&self, job: usize, next_start_unix_s: Option<i64>) {
        self.change(job, |it| it.status.next_start_unix_s = next_start_unix_s);
    }

    pub(super) fn begins(&self, job: usize, started_unix_s: i64, progress: Arc<JobProgress>) {
        self.change(job, |it| {
            it.progress = Some(progress);
            it.status.is_running = true;
            it.status.run = Some(LastRun {
                started_unix_s,
                ..LastRun::default()
            });
        });
    }

    /// Records that a run could not start.
    pub(super) fn breaks(&self, job: usize, started_unix_s: i64, error: &str) {
        self.begins(job, started_unix_s, Arc::new(JobProgress::new(None)));
        self.fails(job, error);
        self.ends(job, 0.0, true);
    }

    pub(super) fn call_fails(&self, job: usize) {
        self.change(job, |it| it.status.calls_failed_total += 1);
    }

    pub(super) fn advances(&self, job: usize, tally: &JobCounts) {
        self.change(job, |it| it.count(tally));
    }

    pub(super) fn fails(&self, job: usize, error: &str) {
        self.change(job, |it| {
            if let Some(run) = &mut it.status.run {
                run.error = Some(without_queries(error));
            }
        });
    }

    pub(super) fn ends(&self, job: usize, elapsed_s: f64, is_failed: bool) {
        self.change(job, |it| {
            let moved_bytes = it.progress.take().map_or(0, |it| it.moved_bytes());
            let status = &mut it.status;
            status.is_running = false;
            status.runs_total += 1;
            status.runs_failed_total += u64::from(is_failed);
            status.bytes_total += moved_bytes;
            if let Some(run) = &mut status.run {
                run.elapsed_s = Some(elapsed_s);
                run.bytes_moved = moved_bytes;
                status.files_total += run.files_moved;
            }
        });
    }

    fn change(&self, job: usize, change: impl FnOnce(&mut StatusEntry)) {
        change(&mut self.jobs.lock().expect("nobody panics with it")[job]);
    }
}

/// Removes the query parts of URLs from a text. Also removes queries from file names that come from
/// URLs.
///
/// A query may contain a secret, and any user of this machine may read the status. If a file name
/// contains a question mark, the rest of that name is removed as well.
fn without_queries(text: &str) -> String {
    let mut shown = String::new();
    let mut is_query = false;
    for character in text.chars() {
        match character {
            '?' => is_query = true,
            ' ' | '"' | '\'' | '\n' => is_query = false,
            _ => {}
        }
        if !is_query {
            shown.push(character);
        }
    }
    shown
}

impl StatusEntry {
    fn count(&mut self, tally: &JobCounts) {
        if let Some(run) = &mut self.status.run {
            run.files_wanted = tally.wanted;
            run.files_moved = tally.moved;
            run.bytes_wanted = tally.bytes_wanted;
            run.files_failed = tally.failed;
            run.files_unsettled = tally.unsettled;
        }
    }
}

impl AgentSnapshot {
    /// Returns the metrics in the Prometheus text format, version 0.0.4.
    pub fn to_metrics(&self) -> String {
        let mut text = String::new();
        let run = |it: &JobStatus| it.run.clone().unwrap_or_default();
        type Read = Box<dyn Fn(&JobStatus) -> f64>;
        let metrics: [(&str, &str, &str, Read); 10] = [
            (
                "longhaul_job_running",
                "gauge",
                "1 during a run of the job",
                Box::new(|it| f64::from(u8::from(it.is_running))),
            ),
            (
                "longhaul_job_runs_total",
                "counter",
                "Runs that have ended since the start of the agent",
                Box::new(|it| it.runs_total as f64),
            ),
            (
                "longhaul_job_runs_failed_total",
                "counter",
                "Runs that have ended with failures",
                Box::new(|it| it.runs_failed_total as f64),
            ),
            (
                "longhaul_job_files_total",
                "counter",
                "Files moved by runs that have ended",
                Box::new(|it| it.files_total as f64),
            ),
            (
                "longhaul_job_bytes_total",
                "counter",
                "Bytes moved by runs that have ended",
                Box::new(|it| it.bytes_total as f64),
            ),
            (
                "longhaul_job_calls_failed_total",
                "counter",
                "Commands for files that have failed since the start of the agent",
                Box::new(|it| it.calls_failed_total as f64),
            ),
            (
                "longhaul_job_run_start_time_seconds",
                "gauge",
                "Unix time of the start of the present run, or of the last one",
                Box::new(move |it| run(it).started_unix_s as f64),
            ),
            (
                "longhaul_job_run_bytes",
                "gauge",
                "Bytes moved by the present run, or by the last one",
                Box::new(move |it| run(it).bytes_moved as f64),
            ),
            (
                "longhaul_job_run_files_failed",
                "gauge",
                "Files and directories that have failed in the present run, or in the last one",
                Box::new(move |it| run(it).files_failed as f64),
            ),
            (
                "longhaul_job_next_start_time_seconds",
                "gauge",
                "Unix time at which the job is to start next; 0 for none",
                Box::new(|it| it.next_start_unix_s.unwrap_or_default() as f64),
            ),
        ];
        for (name, kind, help, read) in metrics {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for job in &self.jobs {
                // The name of a job has letters and digits, but no quotes.
                let _ = writeln!(text, "{name}{{job=\"{}\"}} {}", job.name, read(job));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_of_urls_are_not_shown() {
        let from = "https://localhost/film.mov?token=SECRET&x=1".to_owned();
        let status = AgentStatus::new(0, [["pull".to_owned(), from, "/to/".to_owned()]]);
        status.change(0, |it| it.status.run = Some(LastRun::default()));
        status.fails(0, "\"film.mov?token=SECRET\": https://a/b?SECRET refused");
        let shown = serde_json::to_string(&status.snapshot()).expect("plain text");
        assert!(!shown.contains("SECRET"), "{shown}");
        assert!(shown.contains("https://localhost/film.mov\""), "{shown}");
        assert!(shown.contains("https://a/b refused"), "{shown}");
    }
}
