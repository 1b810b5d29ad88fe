//! Says that the work goes on, as long as it is this worker's.

use std::time::Duration;

use async_nats::jetstream::AckKind;
use tokio::time::{MissedTickBehavior, interval};

use super::Crew;
use crate::{
    message::Message,
    queue::{ACK_WAIT, Held, Taken},
};

/// Why work is broken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The worker ends.
    Ending,
    /// Another worker has the work.
    Lost,
    /// The job was cancelled.
    Cancelled,
}

impl Crew {
    /// Tells the server again and again that the work goes on. Returns when it is to be broken off.
    pub(super) async fn guard(&self, taken: &Taken, message: &Message, held: &Held) -> Stop {
        tokio::select! {
            () = self.ending() => Stop::Ending,
            stop = self.keep(taken, message, held) => stop,
        }
    }

    async fn keep(&self, taken: &Taken, message: &Message, held: &Held) -> Stop {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for tick in 0u32.. {
            ticks.tick().await;
            if tick % PROGRESS_LOOKS == 0 {
                // Nobody answers it: whether it has arrived shows by the claim.
                let _ = taken.ack_with(AckKind::Progress).await;
            }
            // While the server is away, no other worker gets the work either.
            if matches!(self.queue.holds(held).await, Ok(false)) {
                return Stop::Lost;
            }
            if let Ok(record) = self.queue.record(message.job()).await
                && record.is_none_or(|it| it.is_cancelled)
            {
                return Stop::Cancelled;
            }
        }
        Stop::Lost
    }
}

/// How often a worker looks whether the work is still its own, and wanted.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// After so many looks the worker says that it goes on. Two of three times the server may not hear it.
const PROGRESS_LOOKS: u32 = (ACK_WAIT.as_secs() / 3 / LOOK_EVERY.as_secs()) as u32;
