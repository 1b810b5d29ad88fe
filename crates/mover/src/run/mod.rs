//! Execution of a job: lanes carry out the plan over real sockets and disks.
#![allow(
    clippy::disallowed_methods,
    reason = "owns lanes, and reads the clock for the plan"
)]

mod backend;
mod blocking;
mod browse;
mod clean;
mod compare;
mod delete;
mod failure;
mod job_context;
mod join_controller;
mod lane;
mod listing;
mod local;
mod memory_writer;
mod moving;
mod naming;
mod pour;
#[cfg(test)]
mod power_cuts;
mod progress;
mod ranges;
mod small;
#[cfg(test)]
mod whole_copies;
mod whole_file;

use std::{
    collections::HashMap,
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep_until, timeout},
};

pub use self::{
    browse::{BrowseError, Browser},
    clean::{CleanResult, clean},
    failure::chain,
    pour::pour,
    progress::JobProgress,
};
use self::{job_context::JobContext, memory_writer::MemoryWriter};
use crate::{
    disk::MachineFileSystem,
    job::{Job, JobSite},
    journal::Journal,
    plan::{FileEvent, JobCounts, Planner, PlannerAction, StateStoreError},
};

/// Result of a job.
#[derive(Debug)]
pub struct JobSummary {
    /// Counters of the job.
    pub tally: JobCounts,
    /// Whether the job was interrupted. Another run can resume the job.
    pub is_interrupted: bool,
    /// Error that ended the job because its memory file could not be written.
    pub broken: Option<StateStoreError>,
}

/// Runs a job until it ends or `interrupt` resolves. Several times a second, `tell` receives new
/// file events and the present counters.
pub async fn run(
    job: impl Into<Arc<Job>>,
    journal: Option<Journal>,
    progress: Arc<JobProgress>,
    interrupt: impl Future<Output = ()>,
    tell: impl FnMut(Option<FileEvent>, JobCounts),
) -> JobSummary {
    let shared = JobContext::new(job.into(), journal, progress, Arc::new(MachineFileSystem));
    run_with(shared, interrupt, tell).await
}

async fn run_with(
    shared: JobContext,
    interrupt: impl Future<Output = ()>,
    mut tell: impl FnMut(Option<FileEvent>, JobCounts),
) -> JobSummary {
    let shared = Arc::new(shared);
    let job = shared.job.clone();
    let mut options = job.plan.clone();
    options.part_suffix.clone_from(&job.moving.partial_suffix);
    options.source_has_zone = matches!(job.source, JobSite::Server(_));
    options.destination_has_zone = matches!(job.destination, JobSite::Server(_));
    options.carries_line_breaks = job.carries_line_breaks();
    let mut planner = match &job.files {
        Some(files) => Planner::of_files(files.clone(), options),
        None => Planner::new(job.roots.len(), options),
    };
    let record = MemoryWriter::new(job.plan.memory.clone());
    let (events, mut arrived) = mpsc::unbounded_channel();
    let mut lanes = JoinSet::new();
    let mut tasks = HashMap::new();
    let mut interrupt = std::pin::pin!(interrupt);
    let mut is_interrupted = false;
    let mut ticks = interval(TELL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut broken = None;
    while !planner.is_finished() {
        let mut work = Vec::new();
        while let Some(action) = planner.poll(Instant::now()) {
            match action {
                PlannerAction::Open { lane } => {
                    let (orders, received) = mpsc::unbounded_channel();
                    tasks.insert(lane, orders);
                    lanes.spawn(lane::run(lane, shared.clone(), received, events.clone()));
                }
                PlannerAction::Work { lane, id, task } => work.push((lane, id, task)),
            }
        }
        if let Err(forgetful) = record.begin(&work).await {
            broken = Some(forgetful);
            break;
        }
        for (lane, id, task) in work {
            let orders = tasks.get(&lane).expect("the plan opens a lane first");
            // If the lane has meanwhile lost its connection, it does not take the task, and reports
            // the loss.
            let _ = orders.send((id, task));
        }
        if let Err(forgetful) = record.drain(&mut planner, &mut tell).await {
            broken = Some(forgetful);
            break;
        }
        if planner.is_finished() {
            break;
        }
        let due = planner.due();
        tokio::select! {
            event = arrived.recv() => {
                let (lane, event) = event.expect("we have a sender ourselves");
                planner.handle(lane, event, Instant::now());
                // Events that have arrived meanwhile are recorded at once.
                while let Ok((lane, event)) = arrived.try_recv() {
                    planner.handle(lane, event, Instant::now());
                }
            }
            (file, count) = shared.ranges.wanted() => planner.help(&file, count),
            () = until(due) => {}
            _ = ticks.tick() => {}
            () = &mut interrupt => {
                is_interrupted = true;
                break;
            }
            Some(ended) = lanes.join_next() => {
                // A lane should never panic. If a lane panics nevertheless, the job must not hang.
                ended.expect("a lane ends in order");
            }
        }
        if let Err(forgetful) = record.drain(&mut planner, &mut tell).await {
            broken = Some(forgetful);
            break;
        }
    }
    drop(tasks);
    if is_interrupted || broken.is_some() {
        lanes.shutdown().await;
        // Complete files are recorded, so that a later run does not move them again.
        drop(events);
        let rest = async {
            // The remaining events include files that already have their final names, and whose
            // folders are being synced.
            while let Some((lane, event)) = arrived.recv().await {
                planner.handle(lane, event, Instant::now());
            }
        };
        let _ = timeout(FAREWELL_TIMEOUT, rest).await;
        if broken.is_none() {
            broken = record.drain(&mut planner, &mut tell).await.err();
        }
    } else {
        let all = async { while lanes.join_next().await.is_some() {} };
        // Closing the sessions in an orderly way is optional, so the wait for the servers' replies
        // has a timeout.
        let _ = timeout(FAREWELL_TIMEOUT, all).await;
        clean::forget_missing(&shared).await;
    }
    JobSummary {
        tally: planner.tally(),
        is_interrupted,
        broken,
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}

/// Interval of progress reports. Reports are periodic because a large file may cause no other
/// event.
const TELL_INTERVAL: Duration = Duration::from_millis(200);

const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);
