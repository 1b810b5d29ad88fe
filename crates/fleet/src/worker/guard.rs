//! Says that work goes on, and has it broken off where it is not wanted any more.

use std::{convert::Infallible, future::pending, time::Duration};

use async_nats::jetstream::AckKind;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use super::{
    Crew,
    task::{Stop, Task},
};
use crate::queue::ACK_WAIT;

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
        tokio::join!(end, self.keep(task, stop));
        pending().await
    }

    async fn keep(&self, task: &Task<'_>, stop: &watch::Sender<Option<Stop>>) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        for tick in 0u64.. {
            ticks.tick().await;
            if tick % PROGRESS_LOOKS == 0 {
                // Nobody answers it: whether the server has heard it shows by the claim.
                let _ = task.taken.ack_with(AckKind::Progress).await;
            }
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

/// How often a worker looks whether the work is still its own, and wanted.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// After so many looks the worker says that it goes on. Two of three times the server may not hear it.
const PROGRESS_LOOKS: u64 = ACK_WAIT.as_secs() / 3 / LOOK_EVERY.as_secs();
