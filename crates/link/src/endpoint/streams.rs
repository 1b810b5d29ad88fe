//! Interface of the endpoint for streams, and its view of a peer.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::Endpoint;
#[cfg(feature = "sim")]
use crate::connection::Forger;
pub use crate::connection::StreamRead;
use crate::{
    connection::{Connection, ConnectionCounters},
    stream::Class,
    wire::packet::ConnectionId,
};

/// Name of a stream of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    pub(crate) connection: ConnectionId,
    pub(crate) stream: u32,
}

/// Snapshot of a peer.
#[derive(Debug, Clone, Copy)]
pub struct PeerView {
    /// Handshakes that this endpoint began.
    pub attempts: u64,
    /// Time since which there has been a connection.
    pub connected: Option<Instant>,
    /// Time since which the connection has been silent, if it is silent.
    pub silent: Option<Instant>,
    /// Arrival of the last authentic datagram.
    pub last_heard: Option<Instant>,
    /// Whether the network recently reported that no program listens at its address. Any host on
    /// the path can forge such a report, so only the status depends on it.
    pub is_refused: bool,
    /// Whether the peer has closed the last connection because our key no longer belongs to its
    /// peers.
    pub is_dismissed: bool,
    /// Source address of the peer's packets, or the address that we try.
    pub address: Option<SocketAddr>,
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Least round-trip time of the recent past.
    pub base_rtt: Option<Duration>,
    /// One-way queueing delay.
    pub queue_delay: Duration,
    /// Moving average of the lost fraction of our packets.
    pub loss: f64,
    /// Rate that the controller allows, in bytes per second.
    pub allowed_bytes_per_s: f64,
    /// Packets declared lost that did not arrive later.
    pub packets_lost: u64,
    /// Packets declared lost that arrived later.
    pub packets_late: u64,
    /// Open streams.
    pub streams: usize,
    /// Name of the congestion controller's state.
    pub controller_state: &'static str,
    /// Largest amount of memory that received data took.
    pub receive_memory_peak_bytes: usize,
    /// Counters of all connections.
    pub stats: ConnectionCounters,
}

/// Progress of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// The handshake is complete; no packet under its keys has arrived yet.
    Established,
    /// The peer has answered under its keys.
    Confirmed,
    /// The close is being sent to the peer.
    Closing,
    /// The connection is over.
    Closed,
}

/// Connection as a trace sees it. Counts are since its beginning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ConnectionView {
    pub(crate) id: u32,
    pub(crate) state: ConnectionState,
    pub(crate) is_silent: bool,
    /// Whether the peer wants new streams on another connection.
    pub(crate) is_retired: bool,
    pub(crate) rtt: Option<Duration>,
    pub(crate) base_rtt: Duration,
    pub(crate) queue_delay: Duration,
    pub(crate) allowed_bytes_per_s: f64,
    pub(crate) window_bytes: u64,
    pub(crate) in_flight_bytes: u64,
    pub(crate) streams: usize,
    pub(crate) controller_state: &'static str,
    /// Packets that were declared lost, including packets that arrived later.
    pub(crate) packets_lost: u64,
    pub(crate) packets_late: u64,
    pub(crate) stats: ConnectionCounters,
}

impl ConnectionView {
    fn of(connection: &Connection) -> Self {
        let controller = &connection.path.controller;
        let (lost, late) = connection.packets_lost();
        let state = match (connection.is_closing(), connection.is_confirmed()) {
            (true, _) => ConnectionState::Closing,
            (false, true) => ConnectionState::Confirmed,
            (false, false) => ConnectionState::Established,
        };
        Self {
            id: u32::from_be_bytes(connection.our_id.0),
            state,
            is_silent: connection.is_silent(),
            is_retired: connection.is_retired,
            rtt: connection.rtt(),
            base_rtt: connection.base_rtt(),
            queue_delay: Duration::from_secs_f64(controller.queue_delay_s().max(0.0)),
            allowed_bytes_per_s: controller.rate_bytes_per_s(),
            window_bytes: controller.window_bytes() as u64,
            in_flight_bytes: connection.bytes_in_flight(),
            streams: connection.streams.len(),
            controller_state: controller.state(),
            packets_lost: lost + late,
            packets_late: late,
            stats: connection.stats,
        }
    }
}

/// Memory of an endpoint, in entries of its tables.
#[cfg(feature = "sim")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Handshakes in progress.
    pub attempts: usize,
    /// Connections.
    pub connections: usize,
    /// Sent packets whose fate matters.
    pub packets: usize,
    /// Control frames that wait to be sent.
    pub controls: usize,
    /// Streams.
    pub streams: usize,
    /// Bytes that the buffers of all connections hold.
    pub buffered_bytes: u64,
}

impl Endpoint {
    /// Opens a stream to `peer`. `None` if there is no connection or the peer permits no more.
    pub fn open(&mut self, peer: usize, class: Class, now: Instant) -> Option<StreamKey> {
        let now = self.time(now);
        let id = self.peers[peer].current?;
        let stream = self.connections.get_mut(&id)?.open(class, now)?;
        Some(StreamKey {
            connection: id,
            stream,
        })
    }

    /// Opens a stream on the connection of `beside`, so that the same process of the peer gets
    /// both. If the connection is about to end, it acts as [`open`](Self::open).
    pub fn open_beside(
        &mut self,
        beside: StreamKey,
        class: Class,
        now: Instant,
    ) -> Option<StreamKey> {
        let time = self.time(now);
        let connection = self.connections.get_mut(&beside.connection)?;
        let peer = connection.peer;
        if connection.is_silent() {
            // No other process has the transfer that the stream belongs to.
            return None;
        }
        if connection.is_closing() || connection.streams.is_wearing_out() {
            return match self.is_up(peer) {
                true => self.open(peer, class, now),
                false => None,
            };
        }
        let stream = connection.open(class, time)?;
        Some(StreamKey {
            connection: beside.connection,
            stream,
        })
    }

    /// Whether the connection of a stream exists.
    pub fn has_connection(&self, of: StreamKey) -> bool {
        self.connections.contains_key(&of.connection)
    }

    /// Returns the bytes that the stream accepts now.
    pub fn writable(&mut self, key: StreamKey) -> usize {
        self.connection(key)
            .map_or(0, |connection| connection.writable(key.stream))
    }

    /// Appends bytes to a stream.
    pub fn write(&mut self, key: StreamKey, data: Bytes) {
        if let Some(connection) = self.connection(key) {
            connection.write(key.stream, data);
        }
    }

    /// Ends a stream in an orderly way, after its last byte.
    pub fn finish(&mut self, key: StreamKey) {
        if let Some(connection) = self.connection(key) {
            connection.finish(key.stream);
        }
    }

    /// Resets a stream: undelivered bytes are dropped.
    pub fn reset(&mut self, key: StreamKey, code: u32) {
        if let Some(connection) = self.connection(key) {
            connection.reset(key.stream, code);
        }
    }

    /// Stops the peer's sending on a stream.
    pub fn stop(&mut self, key: StreamKey, code: u32) {
        if let Some(connection) = self.connection(key) {
            connection.stop(key.stream, code);
        }
    }

    /// Takes about `len_max` bytes of a stream at most, in order.
    pub fn read(&mut self, key: StreamKey, len_max: usize, now: Instant) -> StreamRead {
        let now = self.time(now);
        self.connection(key).map_or(StreamRead::Gone, |connection| {
            connection.read(key.stream, len_max, now)
        })
    }

    /// Returns a snapshot of a peer.
    pub fn peer_view(&self, peer: usize) -> PeerView {
        let known = &self.peers[peer];
        let current = known.current.and_then(|id| self.connections.get(&id));
        let instant = |time: crate::time::Time| self.epoch + Duration::from_nanos(time.0);
        let losses = current.map_or((0, 0), Connection::packets_lost);
        PeerView {
            attempts: known.attempts,
            connected: current.map(|connection| instant(connection.established)),
            silent: current.and_then(Connection::silent_since).map(instant),
            last_heard: known.last_heard.map(instant),
            is_refused: known.refused > known.last_heard,
            is_dismissed: known.is_dismissed,
            address: current
                .map(|connection| connection.path.remote)
                .or(known.address),
            rtt: current.and_then(Connection::rtt),
            base_rtt: current.map(Connection::base_rtt),
            queue_delay: current.map_or(Duration::ZERO, |connection| {
                Duration::from_secs_f64(connection.path.controller.queue_delay_s().max(0.0))
            }),
            loss: current.map_or(0.0, Connection::loss),
            allowed_bytes_per_s: current.map_or(0.0, |c| c.path.controller.rate_bytes_per_s()),
            packets_lost: losses.0,
            packets_late: losses.1,
            streams: current.map_or(0, |connection| connection.streams.len()),
            controller_state: current
                .map_or("none", |connection| connection.path.controller.state()),
            receive_memory_peak_bytes: current.map_or(0, Connection::receive_memory_peak),
            stats: self.peer_stats(peer),
        }
    }

    /// Returns the connections to a peer, in no order.
    pub(crate) fn connection_views(&self, peer: usize) -> impl Iterator<Item = ConnectionView> {
        let connections = self.connections.values();
        let of_peer = connections.filter(move |it| it.peer == peer);
        of_peer.map(ConnectionView::of)
    }

    /// Returns the number of handshakes with a peer that this endpoint began.
    pub(crate) fn peer_attempts(&self, peer: usize) -> u64 {
        self.peers[peer].attempts
    }

    /// Returns the memory of an endpoint, without unread bytes and unread events of its
    /// applications.
    #[cfg(feature = "sim")]
    pub fn footprint(&self) -> Footprint {
        let connections = self.connections.values();
        let mut footprint = Footprint {
            attempts: self.attempts.len(),
            connections: self.connections.len(),
            ..Footprint::default()
        };
        for connection in connections {
            footprint.packets += connection.packets_remembered();
            footprint.controls += connection.controls_waiting();
            footprint.streams += connection.streams.len();
            footprint.buffered_bytes += connection.streams.memory.used_bytes();
        }
        footprint
    }

    /// Returns the number of streams of all connections to a peer.
    #[cfg(feature = "sim")]
    pub fn streams_of(&self, peer: usize) -> usize {
        let connections = self.connections.values();
        connections
            .filter(|it| it.peer == peer)
            .map(|it| it.streams.len())
            .sum()
    }

    /// Returns the bytes in the buffers of all connections to a peer.
    #[cfg(feature = "sim")]
    pub fn buffered_bytes_of(&self, peer: usize) -> u64 {
        let of_peer = self.connections.values().filter(|it| it.peer == peer);
        of_peer.map(|it| it.streams.memory.used_bytes()).sum()
    }

    /// Returns the log entries of all connections that reports have caused us to walk.
    #[cfg(feature = "sim")]
    pub fn entries_walked(&self) -> u64 {
        self.connections
            .values()
            .map(Connection::entries_walked)
            .sum()
    }

    /// Lets `forger` change the packets of all connections from now on.
    #[cfg(feature = "sim")]
    pub fn set_forger(&mut self, forger: Forger) {
        for connection in self.connections.values_mut() {
            connection.set_forger(Some(forger.clone()));
        }
        self.forger = Some(forger);
    }

    /// Returns the number of the next packet to `peer`. `None` without a connection.
    #[cfg(feature = "sim")]
    pub fn next_number(&mut self, peer: usize) -> Option<u64> {
        self.current(peer)
            .map(|connection| connection.next_number())
    }

    /// Appends a packet to `peer` with any number and payload. Returns whether there is a
    /// connection.
    #[cfg(feature = "sim")]
    pub fn seal_as(&mut self, peer: usize, number: u64, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(connection) = self.current(peer) else {
            return false;
        };
        connection.seal_as(number, payload, out);
        true
    }

    /// Returns the numbers of the streams that are open on the connection to `peer`.
    #[cfg(feature = "sim")]
    pub fn streams_open(&mut self, peer: usize) -> Vec<u32> {
        self.current(peer)
            .map_or(Vec::new(), |connection| connection.streams.numbers())
    }

    /// Returns the total number of streams that `peer` lets us open.
    #[cfg(feature = "sim")]
    pub fn streams_allowed(&mut self, peer: usize) -> u32 {
        self.current(peer)
            .map_or(0, |connection| connection.streams.peer_limit())
    }

    /// Replaces the keys of the connection to `peer`.
    #[cfg(feature = "sim")]
    pub fn turn_keys(&mut self, peer: usize) {
        if let Some(connection) = self.current(peer) {
            connection.turn_keys();
        }
    }

    #[cfg(feature = "sim")]
    fn current(&mut self, peer: usize) -> Option<&mut Connection> {
        let current = self.peers[peer].current?;
        self.connections.get_mut(&current)
    }

    /// Appends a packet to `peer`, sealed with our keys, with any payload. Returns whether there is
    /// a connection.
    #[cfg(any(test, feature = "fuzzing", feature = "sim"))]
    pub fn seal_payload(
        &mut self,
        peer: usize,
        payload: &[u8],
        out: &mut Vec<u8>,
        now: Instant,
    ) -> bool {
        let now = self.time(now);
        let current = self.peers[peer].current;
        let Some(connection) = current.and_then(|id| self.connections.get_mut(&id)) else {
            return false;
        };
        connection.write_payload(out, payload, now);
        true
    }

    fn connection(&mut self, key: StreamKey) -> Option<&mut Connection> {
        self.connections.get_mut(&key.connection)
    }
}
