//! Errors of a task, at either end.

use std::io;

use crate::{job::RESUME_LEAST, plan::TaskFailure, retry_action::RetryAction, server::ServerError};

/// Error of a task.
#[derive(Debug, thiserror::Error)]
pub(super) enum TaskError {
    /// A server has failed or refused.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A reconnection failed after an earlier log-in had succeeded.
    #[error(transparent)]
    Reconnection(ServerError),
    /// This machine's disk has failed or refused.
    #[error("{what}")]
    Disk {
        /// The attempted operation, with its path.
        what: String,
        #[source]
        source: io::Error,
    },
    /// The source has changed since the move began.
    #[error("the source was changed while it was read")]
    Changed,
    /// The server announced support for offsets, but does not begin within a file.
    #[error("the server does not start in the middle of a file, so the file is fetched as one")]
    NoRanges,
    /// The server accepted an offset, but sends the file from its beginning.
    #[error("the server sends a file from its beginning, so the file is fetched as one")]
    IgnoredRange,
    /// The remains of an earlier attempt do not belong to the source.
    #[error("the part at the destination is not of this file")]
    Overlap,
    /// The source is neither a file nor a directory, so reading it may never end.
    #[error(
        "it is a pipe, a device or a socket, and its end is not known: longhaul copy - DST copies standard input"
    )]
    NoFile,
    /// The source is open for writing, and its removal would lose bytes.
    #[error("it is open for writing")]
    Busy,
    /// Another process has the part at the destination open.
    #[error("another process writes to the part at the destination")]
    PartTaken,
    /// The source has sent more bytes than it announced.
    #[error("the server sends more than the {0} bytes that it has listed")]
    Endless(u64),
    /// A listing cannot be relied on.
    #[error("{0}")]
    Listing(String),
    /// The destination returns other bytes than were sent.
    #[error("the destination reads back other bytes than were sent")]
    Differs,
}

impl TaskError {
    pub(super) fn disk(what: String) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Disk { what, source }
    }

    fn retry_action(&self) -> RetryAction {
        match self {
            Self::Server(error) => error.retry_action(),
            // The credentials are right, since a full server may refuse a log-in.
            Self::Reconnection(error) => match error.retry_action() {
                RetryAction::LogInAgain => RetryAction::Reconnect,
                retry_action => retry_action,
            },
            Self::Disk { .. } | Self::Listing(_) | Self::Endless(_) | Self::NoFile => {
                RetryAction::GiveUpFile
            }
            // The rest of the transfer is not read, so the connection cannot be used again.
            Self::Overlap | Self::Differs => RetryAction::Reconnect,
            Self::Changed | Self::NoRanges | Self::IgnoredRange | Self::Busy | Self::PartTaken => {
                RetryAction::Retry
            }
        }
    }

    /// Whether the cause may be that the name of a part is too long.
    pub(super) fn is_of_name(&self) -> bool {
        match self {
            Self::Server(ServerError::Refused { command, reply }) => {
                matches!(*command, "STOR" | "RNFR") && !reply.is_temporary()
            }
            Self::Disk { source, .. } => source.kind() == io::ErrorKind::InvalidFilename,
            _ => false,
        }
    }

    /// Whether the name of a part of this machine is in use.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self, Self::Disk { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }

    /// Whether the connections are still usable after the error.
    pub(super) fn keeps_connection(&self) -> bool {
        self.retry_action().keeps_connection()
    }

    /// Whether another attempt cannot use any of the moved bytes.
    pub(super) fn is_anew(&self) -> bool {
        matches!(self, Self::Changed | Self::NoRanges | Self::IgnoredRange)
    }

    /// Converts the error for the plan. `moved_bytes` moved before it.
    pub(super) fn failure(&self, moved_bytes: u64) -> TaskFailure {
        TaskFailure {
            retry_action: self.retry_action(),
            message: match self {
                Self::Server(error) => with_hint(error),
                Self::Reconnection(error) => reconnection_message(error),
                _ => chain(self),
            },
            // Bytes of a small file in a socket's buffer are no progress.
            has_moved: moved_bytes >= RESUME_LEAST.bytes()
                && matches!(self, Self::Server(_) | Self::Reconnection(_)),
            is_anew: self.is_anew(),
        }
    }
}

/// Returns the error of a server, and a hint for the user.
pub(super) fn with_hint(error: &ServerError) -> String {
    match error.hint() {
        Some(hint) => format!("{} ({hint})", chain(error)),
        None => chain(error),
    }
}

/// Returns the message of a failed reconnection. A log-in has succeeded with the same credentials,
/// so it contains no hint about them.
pub(super) fn reconnection_message(error: &ServerError) -> String {
    match error.is_of_log_in() {
        true => chain(error),
        false => with_hint(error),
    }
}

/// Returns an error and its sources in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use ftp::client::{FtpClient, Reply};

    use super::*;

    fn reply(line: &str) -> Reply {
        let mut client = FtpClient::default();
        client.receive(format!("{line}\r\n").as_bytes());
        let answer = client.next_reply().expect("a reply");
        answer.expect("it is whole").reply
    }

    fn certificate_fault() -> ServerError {
        ServerError::Tls {
            host: "server".to_owned(),
            source: io::ErrorKind::InvalidData.into(),
        }
    }

    #[test]
    fn a_reconnection_is_repeated_after_a_refused_log_in_alone() {
        let full = || ServerError::LogIn(reply("530 too many clients"));
        assert_eq!(full().retry_action(), RetryAction::LogInAgain);
        assert_eq!(
            TaskError::Reconnection(full()).retry_action(),
            RetryAction::Reconnect
        );
        for error in [
            certificate_fault(),
            ServerError::NoTls(reply("500 what?")),
            ServerError::Reply(ftp::client::ReplyError::NoCode),
        ] {
            assert_eq!(error.retry_action(), RetryAction::GiveUpServer, "{error}");
            let error = TaskError::Reconnection(error);
            assert_eq!(error.retry_action(), RetryAction::GiveUpServer, "{error}");
        }
    }

    #[test]
    fn a_refused_reconnection_does_not_question_the_credentials() {
        let refused = || ServerError::LogIn(reply("530 too many clients"));
        assert!(with_hint(&refused()).contains("password"));
        let message = TaskError::Reconnection(refused()).failure(0).message;
        assert!(message.ends_with("530 too many clients"), "{message}");
        let message = TaskError::Reconnection(certificate_fault())
            .failure(0)
            .message;
        assert!(message.contains("--tls-pin"), "{message}");
    }
}
