//! Work that a worker has claimed, and its outcome.

use std::ffi::OsString;

use tokio::sync::watch;

use crate::{
    message::Message,
    queue::{Held, Taken},
    record::Counts,
};

/// Work that a worker has claimed.
pub(super) struct Task<'a> {
    pub(super) taken: &'a Taken,
    pub(super) message: Message,
    /// Command line of `longhaul copy`.
    pub(super) words: Vec<OsString>,
    pub(super) held: Held,
    /// Reason of an interruption, once there is one.
    pub(super) stopped: watch::Receiver<Option<Stop>>,
}

/// Reason of an interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The worker ends.
    Ending,
    /// Another worker has the work.
    Lost,
    /// The job was cancelled.
    Cancelled,
}

/// Outcome of an attempt.
pub(super) enum Became {
    /// The files have been moved.
    Moved(Counts),
    /// The source is listed, and its batches wait.
    Listed(Listed),
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
pub(super) struct Listed {
    pub(super) listing: u32,
    pub(super) batches: u32,
    pub(super) found: Counts,
    /// Error for the parts that could not be listed.
    pub(super) failure: Option<String>,
}

impl Task<'_> {
    /// Returns the reason of an interruption, if there is one.
    pub(super) fn why(&self) -> Option<Stop> {
        *self.stopped.borrow()
    }

    /// Waits for an interruption of the work.
    pub(super) async fn stopped(&self) {
        // The sender may be dropped with the work.
        let _ = self.stopped.clone().wait_for(Option::is_some).await;
    }
}

impl Became {
    pub(super) fn broken_off(stop: Stop) -> Self {
        match stop {
            Stop::Ending => Self::Interrupted,
            Stop::Lost => Self::Lost,
            Stop::Cancelled => Self::Cancelled,
        }
    }
}
