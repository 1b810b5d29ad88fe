//! Recording of outcomes, and their report to the queue.
//!
//! The worker may crash after any step. The queue then delivers the message again, and the same
//! outcome is not recorded twice.

use std::time::Duration;

use async_nats::jetstream::AckKind;

use super::{
    PAUSE, WorkerContext, now, settle,
    task::{ClaimedWork, SourceListing, TaskOutcome},
};
use crate::{
    message::Message,
    queue::{HeldClaim, QueueError},
    record::FileCounts,
};

impl WorkerContext {
    pub(super) async fn conclude(
        &self,
        task: &ClaimedWork<'_>,
        outcome: TaskOutcome,
    ) -> Result<(), QueueError> {
        let key = &task.held.key;
        if let TaskOutcome::Moved(counts) = outcome {
            // The files have been moved even if another worker has claimed the work meanwhile.
            self.record_moved(task, counts).await?;
        }
        let is_held = self
            .retry_while_away(task, || self.queue.holds(&task.held))
            .await?;
        if !is_held || matches!(outcome, TaskOutcome::Lost) {
            tracing::warn!(work = key, "another worker has the work");
            return Ok(());
        }
        match outcome {
            TaskOutcome::Moved(counts) => {
                tracing::info!(work = key, files = counts.moved, "done");
                self.finish(task, AckKind::Ack).await
            }
            TaskOutcome::Listed(listed) => self.record_listing(task, listed).await,
            TaskOutcome::Failed(reason) => self.record_failure(task, reason).await,
            TaskOutcome::Interrupted => {
                tracing::info!(work = key, "left to other workers");
                self.return_to_queue(task, None, PAUSE).await
            }
            TaskOutcome::Cancelled => {
                tracing::info!(work = key, "cancelled");
                self.finish(task, AckKind::Ack).await
            }
            TaskOutcome::Lost => Ok(()),
        }
    }

    async fn record_moved(
        &self,
        task: &ClaimedWork<'_>,
        counts: FileCounts,
    ) -> Result<(), QueueError> {
        let Message::Batch(batch) = &task.message else {
            unreachable!("files are moved for batches");
        };
        let (listing, number) = (batch.listing, batch.number);
        let note = || {
            self.queue.change(&batch.job, move |it| {
                it.mark_batch_done(listing, number, counts, now());
            })
        };
        self.retry_while_away(task, note).await?;
        Ok(())
    }

    async fn record_listing(
        &self,
        task: &ClaimedWork<'_>,
        listed: SourceListing,
    ) -> Result<(), QueueError> {
        let job = task.message.job();
        let SourceListing {
            listing,
            batches,
            found,
            failure,
        } = listed;
        if let Some(reason) = &failure {
            self.dead_letter(task, reason).await?;
        }
        let note = || {
            let failure = failure.clone();
            self.queue.change(job, move |it| {
                it.mark_listed(listing, batches, found, failure.clone(), now());
            })
        };
        let noted = self.retry_while_away(task, note).await?;
        if noted.is_some_and(|it| it.listing != listing) {
            // Another worker has received the message, and lists the source again.
            return Err(QueueError::Lost);
        }
        let (files, same) = (found.wanted, found.same);
        tracing::info!(job, files, same, batches, "listed");
        self.finish(task, AckKind::Ack).await
    }

    async fn record_failure(
        &self,
        task: &ClaimedWork<'_>,
        reason: String,
    ) -> Result<(), QueueError> {
        let HeldClaim { key, claim, .. } = &task.held;
        let attempt = claim.attempt;
        if attempt < self.worker.attempts {
            tracing::warn!(work = key, attempt, reason, "failed; trying again");
            let delay = FIRST_DELAY * 2u32.saturating_pow(attempt - 1).min(DELAY_GROWTH_MAX);
            return self.return_to_queue(task, Some(reason), delay).await;
        }
        tracing::error!(work = key, reason, "failed at the last attempt");
        self.dead_letter(task, &reason).await?;
        let message = &task.message;
        let note = || {
            let reason = reason.clone();
            self.queue.change(message.job(), move |it| match message {
                Message::Order(_) => it.mark_listing_failed(&reason, now()),
                Message::Batch(batch) => it.mark_batch_failed(batch.listing, batch.number, now()),
            })
        };
        self.retry_while_away(task, note).await?;
        self.finish(task, AckKind::Term).await
    }

    async fn dead_letter(&self, task: &ClaimedWork<'_>, reason: &str) -> Result<(), QueueError> {
        let key = &task.held.key;
        let attempts = task.held.claim.attempt.min(self.worker.attempts);
        let letter = self.build_dead_letter(&task.message, key, attempts, reason.to_owned());
        self.retry_while_away(task, || self.queue.dead_letter(key, &letter))
            .await
    }

    /// Returns the message to the queue. The queue delivers it to a worker after the given delay.
    async fn return_to_queue(
        &self,
        task: &ClaimedWork<'_>,
        failure: Option<String>,
        delay: Duration,
    ) -> Result<(), QueueError> {
        let release = || self.queue.release_for_retry(&task.held, failure.clone());
        match self.retry_while_away(task, release).await? {
            true => settle(task.delivery, AckKind::Nak(Some(delay))).await,
            // Another worker has claimed the work and received the message.
            false => Ok(()),
        }
    }

    /// Removes the claim and acknowledges the message, so that no worker receives it again.
    async fn finish(&self, task: &ClaimedWork<'_>, kind: AckKind) -> Result<(), QueueError> {
        match self
            .retry_while_away(task, || self.queue.release(&task.held))
            .await?
        {
            true => settle(task.delivery, kind).await,
            // The queue delivers the message again, and the next worker discards it.
            false => Err(QueueError::Lost),
        }
    }
}

/// Delay before the second attempt. Each later delay is twice as long as the delay before it.
const FIRST_DELAY: Duration = Duration::from_secs(5);

/// Maximum delay as a multiple of the first delay. The maximum delay is 320 s.
const DELAY_GROWTH_MAX: u32 = 64;
