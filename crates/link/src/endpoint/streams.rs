//! Methods of the endpoint for streams, and snapshots of a peer.

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
    stream::StreamClass,
    wire::packet::ConnectionId,
};

/// Identifier of a stream within an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    pub(crate) connection: ConnectionId,
    pub(crate) stream: u32,
}

/// Snapshot of the state of one peer.
#[derive(Debug, Clone, Copy)]
pub struct PeerView {
    /// Number of handshakes that this endpoint initiated.
    pub attempts: u64,
    /// Time at which the present connection was established.
    pub connected: Option<Instant>,
    /// Time at which the present connection became silent, if it is silent.
    pub silent: Option<Instant>,
    /// Arrival time of the last authentic datagram.
    pub last_heard: Option<Instant>,
    /// Whether an ICMP error has reported the peer's address as closed or unreachable since the
    /// last authentic datagram. Anyone can forge such an error, so only the displayed status
    /// depends on this field.
    pub is_refused: bool,
    /// Whether the peer has closed the last connection because it no longer accepts this gateway's
    /// key.
    pub is_dismissed: bool,
    /// Source address of the peer's packets, or the address that this endpoint tries to reach.
    pub address: Option<SocketAddr>,
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Minimum round-trip time of the recent past.
    pub base_rtt: Option<Duration>,
    /// Queueing delay in the direction to the peer.
    pub queue_delay: Duration,
    /// Moving average of the lost fraction of this endpoint's packets.
    pub loss: f64,
    /// Rate that the congestion controller permits, in bytes per second.
    pub allowed_bytes_per_s: f64,
    /// Number of packets that were declared lost and never arrived.
    pub packets_lost: u64,
    /// Number of packets that were declared lost and arrived later.
    pub packets_late: u64,
    /// Number of open streams.
    pub streams: usize,
    /// Name of the congestion controller's state.
    pub controller_state: &'static str,
    /// Largest amount of memory that received data has used so far, in bytes.
    pub receive_memory_peak_bytes: usize,
    /// Sum of the counters of all connections.
    pub stats: ConnectionCounters,
}

/// State of a connection in its life cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// The handshake is complete, but no packet encrypted with the new keys has arrived yet.
    Established,
    /// A packet that the peer encrypted with the new keys has arrived.
    Confirmed,
    /// This endpoint is sending CLOSE frames to the peer.
    Closing,
    /// The connection has ended.
    Closed,
}

/// Snapshot of one connection for the trace. Counts start at the beginning of the connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ConnectionView {
    pub(crate) id: u32,
    pub(crate) state: ConnectionState,
    pub(crate) is_silent: bool,
    /// Whether the peer has requested that new streams use another connection.
    pub(crate) is_retired: bool,
    pub(crate) rtt: Option<Duration>,
    pub(crate) base_rtt: Duration,
    pub(crate) queue_delay: Duration,
    pub(crate) allowed_bytes_per_s: f64,
    pub(crate) window_bytes: u64,
    pub(crate) in_flight_bytes: u64,
    pub(crate) streams: usize,
    pub(crate) controller_state: &'static str,
    /// Number of packets that were declared lost. It includes packets that arrived later.
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

/// Memory use of an endpoint, as numbers of entries in its tables.
#[cfg(feature = "sim")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Number of handshakes in progress.
    pub attempts: usize,
    /// Number of connections.
    pub connections: usize,
    /// Number of sent packets that are still in the log.
    pub packets: usize,
    /// Number of control frames that wait to be sent.
    pub controls: usize,
    /// Number of streams.
    pub streams: usize,
    /// Number of bytes in the buffers of all connections.
    pub buffered_bytes: u64,
}

impl Endpoint {
    /// Opens a stream to `peer`. Returns `None` if there is no connection, or if no further stream
    /// is permitted.
    pub fn open(&mut self, peer: usize, class: StreamClass, now: Instant) -> Option<StreamKey> {
        let now = self.time(now);
        let id = self.peers[peer].current?;
        let stream = self.connections.get_mut(&id)?.open(class, now)?;
        Some(StreamKey {
            connection: id,
            stream,
        })
    }

    /// Opens a stream on the same connection as the stream `beside`, so that the same process of
    /// the peer receives both streams. If that connection is about to end, the method works like
    /// [`open`](Self::open).
    pub fn open_beside(
        &mut self,
        beside: StreamKey,
        class: StreamClass,
        now: Instant,
    ) -> Option<StreamKey> {
        let time = self.time(now);
        let connection = self.connections.get_mut(&beside.connection)?;
        let peer = connection.peer;
        if connection.is_silent() {
            // Another process of the peer would not have the transfer of the stream `beside`.
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

    /// Whether the connection of the stream still exists.
    pub fn has_connection(&self, of: StreamKey) -> bool {
        self.connections.contains_key(&of.connection)
    }

    /// Returns the number of bytes that the stream accepts now.
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

    /// Ends a stream after its last byte, so that the peer can read all bytes.
    pub fn finish(&mut self, key: StreamKey) {
        if let Some(connection) = self.connection(key) {
            connection.finish(key.stream);
        }
    }

    /// Resets a stream. Bytes that have not been delivered are dropped.
    pub fn reset(&mut self, key: StreamKey, code: u32) {
        if let Some(connection) = self.connection(key) {
            connection.reset(key.stream, code);
        }
    }

    /// Requests that the peer sends no more bytes on a stream.
    pub fn stop(&mut self, key: StreamKey, code: u32) {
        if let Some(connection) = self.connection(key) {
            connection.stop(key.stream, code);
        }
    }

    /// Reads bytes from a stream, in order: at most `len_max` bytes, but at least one slot.
    pub fn read(&mut self, key: StreamKey, len_max: usize, now: Instant) -> StreamRead {
        let now = self.time(now);
        self.connection(key).map_or(StreamRead::Gone, |connection| {
            connection.read(key.stream, len_max, now)
        })
    }

    /// Returns a snapshot of the state of a peer.
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

    /// Returns snapshots of all connections to a peer, in no particular order.
    pub(crate) fn connection_views(&self, peer: usize) -> impl Iterator<Item = ConnectionView> {
        let connections = self.connections.values();
        let of_peer = connections.filter(move |it| it.peer == peer);
        of_peer.map(ConnectionView::of)
    }

    /// Returns the number of handshakes with a peer that this endpoint initiated.
    pub(crate) fn peer_attempts(&self, peer: usize) -> u64 {
        self.peers[peer].attempts
    }

    /// Returns the memory use of the endpoint. Bytes and events that the application has not
    /// fetched are excluded.
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

    /// Returns the number of bytes in the buffers of all connections to a peer.
    #[cfg(feature = "sim")]
    pub fn buffered_bytes_of(&self, peer: usize) -> u64 {
        let of_peer = self.connections.values().filter(|it| it.peer == peer);
        of_peer.map(|it| it.streams.memory.used_bytes()).sum()
    }

    /// Returns the number of log entries that were visited while reports were processed. The sum
    /// covers all connections.
    #[cfg(feature = "sim")]
    pub fn entries_walked(&self) -> u64 {
        self.connections
            .values()
            .map(Connection::entries_walked)
            .sum()
    }

    /// Sets a function that changes the packets of all connections from now on.
    #[cfg(feature = "sim")]
    pub fn set_forger(&mut self, forger: Forger) {
        for connection in self.connections.values_mut() {
            connection.set_forger(Some(forger.clone()));
        }
        self.forger = Some(forger);
    }

    /// Returns the number of the next packet to `peer`, or `None` without a connection.
    #[cfg(feature = "sim")]
    pub fn next_number(&mut self, peer: usize) -> Option<u64> {
        self.current(peer)
            .map(|connection| connection.next_number())
    }

    /// Appends a packet for `peer` to `out`. The caller chooses the packet number and the payload.
    /// Returns whether there is a connection.
    #[cfg(feature = "sim")]
    pub fn seal_as(&mut self, peer: usize, number: u64, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(connection) = self.current(peer) else {
            return false;
        };
        connection.seal_as(number, payload, out);
        true
    }

    /// Returns the numbers of the open streams on the connection to `peer`.
    #[cfg(feature = "sim")]
    pub fn streams_open(&mut self, peer: usize) -> Vec<u32> {
        self.current(peer)
            .map_or(Vec::new(), |connection| connection.streams.numbers())
    }

    /// Returns the total number of streams that `peer` permits this endpoint to open.
    #[cfg(feature = "sim")]
    pub fn streams_allowed(&mut self, peer: usize) -> u32 {
        self.current(peer)
            .map_or(0, |connection| connection.streams.peer_limit())
    }

    /// Replaces the packet keys of the connection to `peer`.
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

    /// Appends a packet for `peer` to `out`. The packet contains `payload`, and is encrypted with
    /// this endpoint's keys. Returns whether there is a connection.
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
