//! Tests of the chunk store through its public functions: behaviour and robustness.
#![allow(
    clippy::disallowed_methods,
    reason = "stores have a thread and a clock of their own"
)]

mod behaviour;
mod common;
mod faults;
mod faulty;
