//! The FTP client and server that trials are made with, and what they move.

pub(crate) mod client;
pub(crate) mod content;
pub(crate) mod server;
