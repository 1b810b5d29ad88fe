//! Says that work goes on, has it broken off where it is not wanted any more, and keeps a worker whose claim is gone from
//! changes that cannot be undone.

use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};

use async_nats::jetstream::AckKind;
use mover::{fence::Fence, run::chain};
use tokio::{
    sync::watch,
    time::{Instant, Interval, MissedTickBehavior, interval_at, sleep},
};

use super::{
    Crew, PAUSE,
    task::{Stop, Task},
};

impl Crew {
    /// Tells the server again and again that the work goes on, and `stop` why it is to be broken off.
    pub(super) async fn guard(
        &self,
        task: &Task<'_>,
        stop: &watch::Sender<Option<Stop>>,
    ) -> Infallible {
        let end = async {
            self.ending().await;
            tell(stop, Stop::Ending);
        };
        tokio::join!(end, self.say(task), self.look(task, stop));
        pending().await
    }

    /// A fence that asks the server for the claim before each step. While the server cannot be asked, the step waits: another
    /// worker may have the work by then. Work that is broken off takes no step any more.
    pub(super) fn fence(&self, task: &Task<'_>) -> Fence {
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
                    // The sender is gone with the work.
                    _ = stopped.wait_for(Option::is_some) => false,
                    holds = holds => holds,
                }
            })
        })
    }

    /// Says that the work goes on.
    async fn say(&self, task: &Task<'_>) {
        // Two of three times the server may not hear it.
        let mut ticks = ticks(self.ack_wait / 3);
        loop {
            ticks.tick().await;
            if task.why() == Some(Stop::Lost) {
                return;
            }
            // Nobody answers it: whether the server has heard it shows by the claim.
            let _ = task.taken.ack_with(AckKind::Progress).await;
        }
    }

    /// Looks whether the work is still this worker's, and wanted.
    async fn look(&self, task: &Task<'_>, stop: &watch::Sender<Option<Stop>>) {
        let mut ticks = ticks(LOOK_EVERY);
        loop {
            ticks.tick().await;
            // While the server cannot be asked, the work goes on: what is done twice does no harm.
            if matches!(self.queue.holds(&task.held).await, Ok(false)) {
                return tell(stop, Stop::Lost);
            }
            if let Ok(record) = self.queue.record(task.message.job()).await
                && record.is_none_or(|it| it.is_cancelled)
            {
                tell(stop, Stop::Cancelled);
            }
        }
    }
}

fn ticks(every: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// The first reason counts, but that work is another worker's counts always: nothing is said of it then.
fn tell(stop: &watch::Sender<Option<Stop>>, why: Stop) {
    stop.send_if_modified(|told| {
        let is_news = told.is_none() || (why == Stop::Lost && *told != Some(why));
        if is_news {
            *told = Some(why);
        }
        is_news
    });
}

const LOOK_EVERY: Duration = Duration::from_secs(5);
