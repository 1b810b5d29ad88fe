//! The chunk store as its gateway sees it: what it does, and what it withstands.
#![allow(
    clippy::disallowed_methods,
    reason = "stores have a thread and a clock of their own"
)]

mod behaviour;
mod common;
mod faults;
mod faulty;
