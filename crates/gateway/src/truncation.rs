//! Data that ends under TLS by a FIN without close_notify, which anybody on the way could have sent: it ends so on
//! the other side's TLS too, and client and server judge by themselves whether what came is everything.
//!
//! The end of a link stream is the same either way. So the gateway that sees such an end first tells the other, on a
//! stream of its own, since the session's may be gone already; waits until it knows; and only then ends the data's.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use ftp::session::TransferId;
use link::{Class, PeerId};

use crate::{
    shared::Shared,
    socket,
    tls::{Reader, Writer},
    wire::{Hello, Service, encode},
};

/// A data connection, as one gateway knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) peer: PeerId,
    /// This gateway has the client, and the session's number is its own.
    pub(crate) is_near: bool,
    pub(crate) session: u64,
    pub(crate) transfer: TransferId,
}

/// The data connections of a gateway, and of which it has been told.
#[derive(Debug, Default)]
pub(crate) struct Truncations(Mutex<HashMap<Key, Arc<AtomicBool>>>);

impl Truncations {
    /// The other gateway has seen such an end. Of a connection that is over nobody needs to know.
    pub(crate) fn note(&self, key: Key) {
        if let Some(told) = self.lock().get(&key) {
            told.store(true, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<AtomicBool>>> {
        // Nothing here panics halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one data connection with TLS has to do with it.
pub(crate) struct Truncation {
    shared: Arc<Shared>,
    key: Key,
    told: Arc<AtomicBool>,
}

impl Truncation {
    /// May be told of from now on.
    pub(crate) fn new(shared: Arc<Shared>, key: Key) -> Self {
        let told = Arc::new(AtomicBool::default());
        shared.truncations.lock().insert(key, told.clone());
        Self { shared, key, told }
    }

    /// If the data has ended so here, tells the other gateway of it and waits until it knows.
    ///
    /// # Errors
    /// Why it does not: then the data must not seem to have ended.
    pub(crate) async fn tell(&self, reader: &Reader) -> Result<(), String> {
        if !reader.leg().closed_without_notify() {
            return Ok(());
        }
        tracing::info!("the data has ended without close_notify");
        let failed = |why: String| format!("no close_notify, and the peer cannot be told: {why}");
        let opened = self.shared.open(self.key.peer, Class::Control).await;
        let (mut send, mut recv) = opened.map_err(|error| failed(error.to_string()))?;
        let service = Service::Truncated {
            session: self.key.session,
            transfer: self.key.transfer,
            by_client: self.key.is_near,
        };
        let written = send.write(encode(&Hello { service })).await;
        written.map_err(|error| failed(error.to_string()))?;
        send.finish();
        match recv.read().await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(failed("it answers".to_owned())),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Ends the data here, as it has ended on the other side.
    pub(crate) async fn end(&self, writer: &mut Writer) -> std::io::Result<()> {
        if self.told.load(Ordering::Relaxed) {
            socket::end_without_notify(writer)
        } else {
            socket::end_orderly(writer).await
        }
    }
}

impl Drop for Truncation {
    fn drop(&mut self) {
        self.shared.truncations.lock().remove(&self.key);
    }
}
