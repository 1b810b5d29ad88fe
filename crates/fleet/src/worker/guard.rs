//! Supervision of running work.
//!
//! The guard reports progress to the server. It interrupts work that is cancelled or that another
//! worker has claimed. A fence prevents irreversible changes by a worker that has lost its claim.

use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};

use async_nats::jetstream::AckKind;
use mover::{fence::Fence, run::chain};
use tokio::{
    sync::watch,
    time::{Instant, Interval, MissedTickBehavior, interval_at, sleep},
};

use super::{
    PAUSE, WorkerContext,
    task::{ClaimedWork, Interruption},
};

impl WorkerContext {
    /// Reports progress to the server at regular intervals. If the work must end, sends the reason
    /// to `stop`.
    pub(super) async fn guard(
        &self,
        task: &ClaimedWork<'_>,
        stop: &watch::Sender<Option<Interruption>>,
    ) -> Infallible {
        let end = async {
            self.ending().await;
            interrupt(stop, Interruption::Ending);
        };
        tokio::join!(
            end,
            self.report_progress(task),
            self.check_claim(task, stop)
        );
        pending().await
    }

    /// Returns a fence that checks this worker's claim before each irreversible step.
    ///
    /// If the server cannot be reached, the step waits, because another worker may have claimed the
    /// work meanwhile. After an interruption, the fence permits no further step.
    pub(super) fn fence(&self, task: &ClaimedWork<'_>) -> Fence {
        let (queue, held) = (self.queue.clone(), Arc::new(task.held.clone()));
        let stopped = task.stopped.clone();
        Fence::new(move || {
            let (queue, held, mut stopped) = (queue.clone(), held.clone(), stopped.clone());
            let holds = async move {
                loop {
                    match queue.holds(&held).await {
                        Ok(holds) => return holds,
                        Err(error) => {
                            let (work, error) = (&held.key, chain(&error));
                            tracing::warn!(work, error, "a file waits for its name");
                        }
                    }
                    sleep(PAUSE).await;
                }
            };
            Box::pin(async move {
                tokio::select! {
                    biased;
                    // The wait also ends when the work ends, because the sender is then dropped.
                    _ = stopped.wait_for(Option::is_some) => false,
                    holds = holds => holds,
                }
            })
        })
    }

    /// Sends progress messages to the server, so that the server does not deliver the message to
    /// another worker.
    async fn report_progress(&self, task: &ClaimedWork<'_>) {
        // With this interval, the loss of two of three progress messages does no harm.
        let mut ticks = ticks(self.ack_wait / 3);
        loop {
            ticks.tick().await;
            if task.interruption() == Some(Interruption::Lost) {
                return;
            }
            // The server does not reply to a progress message. If it does not receive the message,
            // another worker may claim the work.
            let _ = task.delivery.ack_with(AckKind::Progress).await;
        }
    }

    /// Checks at regular intervals whether this worker still has its claim, and whether a user has
    /// cancelled the job.
    async fn check_claim(
        &self,
        task: &ClaimedWork<'_>,
        stop: &watch::Sender<Option<Interruption>>,
    ) {
        let mut ticks = ticks(CLAIM_CHECK_INTERVAL);
        loop {
            ticks.tick().await;
            // If the server cannot be reached, the work continues, because repeated work does no
            // harm.
            if matches!(self.queue.holds(&task.held).await, Ok(false)) {
                return interrupt(stop, Interruption::Lost);
            }
            if let Ok(record) = self.queue.record(task.message.job()).await
                && record.is_none_or(|it| it.is_cancelled)
            {
                interrupt(stop, Interruption::Cancelled);
            }
        }
    }
}

fn ticks(every: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Sets the reason of an interruption. Only [`Interruption::Lost`] replaces an earlier reason,
/// because the worker must not report the outcome of lost work.
fn interrupt(stop: &watch::Sender<Option<Interruption>>, why: Interruption) {
    stop.send_if_modified(|stored| {
        let is_news = stored.is_none() || (why == Interruption::Lost && *stored != Some(why));
        if is_news {
            *stored = Some(why);
        }
        is_news
    });
}

const CLAIM_CHECK_INTERVAL: Duration = Duration::from_secs(5);
