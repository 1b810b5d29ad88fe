//! Endpoint with applications that upload, download and echo, as the applications of a gateway do.
//!
//! The first byte of a bulk stream contains the request of the peer that opened the stream:
//! [`UPLOAD`] or [`DOWNLOAD`]. The input is events of the endpoint, and the time. The output is
//! datagrams, which the simulation delivers.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use units::ByteCount;

use super::super::inbox::Datagram;
use crate::{
    Endpoint, EndpointConfig, EndpointEvent, EndpointPeer, Identity, Policy, RestartState,
    StreamClass, StreamKey, StreamRead, congestion,
};

/// Request of a stream whose opener uploads bytes. The peer reads the bytes after the request.
pub(super) const UPLOAD: u8 = b'U';
/// Request of a stream whose opener downloads bytes. The peer sends bytes without end.
pub(super) const DOWNLOAD: u8 = b'D';

/// Configuration of a node.
pub(super) struct NodeConfig {
    pub(super) identity: u8,
    pub(super) address: SocketAddr,
    /// Identity of each peer. The address is set if this node connects to the peer.
    pub(super) peers: Vec<(u8, Option<SocketAddr>)>,
    /// Memory limit of each connection.
    pub(super) memory_max: ByteCount,
    pub(super) seed: u64,
    pub(super) instance: u64,
    pub(super) unix_ns: u64,
}

/// Endpoint and its applications.
pub(super) struct Node {
    pub(super) endpoint: Endpoint,
    pub(super) address: SocketAddr,
    peers: Vec<(u8, Option<SocketAddr>)>,
    streams: HashMap<StreamKey, PeerStream>,
    /// Streams to which the applications write without end.
    endless: Vec<StreamKey>,
    /// Streams on which the applications have requested bytes without end.
    asking: Vec<StreamKey>,
    /// Number of bytes that the applications read from each peer.
    pub(super) delivered: Vec<u64>,
    /// Unfinished streams that this node opened.
    pub(super) own: HashSet<StreamKey>,
    /// Number of streams whose bytes the peer confirmed.
    pub(super) confirmed: u64,
    /// Number of streams that failed for any reason.
    pub(super) failed: u64,
    /// Whether the applications read.
    pub(super) reads: bool,
    scratch: Vec<u8>,
}

struct PeerStream {
    peer: usize,
    class: StreamClass,
    is_known: bool,
}

impl Node {
    pub(super) fn new(config: NodeConfig, now: Instant) -> Self {
        let identity = |number: u8| Identity::from_seed([number; 32]);
        let peers = config.peers.iter().map(|(number, address)| EndpointPeer {
            public_keys: vec![identity(*number).public_key()],
            has_endpoint: address.is_some(),
            rate_max: None,
            is_guest: false,
        });
        let endpoint = EndpointConfig {
            identity: identity(config.identity),
            peers: peers.collect(),
            rate_max: None,
            memory_max: config.memory_max,
            idle_timeout: IDLE_TIMEOUT,
            seed: config.seed,
            instance: config.instance,
            generation: None,
            remembered: RestartState::default(),
            unix_ns: config.unix_ns,
            controller: Arc::new(|memory, rate_max| {
                congestion::for_policy(Policy::Fair, memory, rate_max)
            }),
        };
        Self {
            endpoint: Endpoint::new(endpoint, now).expect("seeded keys are valid"),
            address: config.address,
            delivered: vec![0; config.peers.len()],
            peers: config.peers,
            streams: HashMap::new(),
            endless: Vec::new(),
            asking: Vec::new(),
            own: HashSet::new(),
            confirmed: 0,
            failed: 0,
            reads: true,
            scratch: Vec::new(),
        }
    }

    /// Opens a bulk stream and writes the request `kind` and `len` bytes. The stream ends after
    /// these bytes. Without `len`, the transfer is endless.
    ///
    /// Returns whether the stream was opened.
    pub(super) fn open(&mut self, peer: usize, kind: u8, len: Option<usize>, now: Instant) -> bool {
        let Some(key) = self.endpoint.open(peer, StreamClass::Bulk, now) else {
            return false;
        };
        self.endpoint.write(key, Bytes::copy_from_slice(&[kind]));
        self.streams.insert(
            key,
            PeerStream {
                peer,
                class: StreamClass::Bulk,
                is_known: true,
            },
        );
        match len {
            Some(len) => {
                self.endpoint.write(key, Bytes::from(vec![0; len]));
                self.endpoint.finish(key);
            }
            None if kind == UPLOAD => self.endless.push(key),
            None => self.asking.push(key),
        }
        self.own.insert(key);
        true
    }

    /// Ends all endless streams of the node.
    pub(super) fn end_endless(&mut self) {
        let asking = std::mem::take(&mut self.asking);
        for key in std::mem::take(&mut self.endless).into_iter().chain(asking) {
            self.endpoint.finish(key);
        }
    }

    /// Aborts all unfinished streams that this node opened.
    pub(super) fn give_up_own(&mut self) {
        for key in std::mem::take(&mut self.own) {
            self.endpoint.reset(key, 1);
            self.endpoint.stop(key, 1);
            self.endless.retain(|endless| *endless != key);
        }
    }

    /// Runs the applications of the node.
    pub(super) fn act(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            self.take_event(event, now);
        }
        let Self {
            endpoint, endless, ..
        } = self;
        for key in endless {
            while endpoint.writable(*key) > 0 {
                endpoint.write(*key, Bytes::from(vec![0; WRITE_BYTES]));
            }
        }
    }

    fn take_event(&mut self, event: EndpointEvent, now: Instant) {
        match event {
            EndpointEvent::Resolve { peer } => {
                let address = self.peers[peer].1;
                self.endpoint.set_address(peer, address, now);
            }
            EndpointEvent::Incoming { key, peer, class } => {
                self.streams.insert(
                    key,
                    PeerStream {
                        peer,
                        class,
                        is_known: false,
                    },
                );
            }
            EndpointEvent::Readable { key } if self.reads => self.read(key, now),
            EndpointEvent::Stopped { key, .. } => {
                self.endpoint.stop(key, 1);
                self.forget(key);
            }
            EndpointEvent::SendDone { key } => {
                self.confirmed += u64::from(self.own.remove(&key));
                self.endless.retain(|endless| *endless != key);
            }
            EndpointEvent::Lost { key, .. } => {
                self.failed += 1;
                self.own.remove(&key);
                self.forget(key);
            }
            EndpointEvent::Readable { .. }
            | EndpointEvent::Connected { .. }
            | EndpointEvent::Remember => {}
        }
    }

    fn read(&mut self, key: StreamKey, now: Instant) {
        loop {
            match self.endpoint.read(key, WRITE_BYTES, now) {
                StreamRead::Data(data) => self.take_data(key, &data),
                StreamRead::End => {
                    if !self.endless.contains(&key) {
                        self.endpoint.finish(key);
                    }
                    self.streams.remove(&key);
                    return;
                }
                StreamRead::Corrupt | StreamRead::Reset(_) => {
                    self.endpoint.reset(key, 1);
                    self.forget(key);
                    return;
                }
                StreamRead::Blocked | StreamRead::Gone => return,
            }
        }
    }

    fn take_data(&mut self, key: StreamKey, data: &Bytes) {
        let Some(stream) = self.streams.get_mut(&key) else {
            return;
        };
        self.delivered[stream.peer] += data.len() as u64;
        match stream.class {
            StreamClass::Control if self.endpoint.writable(key) >= data.len() => {
                self.endpoint.write(key, data.clone());
            }
            StreamClass::Bulk if !stream.is_known => {
                stream.is_known = true;
                if data[0] == DOWNLOAD && self.endless.len() < ENDLESS_MAX {
                    self.endless.push(key);
                } else {
                    self.endpoint.finish(key);
                }
            }
            StreamClass::Control | StreamClass::Bulk => {}
        }
    }

    fn forget(&mut self, key: StreamKey) {
        self.streams.remove(&key);
        self.endless.retain(|endless| *endless != key);
    }

    /// Passes each outgoing datagram to `send`.
    pub(super) fn transmit(&mut self, now: Instant, mut send: impl FnMut(Datagram)) {
        loop {
            self.scratch.clear();
            let Some(transmit) = self.endpoint.poll_transmit(&mut self.scratch, BATCH, now) else {
                return;
            };
            for bytes in self.scratch.chunks(transmit.segment_bytes) {
                send(Datagram {
                    from: self.address,
                    to: transmit.to,
                    bytes: bytes.to_vec(),
                });
            }
        }
    }

    pub(super) fn receive(&mut self, datagram: &mut Datagram, now: Instant) {
        let (bytes, from) = (&mut datagram.bytes, datagram.from);
        self.endpoint.handle_datagram(bytes, from, now);
    }
}

/// Time after which a node abandons a connection if no packet arrives. This is also the maximum
/// time for which state of the enemy remains after the enemy has left.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const WRITE_BYTES: usize = 64 * 1024;
/// Maximum number of streams to which one node writes without end.
const ENDLESS_MAX: usize = 64;
/// Maximum number of datagrams that a node sends in one batch.
const BATCH: usize = 44;
