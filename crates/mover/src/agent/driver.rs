//! Runs an agent with the machine's clock and with the jobs' real folders and servers.
#![allow(
    clippy::disallowed_methods,
    reason = "owns the runs of jobs, and reads the clock for the timetable"
)]

use std::{
    collections::HashMap,
    future::pending,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use jiff::{Timestamp, Zoned, tz::TimeZone};
use tokio::{
    sync::{Notify, watch},
    task::{AbortHandle, JoinError, JoinSet, spawn_blocking},
    time::sleep,
};

use super::{
    calls::{CallParameters, JobCalls},
    history::{HistoryLine, JobHistory},
    memory::{JobMemory, MemoryError},
    status::AgentStatus,
    timetable::{JobTimes, RunOutcome, Timetable},
    watch::FolderWatch,
};
use crate::{
    job::Job,
    journal::Journal,
    limit::RateLimit,
    plan::{FileEvent, FileOutcome, JobCounts},
    run::{self, JobProgress},
};

/// A job of an agent.
pub struct AgentJob {
    /// Name of the job, made of letters, digits, `-`, `_` and `.`. The job's state files also carry
    /// this name.
    pub name: String,
    /// Times at which the job runs.
    pub times: JobTimes,
    /// A local folder. A change in this folder starts the job.
    pub watched: Option<PathBuf>,
    /// The source location, for display. If the source or the destination has changed, the job
    /// starts with an empty memory of moved files.
    pub from: String,
    /// The destination location, for display.
    pub to: String,
    /// Function that creates the job of one run.
    pub make: Box<dyn Fn() -> Result<RunJob, String> + Send + Sync>,
    /// Settings of the command that is called for each moved file.
    pub caller: Option<CallParameters>,
    /// Age at which the history deletes its lines. In the job's memory file, a record of this age
    /// is deleted only if its file is no longer at the source.
    pub keep_history: Duration,
}

/// Parameters of one run of a job.
pub struct RunJob {
    /// The locations and the options of the copy.
    pub job: Job,
    /// Maximum rate of the run in bytes per second.
    pub rate_max: Option<RateLimit>,
}

/// An error that prevents an agent from working.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The folder of the agent's state cannot be used.
    #[error("the folder {path} cannot be used")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The file system's error.
        #[source]
        source: io::Error,
    },
    /// The memory file of a job cannot be used.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A run panicked because of a defect in this program.
    #[error("the run broke off")]
    Broken(#[source] JoinError),
}

/// A job with its memory file, its history and its notifications. The agent keeps this value until
/// the agent ends.
struct ResidentJob {
    number: usize,
    job: Arc<AgentJob>,
    memory: Arc<JobMemory>,
    history: Arc<JobHistory>,
    /// Notification that command calls may be due.
    calls: Arc<Notify>,
    /// Number of command calls that have failed since the job's history last recorded a run.
    failed_calls: Arc<AtomicU64>,
    /// Folder of the journal in which the mover records parts (incomplete files at the
    /// destination).
    parts: PathBuf,
    status: Arc<AgentStatus>,
    /// Time in seconds since 1970 at which old records of the job were last deleted.
    forgotten_unix_s: AtomicI64,
    is_ending: watch::Receiver<bool>,
}

/// Returns the default folder for an agent's state. The folder is below `XDG_STATE_HOME`, or below
/// `~/.local/state` if that variable is not set.
pub fn folder() -> Option<PathBuf> {
    Some(Journal::folder()?.with_file_name("agent"))
}

/// Jobs whose folders have changed since their last run.
struct Notices {
    changed: Vec<AtomicBool>,
    wake: Notify,
}

/// Runs the jobs until `interrupt` resolves. `folder` holds the agent's state.
///
/// # Errors
/// [`AgentError`] if no job can run at all. If only some memory files cannot be used, the agent
/// retries their jobs and runs the other jobs.
pub async fn run(
    jobs: Vec<AgentJob>,
    folder: &Path,
    status: Arc<AgentStatus>,
    interrupt: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    let (end, is_ending) = watch::channel(false);
    let mut calls = JoinSet::new();
    let agent = Agent {
        folder: folder.to_owned(),
        status,
        is_ending,
    };
    let mut places = Vec::new();
    let (mut times, mut open, mut broken) = (Vec::new(), Vec::new(), Vec::new());
    for (number, job) in jobs.into_iter().enumerate() {
        let job = Arc::new(job);
        let settled = agent.settle_in(number, &job);
        let last = match &settled {
            Ok(settled) => settled.last_start.clone(),
            // A job that cannot run is retried like a job whose run has failed.
            Err(_) => Some(Zoned::now()),
        };
        times.push((job.times.clone(), last));
        let resident = match settled {
            Ok(settled) => {
                if settled.is_open {
                    open.push(number);
                }
                Some(settled.stay(&mut calls))
            }
            Err(error) => {
                agent.fails(number, &job, &error);
                broken.push((number, error));
                None
            }
        };
        places.push((job, resident));
    }
    // A broken job does not end the other jobs. If all jobs are broken, the agent ends with an
    // error.
    if broken.len() == places.len()
        && let Some((_, error)) = broken.pop()
    {
        return Err(error);
    }
    let mut table = Timetable::new(times, &Zoned::now());
    for (number, _) in broken {
        table.ended(number, FAILED, &Zoned::now());
    }
    // If a job has unfinished work from an earlier agent, the job starts again at once.
    open.into_iter()
        .for_each(|job| table.asked(job, &Zoned::now()));
    let notices = Arc::new(Notices::new(places.len()));
    let watch_all = places.iter().enumerate();
    let mut watches: Vec<Option<FolderWatch>> = watch_all
        .map(|(number, (job, _))| watch(number, job, &notices))
        .collect();
    let mut runs = JoinSet::new();
    let mut running = HashMap::new();
    let mut interrupt = std::pin::pin!(interrupt);
    loop {
        while let Some(number) = table.poll(&Zoned::now()) {
            let (job, runnable) = &mut places[number];
            // A lost watch is replaced before the run starts. The run finds all earlier changes of
            // the folder.
            if watches[number].as_ref().is_none_or(FolderWatch::is_lost) {
                watches[number] = watch(number, job, &notices);
            }
            let runnable = match runnable {
                Some(runnable) => runnable,
                none => match agent.settle_in(number, job) {
                    Ok(settled) => none.insert(settled.stay(&mut calls)),
                    Err(error) => {
                        agent.fails(number, job, &error);
                        table.ended(number, FAILED, &Zoned::now());
                        continue;
                    }
                },
            };
            let run = runs.spawn(runnable.resident.clone().run());
            running.insert(run.id(), number);
        }
        for number in 0..places.len() {
            let next = table.next(number).map(|it| it.timestamp().as_second());
            agent.status.waits(number, next);
        }
        tokio::select! {
            () = until(table.due()) => {}
            () = notices.wake.notified() => {
                for job in notices.take() {
                    table.noticed(job, &Zoned::now());
                }
            }
            Some(ended) = runs.join_next_with_id() => {
                let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
                let number = running.remove(&id).expect("each run has a job");
                let (job, runnable) = &mut places[number];
                let (outcome, is_broken) = ended.map_or_else(
                    |error| {
                        agent.fails(number, job, &AgentError::Broken(error));
                        (FAILED, true)
                    },
                    |(_, ended)| ended,
                );
                // After a disk error, each use of the memory file fails until the file is opened
                // again.
                if let Some(runnable) = runnable.take_if(|_| is_broken) {
                    if let Some(calls) = runnable.calls {
                        calls.abort();
                    }
                    drop(runnable.resident);
                }
                table.ended(number, outcome, &Zoned::now());
            }
            () = &mut interrupt => break,
        }
    }
    // The channel has no receiver if no job runs.
    let _ = end.send(true);
    while let Some(ended) = runs.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a run broke off");
        }
    }
    calls.shutdown().await;
    // Another agent, or a new run of this agent, may open the memory files next. Separate threads
    // finish the disk work, so the agent waits until no thread uses the memory files.
    let until = Instant::now() + CLOSE_MAX;
    let memories = || places.iter().filter_map(|(_, it)| it.as_ref());
    while memories().any(|it| Arc::strong_count(&it.resident.memory) > 1) && Instant::now() < until
    {
        sleep(CLOSE_STEP).await;
    }
    Ok(())
}

/// A job that can run.
struct RunnableJob {
    resident: Arc<ResidentJob>,
    /// The task that calls the command for the job's files.
    calls: Option<AbortHandle>,
}

/// State that all jobs of an agent share.
struct Agent {
    folder: PathBuf,
    status: Arc<AgentStatus>,
    is_ending: watch::Receiver<bool>,
}

/// A job whose memory file and folders can be used.
struct UsableJob {
    resident: ResidentJob,
    calls: Option<JobCalls>,
    last_start: Option<Zoned>,
    /// Whether the job had unfinished work when an earlier agent ended.
    is_open: bool,
}

impl UsableJob {
    /// Starts the task that calls the command for the job's files.
    fn stay(self, all_calls: &mut JoinSet<()>) -> RunnableJob {
        let calls = self.calls;
        RunnableJob {
            resident: Arc::new(self.resident),
            calls: calls.map(|it| all_calls.spawn(keep_calling(Arc::new(it)))),
        }
    }
}

impl Agent {
    /// Logs and reports that a job cannot run, or that a run panicked. The agent retries the job,
    /// and the other jobs continue.
    fn fails(&self, number: usize, job: &AgentJob, error: &AgentError) {
        let reason = run::chain(error);
        tracing::error!(job = job.name, reason, "the job cannot run");
        self.status
            .breaks(number, Timestamp::now().as_second(), &reason);
    }

    fn settle_in(&self, number: usize, job: &Arc<AgentJob>) -> Result<UsableJob, AgentError> {
        let make = |name: &str| {
            let path = self.folder.join(name);
            match std::fs::create_dir_all(&path) {
                Ok(()) => Ok(path),
                Err(source) => Err(AgentError::Folder { path, source }),
            }
        };
        let identity = format!("{}\n{}", job.from, job.to);
        let memory = JobMemory::open(
            &make("memory")?,
            &job.name,
            &identity,
            job.times.settle,
            job.caller.is_some(),
        )?;
        let memory = Arc::new(memory);
        let path = make("history")?.join(&job.name);
        let history = JobHistory::open(&path, job.keep_history)
            .map_err(|source| AgentError::Folder { path, source })?;
        let history = Arc::new(history);
        let wake = Arc::new(Notify::new());
        let failed_calls = Arc::new(AtomicU64::new(0));
        let calls = match &job.caller {
            Some(caller) => Some(JobCalls {
                caller: caller.clone(),
                memory: memory.clone(),
                history: history.clone(),
                folder: make(&format!("calls/{}", job.name))?,
                job: job.name.clone(),
                from: job.from.clone().into_bytes(),
                to: job.to.clone().into_bytes(),
                wake: wake.clone(),
                status: self.status.clone(),
                number,
                failed: failed_calls.clone(),
            }),
            None => None,
        };
        let last = memory.last_start_unix_ms()?;
        let last = last.and_then(|it| Timestamp::from_millisecond(it).ok());
        Ok(UsableJob {
            last_start: last.map(|it| it.to_zoned(TimeZone::system())),
            is_open: memory.is_open()?,
            resident: ResidentJob {
                number,
                parts: make("parts")?,
                job: job.clone(),
                memory,
                history,
                calls: wake,
                failed_calls,
                status: self.status.clone(),
                forgotten_unix_s: AtomicI64::new(0),
                is_ending: self.is_ending.clone(),
            },
            calls,
        })
    }
}

/// Watches the folder of a job. If the folder cannot be watched, the job runs only at its scheduled
/// times.
fn watch(number: usize, job: &AgentJob, notices: &Arc<Notices>) -> Option<FolderWatch> {
    let folder = job.watched.as_ref()?;
    let notices = notices.clone();
    let notice = move || notices.put(number);
    let watch = FolderWatch::new(folder, notice);
    let folder = folder.display();
    watch
        .inspect_err(|error| {
            tracing::warn!(job = job.name, %folder, %error, "the folder is not watched");
        })
        .ok()
}

impl Notices {
    fn new(jobs: usize) -> Self {
        Self {
            changed: (0..jobs).map(|_| AtomicBool::new(false)).collect(),
            wake: Notify::new(),
        }
    }

    fn put(&self, job: usize) {
        if !self.changed[job].swap(true, Ordering::Relaxed) {
            self.wake.notify_one();
        }
    }

    fn take(&self) -> Vec<usize> {
        let is_changed = |it: &usize| self.changed[*it].swap(false, Ordering::Relaxed);
        (0..self.changed.len()).filter(is_changed).collect()
    }
}

impl ResidentJob {
    /// Makes one run. The second returned value is true if the job's memory file could not be used.
    async fn run(self: Arc<Self>) -> (RunOutcome, bool) {
        let begun = Instant::now();
        let started = Timestamp::now();
        let started_unix_ms = started.as_millisecond();
        let noted = self.on_disk(move |it| it.started(started_unix_ms)).await;
        let mut is_broken = noted.is_err();
        let made = noted.and_then(|()| (self.job.make)());
        let rate_max = made.as_ref().ok().and_then(|it| it.rate_max.clone());
        let progress = Arc::new(JobProgress::new(rate_max));
        let started_unix_s = started.as_second();
        self.status
            .begins(self.number, started_unix_s, progress.clone());
        let mut tally = JobCounts::default();
        let mut is_interrupted = false;
        let mut reason;
        match made.and_then(|it| self.prepare(it)) {
            Ok((job, journal)) => {
                let summary = run::run(
                    job,
                    Some(journal),
                    progress.clone(),
                    self.until_ending(),
                    |note, tally| self.hear(note, &tally),
                )
                .await;
                tally = summary.tally;
                is_interrupted = summary.is_interrupted;
                is_broken |= summary.broken.is_some();
                reason = summary.broken.map(|it| run::chain(&it));
            }
            Err(error) => reason = Some(error),
        }
        let mut outcome = RunOutcome {
            unsettled: tally.unsettled > 0,
            failures: tally.failed > 0 || reason.is_some(),
        };
        if outcome.is_nothing() && !is_interrupted {
            reason = self.finish(started_unix_s).await.err();
            is_broken |= reason.is_some();
            outcome.failures = reason.is_some();
        }
        if let Some(reason) = &reason {
            tracing::error!(job = self.job.name, reason, "the run failed");
            self.status.fails(self.number, reason);
        }
        let elapsed_s = begun.elapsed().as_secs_f64();
        self.status.advances(self.number, &tally);
        self.status.ends(self.number, elapsed_s, outcome.failures);
        let failed_calls = self.failed_calls.swap(0, Ordering::Relaxed);
        let line = HistoryLine::Run {
            moved: tally.moved,
            same: tally.same,
            failed: tally.failed,
            unsettled: tally.unsettled,
            removed: tally.removed,
            failed_calls,
            bytes: progress.moved_bytes(),
            elapsed_s,
            interrupted: is_interrupted,
            reason: reason.as_deref(),
        };
        line.log_run(&self.job.name);
        if line.has_work() || reason.is_some() {
            self.write(&line);
        }
        (outcome, is_broken)
    }

    /// Records that a run has finished all work. Once a day, also deletes old records whose files
    /// are no longer at the source.
    async fn finish(&self, now_unix_s: i64) -> Result<(), String> {
        self.on_disk(JobMemory::ended).await?;
        let forgotten = self.forgotten_unix_s.load(Ordering::Relaxed);
        if now_unix_s.abs_diff(forgotten) < DAY_S {
            return Ok(());
        }
        self.forgotten_unix_s.store(now_unix_s, Ordering::Relaxed);
        let keep_s = i64::try_from(self.job.keep_history.as_secs()).unwrap_or(i64::MAX);
        let before_unix_s = now_unix_s.saturating_sub(keep_s);
        self.on_disk(move |it| it.forget(before_unix_s)).await
    }

    async fn on_disk(
        &self,
        work: impl FnOnce(&JobMemory) -> Result<(), MemoryError> + Send + 'static,
    ) -> Result<(), String> {
        let memory = self.memory.clone();
        let done = spawn_blocking(move || work(&memory)).await;
        let done = done.expect("disk work does not panic");
        done.map_err(|error| run::chain(&error))
    }

    /// Adds the agent's memory of moved files to a job, and opens the job's journal.
    fn prepare(&self, making: RunJob) -> Result<(Job, Journal), String> {
        let mut job = making.job;
        job.plan.memory = Some(self.memory.clone());
        let journal = Journal::open(&self.parts, &self.job.name);
        let journal = journal.map_err(|error| run::chain(&error))?;
        Ok((job, journal))
    }

    fn hear(&self, note: Option<FileEvent>, tally: &JobCounts) {
        self.status.advances(self.number, tally);
        let Some(note) = note else {
            return;
        };
        let path = note.path.to_string();
        let job = &self.job.name;
        match &note.result {
            FileOutcome::Moved(version, _) => {
                self.write(&HistoryLine::Copied {
                    path: &path,
                    bytes: version.size_bytes,
                });
                self.calls.notify_one();
            }
            // An earlier run may have moved the file, but may have ended before it sent the
            // notification.
            FileOutcome::Same(_) => self.calls.notify_one(),
            FileOutcome::Failed(reason) => {
                tracing::warn!(job, path, reason, "failed");
                self.status.fails(self.number, reason);
                let path = &path;
                self.write(&HistoryLine::Failed { path, reason });
            }
            FileOutcome::Warning(what) => tracing::warn!(job, path, "{what}"),
            // This is no failure, because the connection may still be established.
            FileOutcome::Waiting(what) => tracing::warn!(job, what, "no connection yet"),
            FileOutcome::NoConnection(reason) => {
                tracing::warn!(job, reason, "no connection");
                self.status.fails(self.number, reason);
            }
            result => tracing::debug!(job, path, ?result),
        }
    }

    fn write(&self, line: &HistoryLine<'_>) {
        self.history.write(Timestamp::now(), line);
    }

    async fn until_ending(&self) {
        let mut is_ending = self.is_ending.clone();
        // An error means that the sender was dropped, so the agent no longer exists.
        let _ = is_ending.wait_for(|it| *it).await;
    }
}

/// Calls the command for the job's files. If the job's memory file cannot be used, pauses and then
/// continues.
async fn keep_calling(calls: Arc<JobCalls>) {
    loop {
        // The calls run in a separate task, so that a panic there does not end this task.
        let mut running = JoinSet::new();
        running.spawn(calls.clone().run());
        let job = &calls.job;
        match running.join_next().await {
            Some(Ok(Err(error))) => {
                let error = run::chain(&error);
                tracing::error!(job, error, "no commands are called");
            }
            Some(Err(error)) => tracing::error!(job, %error, "no commands are called"),
            Some(Ok(Ok(()))) | None => {}
        }
        sleep(CALLS_PAUSE).await;
    }
}

/// Waits until `due`, but at most for `CLOCK_INTERVAL`. The limit is needed because the clock may
/// be changed and the machine may sleep.
async fn until(due: Option<Zoned>) {
    let Some(due) = due else {
        return pending().await;
    };
    let left = Duration::try_from(due.duration_since(&Zoned::now())).unwrap_or_default();
    sleep(left.min(CLOCK_INTERVAL)).await;
}

/// Maximum time for which a stopping agent waits until all memory files are closed.
const CLOSE_MAX: Duration = Duration::from_secs(5);

const CLOSE_STEP: Duration = Duration::from_millis(10);

/// Outcome of a run that could not start or that panicked.
const FAILED: RunOutcome = RunOutcome {
    unsettled: false,
    failures: true,
};

const DAY_S: u64 = 86_400;

/// Pause of a job's command calls after an error of the job's memory file.
const CALLS_PAUSE: Duration = Duration::from_secs(60);

/// Maximum time between two readings of the clock while the agent waits for a scheduled time.
const CLOCK_INTERVAL: Duration = Duration::from_secs(15);
