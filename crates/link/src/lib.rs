//! The WAN link: reliable, encrypted, rate-controlled streams between two gateways over UDP.
//!
//! ```text
//!  application ── driver ──┐                                          ┌── driver ── application
//!   Link, SendStream,      │  endpoint ── connection ─┬─ streams      │
//!   RecvStream             └─ (peers)      (one peer) ├─ sent log  ═══╪═══ UDP ═══
//!                                                     ├─ received log │
//!                                                     └─ controller   │
//! ```
//!
//! The core ([`Endpoint`] and everything below it) owns no socket, no clock and no source of
//! randomness. Its inputs are datagrams, application calls and the time. Its outputs are datagrams,
//! events and the next deadline. The simulator (feature `sim`) connects two cores over `wansim` in
//! virtual time. The driver connects one core to a UDP socket, on a separate thread.
//!
//! Only gateways with a configured public key may connect. A datagram that no configured peer can
//! have sent gets no reply. The file `docs/protocol.md` defines the bytes on the wire.

mod config;
pub mod congestion;
mod connection;
mod control_frame;
#[allow(
    clippy::disallowed_methods,
    reason = "the driver is where the clock, the socket and randomness come in"
)]
mod driver;
mod endpoint;
mod feedback;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handshake;
mod id_map;
mod identity;
mod overtaking_detector;
mod recovery;
mod secret;
#[cfg(feature = "sim")]
pub mod sim;
mod snapshot;
mod stream;
mod time;
mod turns;
#[cfg(test)]
mod vectors;
mod version;
mod wire;

/// Limit on the bytes sent to an unvalidated address, as a multiple of the bytes received from that
/// address (RFC 9000 section 8.1).
const AMPLIFICATION_MAX: usize = 3;

pub use config::{LinkConfig, PeerConfig, PeerId, Policy};
#[cfg(feature = "sim")]
pub use connection::Forger;
pub use connection::{ConnectionCounters, Transmit};
pub use driver::{
    ConnectionTrace, HandoverError, IncomingStream, Link, LinkError, LinkHandover, RecvStream,
    Sample, SendStream, StreamError, StreamOpenError, TraceError, TraceEvent, TraceObservation,
};
#[cfg(feature = "sim")]
pub use endpoint::Footprint;
pub use endpoint::{
    ConnectionState, DropCounters, Endpoint, EndpointConfig, EndpointEvent, EndpointPeer,
    LostReason, NewestHandshake, PeerView, ReplayMemory, RestartState, StreamKey, StreamRead,
};
pub use identity::{Identity, IdentityError, PublicKey, PublicKeyError};
pub use snapshot::{LinkSnapshot, PeerSnapshot, PeerState, SocketBuffers, TrafficCounters};
pub use stream::{StreamClass, memory::streams_at_once};
