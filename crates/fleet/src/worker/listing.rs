//! Listing of a job's source by a dry run. Batches go into the queue while the listing continues.

use std::{pin::pin, sync::Arc};

use futures_util::{StreamExt as _, stream};
use mover::{
    job::Job,
    plan::{DryRunStep, FileEvent, FileOutcome},
    run,
};
use tokio::sync::mpsc;

use super::{
    WorkerContext,
    failures::Failures,
    task::{ClaimedWork, SourceListing, TaskOutcome},
};
use crate::{
    batches::Batches,
    message::{Batch, BatchFile, Message},
    queue::QueueError,
    record::FileCounts,
};

impl WorkerContext {
    pub(super) async fn list(
        &self,
        task: &ClaimedWork<'_>,
        mut job: Job,
    ) -> Result<TaskOutcome, QueueError> {
        let name = task.message.job();
        let lister = task.held.number();
        let begin = || self.queue.change(name, |it| it.begin_listing(lister));
        let record = self.retry_while_away(task, begin).await?;
        let Some(record) = record.filter(|it| it.lister == lister) else {
            return Ok(TaskOutcome::Lost);
        };
        // With this number, workers recognise and skip batches of an earlier listing.
        let listing = record.listing;
        job.plan.is_dry_run = true;
        let (found, waiting) = mpsc::unbounded_channel::<Vec<BatchFile>>();
        let (mut batches, mut failures) = (Batches::default(), Failures::default());
        let mut wanted = 0;
        let run = async {
            let tell = |note: Option<FileEvent>, _| {
                let Some(note) = note else {
                    return;
                };
                failures.add(&note, &note.path);
                if let FileOutcome::Planned(DryRunStep::Move(version)) = note.result {
                    wanted += 1;
                    let full = batches.add(note.root, &note.path, version);
                    // The receiver is dropped if the work is interrupted.
                    let _ = full.map(|it| found.send(it));
                }
            };
            let progress = Arc::new(self.progress.beside());
            let summary = run::run(job, None, progress, task.stopped(), tell).await;
            let _ = batches.end().map(|it| found.send(it));
            drop(found);
            summary
        };
        let (summary, put) = tokio::join!(run, self.put_all(task, listing, waiting));
        if let Some(stop) = task.interruption() {
            return Ok(TaskOutcome::interrupted_by(stop));
        }
        let (batches, tally) = (put?, summary.tally);
        let failure = failures.reason(&summary);
        if let Some(reason) = &failure
            && wanted == 0
            && tally.same == 0
        {
            return Ok(TaskOutcome::Failed(reason.clone()));
        }
        let found = FileCounts {
            wanted,
            same: tally.same,
            left_out: tally.left_out,
            ..FileCounts::default()
        };
        Ok(TaskOutcome::Listed(SourceListing {
            listing,
            batches,
            found,
            failure,
        }))
    }

    /// Puts batches into the queue, several in parallel. Returns the number of batches.
    async fn put_all(
        &self,
        task: &ClaimedWork<'_>,
        listing: u32,
        waiting: mpsc::UnboundedReceiver<Vec<BatchFile>>,
    ) -> Result<u32, QueueError> {
        let files = stream::unfold(waiting, |mut waiting| async {
            Some((waiting.recv().await?, waiting))
        });
        let puts = files.enumerate().map(|(number, files)| async move {
            let batch = Message::Batch(Batch {
                job: task.message.job().to_owned(),
                listing,
                number: u32::try_from(number).unwrap_or(u32::MAX),
                files,
            });
            self.retry_while_away(task, || self.queue.put(&batch, "1"))
                .await
        });
        let mut puts = pin!(puts.buffer_unordered(PUTS_AT_ONCE));
        let mut count = 0;
        while let Some(put) = puts.next().await {
            put?;
            count += 1;
        }
        Ok(count)
    }
}

/// Maximum number of batches that are put into the queue in parallel. If the round-trip time to the
/// NATS server is 200 ms, this limit permits 320 batches per second.
const PUTS_AT_ONCE: usize = 64;
