//! A worker: takes as much work as it has free slots, does it, and says what became of it.

mod attempt;
mod guard;

use std::{ffi::OsString, sync::Arc, time::Duration};

use async_nats::jetstream::{AckKind, consumer::PullConsumer};
use chrono::Utc;
use mover::{job::Job, limit::RateLimit, run::Progress};
use tokio::{sync::watch, task::JoinSet, time::sleep};

use self::attempt::{Became, Listed};
use crate::{
    dead::Letter,
    message::Message,
    queue::{Held, Queue, QueueError, Taken},
};

/// Makes the job of a command line, which `longhaul copy` would run.
pub type Make = dyn Fn(&[OsString]) -> Result<Job, String> + Send + Sync;

/// What a worker is, and what it may do.
pub struct Worker {
    /// What others call it.
    pub name: String,
    /// Batches and listings that it works on at a time.
    pub slots: usize,
    /// Attempts at some work before it is given up.
    pub attempts: u32,
    /// Most bytes a second over all slots.
    pub rate_max: Option<RateLimit>,
    /// Makes jobs.
    pub make: Box<Make>,
}

/// What all slots share.
struct Crew {
    worker: Worker,
    queue: Queue,
    /// Holds all slots to the same bound.
    progress: Progress,
    is_ending: watch::Receiver<bool>,
}

/// Works until `interrupt` resolves. What is under way then is left to others.
///
/// # Errors
/// [`QueueError`] if the queue cannot be used at the beginning. Later the worker waits until it can.
pub async fn run(
    queue: Queue,
    worker: Worker,
    interrupt: impl Future<Output = ()>,
) -> Result<(), QueueError> {
    let (end, is_ending) = watch::channel(false);
    let consumer = queue.consumer().await?;
    let slots = worker.slots;
    let crew = Arc::new(Crew {
        progress: Progress::new(worker.rate_max.clone()),
        worker,
        queue,
        is_ending,
    });
    let mut running = JoinSet::new();
    for _ in 0..slots {
        running.spawn(crew.clone().slot(consumer.clone()));
    }
    interrupt.await;
    // The slots hear of it where there are any.
    let _ = end.send(true);
    while let Some(ended) = running.join_next().await {
        ended.expect("a slot does not panic");
    }
    Ok(())
}

impl Crew {
    /// Does one thing after the other.
    async fn slot(self: Arc<Self>, mut consumer: PullConsumer) {
        while !self.is_ending() {
            let taken = tokio::select! {
                taken = self.queue.take(&consumer) => taken,
                () = self.ending() => break,
            };
            let worked = match taken {
                Ok(Some(taken)) => self.work(&taken).await,
                Ok(None) => continue,
                Err(error) => Err(error),
            };
            if let Err(error) = worked {
                tracing::warn!(
                    error = chain(&error),
                    "the queue cannot be used; trying again"
                );
                self.pause(PAUSE).await;
                // A server that has lost its state has lost the consumer.
                if let Ok(made) = self.queue.consumer().await {
                    consumer = made;
                }
            }
        }
    }

    /// Does what a message says, once. On an error the message comes again, to whomever.
    async fn work(&self, taken: &Taken) -> Result<(), QueueError> {
        let message = match Message::read(&taken.payload) {
            Ok(message) => message,
            Err(error) => {
                tracing::error!(error = chain(&error), "a message cannot be used");
                let letter = Letter {
                    job: None,
                    key: None,
                    reason: chain(&error),
                    worker: self.worker.name.clone(),
                    attempts: 0,
                    given_up_unix_s: now(),
                    payload: Letter::payload(&taken.payload, false),
                };
                self.queue.bury(&letter).await?;
                return settle(taken, AckKind::Term).await;
            }
        };
        let record = self.queue.record(message.job()).await?;
        if !record.is_some_and(|it| it.wants(&message)) {
            tracing::debug!(work = message.key(), "nobody wants this any more");
            return settle(taken, AckKind::Ack).await;
        }
        let (key, name) = (message.key(), &self.worker.name);
        let Some(held) = self.queue.claim(&key, name, now()).await? else {
            return settle(taken, AckKind::Nak(Some(PAUSE))).await;
        };
        if held.claim.attempt > self.worker.attempts {
            let reason = held.claim.last_failure.clone();
            let reason = reason.unwrap_or_else(|| "its workers were lost".to_owned());
            return self.give_up(taken, &message, &held, reason).await;
        }
        let became = self.attempt(taken, &message, &held).await?;
        self.conclude(taken, &message, &held, became).await
    }

    async fn conclude(
        &self,
        taken: &Taken,
        message: &Message,
        held: &Held,
        became: Became,
    ) -> Result<(), QueueError> {
        let (key, attempt) = (&held.key, held.claim.attempt);
        match became {
            Became::Moved(counts) => {
                let Message::Batch(batch) = message else {
                    unreachable!("files are moved for batches");
                };
                let (listing, number) = (batch.listing, batch.number);
                self.insist(|| {
                    self.queue.change(&batch.job, move |it| {
                        it.batch_done(listing, number, counts, now());
                    })
                })
                .await?;
                tracing::info!(work = key, files = counts.moved, "done");
                self.queue.release(held).await;
                settle(taken, AckKind::Ack).await
            }
            Became::Listed(listed) => self.note_listing(taken, message, held, listed).await,
            Became::Failed(reason) if attempt >= self.worker.attempts => {
                self.give_up(taken, message, held, reason).await
            }
            Became::Failed(reason) => {
                tracing::warn!(work = key, attempt, reason, "failed; trying again");
                self.queue.let_go(held, Some(reason)).await?;
                let delay = FIRST_DELAY * 2u32.saturating_pow(attempt - 1).min(DELAY_GROWTH_MAX);
                settle(taken, AckKind::Nak(Some(delay))).await
            }
            Became::Interrupted => {
                tracing::info!(work = key, "left to others");
                self.queue.let_go(held, None).await?;
                settle(taken, AckKind::Nak(Some(PAUSE))).await
            }
            Became::Cancelled => {
                tracing::info!(work = key, "cancelled");
                self.queue.release(held).await;
                settle(taken, AckKind::Ack).await
            }
            Became::Lost => {
                tracing::warn!(work = key, "another worker has it");
                Ok(())
            }
        }
    }

    async fn note_listing(
        &self,
        taken: &Taken,
        message: &Message,
        held: &Held,
        listed: Listed,
    ) -> Result<(), QueueError> {
        let Listed {
            listing,
            batches,
            found,
            failure,
        } = listed;
        if let Some(reason) = &failure {
            let letter = self.letter(message, held, reason.clone());
            self.insist(|| self.queue.bury(&letter)).await?;
        }
        self.insist(|| {
            let failure = failure.clone();
            self.queue.change(message.job(), move |it| {
                it.listed(listing, batches, found, failure.clone(), now());
            })
        })
        .await?;
        let (job, files, same) = (message.job(), found.wanted, found.same);
        tracing::info!(job, files, same, batches, "listed");
        self.queue.release(held).await;
        settle(taken, AckKind::Ack).await
    }

    async fn give_up(
        &self,
        taken: &Taken,
        message: &Message,
        held: &Held,
        reason: String,
    ) -> Result<(), QueueError> {
        tracing::error!(work = held.key, reason, "given up");
        let letter = self.letter(message, held, reason.clone());
        self.insist(|| self.queue.bury(&letter)).await?;
        self.insist(|| {
            let reason = reason.clone();
            self.queue.change(message.job(), move |it| match message {
                Message::Order(_) => it.listing_dead(&reason, now()),
                Message::Batch(batch) => it.batch_dead(batch.listing, batch.number, now()),
            })
        })
        .await?;
        self.queue.release(held).await;
        settle(taken, AckKind::Term).await
    }

    fn letter(&self, message: &Message, held: &Held, reason: String) -> Letter {
        Letter {
            job: Some(message.job().to_owned()),
            key: Some(held.key.clone()),
            reason,
            worker: self.worker.name.clone(),
            attempts: held.claim.attempt.min(self.worker.attempts),
            given_up_unix_s: now(),
            payload: Letter::payload(&message.write(), true),
        }
    }

    /// Has something written down, also where the server is away for a while. What was done is not done again then.
    async fn insist<T, F>(&self, mut step: impl FnMut() -> F) -> Result<T, QueueError>
    where
        F: Future<Output = Result<T, QueueError>>,
    {
        let mut tries_left = INSIST_TRIES;
        loop {
            match step().await {
                Err(error) if tries_left > 0 && !self.is_ending() => {
                    tries_left -= 1;
                    tracing::debug!(error = chain(&error), "trying again");
                    self.pause(PAUSE).await;
                }
                result => return result,
            }
        }
    }

    fn is_ending(&self) -> bool {
        *self.is_ending.borrow()
    }

    async fn ending(&self) {
        // The worker is gone where nobody can send any more.
        let _ = self.is_ending.clone().wait_for(|it| *it).await;
    }

    async fn pause(&self, time: Duration) {
        tokio::select! {
            () = sleep(time) => {}
            () = self.ending() => {}
        }
    }
}

/// Says what became of a message. Where the server does not hear it, the message comes again, and is not wanted then.
async fn settle(taken: &Taken, kind: AckKind) -> Result<(), QueueError> {
    let is_final = matches!(kind, AckKind::Ack | AckKind::Term);
    let told = match is_final {
        true => taken.double_ack_with(kind).await,
        false => taken.ack_with(kind).await,
    };
    if let Err(error) = told {
        tracing::debug!(%error, "the message comes again");
    }
    Ok(())
}

fn now() -> i64 {
    Utc::now().timestamp()
}

/// An error with its sources, as one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        text += &format!(": {next}");
        source = next.source();
    }
    text
}

/// Before something is tried again at a server.
const PAUSE: Duration = Duration::from_secs(1);

/// Before the second attempt; each further delay is twice the one before,
const FIRST_DELAY: Duration = Duration::from_secs(5);

/// up to so many times the first: 320 s.
const DELAY_GROWTH_MAX: u32 = 64;

/// So often, and with the requests' own patience of some seconds, a server may be away: ten minutes and more.
const INSIST_TRIES: u32 = 600;
