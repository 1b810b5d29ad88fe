//! HTTP listeners for status and orders, as gateways and movers have them: bounded connections, requests for their own names
//! alone, and who asks.

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
