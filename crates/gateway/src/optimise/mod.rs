//! Coded streams: fewer bytes on the link than the application's.
//!
//! What the bytes become is decided in the crate `optimiser`. Here are the ends of a link stream that may be coded: the
//! [`Outlet`] takes bytes, the [`Inlet`] gives them, and both count in a [`Tally`].
#![allow(
    clippy::disallowed_methods,
    reason = "measures how long coding takes, and what else is waited for"
)]

mod inlet;
mod outlet;
mod tally;

pub(crate) use self::{
    inlet::{Inlet, InletError},
    outlet::{Hold, Outlet},
    tally::{Seen, Sums, Tally},
};
