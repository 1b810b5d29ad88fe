//! FTP as values and state machines: lines, commands, replies, data addresses and proxy logons. The
//! crate also contains both halves of a proxied FTP session, one for each gateway.
//!
//! The state machines receive bytes and events, and return actions. The machines use no socket, no
//! clock, no randomness and no async code. The gateway, tests and fuzzers can therefore use the
//! same machines.
//!
//! If a machine does not understand a command or a reply, the machine relays the line. Parsers work
//! on a copy of each line.

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
