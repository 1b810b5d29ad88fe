//! The program as its users see it.
//!
//! One program has a module for each subject, so that shared test code is compiled and linked once.
//! `commands` stays apart, because the production build runs it too, and `transparent`, because it
//! must enter a user namespace before any thread runs.

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
