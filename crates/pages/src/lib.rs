//! HTTP listeners for status pages and orders, used by gateways and movers.
//!
//! The number of connections is limited. Requests must be for a name of the listener. Each request
//! carries the identity of its client.

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
