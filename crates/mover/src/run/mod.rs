//! Runs a job: the plan says what to do, lanes do it over real sockets and disks.
#![allow(
    clippy::disallowed_methods,
    reason = "owns lanes, and reads the clock for the plan"
)]

mod end;
mod failure;
mod lane;
mod moving;
mod progress;
mod shared;

use std::{
    collections::HashMap,
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{sleep_until, timeout},
};

pub use self::progress::Progress;
use self::shared::Shared;
use crate::{
    job::Job,
    journal::Journal,
    plan::{Action, Note, Planner, Tally},
};

/// What a job came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// What was done.
    pub tally: Tally,
    /// It was interrupted; another run goes on.
    pub is_interrupted: bool,
}

/// Runs a job to its end, or until `interrupt` resolves. `tell` hears of each file as it is done, and how far the job is.
pub async fn run(
    job: Job,
    journal: Option<Journal>,
    progress: Arc<Progress>,
    interrupt: impl Future<Output = ()>,
    mut tell: impl FnMut(Option<Note>, Tally),
) -> Summary {
    let mut planner = Planner::new(job.roots.len(), job.plan.clone());
    let shared = Arc::new(Shared {
        job,
        journal: journal.map(Arc::new),
        progress,
    });
    let (events, mut arrived) = mpsc::unbounded_channel();
    let mut lanes = JoinSet::new();
    let mut tasks = HashMap::new();
    let mut interrupt = std::pin::pin!(interrupt);
    let mut is_interrupted = false;
    while !planner.is_finished() {
        while let Some(action) = planner.poll(Instant::now()) {
            match action {
                Action::Open { lane } => {
                    let (orders, received) = mpsc::channel(1);
                    tasks.insert(lane, orders);
                    lanes.spawn(lane::run(lane, shared.clone(), received, events.clone()));
                }
                Action::Work { lane, task } => {
                    let orders = tasks.get(&lane).expect("the plan opens a lane first");
                    // A lane that has lost its connection meanwhile does not take the task, and says so.
                    let _ = orders.try_send(task);
                }
            }
        }
        drain(&mut planner, &mut tell);
        if planner.is_finished() {
            break;
        }
        let due = planner.due();
        tokio::select! {
            event = arrived.recv() => {
                let (lane, event) = event.expect("we have a sender ourselves");
                planner.handle(lane, event, Instant::now());
            }
            () = until(due) => {}
            () = &mut interrupt => {
                is_interrupted = true;
                break;
            }
            Some(ended) = lanes.join_next() => {
                // Lanes do not panic; where one does, the job must not hang.
                ended.expect("a lane ends in order");
            }
        }
        drain(&mut planner, &mut tell);
    }
    drop(tasks);
    if is_interrupted {
        lanes.shutdown().await;
    } else {
        let all = async { while lanes.join_next().await.is_some() {} };
        // Goodbyes are polite, and nobody waits for them.
        let _ = timeout(FAREWELL_PATIENCE, all).await;
    }
    Summary {
        tally: planner.tally(),
        is_interrupted,
    }
}

fn drain(planner: &mut Planner, tell: &mut impl FnMut(Option<Note>, Tally)) {
    while let Some(note) = planner.next_note() {
        tell(Some(note), planner.tally());
    }
    tell(None, planner.tally());
}

async fn until(due: Option<Instant>) {
    match due {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}

const FAREWELL_PATIENCE: Duration = Duration::from_secs(2);
