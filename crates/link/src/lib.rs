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
//! randomness: datagrams, application calls and the time go in; datagrams, events and the next
//! deadline come out. The simulator (feature `sim`) drives two cores over `wansim` in virtual time;
//! the driver drives one over a UDP socket on a thread of its own.
//!
//! Who may speak is decided by public keys; a datagram that no configured peer could have sent is
//! never answered. What the bytes on the wire mean is in `docs/protocol.md`.

pub mod congestion;
mod connection;
mod endpoint;
mod feedback;
mod handshake;
mod identity;
mod recovery;
#[cfg(feature = "sim")]
pub mod sim;
mod stream;
mod time;
mod wire;

pub use connection::{Stats, Transmit};
pub use endpoint::{
    ControllerFactory, DropCounters, Endpoint, EndpointConfig, EndpointPeer, Event, LostReason,
    PeerView, Read, StreamKey,
};
pub use identity::{Identity, IdentityError, PublicKey, PublicKeyError};
pub use stream::Class;
