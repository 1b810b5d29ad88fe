//! FTP as values and state machines: lines, commands, replies, data addresses, proxy logons, and
//! the two halves of a session that a pair of gateways carries.
//!
//! Bytes and events go in, and what to do comes out. No socket, no clock, no randomness, no async:
//! the gateway drives these machines, the tests drive them too, and a fuzzer can.
//!
//! Rule of the house: relay what is not understood. Only a copy of each line is parsed.
#![warn(missing_docs)]

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
