//! TLS sessions with one server, for one FTP session.
//!
//! Some servers (vsftpd, ProFTPD, FileZilla Server) refuse a data connection that does not resume
//! the control connection's TLS session. Any host could have opened such a connection.
//!
//! The client offers a TLS 1.2 session on every data connection. It offers a TLS 1.3 ticket only
//! once, as the TLS library requires. A server sends new tickets on each resumed connection, or on
//! the control connection. The client must read these connections to their end to receive the
//! tickets.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustls::{
    NamedGroup,
    client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue},
    pki_types::ServerName,
};

/// Resumable TLS sessions with one server.
#[derive(Default)]
pub(super) struct TlsSessions(Mutex<StoredSessions>);

#[derive(Default)]
struct StoredSessions {
    /// TLS 1.3 tickets, sorted by age. The oldest ticket is first.
    tickets: VecDeque<Tls13ClientSessionValue>,
    tls12: Option<Tls12ClientSessionValue>,
    group: Option<NamedGroup>,
}

impl TlsSessions {
    /// Returns whether the next connection can offer a session.
    pub(super) fn any(&self) -> bool {
        let held = self.lock();
        !held.tickets.is_empty() || held.tls12.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, StoredSessions> {
        // No code panics between two changes, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for TlsSessions {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.lock().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.lock().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.lock().tls12 = Some(session);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.lock().tls12.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.lock().tls12 = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut held = self.lock();
        if held.tickets.len() == TICKETS_MAX {
            held.tickets.pop_front();
        }
        held.tickets.push_back(ticket);
    }

    /// Removes and returns the newest ticket, which expires last.
    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.lock().tickets.pop_back()
    }
}

impl fmt::Debug for TlsSessions {
    /// Formats the sessions without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.lock();
        f.debug_struct("Sessions")
            .field("tickets", &held.tickets.len())
            .field("tls12", &held.tls12.is_some())
            .finish_non_exhaustive()
    }
}

/// Maximum number of stored tickets. A session has only one data connection at any time, and newer
/// tickets replace older tickets.
const TICKETS_MAX: usize = 16;
