//! Says that work goes on, and has it broken off where it is not wanted any more.

use std::{convert::Infallible, future::pending, time::Duration};

use async_nats::jetstream::AckKind;
use tokio::{
    sync::watch,
    time::{Instant, Interval, MissedTickBehavior, interval_at},
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
        tokio::join!(end, self.say(task), self.look(task, stop));
        pending().await
    }

    /// Says that the work goes on.
    async fn say(&self, task: &Task<'_>) {
        let mut ticks = ticks(SAY_EVERY);
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

/// Two of three times the server may not hear it.
const SAY_EVERY: Duration = Duration::from_secs(ACK_WAIT.as_secs() / 3);
