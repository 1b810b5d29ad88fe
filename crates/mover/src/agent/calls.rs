//! Command calls of a job: one call for each moved file, even if the agent is killed and restarted.
//!
//! The job's memory file stores a call as soon as the destination has the file. For each call, the
//! agent starts a launcher program. The launcher creates a mark on the disk and then replaces
//! itself with the command. If the mark already exists, an earlier agent has called the command,
//! and the launcher exits. Commands run concurrently with transfers and do not delay transfers.

use std::{
    ffi::OsString,
    fs, io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use tokio::{
    process::{Child, Command},
    sync::Notify,
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

use super::{
    history::{HistoryLine, JobHistory},
    memory::{JobMemory, MemoryError, PendingCall},
    status::AgentStatus,
};
use crate::{
    command::{CALLS_AT_ONCE, FileFacts, kill},
    names::{join, printable},
};

/// Settings for the command that the agent calls for each moved file.
#[derive(Debug, Clone)]
pub struct CallParameters {
    /// The command's program and arguments, started without a shell.
    pub command: Vec<OsString>,
    /// The launcher program and its arguments. The agent appends two paths and `command`. The
    /// launcher creates the mark: a hard link at the second path, to the file at the first path.
    /// The launcher then replaces itself with `command`.
    ///
    /// The launcher exits if the mark exists or the first path does not exist. If `command` cannot
    /// be started, the launcher removes the mark.
    pub launcher: Vec<OsString>,
    /// Time after which the agent kills a running command.
    pub timeout: Duration,
    /// Maximum number of further calls for a file if the command fails.
    pub retries: u32,
}

/// The command calls of one job (one call for each moved file).
pub(super) struct JobCalls {
    pub(super) caller: CallParameters,
    pub(super) memory: Arc<JobMemory>,
    pub(super) history: Arc<JobHistory>,
    /// Folder of the marks and of the commands' input files.
    pub(super) folder: PathBuf,
    pub(super) job: String,
    /// The source location of the job. The source of each file is computed from this location and
    /// the file's path.
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
    /// Notification that command calls may be due.
    pub(super) wake: Arc<Notify>,
    pub(super) status: Arc<AgentStatus>,
    /// Index of the job in the agent's status.
    pub(super) number: usize,
    /// Number of command calls that have failed since the job's history last recorded a run.
    pub(super) failed: Arc<AtomicU64>,
}

/// Outcome of a command call.
enum CallOutcome {
    /// The command has succeeded, or an earlier agent has already called the command.
    Called(String),
    /// The command has failed.
    Failed(String),
    /// The command could not be started.
    NotStarted(String),
}

impl JobCalls {
    /// Calls the command for all pending files, until the task is dropped. Commands that are
    /// running at that time continue.
    ///
    /// # Errors
    /// [`MemoryError`] if the job's memory file cannot be used.
    pub(super) async fn run(self: Arc<Self>) -> Result<(), MemoryError> {
        let calls = self;
        calls.tidy().await?;
        let mut running = JoinSet::new();
        let mut from = 0;
        loop {
            while running.len() < CALLS_AT_ONCE {
                let most = CALLS_AT_ONCE - running.len();
                let next = calls.on_disk(move |it| it.calls(from, most)).await?;
                if next.is_empty() {
                    break;
                }
                for call in next {
                    from = call.number + 1;
                    running.spawn(calls.clone().make(call));
                }
            }
            tokio::select! {
                () = calls.wake.notified() => {}
                Some(made) = running.join_next() => made.expect("a call does not panic")?,
            }
        }
    }

    /// Calls the command for one file. If the command fails or cannot be started, repeats the call.
    async fn make(self: Arc<Self>, call: PendingCall) -> Result<(), MemoryError> {
        let path = printable(&call.path);
        let mut pause = RETRY_FIRST;
        let mut retries_left = self.caller.retries;
        let result = loop {
            match self.make_once(&call).await {
                Ok(CallOutcome::Called(result)) => break result,
                Ok(CallOutcome::Failed(result)) => {
                    self.status.call_fails(self.number);
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(
                        job = self.job,
                        path,
                        result,
                        retries_left,
                        "the command has failed"
                    );
                    if retries_left == 0 {
                        break result;
                    }
                    retries_left -= 1;
                    // The mark must be removed. Otherwise the launcher would not call the command
                    // again.
                    if let Err(error) = fs::remove_file(self.mark(call.number)) {
                        tracing::warn!(job = self.job, path, %error, "the command cannot be called again");
                        break result;
                    }
                }
                Ok(CallOutcome::NotStarted(why)) => {
                    tracing::warn!(job = self.job, path, why, "the command cannot be called");
                }
                Err(error) => {
                    tracing::warn!(job = self.job, path, %error, "the command cannot be called");
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        };
        let number = call.number;
        self.on_disk(move |it| it.called(number)).await?;
        // If a file cannot be removed here, the agent removes it at its next start. A launcher that
        // runs late finds no facts file, and ends.
        let _ = fs::remove_file(self.facts_file(number));
        let _ = fs::remove_file(self.mark(number));
        let line = HistoryLine::Called {
            path: &path,
            result: &result,
        };
        self.history.write(now(), &line);
        Ok(())
    }

    async fn make_once(&self, call: &PendingCall) -> io::Result<CallOutcome> {
        let mark = self.mark(call.number);
        if mark.exists() {
            let result = "called by an agent that was ended meanwhile".to_owned();
            return Ok(CallOutcome::Called(result));
        }
        let mut child = match self.start(call, &mark) {
            Ok(child) => child,
            Err(error) => return Ok(CallOutcome::NotStarted(error.to_string())),
        };
        let ended = match timeout(self.caller.timeout, child.wait()).await {
            Ok(ended) => ended?,
            Err(_) => {
                kill(&child);
                child.wait().await?;
                let after_s = self.caller.timeout.as_secs_f64();
                return Ok(CallOutcome::Failed(format!("killed after {after_s} s")));
            }
        };
        Ok(match (mark.exists(), ended.success()) {
            (false, _) => CallOutcome::NotStarted(format!("the launcher ended with {ended}")),
            (true, true) => CallOutcome::Called("done".to_owned()),
            (true, false) => CallOutcome::Failed(ended.to_string()),
        })
    }

    fn start(&self, call: &PendingCall, mark: &PathBuf) -> io::Result<Child> {
        let source = full(&self.from, &call.path);
        let destination = full(&self.to, &call.path);
        let facts = FileFacts {
            job: Some(&self.job),
            path: &call.path,
            source: &source,
            destination: &destination,
            size_bytes: call.size_bytes,
            modified_unix_s: call.modified_unix_s,
        };
        let input = self.facts_file(call.number);
        // An earlier command may still be reading the facts file. Therefore the file is replaced
        // and not overwritten.
        let written = input.with_extension("new");
        fs::write(&written, facts.json())?;
        fs::rename(&written, &input)?;
        let mut command = Command::new(&self.caller.launcher[0]);
        command
            .args(&self.caller.launcher[1..])
            .args([&input, mark])
            .args(&self.caller.command)
            .stdin(fs::File::open(&input)?);
        facts.tell(&mut command);
        command.spawn()
    }

    /// Removes the marks of finished command calls.
    async fn tidy(&self) -> Result<(), MemoryError> {
        let first = self.on_disk(|it| it.calls(0, 1)).await?;
        let first = first.first().map_or(u64::MAX, |it| it.number);
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|it| it.split('.').next());
            let number = number.and_then(|it| it.parse::<u64>().ok());
            let is_done = match number {
                Some(number) if number < first => true,
                Some(number) => {
                    let found = self.on_disk(move |it| it.calls(number, 1)).await?;
                    found.first().is_none_or(|it| it.number != number)
                }
                None => false,
            };
            if is_done {
                // A file that cannot be removed does no harm.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    fn mark(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number}.called"))
    }

    fn facts_file(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number}.json"))
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&JobMemory) -> Result<T, MemoryError> + Send + 'static,
    ) -> Result<T, MemoryError> {
        let memory = self.memory.clone();
        let done = spawn_blocking(move || work(&memory)).await;
        done.expect("disk work does not panic")
    }
}

/// Returns the path of a file below a root. If the root itself is the file, returns the root.
fn full(root: &[u8], path: &[u8]) -> Vec<u8> {
    match path {
        b"" => root.to_vec(),
        path => join(root, path),
    }
}

#[allow(clippy::disallowed_methods, reason = "dates what is written")]
fn now() -> Timestamp {
    Timestamp::now()
}

const RETRY_FIRST: Duration = Duration::from_secs(10);

const RETRY_MAX: Duration = Duration::from_secs(600);
