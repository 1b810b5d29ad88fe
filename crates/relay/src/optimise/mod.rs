//! Coded streams: fewer bytes on the link than the application's.
//!
//! The crate `optimiser` contains the coding itself. This module contains the ends of a link stream
//! that may be coded. The `Outlet` takes bytes, the `Inlet` returns them, and both count in a
//! `Tally`.
//!
//! If both gateways have chunk stores (`Stores`, agreed on for each session in an `Agreement`), the
//! outlet refers to chunks in its own store. The inlet takes them from its store, and requests
//! missing ones (`Borrowing`). The outlet's gateway keeps them until they have been taken
//! (`Lending`), and answers requests (`lend`).
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
