//! Selection of the current connection to a peer, and the end of connections.

use std::{cmp::Reverse, time::Duration};

use super::{Endpoint, EndpointEvent, LostReason, StreamKey, handshakes::ATTEMPT_PAUSE};
use crate::{
    connection::{CLOSE_DISMISSED, Connection, ConnectionEnd},
    stream::table::StreamEvent,
    time::Time,
    wire::packet::ConnectionId,
};

/// Pause before the next handshake with a peer that has rejected this gateway's key and closed the
/// connection. Only an operator can make the peer accept the key again.
const DISMISSED_PAUSE: Duration = Duration::from_secs(5);
/// Minimum age at which a second connection to a peer can be closed, or can replace the current
/// connection.
const STANDBY_GRACE: Duration = Duration::from_secs(3);
/// Duration of a silence after which a standby connection ends, if the current connection is
/// active. Such a standby connection has lost its peer because the addresses of both gateways have
/// changed.
///
/// The duration is long, because a silent connection sends few packets and a burst of losses may
/// affect all of them for seconds.
const SILENCE_BESIDE_OTHER: Duration = Duration::from_secs(20);

/// Maximum number of connections to one peer, not counting connections that the peer has retired.
/// Normally each side begins at most one connection and one replacement. A peer with more
/// connections is trying to use up memory.
const CONNECTIONS_PER_PEER: usize = 4;
/// Maximum number of retired connections to one peer. They are permitted in addition to
/// [`CONNECTIONS_PER_PEER`]. Each of them belongs to a former process of the peer. That process
/// still has transfers.
const RETIRED_PER_PEER: usize = 32;

impl Endpoint {
    /// If there are too many connections to `peer`, ends the connection that has received no packet
    /// for the longest time. The new connection `fresh` is never ended.
    pub(super) fn bound_connections(&mut self, peer: usize, fresh: ConnectionId, now: Time) {
        for (is_retired, count_max) in [(false, CONNECTIONS_PER_PEER), (true, RETIRED_PER_PEER)] {
            let of_kind = self.connections.values();
            let of_kind = of_kind.filter(|it| it.peer == peer && it.is_retired == is_retired);
            let (count, others) = (
                of_kind.clone().count(),
                of_kind.filter(|it| it.our_id != fresh),
            );
            let oldest = others.min_by_key(|it| (it.last_heard(), it.established));
            if let Some(oldest) = oldest.filter(|_| count > count_max) {
                let (id, silence) = (oldest.our_id, now.since(oldest.last_heard()));
                self.end_connection(id, LostReason::Silence(silence));
            }
        }
    }

    /// Divides the memory limit among all connections to `peer`. While the connections use more
    /// than the limit, the method ends connections, but never the current one. The connection that
    /// has received no packet for the longest time ends first.
    pub(super) fn divide_memory(&mut self, peer: usize, now: Time) {
        if !self.peers[peer].has_several {
            return;
        }
        let memory_max = self.config.memory_max.bytes();
        loop {
            let current = self.peers[peer].current;
            let of_peer = self.connections.values_mut().filter(|it| it.peer == peer);
            let mut used_bytes = 0;
            let mut others = None;
            for connection in of_peer {
                used_bytes += connection.streams.memory.used_bytes();
                let age = (connection.last_heard(), connection.our_id);
                if current != Some(connection.our_id) {
                    others = others.into_iter().chain([age]).min();
                }
            }
            match others.filter(|_| used_bytes > memory_max) {
                Some((heard, id)) => {
                    self.end_connection(id, LostReason::Silence(now.since(heard)));
                }
                None => {
                    let count = self
                        .connections
                        .values()
                        .filter(|it| it.peer == peer)
                        .count();
                    let of_peer = self.connections.values_mut().filter(|it| it.peer == peer);
                    for connection in of_peer {
                        let memory = &mut connection.streams.memory;
                        let elsewhere = used_bytes - memory.used_bytes();
                        memory.set_taken_elsewhere(elsewhere, count - 1);
                    }
                    self.peers[peer].has_several = others.is_some();
                    return;
                }
            }
        }
    }

    /// Decides whether new streams to the peer use the new connection `fresh` from now on.
    pub(super) fn choose_current(&mut self, peer: usize, fresh: ConnectionId, now: Time) {
        /// Age of the old connection below which both sides may have begun their connections at the
        /// same time.
        const GLARE: Duration = Duration::from_secs(2);
        let old = self.peers[peer]
            .current
            .and_then(|id| self.connections.get(&id));
        let new = &self.connections[&fresh];
        let takes_over = match old {
            None => true,
            Some(old) if old.is_doubtful() || old.needs_successor() => true,
            Some(old) if now.since(old.established) < GLARE && !old.is_silent() => {
                // Both sides compare the same two keys, so both select the same connection.
                new.we_initiated == new.we_have_smaller_key
            }
            Some(_) => false,
        };
        if takes_over {
            self.peers[peer].current = Some(fresh);
            self.events.push_back(EndpointEvent::Connected { peer });
        }
    }

    /// Checks whether a standby connection must change its role.
    ///
    /// The standby connection becomes the current connection if the current one is silent. A
    /// standby connection without streams is closed. A standby connection that stays silent ends
    /// without CLOSE frames.
    pub(super) fn judge_standby(&mut self, id: ConnectionId, now: Time) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let peer = connection.peer;
        let is_young = now.since(connection.established) < STANDBY_GRACE;
        let current = self.peers[peer]
            .current
            .and_then(|id| self.connections.get(&id));
        let is_successor =
            current.is_some_and(|current| current.is_retired) && !connection.is_retired;
        if self.peers[peer].current == Some(id)
            || is_young && !is_successor
            || connection.is_closing()
        {
            return;
        }
        let silence = connection.silent_since().map(|since| now.since(since));
        match current {
            Some(current) if silence.is_none() && (current.is_silent() || is_successor) => {
                // New streams use this connection. Existing streams stay on the old connection.
                self.peers[peer].current = Some(id);
                self.events.push_back(EndpointEvent::Connected { peer });
            }
            Some(current) if !current.is_silent() => {
                if silence.is_some_and(|silence| silence >= SILENCE_BESIDE_OTHER) {
                    let silence = now.since(connection.last_heard());
                    self.end_connection(id, LostReason::Silence(silence));
                } else if connection.we_initiated && connection.streams.len() == 0 {
                    let connection = self.connections.get_mut(&id).expect("it was just found");
                    connection.begin_close(0);
                }
            }
            Some(_) => {}
            None => {
                self.peers[peer].current = Some(id);
                self.events.push_back(EndpointEvent::Connected { peer });
            }
        }
    }

    /// Returns the time of the next call of [`judge_standby`](Self::judge_standby). A change of the
    /// connections' state makes this time invalid.
    pub(super) fn standby_due(&self, standby: &Connection) -> Time {
        let current = self.peers[standby.peer].current;
        if current == Some(standby.our_id) {
            return Time::NEVER;
        }
        let grace = standby.established + STANDBY_GRACE;
        if self.ran < grace {
            return grace;
        }
        // The last stream may have ended meanwhile.
        let is_current_well = current
            .and_then(|id| self.connections.get(&id))
            .is_some_and(|current| !current.is_silent());
        match standby.silent_since() {
            None if is_current_well
                && standby.we_initiated
                && standby.streams.len() == 0
                && !standby.is_closing() =>
            {
                self.ran
            }
            Some(since) if self.ran < since + SILENCE_BESIDE_OTHER => since + SILENCE_BESIDE_OTHER,
            _ => Time::NEVER,
        }
    }

    /// Closes all connections to a peer. The code in the CLOSE frames states that this gateway no
    /// longer accepts the peer's key.
    pub fn dismiss(&mut self, peer: usize) {
        let of_peer = self.connections.values_mut().filter(|it| it.peer == peer);
        for connection in of_peer {
            connection.begin_close(CLOSE_DISMISSED);
        }
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.current = None;
        }
    }

    /// Closes all connections whose key no longer belongs to a peer. The streams of these
    /// connections end. Even if the key is configured again, new streams need a new connection.
    pub(super) fn close_dismissed(&mut self) {
        for (id, connection) in &mut self.connections {
            let keys = &self.config.peers[connection.peer].public_keys;
            if keys.contains(&connection.peer_key) || connection.end().is_some() {
                continue;
            }
            connection.begin_close(CLOSE_DISMISSED);
            let peer = &mut self.peers[connection.peer];
            peer.current = peer.current.filter(|current| current != id);
        }
    }

    /// Forwards the events of a connection, and removes the connection if it has ended.
    pub(super) fn after_input(&mut self, id: ConnectionId, now: Time) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let peer = connection.peer;
        while let Some(event) = connection.poll_event() {
            let key = |stream| StreamKey {
                connection: id,
                stream,
            };
            self.events.push_back(match event {
                StreamEvent::Incoming { stream, class } => EndpointEvent::Incoming {
                    key: key(stream),
                    peer,
                    class,
                },
                StreamEvent::Readable { stream } => EndpointEvent::Readable { key: key(stream) },
                StreamEvent::SendDone { stream } => EndpointEvent::SendDone { key: key(stream) },
                StreamEvent::Stopped { stream, code } => EndpointEvent::Stopped {
                    key: key(stream),
                    code,
                },
            });
        }
        let is_over = connection.end();
        self.divide_memory(peer, now);
        if let Some(end) = is_over {
            let reason = match end {
                ConnectionEnd::Silence(silence) => LostReason::Silence(silence),
                ConnectionEnd::ByPeer
                | ConnectionEnd::Dismissed
                | ConnectionEnd::ByUs
                | ConnectionEnd::Violation
                | ConnectionEnd::KeysWornOut => LostReason::Closed,
            };
            self.end_connection(id, reason);
            let is_last = self.peers[peer].current.is_none();
            let is_dismissed = is_last && end == ConnectionEnd::Dismissed;
            self.peers[peer].is_dismissed = is_dismissed;
            let pause = match is_dismissed {
                true => DISMISSED_PAUSE,
                false => ATTEMPT_PAUSE,
            };
            self.peers[peer].next_attempt = now + pause;
        }
    }

    pub(super) fn end_connection(&mut self, id: ConnectionId, reason: LostReason) {
        let Some(mut connection) = self.connections.remove(&id) else {
            return;
        };
        self.turn.retain(|turn| *turn != id);
        while let Some(event) = connection.poll_event() {
            if let StreamEvent::SendDone { stream } = event {
                let key = StreamKey {
                    connection: id,
                    stream,
                };
                self.events.push_back(EndpointEvent::SendDone { key });
            }
        }
        for stream in connection.streams.numbers() {
            let key = StreamKey {
                connection: id,
                stream,
            };
            self.events.push_back(EndpointEvent::Lost { key, reason });
        }
        let peer = &mut self.peers[connection.peer];
        peer.memory = connection.memory().or(peer.memory);
        peer.rtt = connection.rtt().or(peer.rtt);
        peer.past.add(&connection.stats);
        if peer.current == Some(id) {
            let others = self.connections.values();
            let next = others
                .filter(|other| other.peer == connection.peer && !other.is_closing())
                .min_by_key(|other| (other.is_silent(), Reverse(other.established)));
            peer.current = next.map(|next| next.our_id);
            if peer.current.is_some() {
                self.events.push_back(EndpointEvent::Connected {
                    peer: connection.peer,
                });
            }
        }
    }
}
