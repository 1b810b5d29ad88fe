//! `longhaul eval`: plans of trials, their records, and reports that are made from the records alone.

#![allow(
    clippy::disallowed_methods,
    reason = "trials happen in real time: sockets, clocks and threads"
)]

pub mod bulk;
pub mod cell;
pub mod demo;
mod ftp;
pub mod gateways;
mod installed;
mod movers;
mod neighbour;
pub mod plan;
pub mod record;
pub mod report;
pub mod run;
mod server;
pub mod side;
mod stage;
