//! Work that a worker has claimed, and what becomes of it.

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
    /// What `longhaul copy` has on its command line.
    pub(super) words: Vec<OsString>,
    pub(super) held: Held,
    /// Why it is to be broken off, once it is.
    pub(super) stopped: watch::Receiver<Option<Stop>>,
}

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

/// What became of an attempt.
pub(super) enum Became {
    /// The files are there.
    Moved(Counts),
    /// The source is listed, and its batches wait.
    Listed(Listed),
    /// Something failed: why.
    Failed(String),
    /// The worker ends.
    Interrupted,
    /// Another worker has the work.
    Lost,
    /// The job was cancelled.
    Cancelled,
}

/// What a listing has found.
pub(super) struct Listed {
    pub(super) listing: u32,
    pub(super) batches: u32,
    pub(super) found: Counts,
    /// What could not be listed.
    pub(super) failure: Option<String>,
}

impl Task<'_> {
    /// Why the work is to be broken off, if it is.
    pub(super) fn why(&self) -> Option<Stop> {
        *self.stopped.borrow()
    }

    /// Returns when the work is to be broken off.
    pub(super) async fn stopped(&self) {
        // Whoever could say so is gone with the work.
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
