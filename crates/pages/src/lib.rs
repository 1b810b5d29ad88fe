//! HTTP listeners for status and orders, as gateways and movers have them. Connections are bounded, requests must be for the
//! listener's own names, and each request names its client.

#![warn(missing_docs)]

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
