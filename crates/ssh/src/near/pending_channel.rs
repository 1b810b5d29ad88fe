//! Channel whose program has not started yet.

use std::sync::Arc;

use russh::{ChannelReadHalf, ChannelWriteHalf, server::Msg};

use crate::{backpressure::HeldBytes, wire::channel::Terminal};

/// Channel whose program has not started yet.
pub(super) struct PendingChannel {
    pub(super) read: ChannelReadHalf,
    pub(super) write: ChannelWriteHalf<Msg>,
    pub(super) held: Arc<HeldBytes>,
    pub(super) terminal: Option<Terminal>,
    pub(super) environment: Vec<(String, String)>,
    /// Whether the client forwards its agent.
    pub(super) has_agent: bool,
}
