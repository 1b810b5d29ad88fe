//! A worker. It receives batches and listings from the queue, executes them, and reports the
//! outcomes.

mod batch;
mod conclude;
mod failures;
mod guard;
mod listing;
mod task;

use std::{ffi::OsString, sync::Arc, time::Duration};

use async_nats::jetstream::{AckKind, consumer::PullConsumer};
use jiff::Timestamp;
use mover::{
    job::Job,
    limit::RateLimit,
    run::{JobProgress, chain},
    server::SessionPool,
};
use tokio::{
    sync::{Mutex, watch},
    task::JoinSet,
    time::{interval, sleep},
};

use self::task::{ClaimedWork, Interruption, TaskOutcome};
use crate::{
    dead_letter::DeadLetter,
    message::{Message, MessageError},
    queue::{PoolQueue, QueueDelivery, QueueError},
};

/// Function that creates the job from the arguments of `longhaul copy`.
pub type JobFactory = dyn Fn(&[OsString]) -> Result<Job, String> + Send + Sync;

/// Settings of a worker.
pub struct Worker {
    /// Name of the worker.
    pub name: String,
    /// Number of batches and listings that run in parallel.
    pub slots: usize,
    /// Maximum number of attempts for each batch or listing.
    pub attempts: u32,
    /// Limit on the sum of the rates of all slots.
    pub rate_max: Option<RateLimit>,
    /// Function that creates the job of a command line.
    pub make: Box<JobFactory>,
}

/// State that all slots of a worker share.
struct WorkerContext {
    worker: Worker,
    queue: PoolQueue,
    /// Progress of all slots. It also enforces the limit on the sum of their rates.
    progress: JobProgress,
    /// FTP sessions that stay open between two batches.
    session_pool: Arc<SessionPool>,
    /// Acknowledgement timeout. If the worker sends no progress message for this time, the server
    /// delivers the message to another worker.
    ack_wait: Duration,
    is_ending: watch::Receiver<bool>,
    /// Lock that a slot holds while it restores a lost pool.
    restoring: Mutex<()>,
}

/// Runs the worker until `interrupt` resolves. Unfinished batches and listings then return to the
/// queue for other workers.
///
/// # Errors
/// [`QueueError`] if the queue is unusable at the start. If the queue becomes unusable later, the
/// worker waits.
///
/// # Panics
/// If a slot panics. Otherwise the worker would continue unnoticed with fewer slots than
/// configured.
pub async fn run(
    queue: PoolQueue,
    worker: Worker,
    interrupt: impl Future<Output = ()>,
) -> Result<(), QueueError> {
    let (end, is_ending) = watch::channel(false);
    let consumer = queue.consumer().await?;
    let slots = worker.slots;
    let context = Arc::new(WorkerContext {
        progress: JobProgress::new(worker.rate_max.clone()),
        worker,
        queue,
        session_pool: Arc::default(),
        // Another version of Longhaul, or an operator, may have created the consumer with another
        // timeout.
        ack_wait: consumer.cached_info().config.ack_wait.max(ACK_WAIT_MIN),
        is_ending,
        restoring: Mutex::default(),
    });
    let mut running = JoinSet::new();
    for _ in 0..slots {
        running.spawn(context.clone().slot(consumer.clone()));
    }
    let mut interrupt = std::pin::pin!(interrupt);
    let mut ticks = interval(LEAVE_INTERVAL);
    loop {
        tokio::select! {
            () = &mut interrupt => break,
            _ = ticks.tick() => context.session_pool.leave_old().await,
            Some(ended) = running.join_next() => ended.expect("a slot does not panic"),
        }
    }
    // Sending fails only if no slot is running.
    let _ = end.send(true);
    while let Some(ended) = running.join_next().await {
        ended.expect("a slot does not panic");
    }
    context.session_pool.leave_all().await;
    // After the flush, other workers can take the returned work immediately.
    context.queue.flush().await;
    Ok(())
}

impl WorkerContext {
    /// Runs one slot. A slot executes one batch or listing after the other.
    async fn slot(self: Arc<Self>, mut consumer: PullConsumer) {
        while !self.is_ending() {
            let delivery = tokio::select! {
                delivery = self.queue.take(&consumer) => delivery,
                () = self.ending() => break,
            };
            let worked = match delivery {
                Ok(Some(delivery)) => self.work(&delivery).await.map(|()| true),
                // A server that has lost the consumer sends no reply. An empty queue looks the
                // same.
                Ok(None) => self.queue.has_consumer().await,
                Err(error) => Err(error),
            };
            let restored = match worked {
                Ok(true) => continue,
                Ok(false) => self.restore().await,
                Err(error) => Err(error),
            };
            match restored {
                Ok(made) => consumer = made,
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(error, "the queue cannot be used; trying again");
                    self.pause(PAUSE).await;
                    if let Ok(made) = self.restore().await {
                        consumer = made;
                    }
                }
            }
        }
    }

    /// Restores the pool's streams if the server has lost them. A lock ensures that only one slot
    /// restores them.
    async fn restore(&self) -> Result<PullConsumer, QueueError> {
        let _turn = self.restoring.lock().await;
        let (consumer, is_made) = self.queue.restore().await?;
        if is_made {
            tracing::warn!(
                "the NATS server has lost the pool's queue, which is made again; jobs that it had must be submitted again"
            );
        }
        Ok(consumer)
    }

    /// Makes one attempt to execute a message. After an error, the queue delivers the message again
    /// to any worker.
    async fn work(&self, delivery: &QueueDelivery) -> Result<(), QueueError> {
        let message = match Message::read(&delivery.subject, &delivery.payload) {
            Ok(message) => message,
            Err(error) => return self.refuse(delivery, &error).await,
        };
        let record = match self.queue.record(message.job()).await {
            Err(error @ QueueError::Unreadable(_)) => {
                // A worker of another version may be able to read the record.
                tracing::error!(
                    work = message.key(),
                    error = chain(&error),
                    "left to other workers"
                );
                return settle(delivery, AckKind::Nak(Some(UNREADABLE_PAUSE))).await;
            }
            record => record?,
        };
        let Some(record) = record.filter(|it| it.wants(&message)) else {
            tracing::debug!(work = message.key(), "the job no longer needs this work");
            return settle(delivery, AckKind::Ack).await;
        };
        let (key, name) = (message.key(), &self.worker.name);
        let Some(held) = self.queue.claim(&key, name, now()).await? else {
            return settle(delivery, AckKind::Nak(Some(PAUSE))).await;
        };
        let (stop, stopped) = watch::channel(None);
        let task = ClaimedWork {
            delivery,
            message,
            words: record.words(),
            held,
            stopped,
        };
        tokio::select! {
            worked = self.process(&task) => worked,
            never = self.guard(&task, &stop) => match never {},
        }
    }

    async fn process(&self, task: &ClaimedWork<'_>) -> Result<(), QueueError> {
        let claim = &task.held.claim;
        let outcome = if claim.attempt > self.worker.attempts {
            self.sweep_last(task).await;
            let reason = claim.last_failure.clone();
            Ok(TaskOutcome::Failed(
                reason.unwrap_or_else(|| "its workers were lost".to_owned()),
            ))
        } else {
            self.attempt(task).await
        };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => match task.interruption() {
                Some(stop) => TaskOutcome::interrupted_by(stop),
                None => TaskOutcome::Failed(chain(&error)),
            },
        };
        match self.conclude(task, outcome).await {
            Err(QueueError::Lost) => {
                tracing::warn!(work = task.held.key, "another worker has the work");
                Ok(())
            }
            concluded => concluded,
        }
    }

    async fn attempt(&self, task: &ClaimedWork<'_>) -> Result<TaskOutcome, QueueError> {
        let mut job = match (self.worker.make)(&task.words) {
            Ok(job) => job,
            Err(reason) => return Ok(TaskOutcome::Failed(reason)),
        };
        job.session_pool = Some(self.session_pool.clone());
        match &task.message {
            Message::Order(_) => self.list(task, job).await,
            Message::Batch(batch) => Ok(self.move_files(task, job, batch).await),
        }
    }

    /// Stores an unreadable message as a dead letter, and removes it from the queue.
    async fn refuse(
        &self,
        delivery: &QueueDelivery,
        error: &MessageError,
    ) -> Result<(), QueueError> {
        tracing::error!(error = chain(error), "a message cannot be used");
        let letter = DeadLetter {
            job: None,
            key: None,
            reason: chain(error),
            worker: self.worker.name.clone(),
            attempts: 0,
            given_up_unix_s: now(),
            payload: DeadLetter::payload(&delivery.payload, false),
        };
        let number = delivery.info().map_or(0, |it| it.stream_sequence);
        let key = format!("{UNREADABLE}.{number}");
        self.queue.dead_letter(&key, &letter).await?;
        settle(delivery, AckKind::Term).await
    }

    fn build_dead_letter(
        &self,
        message: &Message,
        key: &str,
        attempts: u32,
        reason: String,
    ) -> DeadLetter {
        DeadLetter {
            job: Some(message.job().to_owned()),
            key: Some(key.to_owned()),
            reason,
            worker: self.worker.name.clone(),
            attempts,
            given_up_unix_s: now(),
            payload: DeadLetter::payload(&message.write(), true),
        }
    }

    /// Executes a step that records an outcome. Repeats the step while the server cannot be
    /// reached, because another worker would otherwise repeat the finished work.
    ///
    /// Stops with an error if another worker has claimed the work, or if this worker ends.
    async fn retry_while_away<T, F>(
        &self,
        task: &ClaimedWork<'_>,
        mut step: impl FnMut() -> F,
    ) -> Result<T, QueueError>
    where
        F: Future<Output = Result<T, QueueError>>,
    {
        loop {
            let error = match step().await {
                Err(error @ QueueError::Refused { .. }) if !self.is_ending() => error,
                result => return result,
            };
            let (work, error) = (&task.held.key, chain(&error));
            tracing::warn!(work, error, "trying again");
            self.pause(PAUSE).await;
            // If the pool had to be restored, the claim is lost, too, and the worker abandons the
            // work.
            let _ = self.restore().await;
            let is_lost = task.interruption() == Some(Interruption::Lost)
                || matches!(self.queue.holds(&task.held).await, Ok(false));
            if is_lost {
                return Err(QueueError::Lost);
            }
        }
    }

    fn is_ending(&self) -> bool {
        *self.is_ending.borrow()
    }

    async fn ending(&self) {
        // If the sender is dropped, the worker also ends.
        let _ = self.is_ending.clone().wait_for(|it| *it).await;
    }

    async fn pause(&self, time: Duration) {
        tokio::select! {
            () = sleep(time) => {}
            () = self.ending() => {}
        }
    }
}

/// Acknowledges a message, or returns it to the queue. If the acknowledgement is lost, the queue
/// delivers the message again, and the next worker discards it.
async fn settle(delivery: &QueueDelivery, kind: AckKind) -> Result<(), QueueError> {
    let is_final = matches!(kind, AckKind::Ack | AckKind::Term);
    let reported = match is_final {
        true => delivery.double_ack_with(kind).await,
        false => delivery.ack_with(kind).await,
    };
    if let Err(error) = reported {
        tracing::debug!(%error, "the message will be delivered again");
    }
    Ok(())
}

fn now() -> i64 {
    Timestamp::now().as_second()
}

/// Interval at which the worker closes idle FTP sessions.
const LEAVE_INTERVAL: Duration = Duration::from_secs(5);

/// Pause before the worker contacts an unreachable server again.
const PAUSE: Duration = Duration::from_secs(1);

/// Delay before the queue delivers a message again if the record of its job is unreadable.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(60);

/// Minimum acknowledgement timeout that the worker applies. With a shorter timeout, a worker would
/// send progress messages all the time.
const ACK_WAIT_MIN: Duration = Duration::from_secs(1);

/// Text that replaces the job's name in the key of a dead letter, if the message is unreadable.
const UNREADABLE: &str = "unreadable";
