//! Work that a worker has claimed, and its outcome.

use std::ffi::OsString;

use tokio::sync::watch;

use crate::{
    message::Message,
    queue::{HeldClaim, QueueDelivery},
    record::FileCounts,
};

/// Work that a worker has claimed.
pub(super) struct ClaimedWork<'a> {
    pub(super) delivery: &'a QueueDelivery,
    pub(super) message: Message,
    /// Command line of `longhaul copy`.
    pub(super) words: Vec<OsString>,
    pub(super) held: HeldClaim,
    /// Reason of an interruption, once there is one.
    pub(super) stopped: watch::Receiver<Option<Interruption>>,
}

/// Reason of an interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interruption {
    /// The worker ends.
    Ending,
    /// Another worker has the work.
    Lost,
    /// The job was cancelled.
    Cancelled,
}

/// Outcome of an attempt.
pub(super) enum TaskOutcome {
    /// The files have been moved.
    Moved(FileCounts),
    /// The source is listed, and its batches wait.
    Listed(SourceListing),
    /// The attempt has failed, with the reason.
    Failed(String),
    /// The worker ends.
    Interrupted,
    /// Another worker has the work.
    Lost,
    /// The job was cancelled.
    Cancelled,
}

/// Result of a listing.
pub(super) struct SourceListing {
    pub(super) listing: u32,
    pub(super) batches: u32,
    pub(super) found: FileCounts,
    /// Error for the parts that could not be listed.
    pub(super) failure: Option<String>,
}

impl ClaimedWork<'_> {
    /// Returns the reason of an interruption, if there is one.
    pub(super) fn interruption(&self) -> Option<Interruption> {
        *self.stopped.borrow()
    }

    /// Waits for an interruption of the work.
    pub(super) async fn stopped(&self) {
        // The sender may be dropped with the work.
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
