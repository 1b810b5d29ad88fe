//! Truncated data: data under TLS that ends with a FIN without close_notify, which anybody on the
//! path could have sent. The data ends in the same way on the other gateway's TLS, and client and
//! server judge by themselves whether it is complete.
//!
//! Both kinds of end look the same on a link stream. The gateway that sees such an end therefore
//! first tells the other gateway, on a stream of its own, since the session's stream may be gone
//! already. It ends the data stream only after the other gateway has confirmed.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ftp::session::{PIPELINED_MAX, TransferId};
use link::{Class, Link, PeerId, StreamKey};
use tokio::time::timeout;

use crate::wire::{Hello, Service, encode};

/// A session, as one gateway knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey {
    pub(crate) peer: PeerId,
    /// This gateway has the client, and the session's number is its own.
    pub(crate) is_near: bool,
    pub(crate) session: u64,
}

/// The sessions of a gateway, and their data connections that the other gateway reported as
/// truncated.
#[derive(Debug, Default)]
pub(crate) struct Truncations(Mutex<HashMap<SessionKey, Known>>);

#[derive(Debug, Default)]
struct Known {
    /// More data connections may come.
    is_open: bool,
    connections: HashMap<TransferId, Arc<AtomicBool>>,
    /// Told of before this gateway has the data connection: in fast mode the other's may be over by then.
    early: BTreeSet<TransferId>,
}

impl Truncations {
    /// The other gateway has seen such an end. False if the session is unknown: then
    /// the data must not seem to have ended.
    pub(crate) fn note(&self, key: SessionKey, transfer: TransferId) -> bool {
        let mut sessions = self.lock();
        let Some(known) = sessions.get_mut(&key) else {
            return false;
        };
        if let Some(told) = known.connections.get(&transfer) {
            told.store(true, Ordering::Relaxed);
            return true;
        }
        if known.is_open {
            known.early.insert(transfer);
            // Of those that are over nobody asks again.
            if known.early.len() > EARLY_MAX {
                known.early.pop_first();
            }
        }
        known.is_open
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, Known>> {
        // Nothing here panics halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session that accepts reports about its data connections, until drop.
pub(crate) struct KnownSession {
    truncations: Arc<Truncations>,
    key: SessionKey,
}

impl KnownSession {
    pub(crate) fn new(truncations: Arc<Truncations>, key: SessionKey) -> Self {
        truncations.lock().entry(key).or_default().is_open = true;
        Self { truncations, key }
    }
}

impl Drop for KnownSession {
    fn drop(&mut self) {
        let mut sessions = self.truncations.lock();
        if let Some(known) = sessions.get_mut(&self.key) {
            known.is_open = false;
            known.early.clear();
            if known.connections.is_empty() {
                sessions.remove(&self.key);
            }
        }
    }
}

/// The truncation of one data connection with TLS: reported here, or by the other gateway.
pub(crate) struct Truncation {
    truncations: Arc<Truncations>,
    link: Link,
    session: SessionKey,
    /// A stream of the session: the process that has it is told.
    beside: StreamKey,
    transfer: TransferId,
    told: Arc<AtomicBool>,
}

impl Truncation {
    /// Takes over a report that came before the data connection.
    pub(crate) fn new(
        truncations: Arc<Truncations>,
        link: Link,
        session: SessionKey,
        beside: StreamKey,
        transfer: TransferId,
    ) -> Self {
        let told = {
            let mut sessions = truncations.lock();
            let known = sessions.entry(session).or_default();
            let told = Arc::new(AtomicBool::new(known.early.remove(&transfer)));
            known.connections.insert(transfer, told.clone());
            told
        };
        Self {
            truncations,
            link,
            session,
            beside,
            transfer,
            told,
        }
    }

    /// Tells the other gateway that the data has ended so here, and waits until it knows.
    ///
    /// # Errors
    /// The reason why the other gateway does not know. The data must then not seem to have ended.
    pub(crate) async fn tell(&self) -> Result<(), String> {
        tracing::info!("the data has ended without close_notify");
        let failed = |why: String| format!("no close_notify, and the peer cannot be told: {why}");
        let (peer, beside) = (self.session.peer, self.beside);
        let opened = self.link.open_beside(peer, beside, Class::Control).await;
        let (mut send, mut recv) = opened.map_err(|error| failed(error.to_string()))?;
        let service = Service::Truncated {
            session: self.session.session,
            transfer: self.transfer,
            by_client: self.session.is_near,
        };
        let written = send.write(encode(&Hello { service })).await;
        written.map_err(|error| failed(error.to_string()))?;
        send.finish();
        match timeout(TELL_PATIENCE, recv.read()).await {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(_))) => Err(failed("it answers".to_owned())),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => {
                let seconds = TELL_PATIENCE.as_secs();
                Err(failed(format!("no acknowledgement within {seconds} s")))
            }
        }
    }

    /// Whether the data has ended so on the other side.
    pub(crate) fn is_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }
}

impl Drop for Truncation {
    fn drop(&mut self) {
        let mut sessions = self.truncations.lock();
        if let Some(known) = sessions.get_mut(&self.session) {
            known.connections.remove(&self.transfer);
            if !known.is_open && known.connections.is_empty() {
                sessions.remove(&self.session);
            }
        }
    }
}

/// Time for the other gateway to acknowledge: some round trips of a bad path, and shorter than clients wait for a
/// final reply.
const TELL_PATIENCE: Duration = Duration::from_secs(10);

/// Data connections of one session told of early: as many as a client may have asked for ahead.
const EARLY_MAX: usize = PIPELINED_MAX;
