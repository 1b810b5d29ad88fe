//! The link in virtual time, against adversaries and over loopback.
//!
//! This is one program with a module for each subject, so that shared helpers are compiled and
//! linked once. `allocations`, `pieces` and `siege_peer` stay apart: each has a global allocator of
//! its own.

#[cfg(feature = "sim")]
mod adversary;
#[cfg(feature = "sim")]
mod clocks;
#[cfg(feature = "sim")]
mod cold;
mod common;
#[cfg(feature = "sim")]
mod crowd;
#[cfg(feature = "sim")]
mod icmp;
mod jitter;
mod loopback;
#[cfg(feature = "sim")]
mod outages;
#[cfg(feature = "sim")]
mod overtaking;
#[cfg(feature = "sim")]
mod routes;
#[cfg(feature = "sim")]
mod stalled;
mod succession;
mod tails;
#[cfg(feature = "sim")]
mod transfer;
