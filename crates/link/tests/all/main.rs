//! Tests of the link in virtual time, against adversaries and over loopback.
//!
//! All these tests are one program with a module for each subject, so that shared helpers are
//! compiled and linked once. `allocations`, `pieces` and `siege_peer` are separate programs because
//! each has its own global allocator.

#[cfg(feature = "sim")]
mod adversary;
#[cfg(feature = "sim")]
mod clocks;
#[cfg(feature = "sim")]
mod cold;
mod common;
#[cfg(feature = "sim")]
mod crowd;
mod handover;
#[cfg(feature = "sim")]
mod icmp;
mod jitter;
mod loopback;
#[cfg(feature = "sim")]
mod lossy_windows;
#[cfg(feature = "sim")]
mod outages;
#[cfg(feature = "sim")]
mod overtaking;
#[cfg(feature = "sim")]
mod routes;
#[cfg(feature = "sim")]
mod stalled;
mod tails;
#[cfg(feature = "sim")]
mod transfer;
