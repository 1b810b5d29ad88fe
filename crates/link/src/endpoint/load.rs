//! Limits on concurrent handshakes. They determine whether a first flight may begin another
//! handshake.
//!
//! Anyone who has both public keys can create a valid first flight, and TLS is expensive. The real
//! peer has one handshake in progress, or occasionally two. A further first flight therefore needs
//! a cookie. The cookie proves that the sender of the flight receives packets at its source
//! address. A flood from forged addresses thus begins no handshake. The real peer returns the
//! cookie and can still connect.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use super::{
    Endpoint,
    attempt::{ATTEMPT_MAX, Attempt},
};
use crate::{
    handshake::envelope::{CookieReply, Hello},
    time::Time,
    wire::packet::ConnectionId,
};

/// Maximum number of handshakes in progress with all peers.
const ATTEMPTS_MAX: usize = 256;
/// Limit on peer-initiated handshakes in progress. If this limit is reached, a further handshake
/// needs a cookie.
const ATTEMPTS_WITHOUT_COOKIE: usize = 64;
/// Maximum number of handshakes in progress with one peer. More handshakes would come from
/// attackers with the peer's public key.
const ATTEMPTS_PER_PEER: usize = 4;
/// Limit on handshakes in progress with one peer. If this limit is reached, a further handshake
/// needs a cookie.
const ATTEMPTS_PER_PEER_WITHOUT_COOKIE: usize = 2;
/// Minimum age at which a handshake may be replaced by another handshake. It applies to handshakes
/// from an address that returned a cookie.
const ATTEMPT_FRESH: Duration = Duration::from_secs(3);
/// Maximum number of stored failed handshakes. A host with a cookie can cause one failed handshake
/// every three seconds.
const SPENT_MAX: usize = 1024;
/// Maximum number of cookies that wait to be sent. It is larger than the number of hellos that
/// arrive between two turns of the driver. During a flood, the cookie for the real peer waits among
/// the other cookies.
const REPLIES_MAX: usize = 1024;

impl Endpoint {
    /// Returns whether a first flight with a peer's key may begin a handshake. `is_proven` states
    /// whether the first flight contains a valid cookie.
    ///
    /// If the maximum number of handshakes is reached, the method may remove another handshake. If
    /// a cookie is needed, the method queues a request for a cookie.
    pub(super) fn admit(
        &mut self,
        hello: &Hello<'_>,
        (peer, key): (usize, usize),
        from: SocketAddr,
        len: usize,
        is_proven: bool,
        now: Time,
    ) -> bool {
        let begun_by_peers = self.attempts.values().filter(|it| !it.we_initiate);
        self.failed_attempts.retain(|it| it.until > now);
        let failed_of_peer = self.failed_attempts.iter().filter(|it| it.peer == peer);
        let in_progress = begun_by_peers.clone().count() + self.failed_attempts.len();
        let of_peer: Vec<_> = begun_by_peers.filter(|it| it.peer == peer).collect();
        let is_crowded = of_peer.len() + failed_of_peer.clone().count()
            >= ATTEMPTS_PER_PEER_WITHOUT_COOKIE
            || in_progress >= ATTEMPTS_WITHOUT_COOKIE;
        if is_crowded && !is_proven {
            self.dropped.crowded += 1;
            self.ask_for_cookie(hello, (peer, key), from, len, now);
            return false;
        }
        let host = from.ip().to_canonical();
        let mut of_host = failed_of_peer.filter(|it| it.proven == Some(host));
        if of_host.any(|it| now.since(it.began) < ATTEMPT_FRESH) {
            self.dropped.crowded += 1;
            return false;
        }
        let displaced = match admission(&of_peer, &from, now) {
            Admission::Free => None,
            Admission::InPlaceOf(id) => Some(id),
            Admission::None => {
                self.dropped.crowded += 1;
                return false;
            }
        };
        if let Some(id) = displaced {
            self.attempts.remove(&id);
        }
        if self.attempts.len() >= ATTEMPTS_MAX {
            self.dropped.crowded += 1;
            return false;
        }
        true
    }

    /// Records that a peer-initiated handshake has failed.
    pub(super) fn on_failed(&mut self, id: ConnectionId) {
        let attempt = self.attempts.get(&id).filter(|it| !it.we_initiate);
        if let Some(attempt) = attempt
            && self.failed_attempts.len() < SPENT_MAX
        {
            self.failed_attempts.push(FailedAttempt::new(attempt));
        }
    }

    fn ask_for_cookie(
        &mut self,
        hello: &Hello<'_>,
        (peer, key): (usize, usize),
        from: SocketAddr,
        len: usize,
        now: Time,
    ) {
        // No sender receives more bytes than it sent.
        if len < CookieReply::SIZE || self.replies.len() >= REPLIES_MAX {
            return;
        }
        let reply = CookieReply {
            to: hello.source,
            timestamp: hello.timestamp,
            cookie: self.cookies.bake(&from, now),
        };
        let mut out = Vec::with_capacity(CookieReply::SIZE);
        reply.put(&mut out, &self.peers[peer].keys[key].inward);
        self.replies.push_back((from, out));
    }

    /// Handles a responder's request for a cookie: this endpoint sends its first flight again with
    /// the cookie.
    pub(super) fn on_cookie(&mut self, id: ConnectionId, datagram: &[u8], now: Time) {
        let Ok(reply) = CookieReply::read(datagram) else {
            self.dropped.malformed += 1;
            return;
        };
        let Some(attempt) = self.attempts.get_mut(&id).filter(|it| it.we_initiate) else {
            if !self.connections.contains_key(&id) {
                self.dropped.unknown_connection += 1;
            }
            return;
        };
        let key = &self.peers[attempt.peer].keys[attempt.key];
        if !key.outward.verify(datagram) {
            self.dropped.bad_mac += 1;
            return;
        }
        let began_unix_ns = self.config.unix_ns.saturating_add(attempt.began.0);
        if !(began_unix_ns..=attempt.timestamp).contains(&reply.timestamp) {
            self.dropped.replayed += 1;
            return;
        }
        // Each transmission of the flight may cause a cookie. No cookie is needed once the
        // responder has replied.
        if attempt.peer_id.is_none() && attempt.cookie != Some(reply.cookie) {
            attempt.cookie = Some(reply.cookie);
            attempt.on_progress(now);
        }
    }
}

/// Failed handshake that a peer initiated. It counts as in progress until its maximum duration is
/// over, because it has also cost a key exchange.
#[derive(Debug, Clone, Copy)]
pub(super) struct FailedAttempt {
    peer: usize,
    /// Host that returned a valid cookie, if any.
    proven: Option<IpAddr>,
    began: Time,
    until: Time,
}

impl FailedAttempt {
    fn new(attempt: &Attempt) -> Self {
        Self {
            peer: attempt.peer,
            proven: attempt.proven.map(|at| at.ip().to_canonical()),
            began: attempt.began,
            until: attempt.began + ATTEMPT_MAX,
        }
    }
}

enum Admission {
    Free,
    InPlaceOf(ConnectionId),
    None,
}

/// Decides whether a peer may begin another handshake from address `from`. `of_peer` lists the
/// handshakes in progress with the peer. Each host that returned a cookie may have one handshake.
/// Handshakes without a cookie are replaced first.
fn admission(of_peer: &[&Attempt], from: &SocketAddr, now: Time) -> Admission {
    let unproven = of_peer.iter().filter(|it| it.proven.is_none());
    let proven = of_peer.iter().filter(|it| it.proven.is_some());
    let host = from.ip().to_canonical();
    let mut of_host = proven
        .clone()
        .filter(|it| it.proven.is_some_and(|at| at.ip().to_canonical() == host));
    if let Some(same) = of_host.next() {
        return in_place_of_stale(same, now);
    }
    if of_peer.len() < ATTEMPTS_PER_PEER {
        return Admission::Free;
    }
    if let Some(oldest) = unproven.min_by_key(|it| it.began) {
        return Admission::InPlaceOf(oldest.our_id);
    }
    let oldest = proven.min_by_key(|it| it.began);
    oldest.map_or(Admission::None, |oldest| in_place_of_stale(oldest, now))
}

fn in_place_of_stale(attempt: &Attempt, now: Time) -> Admission {
    if now.since(attempt.began) < ATTEMPT_FRESH {
        Admission::None
    } else {
        Admission::InPlaceOf(attempt.our_id)
    }
}
