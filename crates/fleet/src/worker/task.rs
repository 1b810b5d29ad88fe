//! A batch or listing that a worker has claimed, and the outcome of its attempt.

use std::ffi::OsString;

use tokio::sync::watch;

use crate::{
    message::Message,
    queue::{HeldClaim, QueueDelivery},
    record::FileCounts,
};

/// A batch or listing that this worker has claimed.
pub(super) struct ClaimedWork<'a> {
    pub(super) delivery: &'a QueueDelivery,
    pub(super) message: Message,
    /// Arguments for `longhaul copy`.
    pub(super) words: Vec<OsString>,
    pub(super) held: HeldClaim,
    /// Reason of an interruption. `None` while the work may continue.
    pub(super) stopped: watch::Receiver<Option<Interruption>>,
}

/// Reason why an attempt must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interruption {
    /// This worker process ends.
    Ending,
    /// Another worker has claimed the same batch or listing.
    Lost,
    /// A user has cancelled the job.
    Cancelled,
}

/// Outcome of one attempt.
pub(super) enum TaskOutcome {
    /// All files of the batch have been moved.
    Moved(FileCounts),
    /// The source has been listed, and its batches are in the queue.
    Listed(SourceListing),
    /// The attempt has failed for the given reason.
    Failed(String),
    /// This worker process ends before the attempt has finished.
    Interrupted,
    /// Another worker has claimed the same batch or listing.
    Lost,
    /// A user has cancelled the job.
    Cancelled,
}

/// Result of the listing of a job's source.
pub(super) struct SourceListing {
    pub(super) listing: u32,
    pub(super) batches: u32,
    pub(super) found: FileCounts,
    /// Reason why some directories could not be listed. `None` if the listing is complete.
    pub(super) failure: Option<String>,
}

impl ClaimedWork<'_> {
    /// Returns the reason of an interruption. Returns `None` if the work may continue.
    pub(super) fn interruption(&self) -> Option<Interruption> {
        *self.stopped.borrow()
    }

    /// Waits until the work is interrupted.
    pub(super) async fn stopped(&self) {
        // If the work ends, its sender is dropped, and the wait ends with an error.
        let _ = self.stopped.clone().wait_for(Option::is_some).await;
    }
}

impl TaskOutcome {
    pub(super) fn interrupted_by(stop: Interruption) -> Self {
        match stop {
            Interruption::Ending => Self::Interrupted,
            Interruption::Lost => Self::Lost,
            Interruption::Cancelled => Self::Cancelled,
        }
    }
}
