//! FTP client over real sockets: log-in, transfers, listings, and queries about files.
//!
//! The module `crate::plan` decides the next operation, including the operation after a failure.
#![allow(
    clippy::disallowed_methods,
    reason = "owns the sockets of sessions with servers"
)]

mod control;
mod data;
mod dial;
mod error;
mod files;
mod hash;
mod host_key_rejection;
mod opening;
mod pipeline;
mod session;
mod session_pool;
mod sftp_refusal;
mod spool;
mod stat;
mod transfer;

pub(crate) use self::dial::reach;
pub use self::{
    dial::{Dial, GatewayListener, Password, Route},
    error::ServerError,
    files::RunningListing,
    hash::Algorithm,
    host_key_rejection::HostKeyRejection,
    pipeline::{CompletedFile, DownloadedContent, Pipeline, PortOwner, SmallUpload},
    session::Session,
    session_pool::SessionPool,
    sftp_refusal::SftpRefusal,
    spool::SpoolReply,
    stat::Stat,
    transfer::{RunningTransfer, TransferResult, TransferVerb},
};

#[cfg(test)]
pub(crate) mod tests {
    use ftp::client::{FtpClient, Reply};

    /// Parses one line as a reply of a server.
    pub(crate) fn reply(line: &str) -> Reply {
        let mut client = FtpClient::default();
        client.receive(format!("{line}\r\n").as_bytes());
        let answer = client.next_reply().expect("a reply");
        answer.expect("it is whole").reply
    }
}
