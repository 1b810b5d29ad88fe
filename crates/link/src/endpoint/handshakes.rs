//! Handshakes of an endpoint: checks first flights and replies to them, and begins and ends
//! attempts.

use std::{net::SocketAddr, time::Duration};

use units::ByteCount;

use super::{
    Endpoint, EndpointEvent, LostReason,
    attempt::{AnsweredAddresses, Attempt, FlightProgress},
    first_flights::FlightVerdict,
};
use crate::{
    connection::{Connection, ConnectionSetup, HandshakeFlight},
    handshake::{
        EncryptionLevel, Handshake,
        envelope::{Hello, HelloSender},
        tls::TransportParameters,
    },
    stream::memory::{first_initial_window, streams_at_first},
    time::Time,
    wire::packet::ConnectionId,
};

/// Duration of a connection's silence after which a new handshake begins. The peer may have
/// restarted.
pub(super) const RECONNECT_AFTER: Duration = Duration::from_millis(700);
/// Pause between two attempts to reach a peer that does not reply.
pub(super) const ATTEMPT_PAUSE: Duration = Duration::from_millis(500);

impl Endpoint {
    pub(super) fn on_hello(&mut self, datagram: &mut [u8], from: SocketAddr, now: Time) {
        let Ok(hello) = Hello::read(datagram) else {
            self.dropped.malformed += 1;
            return;
        };
        match hello.from {
            HelloSender::Initiator(key_id) => {
                let found = self.peers.iter().enumerate().find_map(|(index, peer)| {
                    Some((index, peer.keys.iter().position(|key| key.id == key_id)?))
                });
                let Some((peer, key)) = found else {
                    self.dropped.unknown_key += 1;
                    return;
                };
                if !self.peers[peer].keys[key].inward.verify(datagram) {
                    self.dropped.bad_mac += 1;
                    return;
                }
                #[cfg(fuzz_canary)]
                assert!(
                    hello.crypto_offset != 0x0123,
                    "canary: behind the envelope's MAC"
                );
                let Some(id) = self.attempt_of_hello(&hello, peer, key, from, datagram.len(), now)
                else {
                    return;
                };
                let (offset, crypto) = (hello.crypto_offset, hello.crypto);
                self.feed_handshake(id, EncryptionLevel::Initial, offset, crypto, now);
            }
            HelloSender::Responder(id) => {
                let Some(attempt) = self.attempts.get_mut(&id).filter(|a| a.we_initiate) else {
                    // Repetitions of an accepted answer are expected.
                    if !self.connections.contains_key(&id) {
                        self.dropped.unknown_connection += 1;
                    }
                    return;
                };
                if !self.peers[attempt.peer].keys[attempt.key]
                    .outward
                    .verify(datagram)
                {
                    self.dropped.bad_mac += 1;
                    return;
                }
                if *attempt.peer_id.get_or_insert(hello.source) != hello.source {
                    // The peer restarted during the handshake.
                    self.end_attempt(id, now);
                    return;
                }
                let sent = hello.timestamp.saturating_sub(self.config.unix_ns);
                // Anyone with both public keys can form an answer with any timestamp.
                let rtt = now.since(Time(sent).max(attempt.began));
                self.peers[attempt.peer].rtt.get_or_insert(rtt);
                let (offset, crypto) = (hello.crypto_offset, hello.crypto);
                self.feed_handshake(id, EncryptionLevel::Initial, offset, crypto, now);
            }
        }
    }

    /// Returns the attempt to which an authentic first flight belongs. If there is no such attempt,
    /// and the first flight is new and permitted, begins a new attempt.
    fn attempt_of_hello(
        &mut self,
        hello: &Hello<'_>,
        peer: usize,
        key: usize,
        from: SocketAddr,
        len: usize,
        now: Time,
    ) -> Option<ConnectionId> {
        let known = self.attempts.iter_mut().find(|(_, attempt)| {
            !attempt.we_initiate && attempt.peer == peer && attempt.peer_id == Some(hello.source)
        });
        let flights = &mut self.peers[peer].keys[key].first_flights;
        let cookie = hello.cookie.as_ref();
        let is_proven = cookie.is_some_and(|cookie| self.cookies.is_good(cookie, &from, now));
        if let Some((id, attempt)) = known {
            let verdict = flights.take(hello.source, hello.timestamp, hello.crypto_offset);
            if verdict == FlightVerdict::Replay {
                self.dropped.duplicates += 1;
                return None;
            }
            attempt.timestamp = attempt.timestamp.max(hello.timestamp);
            attempt.on_hello(len, from);
            if is_proven && attempt.remote == from {
                attempt.proven = Some(from);
            }
            return Some(*id);
        }
        match flights.judge(hello.source, hello.timestamp, hello.crypto_offset) {
            FlightVerdict::New => {}
            FlightVerdict::Late => return None,
            FlightVerdict::Replay => {
                self.dropped.replayed += 1;
                return None;
            }
        }
        if self.is_closing {
            return None;
        }
        if !self.admit(hello, (peer, key), from, len, is_proven, now) {
            return None;
        }
        let ours = self.parameters(peer, now);
        let handshake = Handshake::server(&self.peers[peer].keys[key].tls, &ours).ok()?;
        let our_id = self.new_id();
        let mut attempt = Attempt {
            peer,
            key,
            we_initiate: false,
            our_key: self.our_key,
            our_id,
            peer_id: Some(hello.source),
            remote: from,
            handshake,
            timestamp: hello.timestamp,
            began: now,
            flights: FlightProgress::new(now),
            allowance: 0,
            cookie: None,
            proven: is_proven.then_some(from),
            answered: AnsweredAddresses::None,
            next_number: 0,
        };
        attempt.on_hello(len, from);
        self.attempts.insert(our_id, attempt);
        Some(our_id)
    }

    pub(super) fn on_handshake_packet(
        &mut self,
        id: ConnectionId,
        datagram: &mut [u8],
        from: SocketAddr,
        now: Time,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            // Repetitions of an answered flight are expected.
            if !self.connections.contains_key(&id) {
                self.dropped.unknown_connection += 1;
            }
            return;
        };
        let len = datagram.len();
        let Ok((number, offset, crypto)) = attempt.handshake.open_packet(datagram) else {
            self.dropped.undecryptable += 1;
            return;
        };
        let crypto = crypto.to_vec();
        attempt.on_opened(number, len, from);
        self.feed_handshake(id, EncryptionLevel::Handshake, offset, &crypto, now);
    }

    fn feed_handshake(
        &mut self,
        id: ConnectionId,
        level: EncryptionLevel,
        offset: u16,
        crypto: &[u8],
        now: Time,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        match attempt.handshake.read(level, offset, crypto) {
            Ok(false) => {}
            Ok(true) => {
                attempt.on_progress(now);
                if attempt.handshake.is_complete() {
                    self.establish(id, now);
                }
            }
            Err(error) => {
                tracing::debug!(peer = attempt.peer, %error, "handshake failed");
                self.on_failed(id);
                self.end_attempt(id, now);
            }
        }
    }

    fn establish(&mut self, id: ConnectionId, now: Time) {
        let Some(mut attempt) = self.attempts.remove(&id) else {
            return;
        };
        let Some((keys, secrets, mut theirs)) = attempt.handshake.take_result() else {
            return;
        };
        theirs.version = theirs.version.min(self.version);
        let peer_id = attempt
            .peer_id
            .expect("a complete handshake has heard the peer");
        let memory_max = self.memory_of(attempt.peer);
        let peer = &mut self.peers[attempt.peer];
        if attempt.we_initiate {
            peer.attempt = None;
        } else {
            peer.keys[attempt.key].first_flights.on_connected(
                peer_id,
                theirs.began_unix_ns,
                attempt.timestamp,
            );
        }
        self.events.push_back(EndpointEvent::Remember);
        peer.last_heard = Some(now);
        peer.is_dismissed = false;
        // For a responder this time is an upper limit: the reply to the responder's flight arrived
        // within this time.
        let guess = now.since(attempt.began);
        let rtt = peer.rtt.unwrap_or(guess).max(Duration::from_micros(100));
        let rate_max = self.config.rate_max.into_iter().chain(peer.rate_max).min();
        let controller = (self.config.controller)(peer.memory, rate_max);
        let peer_key = self.config.peers[attempt.peer].public_keys[attempt.key];
        let setup = ConnectionSetup {
            peer: attempt.peer,
            peer_key,
            our_id: id,
            peer_id,
            we_initiated: attempt.we_initiate,
            remote: attempt.remote,
            unproven_allowance: (!attempt.is_remote_proven()).then_some(attempt.allowance),
            we_have_smaller_key: self.config.identity.public_key() < peer_key,
            keys,
            secret: self.secret.clone(),
            secrets,
            theirs,
            flight: attempt
                .we_initiate
                .then_some(HandshakeFlight(attempt.handshake)),
            rtt,
            controller,
            controllers: self.config.controller.clone(),
            idle_timeout: self.config.idle_timeout,
            keep_alive: self.keep_alive,
            memory_max,
        };
        let mut connection = Connection::new(setup, now);
        connection.set_rate_max(rate_max, peer.rate_max);
        if self.is_retired {
            connection.retire();
        }
        #[cfg(feature = "sim")]
        connection.set_forger(self.forger.clone());
        let restarted: Vec<_> = self
            .connections
            .values()
            .filter(|old| old.peer == attempt.peer && old.peer_instance != theirs.instance)
            .map(|old| old.our_id)
            .collect();
        self.connections.insert(id, connection);
        self.turn.push_back(id);
        for old in restarted {
            self.end_connection(old, LostReason::PeerRestarted);
        }
        self.bound_connections(attempt.peer, id, now);
        self.choose_current(attempt.peer, id, now);
        self.peers[attempt.peer].has_several = true;
        self.divide_memory(attempt.peer, now);
    }

    /// Returns the time of the next handshake with a peer, or [`Time::NEVER`] if no handshake is
    /// needed.
    pub(super) fn attempt_due(&self, index: usize) -> Time {
        let peer = &self.peers[index];
        if !peer.has_endpoint || peer.attempt.is_some() || peer.resolving {
            return Time::NEVER;
        }
        let current = peer.current.and_then(|id| self.connections.get(&id));
        let wanted = match current {
            None => Time::default(),
            Some(connection) if connection.is_doubtful() => Time::default(),
            Some(connection) => match connection.silent_since() {
                Some(since) => since + RECONNECT_AFTER,
                None if connection.needs_successor() => Time::default(),
                None => return Time::NEVER,
            },
        };
        let mut standbys = self.connections.values().filter(|connection| {
            connection.peer == index && Some(connection.our_id) != peer.current
        });
        // A standby connection is useful only if it is not silent.
        if standbys.any(|standby| !standby.is_silent() && !standby.is_retired) {
            return Time::NEVER;
        }
        wanted.max(peer.next_attempt)
    }

    pub(super) fn begin_attempt_if_due(&mut self, index: usize, now: Time) {
        if self.attempt_due(index) <= now {
            self.peers[index].resolving = true;
            self.events
                .push_back(EndpointEvent::Resolve { peer: index });
        }
    }

    pub(super) fn begin_attempt(&mut self, index: usize, address: SocketAddr, now: Time) {
        if self.peers[index].attempt.is_some()
            || self.is_closing
            || self.peers[index].keys.is_empty()
        {
            return;
        }
        let ours = self.parameters(index, now);
        let our_id = self.new_id();
        let timestamp = self.unix_ns(now);
        let peer = &mut self.peers[index];
        let key = peer.next_key % peer.keys.len();
        peer.next_key += 1;
        peer.attempts += 1;
        let Ok(handshake) = Handshake::client(&peer.keys[key].tls, &ours) else {
            return;
        };
        peer.attempt = Some(our_id);
        let attempt = Attempt {
            peer: index,
            key,
            we_initiate: true,
            our_key: self.our_key,
            our_id,
            peer_id: None,
            remote: address,
            handshake,
            timestamp,
            began: now,
            flights: FlightProgress::new(now),
            allowance: 0,
            cookie: None,
            proven: None,
            answered: AnsweredAddresses::None,
            next_number: 0,
        };
        self.attempts.insert(our_id, attempt);
    }

    pub(super) fn end_attempt(&mut self, id: ConnectionId, now: Time) {
        let Some(attempt) = self.attempts.remove(&id) else {
            return;
        };
        let peer = &mut self.peers[attempt.peer];
        if peer.attempt == Some(id) {
            peer.attempt = None;
            peer.next_attempt = now + ATTEMPT_PAUSE;
        }
    }

    /// Returns the memory limit for all buffers of one connection to a peer.
    fn memory_of(&self, peer: usize) -> ByteCount {
        match self.config.peers[peer].is_guest {
            true => self.config.memory_max.min(GUEST_MEMORY),
            false => self.config.memory_max,
        }
    }

    /// Restricts this endpoint to version 2, like an endpoint of the previous release. The call
    /// must precede the first handshake.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn speak_version_2(&mut self) {
        self.version = crate::version::FrameVersion::V2;
    }

    fn parameters(&self, peer: usize, now: Time) -> TransportParameters {
        let memory_max = self.memory_of(peer).bytes();
        TransportParameters {
            version: self.version,
            instance: self.config.instance,
            initial_window: first_initial_window(memory_max),
            stream_limit: streams_at_first(memory_max),
            began_unix_ns: self.unix_ns(now),
        }
    }
}

/// Memory limit of a guest's connection. It suffices for a few hundred bytes in each direction, and
/// for the streams that the guest may open.
const GUEST_MEMORY: ByteCount = ByteCount::mebibytes(4);
