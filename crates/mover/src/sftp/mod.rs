//! SFTP client over real sockets: log-in by SSH, transfers, listings, and queries about files.
#![allow(
    clippy::disallowed_methods,
    reason = "owns the sockets of sessions with servers"
)]

mod abortable;
mod attributes;
mod connection;
mod dial;
mod exchange;
mod file_handle;
mod forwarded_agent;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod host_key;
mod identity;
mod listing;
mod login;
mod messages;
mod reader;
mod replies;
mod session;
mod ssh_config;
#[cfg(test)]
mod tests;
mod window;
mod writer;

pub use self::{
    dial::{HostKeyRule, KnownHosts, SftpDial, SshIdentity, SshRoute},
    listing::SftpListing,
    reader::SftpReader,
    session::SftpSession,
    ssh_config::{SshConfig, SshHost},
    writer::SftpWriter,
};
