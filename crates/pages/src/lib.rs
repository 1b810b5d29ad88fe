//! HTTP listeners for status and orders, for gateways and movers.
//!
//! The number of connections is bounded. Requests must be for the listener's own names. Each
//! request carries the identity of its client.

mod bounded_listener;
mod client;
mod guard;
mod local;
mod permits;
mod process;

pub use bounded_listener::{BoundedListener, TlsHandshaker};
pub use client::PageClient;
pub use guard::{HostNames, as_metrics, serve};
pub use process::{Process, may_give_orders, peer_process};
