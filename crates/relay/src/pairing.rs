//! Assignment of the link streams of data connections to their sessions.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use ftp::session::TransferId;
use link::{PeerId, RecvStream, SendStream};
use tokio::sync::{Notify, mpsc};

/// Both halves of a link stream, and the bytes that arrived together with the hello (the first
/// message).
#[derive(Debug)]
pub(crate) struct StreamHalves {
    pub(crate) send: SendStream,
    pub(crate) recv: RecvStream,
    pub(crate) first: Bytes,
}

/// Link stream of a data connection that a session must accept.
#[derive(Debug)]
pub(crate) struct DataStream {
    pub(crate) transfer: TransferId,
    pub(crate) stream: StreamHalves,
}

/// Registry of the sessions that accept streams of data connections.
#[derive(Debug, Default)]
pub(crate) struct StreamPairing {
    sessions: Mutex<HashMap<(PeerId, u64), mpsc::Sender<DataStream>>>,
    changed: Notify,
}

impl StreamPairing {
    fn lock(&self) -> MutexGuard<'_, HashMap<(PeerId, u64), mpsc::Sender<DataStream>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, key: (PeerId, u64)) -> mpsc::Receiver<DataStream> {
        let (sender, receiver) = mpsc::channel(DATA_STREAMS_MAX);
        self.lock().insert(key, sender);
        self.changed.notify_waiters();
        receiver
    }

    pub(crate) fn leave(&self, key: (PeerId, u64)) {
        self.lock().remove(&key);
    }

    /// Returns the channel of the session with this key. Waits until the session exists, because a
    /// stream may arrive before its session.
    pub(crate) async fn find(&self, key: (PeerId, u64)) -> mpsc::Sender<DataStream> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(sender) = self.lock().get(&key) {
                return sender.clone();
            }
            changed.await;
        }
    }
}

/// Maximum number of streams that wait in the channel of a session.
const DATA_STREAMS_MAX: usize = 16;
