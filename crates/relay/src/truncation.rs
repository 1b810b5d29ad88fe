//! Truncated data: data under TLS that end with a FIN without close_notify. Anyone on the path can
//! send such a FIN. The data end in the same way on the peer's TLS connection. Client and server
//! then decide by themselves whether the data are complete.
//!
//! Both kinds of end look the same on a link stream. The gateway that detects a truncation
//! therefore first reports it to the peer. The report uses its own stream, since the session's
//! stream may have ended already. The gateway ends the data stream only after the peer has
//! confirmed the report.

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

use crate::wire::{Service, StreamHello, encode};

/// A session, as one gateway identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey {
    pub(crate) peer: PeerId,
    /// Whether this gateway has the client, and chose the session's number.
    pub(crate) is_near: bool,
    pub(crate) session: u64,
}

/// The sessions of a gateway, and their data connections that the peer reported as truncated.
#[derive(Debug, Default)]
pub(crate) struct Truncations(Mutex<HashMap<SessionKey, SessionTruncations>>);

#[derive(Debug, Default)]
struct SessionTruncations {
    /// Whether further data connections may come.
    is_open: bool,
    connections: HashMap<TransferId, Arc<AtomicBool>>,
    /// Reports that precede the data connection. In fast mode the peer's data connection may be
    /// over by then.
    early: BTreeSet<TransferId>,
}

impl Truncations {
    /// Records the peer's report of a truncation. False if the session is unknown: the data must
    /// then not seem to have ended.
    pub(crate) fn record(&self, key: SessionKey, transfer: TransferId) -> bool {
        let mut sessions = self.lock();
        let Some(known) = sessions.get_mut(&key) else {
            return false;
        };
        if let Some(reported) = known.connections.get(&transfer) {
            reported.store(true, Ordering::Relaxed);
            return true;
        }
        if known.is_open {
            known.early.insert(transfer);
            // Data connections that are over need no reports.
            if known.early.len() > EARLY_MAX {
                known.early.pop_first();
            }
        }
        known.is_open
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, SessionTruncations>> {
        // No code here panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session that accepts reports about its data connections, until it is dropped.
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

/// The truncation of one data connection with TLS, as reported by this gateway or by the peer.
pub(crate) struct Truncation {
    truncations: Arc<Truncations>,
    link: Link,
    session: SessionKey,
    /// A stream of the session. The process that has it receives the report.
    beside: StreamKey,
    transfer: TransferId,
    reported: Arc<AtomicBool>,
}

impl Truncation {
    /// Creates a truncation, with the report that preceded the data connection, if any.
    pub(crate) fn new(
        truncations: Arc<Truncations>,
        link: Link,
        session: SessionKey,
        beside: StreamKey,
        transfer: TransferId,
    ) -> Self {
        let reported = {
            let mut sessions = truncations.lock();
            let known = sessions.entry(session).or_default();
            let reported = Arc::new(AtomicBool::new(known.early.remove(&transfer)));
            known.connections.insert(transfer, reported.clone());
            reported
        };
        Self {
            truncations,
            link,
            session,
            beside,
            transfer,
            reported,
        }
    }

    /// Reports to the peer that the data were truncated here. Waits for the confirmation.
    ///
    /// # Errors
    /// The reason why the report failed. The data must then not seem to have ended.
    pub(crate) async fn report(&self) -> Result<(), String> {
        tracing::info!("the data has ended without close_notify");
        let failed =
            |why: String| format!("no close_notify, and the report to the peer failed: {why}");
        let (peer, beside) = (self.session.peer, self.beside);
        let opened = self.link.open_beside(peer, beside, Class::Control).await;
        let (mut send, mut recv) = opened.map_err(|error| failed(error.to_string()))?;
        let service = Service::Truncated {
            session: self.session.session,
            transfer: self.transfer,
            by_client: self.session.is_near,
        };
        let written = send.write(encode(&StreamHello { service })).await;
        written.map_err(|error| failed(error.to_string()))?;
        send.finish();
        match timeout(REPORT_TIMEOUT, recv.read()).await {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(_))) => Err(failed("it answers".to_owned())),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => {
                let seconds = REPORT_TIMEOUT.as_secs();
                Err(failed(format!("no acknowledgement within {seconds} s")))
            }
        }
    }

    /// Whether the peer has reported that its data were truncated.
    pub(crate) fn is_reported(&self) -> bool {
        self.reported.load(Ordering::Relaxed)
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

/// Timeout of the peer's confirmation: some round trips of a bad path, and shorter than clients
/// wait for a final reply.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Early reports of one session: as many as a client may request data connections ahead.
const EARLY_MAX: usize = PIPELINED_MAX;
