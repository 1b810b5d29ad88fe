//! Runs a job: the plan says what to do, lanes do it over real sockets and disks.
#![allow(
    clippy::disallowed_methods,
    reason = "owns lanes, and reads the clock for the plan"
)]

mod blocking;
mod browse;
mod clean;
mod compare;
mod delete;
mod end;
mod failure;
mod joining;
mod lane;
mod local;
mod moving;
mod naming;
mod pour;
#[cfg(test)]
mod power_cuts;
mod progress;
mod ranges;
mod record;
mod shared;
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
    clean::{Cleaned, clean},
    failure::chain,
    pour::pour,
    progress::Progress,
};
use self::{record::Record, shared::Shared};
use crate::{
    disk::Machine,
    job::{Job, Site},
    journal::Journal,
    plan::{Action, Forgetful, Note, Planner, Tally},
};

/// What a job came to.
#[derive(Debug)]
pub struct Summary {
    /// What was done.
    pub tally: Tally,
    /// It was interrupted; another run goes on.
    pub is_interrupted: bool,
    /// The job's memory could not be written, so the job was ended.
    pub broken: Option<Forgetful>,
}

/// Runs a job to its end, or until `interrupt` resolves. `tell` hears of each file as it is done, and how far the
/// job is, several times a second.
pub async fn run(
    job: impl Into<Arc<Job>>,
    journal: Option<Journal>,
    progress: Arc<Progress>,
    interrupt: impl Future<Output = ()>,
    tell: impl FnMut(Option<Note>, Tally),
) -> Summary {
    let shared = Shared::new(job.into(), journal, progress, Arc::new(Machine));
    run_with(shared, interrupt, tell).await
}

async fn run_with(
    shared: Shared,
    interrupt: impl Future<Output = ()>,
    mut tell: impl FnMut(Option<Note>, Tally),
) -> Summary {
    let shared = Arc::new(shared);
    let job = shared.job.clone();
    let mut options = job.plan.clone();
    options.part_suffix.clone_from(&job.moving.partial_suffix);
    options.source_has_zone = matches!(job.source, Site::Server(_));
    options.destination_has_zone = matches!(job.destination, Site::Server(_));
    let mut planner = match &job.files {
        Some(files) => Planner::of_files(files.clone(), options),
        None => Planner::new(job.roots.len(), options),
    };
    let record = Record::new(job.plan.memory.clone());
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
                Action::Open { lane } => {
                    let (orders, received) = mpsc::unbounded_channel();
                    tasks.insert(lane, orders);
                    lanes.spawn(lane::run(lane, shared.clone(), received, events.clone()));
                }
                Action::Work { lane, id, task } => work.push((lane, id, task)),
            }
        }
        if let Err(forgetful) = record.begin(&work).await {
            broken = Some(forgetful);
            break;
        }
        for (lane, id, task) in work {
            let orders = tasks.get(&lane).expect("the plan opens a lane first");
            // A lane that has lost its connection meanwhile does not take the task, and says so.
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
                // What came meanwhile is written down at once.
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
                // Lanes do not panic; where one does, the job must not hang.
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
        // What has become whole is remembered, and not moved again.
        drop(events);
        let rest = async {
            // Also files that have their names, and whose folders are being synced.
            while let Some((lane, event)) = arrived.recv().await {
                planner.handle(lane, event, Instant::now());
            }
        };
        let _ = timeout(FAREWELL_PATIENCE, rest).await;
        if broken.is_none() {
            broken = record.drain(&mut planner, &mut tell).await.err();
        }
    } else {
        let all = async { while lanes.join_next().await.is_some() {} };
        // Goodbyes are polite, and nobody waits for them.
        let _ = timeout(FAREWELL_PATIENCE, all).await;
        clean::forget_missing(&shared).await;
    }
    Summary {
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

/// While a long file moves, nothing else happens.
const TELL_INTERVAL: Duration = Duration::from_millis(200);

const FAREWELL_PATIENCE: Duration = Duration::from_secs(2);
