//! An endpoint: all peers and connections behind one UDP socket, without the socket.
//!
//! Datagrams go in with the address they came from; datagrams come out with the address they go to.
//! A datagram that no configured peer could have sent is counted and never answered.

mod attempt;
mod peer;
mod streams;

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use units::{BitRate, ByteCount};

pub use self::streams::{PeerView, Read, StreamKey};
use self::{
    attempt::{ATTEMPT_MAX, Attempt, AttemptSetup},
    peer::Peer,
};
use crate::{
    congestion::{Controller, PathMemory},
    connection::{Connection, ConnectionEnd, HandshakeFlight, Received, Setup, Stats, Transmit},
    handshake::{
        Handshake, Level,
        envelope::{Hello, KeyId, Sender},
        tls::Parameters,
    },
    identity::{Identity, PublicKey},
    stream::{
        Class,
        table::{StreamEvent, first_initial_window, streams_max},
    },
    time::Time,
    wire::packet::{self, ConnectionId, Kind},
};

/// What an endpoint is made from.
pub struct EndpointConfig {
    /// Who we are.
    pub identity: Identity,
    /// Whom we know.
    pub peers: Vec<EndpointPeer>,
    /// Bound of all buffers of one connection together.
    pub memory_max: ByteCount,
    /// Silence after which a connection is given up.
    pub idle_timeout: Duration,
    /// Seed for connection IDs.
    pub seed: u64,
    /// Drawn anew at each start of the program.
    pub instance: u64,
    /// Nanoseconds since the Unix epoch at the time the endpoint is made.
    pub unix_ns: u64,
    /// Packets are sent in bursts of this much time.
    pub pacing_quantum: Duration,
    /// Makes the congestion controller of a new connection.
    pub controller: ControllerFactory,
}

/// One configured peer.
#[derive(Debug, Clone)]
pub struct EndpointPeer {
    /// The keys it may have.
    pub public_keys: Vec<PublicKey>,
    /// Whether we connect by ourselves.
    pub has_endpoint: bool,
    /// Cap on what we send it.
    pub rate_max: Option<BitRate>,
}

/// Makes a controller from what is known of the path and the cap on its rate.
pub type ControllerFactory =
    Box<dyn Fn(Option<PathMemory>, Option<BitRate>) -> Box<dyn Controller> + Send>;

/// What the user of an endpoint should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Where is this peer? Answer with [`Endpoint::set_address`].
    Resolve {
        /// Index of the peer.
        peer: usize,
    },
    /// A connection to this peer can carry streams.
    Connected {
        /// Index of the peer.
        peer: usize,
    },
    /// The peer opened a stream.
    Incoming {
        /// The new stream.
        key: StreamKey,
        /// Index of the peer.
        peer: usize,
        /// Which queue it belongs to.
        class: Class,
    },
    /// A stream can be read: bytes, its end, or its failure.
    Readable {
        /// Which stream.
        key: StreamKey,
    },
    /// The peer's application has read a stream of ours to its end.
    SendDone {
        /// Which stream.
        key: StreamKey,
    },
    /// The peer wants no more of a stream of ours.
    Stopped {
        /// Which stream.
        key: StreamKey,
        /// Its reason.
        code: u32,
    },
    /// A stream is over because its connection is.
    Lost {
        /// Which stream.
        key: StreamKey,
        /// Why.
        reason: LostReason,
    },
}

/// Why a connection, and all streams on it, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostReason {
    /// The peer runs as a new instance and knows nothing of the old streams.
    PeerRestarted,
    /// Nothing came from the peer for too long.
    Silence(Duration),
    /// One side closed the connection.
    Closed,
}

/// Datagrams dropped unanswered, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropCounters {
    /// First flights of a key that no peer has.
    pub unknown_key: u64,
    /// First flights and answers whose MAC is wrong.
    pub bad_mac: u64,
    /// First flights seen before.
    pub replayed: u64,
    /// Packets seen before, or older than anything remembered. Paths duplicate, too.
    pub duplicates: u64,
    /// Datagrams of no known shape.
    pub malformed: u64,
    /// Packets for a connection that does not exist.
    pub unknown_connection: u64,
    /// Packets that our keys do not open.
    pub undecryptable: u64,
}

/// All peers and connections behind one UDP socket.
pub struct Endpoint {
    epoch: Instant,
    config: EndpointConfig,
    our_key: KeyId,
    random: u64,
    peers: Vec<Peer>,
    attempts: HashMap<ConnectionId, Attempt>,
    connections: HashMap<ConnectionId, Connection>,
    /// Order in which connections get their turn to send.
    turn: VecDeque<ConnectionId>,
    events: VecDeque<Event>,
    dropped: DropCounters,
    is_closing: bool,
}

/// Handshakes in progress at most; a peer has one at a time, two when both sides begin.
const ATTEMPTS_MAX: usize = 256;
/// Handshakes of one peer in progress at most. More are others that know its public key.
const ATTEMPTS_PER_PEER: usize = 4;
/// A handshake in progress is not given up for another before this time.
const ATTEMPT_FRESH: Duration = Duration::from_secs(3);
/// First flights of one key remembered as answered.
const ANSWERED_MAX: usize = 64;
/// While a connection is silent a new handshake is tried after this time, since the peer may have
/// restarted.
const RECONNECT_AFTER: Duration = Duration::from_millis(700);
/// Pause between attempts to reach a peer that does not answer.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(500);
/// Round-trip time assumed before any is known.
const RTT_GUESS: Duration = Duration::from_millis(100);
/// A silent connection beside a fresh one to the same instance is dropped after this time.
const STANDBY_GRACE: Duration = Duration::from_secs(3);

impl Endpoint {
    /// An endpoint that begins at `epoch`.
    ///
    /// # Errors
    /// If the TLS library refuses a key.
    pub fn new(config: EndpointConfig, epoch: Instant) -> Result<Self, rustls::Error> {
        let peers = config.peers.iter().map(|peer| {
            Peer::new(
                &config.identity,
                &peer.public_keys,
                peer.has_endpoint,
                peer.rate_max,
            )
        });
        let peers = peers.collect::<Result<_, _>>()?;
        Ok(Self {
            epoch,
            our_key: KeyId::of(&config.identity.public_key()),
            random: config.seed,
            config,
            peers,
            attempts: HashMap::new(),
            connections: HashMap::new(),
            turn: VecDeque::new(),
            events: VecDeque::new(),
            dropped: DropCounters::default(),
            is_closing: false,
        })
    }

    /// Takes in a datagram; it is decrypted in place.
    pub fn handle_datagram(&mut self, datagram: &mut [u8], from: SocketAddr, now: Instant) {
        let now = self.time(now);
        let Ok((kind, id)) = packet::classify(datagram) else {
            self.dropped.malformed += 1;
            return;
        };
        match kind {
            Kind::Data => {
                let Some(connection) = self.connections.get_mut(&id) else {
                    self.dropped.unknown_connection += 1;
                    return;
                };
                match connection.on_datagram(datagram, from, now) {
                    Received::Accepted => {
                        self.peers[connection.peer].last_heard = Some(now);
                        self.after_input(id, now);
                    }
                    Received::Duplicate => self.dropped.duplicates += 1,
                    Received::Undecryptable => self.dropped.undecryptable += 1,
                }
            }
            Kind::Hello | Kind::HelloAnswer => self.on_hello(datagram, from, now),
            Kind::Handshake => self.on_handshake_packet(id, datagram, now),
        }
    }

    /// Appends datagrams of equal size to `out`, `count_max` at most. `None` when nothing is to be
    /// sent now.
    pub fn poll_transmit(
        &mut self,
        out: &mut Vec<u8>,
        count_max: usize,
        now: Instant,
    ) -> Option<Transmit> {
        let now = self.time(now);
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
        for _ in 0..self.turn.len() {
            let id = self.turn.front().copied()?;
            if let Some(connection) = self.connections.get_mut(&id)
                && let Some(transmit) = connection.poll_transmit(out, count_max, now)
            {
                return Some(transmit);
            }
            self.turn.rotate_left(1);
        }
        None
    }

    /// When [`handle_timeout`](Self::handle_timeout) and [`poll_transmit`](Self::poll_transmit) are
    /// to be called next; a time that has passed means at once.
    pub fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        let now = self.time(now);
        let mut next = Time::NEVER;
        for attempt in self.attempts.values() {
            next = next.min(attempt.next_timeout());
        }
        for connection in self.connections.values_mut() {
            next = next.min(connection.next_timeout(now));
            if let Some(since) = connection.silent_since() {
                next = next.min(now.max(since + RECONNECT_AFTER) + Duration::from_millis(50));
            }
        }
        for peer in &self.peers {
            if peer.has_endpoint
                && peer.current.is_none()
                && peer.attempt.is_none()
                && !peer.resolving
            {
                next = next.min(peer.next_attempt);
            }
        }
        (next != Time::NEVER).then(|| self.epoch + Duration::from_nanos(next.0.max(1)))
    }

    /// Lets time pass: repeats handshakes, notices silence, begins new attempts.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.time(now);
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
        for id in ids {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.on_timeout(now);
            }
            self.after_input(id, now);
            self.judge_standby(id, now);
        }
        if !self.is_closing {
            for peer in 0..self.peers.len() {
                self.begin_attempt_if_due(peer, now);
            }
        }
    }

    /// The next thing that the user should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Answers [`Event::Resolve`]; `None` means that the name could not be resolved.
    pub fn set_address(&mut self, peer: usize, address: Option<SocketAddr>, now: Instant) {
        let now = self.time(now);
        self.peers[peer].resolving = false;
        self.peers[peer].next_attempt = now + ATTEMPT_PAUSE;
        self.peers[peer].address = address.or(self.peers[peer].address);
        if let Some(address) = address {
            self.begin_attempt(peer, address, now);
        }
    }

    /// The host `address` says that nobody listens there, or that it cannot be reached: kept for the
    /// status.
    pub fn handle_unreachable(&mut self, address: IpAddr, now: Instant) {
        let now = self.time(now);
        let address = address.to_canonical();
        let is_for = |attempt: &&Attempt| attempt.remote.ip().to_canonical() == address;
        for attempt in self.attempts.values().filter(is_for) {
            self.peers[attempt.peer].refused = Some(now);
        }
    }

    /// Whether streams can be opened to `peer` now, with some hope.
    pub fn is_up(&self, peer: usize) -> bool {
        let current = self.peers[peer]
            .current
            .and_then(|id| self.connections.get(&id));
        current.is_some_and(|connection| !connection.is_silent() && connection.is_confirmed())
    }

    /// Closes all connections; [`is_idle`](Self::is_idle) says when the peers have been told.
    pub fn close(&mut self) {
        self.is_closing = true;
        self.attempts.clear();
        for connection in self.connections.values_mut() {
            connection.begin_close(0);
        }
    }

    /// Whether no connection is left.
    pub fn is_idle(&self) -> bool {
        self.connections.is_empty()
    }

    /// Datagrams dropped unanswered so far.
    pub fn dropped(&self) -> DropCounters {
        self.dropped
    }

    // Handshakes.

    fn on_hello(&mut self, datagram: &mut [u8], from: SocketAddr, now: Time) {
        let Ok(hello) = Hello::read(datagram) else {
            self.dropped.malformed += 1;
            return;
        };
        match hello.from {
            Sender::Initiator(key_id) => {
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
                self.feed_handshake(id, Level::Initial, offset, crypto, now);
            }
            Sender::Responder(id) => {
                let Some(attempt) = self.attempts.get_mut(&id).filter(|a| a.we_initiate) else {
                    // Repetitions of an answer that has been taken in are expected.
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
                    // The peer restarted in the midst of the handshake.
                    self.end_attempt(id, now);
                    return;
                }
                let sent = hello.timestamp.saturating_sub(self.config.unix_ns);
                let rtt = now.since(Time(sent));
                self.peers[attempt.peer].rtt.get_or_insert(rtt);
                let (offset, crypto) = (hello.crypto_offset, hello.crypto);
                self.feed_handshake(id, Level::Initial, offset, crypto, now);
            }
        }
    }

    /// The attempt that an authentic first flight belongs to: a known one, or a new one if its
    /// timestamp is newer than any before.
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
        if let Some((id, attempt)) = known {
            attempt.timestamp = attempt.timestamp.max(hello.timestamp);
            attempt.on_hello(len, from);
            return Some(*id);
        }
        // Anyone who knows both public keys can form a first flight, so one that has led nowhere
        // must not keep out the peer; but each is answered once.
        let known_key = &mut self.peers[peer].keys[key];
        let is_replay = hello.timestamp <= known_key.newest_hello
            || known_key
                .answered
                .contains(&(hello.source, hello.timestamp));
        if is_replay {
            self.dropped.replayed += 1;
            return None;
        }
        // A late repetition of a first flight whose connection stands asks for nothing.
        let stands = self.connections.values().any(|connection| {
            connection.peer == peer && connection.is_for(hello.source) && !connection.we_initiated
        });
        if stands || self.is_closing || self.attempts.len() >= ATTEMPTS_MAX {
            return None;
        }
        let from_peer = self
            .attempts
            .iter()
            .filter(|(_, a)| a.peer == peer && !a.we_initiate);
        let (count, oldest) = from_peer.fold((0, None), |(count, oldest), (id, attempt)| {
            let older = oldest.is_none_or(|(_, began)| attempt.began < began);
            (
                count + 1,
                if older {
                    Some((*id, attempt.began))
                } else {
                    oldest
                },
            )
        });
        if count >= ATTEMPTS_PER_PEER
            && let Some((id, began)) = oldest
        {
            if now.since(began) < ATTEMPT_FRESH {
                return None;
            }
            self.attempts.remove(&id);
        }
        let known_key = &mut self.peers[peer].keys[key];
        known_key
            .answered
            .push_back((hello.source, hello.timestamp));
        if known_key.answered.len() > ANSWERED_MAX {
            known_key.answered.pop_front();
        }
        let ours = self.parameters();
        let handshake = Handshake::server(&self.peers[peer].keys[key].tls, &ours).ok()?;
        let setup = AttemptSetup {
            peer,
            key,
            we_initiate: false,
            our_key: self.our_key,
            our_id: self.new_id(),
            peer_id: Some(hello.source),
            remote: from,
            handshake,
            timestamp: hello.timestamp,
        };
        let id = setup.our_id;
        let mut attempt = Attempt::new(setup, now);
        attempt.on_hello(len, from);
        self.attempts.insert(id, attempt);
        Some(id)
    }

    fn on_handshake_packet(&mut self, id: ConnectionId, datagram: &mut [u8], now: Time) {
        let Some(attempt) = self.attempts.get(&id) else {
            // Repetitions of a flight that has been answered are expected.
            if !self.connections.contains_key(&id) {
                self.dropped.unknown_connection += 1;
            }
            return;
        };
        let opened = attempt.handshake.open_packet(datagram);
        let Ok((offset, crypto)) = opened.map(|(offset, crypto)| (offset, crypto.to_vec())) else {
            self.dropped.undecryptable += 1;
            return;
        };
        self.feed_handshake(id, Level::Handshake, offset, &crypto, now);
    }

    fn feed_handshake(
        &mut self,
        id: ConnectionId,
        level: Level,
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
                self.end_attempt(id, now);
            }
        }
    }

    fn establish(&mut self, id: ConnectionId, now: Time) {
        let Some(mut attempt) = self.attempts.remove(&id) else {
            return;
        };
        let Some((keys, secrets, theirs)) = attempt.handshake.take_result() else {
            return;
        };
        let peer_id = attempt
            .peer_id
            .expect("a complete handshake has heard the peer");
        let peer = &mut self.peers[attempt.peer];
        if attempt.we_initiate {
            peer.attempt = None;
        } else {
            // Only now is it sure who sent that first flight.
            let newest = &mut peer.keys[attempt.key].newest_hello;
            *newest = attempt.timestamp.max(*newest);
        }
        peer.last_heard = Some(now);
        let guess = if attempt.flights == 1 {
            now.since(attempt.began)
        } else {
            RTT_GUESS
        };
        let rtt = peer.rtt.unwrap_or(guess).max(Duration::from_micros(100));
        let controller = (self.config.controller)(peer.memory, peer.rate_max);
        let setup = Setup {
            peer: attempt.peer,
            our_id: id,
            peer_id,
            we_initiated: attempt.we_initiate,
            remote: attempt.remote,
            keys,
            secrets,
            theirs,
            flight: attempt
                .we_initiate
                .then_some(HandshakeFlight(attempt.handshake)),
            rtt,
            controller,
            pacing_quantum: self.config.pacing_quantum,
            idle_timeout: self.config.idle_timeout,
            memory_max: self.config.memory_max,
        };
        let mut connection = Connection::new(setup, now);
        connection.set_rate_max(peer.rate_max);
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
        self.choose_current(attempt.peer, id, now);
    }

    /// Decides where new streams go when `fresh` has joined the connections to a peer.
    fn choose_current(&mut self, peer: usize, fresh: ConnectionId, now: Time) {
        /// Two connections this close in time were begun by both sides at once.
        const GLARE: Duration = Duration::from_secs(2);
        let old = self.peers[peer]
            .current
            .and_then(|id| self.connections.get(&id));
        let new = &self.connections[&fresh];
        let takes_over = match old {
            None => true,
            Some(old) if now.since(old.established) < GLARE && !old.is_silent() => {
                // Both sides see the same keys, so both keep the same one.
                new.we_initiated == self.we_have_smaller_key(peer)
            }
            Some(_) => false,
        };
        if takes_over {
            self.peers[peer].current = Some(fresh);
            self.events.push_back(Event::Connected { peer });
        }
    }

    /// A second connection to a peer is closed once the first one proves alive, or takes its place
    /// once that stays silent.
    fn judge_standby(&mut self, id: ConnectionId, now: Time) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let peer = connection.peer;
        if self.peers[peer].current == Some(id) || now.since(connection.established) < STANDBY_GRACE
        {
            return;
        }
        let current = self.peers[peer]
            .current
            .and_then(|id| self.connections.get(&id));
        match current {
            Some(current) if current.is_silent() && !connection.is_silent() => {
                let silence = now.since(current.last_heard());
                let silent = current.our_id;
                self.end_connection(silent, LostReason::Silence(silence));
                self.peers[peer].current = Some(id);
                self.events.push_back(Event::Connected { peer });
            }
            Some(_) => {
                let connection = self.connections.get_mut(&id).expect("it was just found");
                if connection.we_initiated && connection.streams.len() == 0 {
                    connection.begin_close(0);
                }
            }
            None => {
                self.peers[peer].current = Some(id);
                self.events.push_back(Event::Connected { peer });
            }
        }
    }

    fn we_have_smaller_key(&self, peer: usize) -> bool {
        let ours = self.config.identity.public_key();
        self.config.peers[peer]
            .public_keys
            .first()
            .is_some_and(|theirs| ours < *theirs)
    }

    fn begin_attempt_if_due(&mut self, index: usize, now: Time) {
        let current = self.peers[index]
            .current
            .and_then(|id| self.connections.get(&id));
        let wanted = match current {
            None => true,
            Some(connection) => connection
                .silent_since()
                .is_some_and(|since| now.since(since) >= RECONNECT_AFTER),
        };
        let standby = self
            .connections
            .values()
            .any(|c| c.peer == index && Some(c.our_id) != self.peers[index].current);
        let peer = &mut self.peers[index];
        let is_free = peer.attempt.is_none() && !peer.resolving && peer.next_attempt <= now;
        if peer.has_endpoint && wanted && !standby && is_free {
            peer.resolving = true;
            self.events.push_back(Event::Resolve { peer: index });
        }
    }

    fn begin_attempt(&mut self, index: usize, address: SocketAddr, now: Time) {
        if self.peers[index].attempt.is_some()
            || self.is_closing
            || self.peers[index].keys.is_empty()
        {
            return;
        }
        let ours = self.parameters();
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
        let setup = AttemptSetup {
            peer: index,
            key,
            we_initiate: true,
            our_key: self.our_key,
            our_id,
            peer_id: None,
            remote: address,
            handshake,
            timestamp,
        };
        self.attempts.insert(our_id, Attempt::new(setup, now));
    }

    fn end_attempt(&mut self, id: ConnectionId, now: Time) {
        let Some(attempt) = self.attempts.remove(&id) else {
            return;
        };
        let peer = &mut self.peers[attempt.peer];
        if peer.attempt == Some(id) {
            peer.attempt = None;
            peer.next_attempt = now + ATTEMPT_PAUSE;
        }
    }

    // Connections.

    /// Passes on a connection's events and notices its end.
    fn after_input(&mut self, id: ConnectionId, now: Time) {
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
                StreamEvent::Incoming { stream, class } => Event::Incoming {
                    key: key(stream),
                    peer,
                    class,
                },
                StreamEvent::Readable { stream } => Event::Readable { key: key(stream) },
                StreamEvent::SendDone { stream } => Event::SendDone { key: key(stream) },
                StreamEvent::Stopped { stream, code } => Event::Stopped {
                    key: key(stream),
                    code,
                },
            });
        }
        if let Some(end) = connection.closed {
            let reason = match end {
                ConnectionEnd::Silence(silence) => LostReason::Silence(silence),
                ConnectionEnd::ByPeer | ConnectionEnd::ByUs | ConnectionEnd::Violation => {
                    LostReason::Closed
                }
            };
            self.end_connection(id, reason);
            self.peers[peer].next_attempt = now + ATTEMPT_PAUSE;
        }
    }

    fn end_connection(&mut self, id: ConnectionId, reason: LostReason) {
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
                self.events.push_back(Event::SendDone { key });
            }
        }
        for stream in connection.streams.numbers() {
            let key = StreamKey {
                connection: id,
                stream,
            };
            self.events.push_back(Event::Lost { key, reason });
        }
        let peer = &mut self.peers[connection.peer];
        peer.memory = connection.memory().or(peer.memory);
        peer.rtt = connection.rtt().or(peer.rtt);
        peer.past.add(&connection.stats);
        if peer.current == Some(id) {
            let other = self
                .connections
                .values()
                .find(|other| other.peer == connection.peer);
            peer.current = other.map(|other| other.our_id);
            if peer.current.is_some() {
                self.events.push_back(Event::Connected {
                    peer: connection.peer,
                });
            }
        }
    }

    fn parameters(&self) -> Parameters {
        Parameters {
            instance: self.config.instance,
            initial_window: first_initial_window(self.config.memory_max.bytes() / 2),
            stream_limit: streams_max(self.config.memory_max.bytes() / 2),
        }
    }

    /// A connection ID that is not in use.
    fn new_id(&mut self) -> ConnectionId {
        loop {
            // SplitMix64: IDs must differ, not be secret.
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.random;
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let id = ConnectionId(((mixed ^ mixed >> 31) as u32).to_be_bytes());
            let taken = self.connections.contains_key(&id) || self.attempts.contains_key(&id);
            if !taken && id != ConnectionId::default() {
                return id;
            }
        }
    }

    fn time(&self, now: Instant) -> Time {
        Time(now.saturating_duration_since(self.epoch).as_nanos() as u64)
    }

    fn unix_ns(&self, now: Time) -> u64 {
        self.config.unix_ns + now.0
    }

    /// Counters of all connections to a peer, past ones included.
    pub(crate) fn peer_stats(&self, peer: usize) -> Stats {
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
