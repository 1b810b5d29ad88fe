//! Coded streams: fewer bytes on the link than the application's.
//!
//! What the bytes become is decided in the crate `optimiser`. Here are the ends of a link stream that may be coded: the
//! `Outlet` takes bytes, the `Inlet` gives them, and both count in a `Tally`.
//!
//! With chunk stores on both sides (`Stores`, agreed on for each session in an `Agreement`) the outlet refers to chunks that
//! its own store has. The inlet takes them from its store, and asks for those that are not there (`Borrowing`); the
//! outlet's gateway keeps them until they have been taken (`Lending`), and answers (`lend`).
#![allow(
    clippy::disallowed_methods,
    reason = "measures how long coding takes, and what else is waited for"
)]

mod agreement;
mod borrowing;
mod inlet;
pub(crate) mod lend;
mod lending;
mod outlet;
mod stores;
mod tally;

pub use self::stores::{Settings, StoreName};
pub(crate) use self::{
    agreement::{Agreement, Coded, Sharing},
    inlet::{Inlet, InletError},
    lending::{Key, Lending},
    outlet::{Hold, Outlet},
    stores::{Scope, Stores},
    tally::{Seen, Sums, Tally},
};
