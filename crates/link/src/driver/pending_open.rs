//! Handle that waits for a stream to open.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::OpenResult;
use crate::{PeerId, StreamClass, StreamKey};

/// Request of a handle that waits for a stream. The peer is not connected, or permits no further
/// stream at the moment.
pub(super) struct PendingOpen {
    pub(super) peer: PeerId,
    pub(super) beside: Option<StreamKey>,
    pub(super) class: StreamClass,
    pub(super) reply: oneshot::Sender<OpenResult>,
    pub(super) deadline: Instant,
}

impl PendingOpen {
    pub(super) fn new(
        peer: PeerId,
        beside: Option<StreamKey>,
        class: StreamClass,
        reply: oneshot::Sender<OpenResult>,
        now: Instant,
    ) -> Self {
        Self {
            peer,
            beside,
            class,
            reply,
            deadline: now + OPEN_TIMEOUT,
        }
    }
}

/// Maximum time for which a request waits for a stream.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);
