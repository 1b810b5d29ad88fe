//! Tests that run the `longhaul` program as users run it.
//!
//! This test binary has a module for each subject, so that shared test code is compiled and linked
//! once. Two subjects have test binaries of their own. The production build also runs `commands`.
//! The tests of `transparent` must enter a user namespace before any thread runs.

mod agent;
mod audit;
mod common;
mod doctor;
#[cfg(feature = "laboratory")]
mod eval;
mod fleet_faults;
mod hostile_local;
mod jobs;
mod logs;
mod moving;
mod near_process;
mod overlap;
mod probe;
mod setup;
mod store;
mod trace;
mod upgrade;
#[cfg(feature = "laboratory")]
mod wan;
mod watchdog;
