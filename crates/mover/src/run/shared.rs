//! What all lanes of a job share.

use std::sync::{Arc, atomic::AtomicBool};

use super::progress::Progress;
use crate::{job::Job, journal::Journal};

/// What all lanes of a job share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) job: Arc<Job>,
    pub(super) journal: Option<Arc<Journal>>,
    pub(super) progress: Arc<Progress>,
    /// The gateway cannot connect to ports of this machine.
    pub(super) is_out_of_reach: AtomicBool,
}
