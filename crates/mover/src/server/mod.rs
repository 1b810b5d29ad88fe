//! An FTP server, over real sockets: log-in, transfers, listings, and questions about files.
//!
//! `crate::plan` decides which operation comes next, also after a failure.
#![allow(
    clippy::disallowed_methods,
    reason = "owns the sockets of sessions with servers"
)]

mod ahead;
mod control;
mod data;
mod dial;
mod error;
mod files;
mod hash;
mod kept;
mod look;
mod opening;
mod session;
mod spool;
mod transfer;

pub(crate) use self::dial::reach;
pub use self::{
    ahead::{Ahead, Content, Done, Upload, Ways},
    dial::{Dial, Door, Password, Route},
    error::ServerError,
    files::Lister,
    hash::Algorithm,
    kept::Kept,
    look::Facts,
    session::Session,
    spool::Spooled,
    transfer::{Ended, Transfer, Verb},
};
