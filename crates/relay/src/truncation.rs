//! Truncation: a TLS connection ends with a FIN but without close_notify. Anyone on the path can
//! send such a FIN. The peer gateway therefore ends its TLS connection in the same way. Client and
//! server then decide themselves whether the data are complete.
//!
//! On a link stream, an end with close_notify and an end without close_notify look the same. If a
//! gateway detects a truncation, it therefore first reports the truncation to its peer. The report
//! uses a separate stream, because the session's stream may have ended already. The gateway ends
//! the data stream only after the peer has confirmed the report.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ftp::session::{PIPELINED_MAX, TransferId};
use link::{Link, PeerId, StreamClass, StreamKey};
use tokio::time::timeout;

use crate::wire::{Service, StreamHello, encode};

/// Identifies a session at one gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey {
    pub(crate) peer: PeerId,
    /// Whether this gateway is the near gateway of the session. The near gateway chooses the
    /// session's number.
    pub(crate) is_near: bool,
    pub(crate) session: u64,
}

/// Sessions of a gateway. For each data connection, the value stores whether the peer has reported
/// a truncation.
#[derive(Debug, Default)]
pub(crate) struct Truncations(Mutex<HashMap<SessionKey, SessionTruncations>>);

#[derive(Debug, Default)]
struct SessionTruncations {
    /// Whether the session may still open data connections.
    is_open: bool,
    connections: HashMap<TransferId, Arc<AtomicBool>>,
    /// Data connections that were not registered yet when the peer reported their truncation. In
    /// fast mode, the peer's data connection may end before the registration at this gateway.
    early: BTreeSet<TransferId>,
}

impl Truncations {
    /// Records the peer's report of a truncation. Returns `false` if the session is unknown. The
    /// caller must then refuse the report. The peer therefore resets its data stream, so that the
    /// data do not appear complete.
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
            // The oldest report probably belongs to a data connection that has ended.
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

/// Registration of a session. The session accepts reports of truncations until this value is
/// dropped.
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

/// State of one data connection with TLS: whether this gateway or the peer has reported a
/// truncation.
pub(crate) struct Truncation {
    truncations: Arc<Truncations>,
    link: Link,
    session: SessionKey,
    /// A stream of the session. The report reaches the same process of the peer as this stream.
    beside: StreamKey,
    transfer: TransferId,
    reported: Arc<AtomicBool>,
}

impl Truncation {
    /// Creates the state. If the peer's report has already arrived, the state contains it.
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

    /// Reports to the peer that the data connection at this gateway was truncated. Waits for the
    /// confirmation.
    ///
    /// # Errors
    /// The reason why the report failed. The caller must then reset the data stream, so that the
    /// data do not appear complete.
    pub(crate) async fn report(&self) -> Result<(), String> {
        tracing::info!("the data has ended without close_notify");
        let failed =
            |why: String| format!("no close_notify, and the report to the peer failed: {why}");
        let (peer, beside) = (self.session.peer, self.beside);
        let opened = self
            .link
            .open_beside(peer, beside, StreamClass::Control)
            .await;
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

    /// Whether the peer has reported that its data connection was truncated.
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

/// Time limit for the peer's confirmation. The limit allows several round trips on a bad path, and
/// is shorter than a client's timeout for the final reply.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of early reports of one session. The limit equals the number of commands that a
/// client may pipeline.
const EARLY_MAX: usize = PIPELINED_MAX;
