//! The FTP client and server that trials are made with, and what they move.

pub(crate) mod client;
pub(crate) mod content;
mod direction;
pub(crate) mod server;

pub use direction::Direction;
