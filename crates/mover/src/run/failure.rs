//! What goes wrong with a task, at which end.

use std::io;

use crate::{job::RESUME_LEAST, plan::Failure, remedy::Remedy, server::ServerError};

/// A task failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum TaskError {
    /// At a server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A reconnection failed after an earlier log-in had succeeded.
    #[error(transparent)]
    Reconnection(ServerError),
    /// On this machine.
    #[error("{what}")]
    Disk {
        /// What was tried, and with which path.
        what: String,
        #[source]
        source: io::Error,
    },
    /// The source is not what it was when the move began.
    #[error("the source was changed while it was read")]
    Changed,
    /// The source does not begin in the midst of a file, though it has said so.
    #[error("the server does not begin in the midst of a file, so the file is fetched as one")]
    NoRanges,
    /// The source sends a file from its beginning, though it has taken an offset.
    #[error("the server sends a file from its beginning, so the file is fetched as one")]
    IgnoredRange,
    /// What an earlier attempt has left is no part of the source.
    #[error("the part at the destination is not of this file")]
    Overlap,
    /// The source is neither a file nor a directory: reading it may never end.
    #[error(
        "it is a pipe, a device or a socket, and its end is not known: longhaul copy - DST copies standard input"
    )]
    NoFile,
    /// The source is open for writing, and would be removed.
    #[error("it is open for writing")]
    Busy,
    /// Another process has the part at the destination open.
    #[error("another process writes to the part at the destination")]
    PartTaken,
    /// The source has sent more than it has said.
    #[error("the server sends more than the {0} bytes that it has listed")]
    Endless(u64),
    /// A listing cannot be relied on.
    #[error("{0}")]
    Listing(String),
    /// The destination reads back other bytes.
    #[error("the destination reads back other bytes than were sent")]
    Differs,
}

impl TaskError {
    pub(super) fn disk(what: String) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Disk { what, source }
    }

    fn remedy(&self) -> Remedy {
        match self {
            Self::Server(error) => error.remedy(),
            // The credentials are right: a server may refuse a log-in while it is full.
            Self::Reconnection(error) => match error.remedy() {
                Remedy::LogInAgain => Remedy::Reconnect,
                remedy => remedy,
            },
            Self::Disk { .. } | Self::Listing(_) | Self::Endless(_) | Self::NoFile => {
                Remedy::GiveUpFile
            }
            // What is left of a transfer is not read to its end.
            Self::Overlap | Self::Differs => Remedy::Reconnect,
            Self::Changed | Self::NoRanges | Self::IgnoredRange | Self::Busy | Self::PartTaken => {
                Remedy::Retry
            }
        }
    }

    /// Whether the name of a part may be too long.
    pub(super) fn is_of_name(&self) -> bool {
        match self {
            Self::Server(ServerError::Refused { command, reply }) => {
                matches!(*command, "STOR" | "RNFR") && !reply.is_temporary()
            }
            Self::Disk { source, .. } => source.kind() == io::ErrorKind::InvalidFilename,
            _ => false,
        }
    }

    /// Whether the name of a part of this machine is taken.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self, Self::Disk { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }

    /// Whether the connections on which it came are of further use.
    pub(super) fn keeps_connection(&self) -> bool {
        self.remedy().keeps_connection()
    }

    /// Whether nothing of what has moved is of use to another attempt.
    pub(super) fn is_anew(&self) -> bool {
        matches!(self, Self::Changed | Self::NoRanges | Self::IgnoredRange)
    }

    /// For the plan; `moved_bytes` moved before.
    pub(super) fn failure(&self, moved_bytes: u64) -> Failure {
        Failure {
            remedy: self.remedy(),
            message: match self {
                Self::Server(error) => with_hint(error),
                Self::Reconnection(error) => reconnection_message(error),
                _ => chain(self),
            },
            // What a socket has taken of a small file says nothing.
            has_moved: moved_bytes >= RESUME_LEAST.bytes()
                && matches!(self, Self::Server(_) | Self::Reconnection(_)),
            is_anew: self.is_anew(),
        }
    }
}

/// What has happened at a server, and what a person may try.
pub(super) fn with_hint(error: &ServerError) -> String {
    match error.hint() {
        Some(hint) => format!("{} ({hint})", chain(error)),
        None => chain(error),
    }
}

/// Returns what a failed reconnection reports. A log-in has worked with the same credentials, so they are in no doubt.
pub(super) fn reconnection_message(error: &ServerError) -> String {
    match error.is_of_log_in() {
        true => chain(error),
        false => with_hint(error),
    }
}

/// An error and its sources in one line.
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
    use ftp::client::{Client, Reply};

    use super::*;

    fn reply(line: &str) -> Reply {
        let mut client = Client::default();
        client.receive(format!("{line}\r\n").as_bytes());
        let answer = client.next_answer().expect("a reply");
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
        assert_eq!(full().remedy(), Remedy::LogInAgain);
        assert_eq!(TaskError::Reconnection(full()).remedy(), Remedy::Reconnect);
        for error in [
            certificate_fault(),
            ServerError::NoTls(reply("500 what?")),
            ServerError::Reply(ftp::client::ReplyError::NoCode),
        ] {
            assert_eq!(error.remedy(), Remedy::GiveUpServer, "{error}");
            let error = TaskError::Reconnection(error);
            assert_eq!(error.remedy(), Remedy::GiveUpServer, "{error}");
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
