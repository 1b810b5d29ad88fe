//! Records the outcome of work, and reports it to the queue.
//!
//! Each step may be the last one before a crash. The message is then delivered again, and a
//! recorded outcome is not recorded twice.

use std::time::Duration;

use async_nats::jetstream::AckKind;

use super::{
    Crew, PAUSE, now, settle,
    task::{Became, Listed, Task},
};
use crate::{
    message::Message,
    queue::{Held, QueueError},
    record::Counts,
};

impl Crew {
    pub(super) async fn conclude(&self, task: &Task<'_>, became: Became) -> Result<(), QueueError> {
        let key = &task.held.key;
        if let Became::Moved(counts) = became {
            // This holds even if another worker has the work now.
            self.note_moved(task, counts).await?;
        }
        let is_held = self.insist(task, || self.queue.holds(&task.held)).await?;
        if !is_held || matches!(became, Became::Lost) {
            tracing::warn!(work = key, "another worker has it");
            return Ok(());
        }
        match became {
            Became::Moved(counts) => {
                tracing::info!(work = key, files = counts.moved, "done");
                self.end(task, AckKind::Ack).await
            }
            Became::Listed(listed) => self.note_listing(task, listed).await,
            Became::Failed(reason) => self.note_failure(task, reason).await,
            Became::Interrupted => {
                tracing::info!(work = key, "left to others");
                self.hand_back(task, None, PAUSE).await
            }
            Became::Cancelled => {
                tracing::info!(work = key, "cancelled");
                self.end(task, AckKind::Ack).await
            }
            Became::Lost => Ok(()),
        }
    }

    async fn note_moved(&self, task: &Task<'_>, counts: Counts) -> Result<(), QueueError> {
        let Message::Batch(batch) = &task.message else {
            unreachable!("files are moved for batches");
        };
        let (listing, number) = (batch.listing, batch.number);
        let note = || {
            self.queue.change(&batch.job, move |it| {
                it.batch_done(listing, number, counts, now());
            })
        };
        self.insist(task, note).await?;
        Ok(())
    }

    async fn note_listing(&self, task: &Task<'_>, listed: Listed) -> Result<(), QueueError> {
        let job = task.message.job();
        let Listed {
            listing,
            batches,
            found,
            failure,
        } = listed;
        if let Some(reason) = &failure {
            self.bury(task, reason).await?;
        }
        let note = || {
            let failure = failure.clone();
            self.queue.change(job, move |it| {
                it.listed(listing, batches, found, failure.clone(), now());
            })
        };
        let noted = self.insist(task, note).await?;
        if noted.is_some_and(|it| it.listing != listing) {
            // Another worker lists the source again, and has the message.
            return Err(QueueError::Lost);
        }
        let (files, same) = (found.wanted, found.same);
        tracing::info!(job, files, same, batches, "listed");
        self.end(task, AckKind::Ack).await
    }

    async fn note_failure(&self, task: &Task<'_>, reason: String) -> Result<(), QueueError> {
        let Held { key, claim, .. } = &task.held;
        let attempt = claim.attempt;
        if attempt < self.worker.attempts {
            tracing::warn!(work = key, attempt, reason, "failed; trying again");
            let delay = FIRST_DELAY * 2u32.saturating_pow(attempt - 1).min(DELAY_GROWTH_MAX);
            return self.hand_back(task, Some(reason), delay).await;
        }
        tracing::error!(work = key, reason, "given up");
        self.bury(task, &reason).await?;
        let message = &task.message;
        let note = || {
            let reason = reason.clone();
            self.queue.change(message.job(), move |it| match message {
                Message::Order(_) => it.listing_dead(&reason, now()),
                Message::Batch(batch) => it.batch_dead(batch.listing, batch.number, now()),
            })
        };
        self.insist(task, note).await?;
        self.end(task, AckKind::Term).await
    }

    async fn bury(&self, task: &Task<'_>, reason: &str) -> Result<(), QueueError> {
        let key = &task.held.key;
        let attempts = task.held.claim.attempt.min(self.worker.attempts);
        let letter = self.letter(&task.message, key, attempts, reason.to_owned());
        self.insist(task, || self.queue.bury(key, &letter)).await
    }

    /// Returns the work to the queue. Another worker gets it after a while.
    async fn hand_back(
        &self,
        task: &Task<'_>,
        failure: Option<String>,
        delay: Duration,
    ) -> Result<(), QueueError> {
        let let_go = || self.queue.let_go(&task.held, failure.clone());
        match self.insist(task, let_go).await? {
            true => settle(task.taken, AckKind::Nak(Some(delay))).await,
            // Another worker has the work and the message.
            false => Ok(()),
        }
    }

    /// Ends the work for all workers.
    async fn end(&self, task: &Task<'_>, kind: AckKind) -> Result<(), QueueError> {
        match self.insist(task, || self.queue.release(&task.held)).await? {
            true => settle(task.taken, kind).await,
            // The message is delivered again, and then discarded.
            false => Err(QueueError::Lost),
        }
    }
}

/// Delay before the second attempt. Each further delay is twice the one before.
const FIRST_DELAY: Duration = Duration::from_secs(5);

/// Largest multiple of the first delay: 320 s.
const DELAY_GROWTH_MAX: u32 = 64;
