//! Endpoint: all peers and connections of one UDP socket, without the socket itself.
//!
//! The user passes each received datagram and its source address to the endpoint. The endpoint
//! returns the datagrams to send, each with its destination address. If no configured peer can have
//! sent a datagram, the endpoint counts the datagram and does not reply.

mod attempt;
mod config;
mod connections;
mod dropped;
mod event;
mod first_flights;
mod handshakes;
mod load;
mod peer;
mod restart_state;
mod streams;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

pub(crate) use self::streams::ConnectionView;
#[cfg(feature = "sim")]
pub use self::streams::Footprint;
use self::{
    attempt::{ATTEMPT_MAX, Attempt},
    handshakes::ATTEMPT_PAUSE,
    load::FailedAttempt,
    peer::Peer,
};
pub use self::{
    config::{EndpointConfig, EndpointPeer},
    dropped::DropCounters,
    event::{EndpointEvent, LostReason},
    first_flights::{NewestHandshake, ReplayMemory},
    restart_state::RestartState,
    streams::{ConnectionState, PeerView, StreamKey, StreamRead},
};
use units::{BitRate, ByteCount};

#[cfg(feature = "sim")]
use crate::connection::Forger;
use crate::{
    congestion::PathMemory,
    connection::{
        Connection, ConnectionCounters, DatagramFate, KEEP_ALIVE, Pacer, Transmit, ip_overhead,
    },
    handshake::{cookie::CookieJar, envelope::KeyId},
    id_map::IdMap,
    identity::PublicKey,
    secret::Secret,
    time::Time,
    turns::Turns,
    version::FrameVersion,
    wire::packet::{self, ConnectionId, DatagramKind},
};

/// All peers and connections that share one UDP socket.
pub struct Endpoint {
    epoch: Instant,
    config: EndpointConfig,
    our_key: KeyId,
    random: u64,
    peers: Vec<Peer>,
    attempts: IdMap<ConnectionId, Attempt>,
    /// Recently failed handshakes that peers initiated.
    failed_attempts: Vec<FailedAttempt>,
    connections: IdMap<ConnectionId, Connection>,
    /// Order in which connections get their turn to send.
    turn: VecDeque<ConnectionId>,
    events: VecDeque<EndpointEvent>,
    dropped: DropCounters,
    cookies: CookieJar,
    secret: Secret,
    /// Datagrams that contain cookies and wait to be sent.
    replies: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Pacer for the datagrams to all peers together. `None` without a cap on the total rate.
    total: Option<Pacer>,
    turns: Turns,
    keep_alive: Duration,
    is_closing: bool,
    /// Whether another process has replaced this process.
    is_retired: bool,
    remember_paths_at: Time,
    #[cfg(feature = "sim")]
    forger: Option<Forger>,
    /// Highest protocol version that this endpoint supports.
    version: FrameVersion,
    /// Latest time that callers have supplied so far. For a datagram, callers supply its arrival
    /// time.
    told: Time,
    /// Time of the last run.
    ran: Time,
    /// Time that was requested for the next run.
    due: Time,
}

/// Minimum time between two writes of the path measurements. The measurements are also written when
/// the endpoint ends.
const PATHS_KEPT_EACH: Duration = Duration::from_secs(60);
/// If a run starts at least this long after the requested time, the endpoint detects a suspension.
/// The cause is a suspended machine, a stopped process, or a jump of the clock.
const SLEEP_MIN: Duration = Duration::from_secs(1);

impl Endpoint {
    /// Creates an endpoint that measures its times from `epoch`.
    ///
    /// # Errors
    /// Returns an error if the TLS library rejects a key.
    pub fn new(mut config: EndpointConfig, epoch: Instant) -> Result<Self, rustls::Error> {
        let remembered = std::mem::take(&mut config.remembered);
        config.unix_ns = config.unix_ns.max(remembered.replay.clock_unix_ns);
        let peers = config
            .peers
            .iter()
            .map(|peer| Peer::new(&config.identity, peer, &remembered));
        let peers = peers.collect::<Result<_, _>>()?;
        Ok(Self {
            epoch,
            our_key: KeyId::of(&config.identity.public_key()),
            cookies: CookieJar::new(&config.identity, config.instance),
            secret: Secret::new(&config.identity, config.instance),
            replies: VecDeque::new(),
            random: config.seed,
            config,
            peers,
            attempts: IdMap::default(),
            failed_attempts: Vec::new(),
            connections: IdMap::default(),
            turn: VecDeque::new(),
            events: VecDeque::new(),
            dropped: DropCounters::default(),
            total: None,
            turns: Turns::new(),
            keep_alive: KEEP_ALIVE,
            is_closing: false,
            is_retired: false,
            remember_paths_at: Time::default() + PATHS_KEPT_EACH,
            #[cfg(feature = "sim")]
            forger: None,
            version: FrameVersion::LATEST,
            told: Time::default(),
            ran: Time::default(),
            due: Time::NEVER,
        })
    }

    /// Handles a received datagram. The datagram is decrypted in place.
    ///
    /// The arrival time `received` of the datagram may be slightly in the past. The time of the
    /// endpoint never goes back. If an earlier call supplied a later time, that later time applies.
    pub fn handle_datagram(&mut self, datagram: &mut [u8], from: SocketAddr, received: Instant) {
        let now = self.tell(received);
        self.turns.moved(datagram.len(), now);
        let Ok((kind, id)) = packet::classify(datagram) else {
            self.dropped.malformed += 1;
            return;
        };
        match kind {
            DatagramKind::Data => {
                let Some(connection) = self.connections.get_mut(&id) else {
                    self.dropped.unknown_connection += 1;
                    return;
                };
                match connection.on_datagram(datagram, from, now) {
                    DatagramFate::Accepted => {
                        self.peers[connection.peer].last_heard = Some(now);
                        self.after_input(id, now);
                    }
                    DatagramFate::Duplicate => self.dropped.duplicates += 1,
                    DatagramFate::Undecryptable => self.dropped.undecryptable += 1,
                }
            }
            DatagramKind::Hello | DatagramKind::HelloAnswer => self.on_hello(datagram, from, now),
            DatagramKind::Cookie => self.on_cookie(id, datagram, now),
            DatagramKind::Handshake => self.on_handshake_packet(id, datagram, from, now),
        }
    }

    /// Appends at most `count_max` datagrams of equal size to `out`. Returns `None` if no datagram
    /// is due now.
    pub fn poll_transmit(
        &mut self,
        out: &mut Vec<u8>,
        count_max: usize,
        now: Instant,
    ) -> Option<Transmit> {
        let now = self.time(now);
        if let Some((to, reply)) = self.replies.pop_front() {
            out.extend_from_slice(&reply);
            return Some(Transmit {
                to,
                segment_bytes: reply.len(),
            });
        }
        let unix_ns = self.unix_ns(now);
        for attempt in self.attempts.values_mut() {
            let key = &self.peers[attempt.peer].keys[attempt.key];
            let key = if attempt.we_initiate {
                &key.outward
            } else {
                &key.inward
            };
            if let Some(transmit) = attempt.poll_transmit(out, key, unix_ns, now) {
                return Some(transmit);
            }
        }
        let held_until = self.held_until(now);
        let start = out.len();
        for _ in 0..self.turn.len() {
            let id = self.turn.front().copied()?;
            if let Some(connection) = self.connections.get_mut(&id)
                && let Some(transmit) = connection.poll_transmit(out, count_max, held_until, now)
            {
                let bytes = out.len() - start;
                self.turns.moved(bytes, now);
                if let Some(total) = &mut self.total {
                    let headers =
                        bytes.div_ceil(transmit.segment_bytes) * ip_overhead(&transmit.to);
                    total.on_sent(bytes + headers);
                    // If all connections share a cap, each connection gets its turn.
                    self.turn.rotate_left(1);
                }
                return Some(transmit);
            }
            self.turn.rotate_left(1);
        }
        None
    }

    /// Returns the time until which the cap on the total rate delays data and MTU probes.
    fn held_until(&mut self, now: Time) -> Time {
        let Some(rate) = self.config.rate_max.map(BitRate::as_bytes_per_s) else {
            self.total = None;
            return Time::default();
        };
        let total = self.total.get_or_insert_with(|| Pacer::new(rate, now));
        total.update(now, rate);
        if total.may_send() {
            Time::default()
        } else {
            total.next_send()
        }
    }

    /// Changes the rate caps. `all` limits the sending rate to all peers together. `peers` limits
    /// the rate in each direction for each peer, in the order of the peers.
    pub fn set_rate_max(&mut self, all: Option<BitRate>, peers: &[Option<BitRate>]) {
        self.config.rate_max = all;
        for (peer, rate_max) in self.peers.iter_mut().zip(peers) {
            peer.rate_max = *rate_max;
        }
        for connection in self.connections.values_mut() {
            let of_peer = self.peers[connection.peer].rate_max;
            connection.set_rate_max(all.into_iter().chain(of_peer).min(), of_peer);
        }
    }

    /// Applies a new list of peers. Known peers keep their index, and new peers follow them.
    ///
    /// A peer without public keys has been removed. A connection is closed at once if its key no
    /// longer belongs to its peer.
    ///
    /// # Errors
    /// Returns an error if the TLS library rejects a key. In that case, only the peers before the
    /// peer with the rejected key have changed.
    pub fn set_peers(
        &mut self,
        peers: Vec<EndpointPeer>,
        rate_max: Option<BitRate>,
        memory_max: ByteCount,
        now: Instant,
    ) -> Result<(), rustls::Error> {
        let now = self.time(now);
        // Attempts refer to their keys by index, so attempts with changed keys end.
        let attempts: Vec<_> = self
            .attempts
            .iter()
            .map(|(id, it)| (*id, it.peer))
            .collect();
        for (id, peer) in attempts {
            let changed = peers.get(peer).map(|peer| &peer.public_keys);
            if changed != Some(&self.config.peers[peer].public_keys) {
                self.end_attempt(id, now);
            }
        }
        for (index, configured) in peers.into_iter().enumerate() {
            match self.peers.get_mut(index) {
                Some(peer) => {
                    peer.change(&self.config.identity, &configured)?;
                    self.config.peers[index] = configured;
                }
                None => {
                    let none = RestartState::default();
                    let peer = Peer::new(&self.config.identity, &configured, &none)?;
                    self.peers.push(peer);
                    self.config.peers.push(configured);
                }
            }
        }
        self.config.memory_max = memory_max;
        let rates: Vec<_> = self.peers.iter().map(|peer| peer.rate_max).collect();
        self.set_rate_max(rate_max, &rates);
        self.close_dismissed();
        Ok(())
    }

    /// Changes the interval of keep-alive packets to each peer. The endpoint detects the loss of a
    /// peer within this interval plus three and a half round trips plus a quarter of a second.
    pub fn set_keep_alive(&mut self, every: Duration) {
        self.keep_alive = every;
        for connection in self.connections.values_mut() {
            connection.set_keep_alive(every);
        }
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit) next. A time in the past means that the call is due
    /// at once.
    pub fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        let now = self.time(now);
        let held_until = self.held_until(now);
        let mut next = match self.replies.is_empty() {
            true => Time::NEVER,
            false => now,
        };
        for attempt in self.attempts.values() {
            next = next.min(attempt.next_timeout());
        }
        for connection in self.connections.values_mut() {
            next = next.min(connection.next_timeout(held_until, now));
        }
        for connection in self.connections.values() {
            next = next.min(self.standby_due(connection));
        }
        if !self.is_closing {
            for peer in 0..self.peers.len() {
                next = next.min(self.attempt_due(peer));
            }
        }
        self.due = next;
        (next != Time::NEVER).then(|| self.epoch + Duration::from_nanos(next.0.max(1)))
    }

    /// Returns how long arriving datagrams may wait so that they can be handled together. Each
    /// datagram keeps its arrival time. Returns `None` if traffic is sparse, and each datagram must
    /// be handled at once.
    pub fn turn(&mut self, now: Instant) -> Option<Duration> {
        self.turns.length(self.time(now))
    }

    /// Adjusts the length of turns to the path with the shortest base round-trip time. In a turn,
    /// arriving datagrams wait to be handled together.
    fn fit_turns(&mut self, now: Time) {
        let base_rtts = self.connections.values().map(Connection::base_rtt);
        let base_rtt = base_rtts.min().unwrap_or_default();
        self.turns.fit(base_rtt, now);
    }

    /// Performs all work that is due: ends handshakes that took too long, detects silences, and
    /// begins new attempts.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.wake(now);
        self.remember_paths_if_due(now);
        let over: Vec<_> = self
            .attempts
            .iter()
            .filter(|(_, attempt)| now.since(attempt.began) >= ATTEMPT_MAX)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.end_attempt(id, now);
        }
        let ids: Vec<_> = self.connections.keys().copied().collect();
        for &id in &ids {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.on_timeout(now);
            }
            self.after_input(id, now);
        }
        // All connections have now checked for a silence.
        for id in ids {
            self.judge_standby(id, now);
        }
        if !self.is_closing {
            for peer in 0..self.peers.len() {
                self.begin_attempt_if_due(peer, now);
            }
        }
        self.fit_turns(now);
    }

    /// Returns the next event for the user.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.events.pop_front()
    }

    /// Replies to [`EndpointEvent::Resolve`]. `None` means that the name could not be resolved. The
    /// endpoint then uses the last known address.
    pub fn set_address(&mut self, peer: usize, address: Option<SocketAddr>, now: Instant) {
        let now = self.time(now);
        self.peers[peer].resolving = false;
        self.peers[peer].next_attempt = now + ATTEMPT_PAUSE;
        self.peers[peer].address = address.or(self.peers[peer].address);
        if let Some(address) = self.peers[peer].address {
            self.begin_attempt(peer, address, now);
        }
    }

    /// Handles an ICMP error: the host `address` is unreachable, or no program listens at its port.
    /// For a handshake, the error only changes the reported status. For a connection, the endpoint
    /// checks with a ping whether the peer still responds.
    pub fn handle_unreachable(&mut self, address: IpAddr, now: Instant) {
        let now = self.time(now);
        let address = address.to_canonical();
        let is_for = |attempt: &&Attempt| attempt.remote.ip().to_canonical() == address;
        for attempt in self.attempts.values().filter(is_for) {
            self.peers[attempt.peer].refused = Some(now);
        }
        for connection in self.connections.values_mut() {
            if connection.path.remote.ip().to_canonical() == address {
                connection.on_unreachable(now);
            }
        }
    }

    /// Whether the current connection to `peer` is confirmed and not silent, so that streams can be
    /// opened.
    pub fn is_up(&self, peer: usize) -> bool {
        let current = self.peers[peer]
            .current
            .and_then(|id| self.connections.get(&id));
        current.is_some_and(|connection| !connection.is_silent() && connection.is_confirmed())
    }

    /// Starts to close all connections. [`is_idle`](Self::is_idle) returns whether they have all
    /// ended.
    pub fn close(&mut self) {
        self.is_closing = true;
        self.attempts.clear();
        for connection in self.connections.values_mut() {
            connection.begin_close(0);
        }
    }

    /// Returns the state that the successor process must keep after an upgrade.
    pub fn handover_state(&mut self, now: Instant) -> (u64, RestartState) {
        (self.config.instance, self.remembered(now))
    }

    /// Makes all peers open their new streams on another connection. The caller uses this method
    /// after another process has replaced this process.
    pub fn retire(&mut self) {
        self.is_retired = true;
        for connection in self.connections.values_mut() {
            connection.retire();
        }
    }

    /// Lets new connections carry all streams again, after the other process has ended. The peers
    /// still treat the present connections as retired.
    pub fn take_back(&mut self) {
        self.is_retired = false;
    }

    /// Whether all connections have ended.
    pub fn is_idle(&self) -> bool {
        self.connections.is_empty()
    }

    /// Returns the state to store for the next start (see [`EndpointEvent::Remember`]). It contains
    /// no state of keys that are no longer configured.
    pub fn remembered(&mut self, now: Instant) -> RestartState {
        let clock_unix_ns = self.unix_ns(self.time(now));
        let mut remembered = RestartState::default();
        remembered.replay.clock_unix_ns = clock_unix_ns;
        for (index, configured) in self.config.peers.iter().enumerate() {
            let path = self.path_memory(index);
            let peer = &mut self.peers[index];
            peer.kept = path;
            let newest = peer.keys.iter().map(|key| key.first_flights.newest());
            let newest = configured.public_keys.iter().copied().zip(newest);
            let is_known =
                |(_, newest): &(PublicKey, NewestHandshake)| *newest != NewestHandshake::default();
            remembered.replay.newest.extend(newest.filter(is_known));
            let key = configured.public_keys.first().copied();
            remembered.paths.extend(key.zip(path));
        }
        remembered
    }

    /// Returns the newest measurements of the path to a peer.
    fn path_memory(&self, peer: usize) -> Option<PathMemory> {
        let current = self.peers[peer].current;
        let connection = current.and_then(|id| self.connections.get(&id));
        let measured = connection.and_then(Connection::memory);
        measured.or(self.peers[peer].memory)
    }

    /// If the path measurements have changed, requests that the user stores them. There is at most
    /// one such request in each period of [`PATHS_KEPT_EACH`].
    fn remember_paths_if_due(&mut self, now: Time) {
        if now < self.remember_paths_at {
            return;
        }
        self.remember_paths_at = now + PATHS_KEPT_EACH;
        let is_news = (0..self.peers.len()).any(|peer| {
            let path = self.path_memory(peer);
            path.is_some_and(|path| restart_state::is_news(path, self.peers[peer].kept))
        });
        if is_news {
            self.events.push_back(EndpointEvent::Remember);
        }
    }

    /// Returns the numbers of datagrams that were dropped without a reply so far.
    pub fn dropped(&self) -> DropCounters {
        self.dropped
    }

    /// Returns a connection ID that no connection or attempt uses.
    fn new_id(&mut self) -> ConnectionId {
        loop {
            // SplitMix64: IDs must differ, but need not be secret.
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.random;
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let mut id = ConnectionId(((mixed ^ mixed >> 31) as u32).to_be_bytes());
            if let Some(generation) = self.config.generation {
                id.0[0] = generation;
            }
            let taken = self.connections.contains_key(&id) || self.attempts.contains_key(&id);
            if !taken && id != ConnectionId::default() {
                return id;
            }
        }
    }

    /// Records the time that a caller supplied. Returns the latest time so far, so that the time
    /// never goes back.
    fn tell(&mut self, now: Instant) -> Time {
        self.told = self.told.max(self.time(now));
        self.told
    }

    /// Returns the time of this run. Detects a suspension from the delay of this call alone.
    /// Datagrams that arrived during the delay have no influence.
    fn wake(&mut self, now: Instant) -> Time {
        let now = self.tell(now);
        let asleep = now.since(self.due.max(self.ran));
        if asleep >= SLEEP_MIN {
            for connection in self.connections.values_mut() {
                connection.on_sleep(asleep, now);
            }
        }
        self.ran = now;
        now
    }

    fn time(&self, now: Instant) -> Time {
        Time(now.saturating_duration_since(self.epoch).as_nanos() as u64)
    }

    fn unix_ns(&self, now: Time) -> u64 {
        self.config.unix_ns.saturating_add(now.0)
    }

    /// Returns the counters of all connections to a peer, including ended connections.
    pub(crate) fn peer_stats(&self, peer: usize) -> ConnectionCounters {
        let mut stats = self.peers[peer].past;
        for connection in self
            .connections
            .values()
            .filter(|connection| connection.peer == peer)
        {
            stats.add(&connection.stats);
        }
        stats
    }
}
