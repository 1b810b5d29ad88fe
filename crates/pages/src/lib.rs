//! HTTP listeners for status and orders, for gateways and movers.
//!
//! The number of connections is bounded. Requests must be for the listener's own names. Each
//! request carries the identity of its client.

mod bounded;
mod client;
mod guard;
mod local;
mod places;
mod process;

pub use bounded::{BoundedListener, Handshakes};
pub use client::Client;
pub use guard::{Names, as_metrics, serve};
pub use process::{Process, may_order, process_behind};
