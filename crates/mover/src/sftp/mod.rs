//! SFTP client over real sockets: log-in by SSH, transfers, listings, and queries about files.
#![allow(
    clippy::disallowed_methods,
    reason = "owns the sockets of sessions with servers"
)]

mod dial;
mod listing;
mod reader;
mod session;
mod ssh_config;
mod writer;

pub use self::{
    dial::{HostKeyRule, KnownHosts, SftpDial, SshIdentity, SshRoute},
    listing::SftpListing,
    reader::SftpReader,
    session::SftpSession,
    ssh_config::{SshConfig, SshHost},
    writer::SftpWriter,
};
