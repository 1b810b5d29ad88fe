//! FTP as values and state machines: lines, commands, replies, data addresses and proxy logons. It
//! also contains the two halves of a session that a pair of gateways carries.
//!
//! The machines take bytes and events, and return actions. They use no socket, no clock, no
//! randomness and no async. The gateway, tests and fuzzers can all drive them.
//!
//! The machines relay commands and replies that they do not understand. They parse only a copy of
//! each line.

pub mod address;
pub mod client;
pub mod command;
pub mod line;
pub mod listing;
pub mod logon;
pub mod reply;
pub mod session;
mod site;
pub mod spool;
pub mod wait;
