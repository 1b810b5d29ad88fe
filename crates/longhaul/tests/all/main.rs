//! Tests that run the `longhaul` program as users run it.
//!
//! All subjects are modules of one test program, so the build compiles and links shared code only
//! once. Two subjects have separate test programs. The tests of `commands` also run with the
//! production build. The tests of `transparent` must enter a user namespace before the process
//! starts any thread.

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
mod setup_ssh;
mod store;
mod trace;
mod upgrade;
mod upgrade_ssh;
#[cfg(feature = "laboratory")]
mod wan;
mod watchdog;
