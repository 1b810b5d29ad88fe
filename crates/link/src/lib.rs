//! The WAN link: reliable, encrypted streams between two gateways over UDP.
//! (Interface fixed; bodies follow.)
#![allow(missing_docs, clippy::todo, unused_variables, reason = "interface only")]
use std::{net::{SocketAddr, UdpSocket}, path::Path, str::FromStr, time::{Duration, Instant, SystemTime}};
use bytes::Bytes;
use units::{BitRate, ByteCount};

/// An Ed25519 key pair. `Debug` prints only the public key.
#[derive(Clone, Debug)]
pub struct Identity(());
impl Identity {
    pub fn generate() -> Self { todo!() }
    /// Reads a key file (PKCS#8 PEM, "-----BEGIN PRIVATE KEY-----"); refuses one that group or others can read.
    pub fn read(path: &Path) -> Result<Self, IdentityError> { todo!() }
    /// Writes the key file, mode 0600, never over an existing file.
    pub fn write_new(&self, path: &Path) -> Result<(), IdentityError> { todo!() }
    pub fn public_key(&self) -> PublicKey { todo!() }
}
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError { #[error("...")] Io(#[from] std::io::Error) }

/// 32 bytes; text form is standard base64 (44 characters).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);
impl std::fmt::Display for PublicKey { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { todo!() } }
#[derive(Debug, thiserror::Error)]
#[error("...")]
pub struct PublicKeyError;
impl FromStr for PublicKey { type Err = PublicKeyError; fn from_str(s: &str) -> Result<Self, PublicKeyError> { todo!() } }

#[derive(Debug, Clone)]
pub struct LinkConfig {
    pub identity: Identity,
    pub peers: Vec<PeerConfig>,
    pub policy: Policy,
    pub rate_max: Option<BitRate>,
    pub memory_max: ByteCount,
    pub idle_timeout: Duration,
}
#[derive(Debug, Clone)]
pub struct PeerConfig {
    pub name: String,
    pub public_keys: Vec<PublicKey>,
    /// host:port, resolved anew at each connect; None: this side only waits.
    pub endpoint: Option<String>,
    pub rate_max: Option<BitRate>,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy { Fair, Background, Reserved(BitRate) }

/// Index into `LinkConfig::peers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub usize);

/// Control streams overtake bulk streams within a bounded share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class { Control, Bulk }

/// A running link endpoint: one UDP socket, one driver thread. Clones share it.
#[derive(Clone, Debug)]
pub struct Link(());
impl Link {
    /// Starts the driver thread on a bound socket. Sets socket buffers; see `LinkSnapshot::socket_buffers`.
    pub fn start(socket: UdpSocket, config: LinkConfig) -> Result<Self, LinkError> { todo!() }
    pub fn local_addr(&self) -> SocketAddr { todo!() }
    /// Opens a bidirectional stream; 0 RTT on a warm link: data written at once travels with the open.
    /// While the link is being connected, waits; fails with PeerDown if the peer has not answered
    /// (nor within 3 s of this call).
    pub async fn open(&self, peer: PeerId, class: Class) -> Result<(SendStream, RecvStream), OpenError> { todo!() }
    /// The next stream a peer opened; None after shutdown.
    pub async fn accept(&self) -> Option<Incoming> { todo!() }
    pub fn snapshot(&self) -> LinkSnapshot { todo!() }
    /// Stops opening and accepting, waits up to `drain` for streams to end, closes connections.
    /// Returns the number of streams cut short.
    pub async fn shutdown(&self, drain: Duration) -> usize { todo!() }
}
#[derive(Debug)]
pub struct Incoming { pub peer: PeerId, pub class: Class, pub send: SendStream, pub recv: RecvStream }

/// The sending half. Dropped without `finish`, it resets the stream with code 0.
#[derive(Debug)]
pub struct SendStream(());
impl SendStream {
    /// Queues `data`; waits while the link's send buffer for this stream is full.
    pub async fn write(&mut self, data: Bytes) -> Result<(), StreamError> { todo!() }
    /// Ends the stream: the peer reads `None` after the last byte, once count and hash agree.
    pub fn finish(&mut self) { todo!() }
    /// Abandons what has not been delivered; the peer reads `Err(Reset)`, overtaking queued data.
    pub fn reset(&mut self, code: u32) { todo!() }
    /// Resolves when the peer's application has read everything including the end, or with the error
    /// that ended the stream (e.g. `Stopped`). Cancel safe. Also usable before `finish` to watch for errors.
    pub async fn closed(&mut self) -> Result<(), StreamError> { todo!() }
}
/// The receiving half. Dropped before its end, it tells the peer to stop (code 0).
#[derive(Debug)]
pub struct RecvStream(());
impl RecvStream {
    /// The next bytes in order; `None` at the verified end. Cancel safe.
    pub async fn read(&mut self) -> Result<Option<Bytes>, StreamError> { todo!() }
    /// Tells the peer that nothing more is wanted; its writes fail with `Stopped`.
    pub fn stop(&mut self, code: u32) { todo!() }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    #[error("the peer reset the stream (code {code})")] Reset { code: u32 },
    #[error("the peer stopped reading (code {code})")] Stopped { code: u32 },
    #[error("the peer restarted")] PeerRestarted,
    #[error("the peer has been silent for {silent_for:?}")] LinkLost { silent_for: Duration },
    #[error("byte count or hash at the end of the stream do not match what arrived")] Corrupt,
    #[error("this gateway is shutting down")] Closed,
}
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    #[error("...")] PeerDown { name: String, last_answer: Option<SystemTime> },
    #[error("...")] TooManyStreams,
    #[error("...")] Closed,
}
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError { #[error("...")] Io(#[from] std::io::Error), #[error("...")] Tls(String) }

/// What the endpoint is doing now; cheap to take. One entry in `peers` per configured peer, in order.
#[derive(Debug, Clone)]
pub struct LinkSnapshot {
    pub peers: Vec<PeerSnapshot>,
    /// Bytes of socket buffer asked for and granted, (receive, send).
    pub socket_buffers: SocketBuffers,
    /// Datagrams dropped unanswered, by reason.
    pub dropped: DropCounters,
}
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketBuffers { pub asked: ByteCount, pub receive_granted: ByteCount, pub send_granted: ByteCount }
#[derive(Debug, Clone, Copy, Default)]
pub struct DropCounters { pub unknown_key: u64, pub bad_mac: u64, pub replayed: u64, pub malformed: u64, pub unknown_connection: u64, pub undecryptable: u64 }
#[derive(Debug, Clone)]
pub struct PeerSnapshot {
    pub name: String,
    pub state: PeerState,
    pub endpoint: Option<SocketAddr>,
    pub last_answer: Option<SystemTime>,
    pub rtt: Option<Duration>,
    pub base_rtt: Option<Duration>,
    pub queue_delay: Option<Duration>,
    pub loss: f64,
    pub send_rate: BitRate,
    pub receive_rate: BitRate,
    /// What the congestion controller allows now.
    pub allowed_rate: BitRate,
    pub sent: TrafficCounters,
    pub received: TrafficCounters,
    pub packets_lost: u64,
    pub payload_retransmitted: ByteCount,
    pub streams_open: usize,
    pub controller_state: &'static str,
}
#[derive(Debug, Clone, Copy, Default)]
pub struct TrafficCounters { pub datagrams: u64, pub bytes: ByteCount, pub payload: ByteCount }
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PeerState { NeverAnswered { attempts: u64 }, Refused, Connecting, Up { since: SystemTime }, Silent { since: SystemTime } }
