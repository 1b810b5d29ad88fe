//! `longhaul eval`: an evaluation in three steps.
//!
//! A plan lists trials. A run measures the trials over an emulated WAN, and writes a record of each
//! trial. A report is computed from the records alone.

#![allow(
    clippy::disallowed_methods,
    reason = "trials happen in real time: sockets, clocks and threads"
)]

pub mod bulk;
pub mod cell;
mod competing_connection;
pub mod demo;
mod ftp;
pub mod gateways;
mod installed;
mod movers;
pub mod plan;
mod process_tree;
pub mod record;
pub mod report;
pub mod run;
mod server;
mod sftp_server;
pub mod side;
mod stage;
