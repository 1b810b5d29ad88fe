//! Renamed files of a lane. A file is reported as done once its name survives a power cut. The lane
//! continues with other files meanwhile.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};

use super::{failure::TaskError, job_context::JobContext, moving::end};
use crate::{
    job::JobSite,
    names::{local, shown},
    plan::{LaneEvent, Task, TaskId, TaskResult},
};

/// Files whose names are being synced.
pub(super) struct PendingNames {
    lane: usize,
    shared: Arc<JobContext>,
    events: mpsc::UnboundedSender<(usize, LaneEvent)>,
    /// Semaphore with one permit for each file. If the lane is interrupted, syncs in progress still
    /// run to their end.
    places: Arc<Semaphore>,
}

impl PendingNames {
    pub(super) fn new(
        lane: usize,
        shared: &Arc<JobContext>,
        events: mpsc::UnboundedSender<(usize, LaneEvent)>,
    ) -> Self {
        Self {
            lane,
            shared: shared.clone(),
            events,
            places: Arc::new(Semaphore::new(FILES_SYNCED_MAX)),
        }
    }

    /// Returns the local path at which a task will create a file. Returns `None` if the task
    /// creates no local file.
    pub(super) fn path(&self, task: &Task) -> Option<Vec<u8>> {
        let job = &self.shared.job;
        let (JobSite::Local, Task::Move(file) | Task::Join(file)) = (&job.destination, task) else {
            return None;
        };
        Some(job.destination_path(file.root, &file.path))
    }

    /// Reports a finished task. If the task has created a local name, reports it only after the
    /// name is synced.
    pub(super) async fn done(&mut self, id: TaskId, outcome: TaskResult, path: Option<Vec<u8>>) {
        let (lane, events) = (self.lane, self.events.clone());
        // If the plan has ended, there is no receiver, and the event is dropped.
        let tell = move |event| drop(events.send((lane, event)));
        let (TaskResult::Moved { .. } | TaskResult::Grown { .. }, Some(path)) = (&outcome, path)
        else {
            return tell(LaneEvent::Done(id, outcome));
        };
        let place = self.places.clone().acquire_owned().await;
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let _place = place;
            let what = format!("syncing the directory of {}", shown(&local(&path)));
            let named = shared.destination_files.named(&path).await;
            if let (Ok(()), Some(key)) = (&named, shared.take_ending(&path)) {
                end(shared.journal.as_ref(), &key).await;
            }
            tell(match named.map_err(TaskError::disk(what)) {
                Ok(()) => LaneEvent::Done(id, outcome),
                Err(error) => LaneEvent::Failed(id, error.failure(0)),
            });
        });
    }

    /// Waits until all syncs have ended.
    pub(super) async fn end(&mut self) {
        let all = u32::try_from(FILES_SYNCED_MAX).expect("a small number");
        // The semaphore is never closed.
        let _ = self.places.acquire_many(all).await;
    }
}

/// Maximum number of files of one lane whose names are being synced at the same time.
pub(super) const FILES_SYNCED_MAX: usize = 64;
