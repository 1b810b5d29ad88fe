//! Errors of a task, at the source or at the destination.

use std::{io, sync::OnceLock};

use nix::{
    libc::EACCES,
    unistd::{User, geteuid},
};

use crate::{job::RESUME_LEAST, plan::TaskFailure, retry_action::RetryAction, server::ServerError};

/// Error of a task.
#[derive(Debug, thiserror::Error)]
pub(super) enum TaskError {
    /// A server has refused a command or has failed.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Reconnecting to a server failed after an earlier log-in had succeeded.
    #[error(transparent)]
    Reconnection(ServerError),
    /// An operation on the local disk was refused or has failed.
    #[error("{what}")]
    Disk {
        /// The attempted operation, with its path.
        what: String,
        #[source]
        source: io::Error,
    },
    /// The source has changed since the transfer began.
    #[error("the source was changed while it was read")]
    Changed,
    /// The server announced support for offsets, but refuses to start in the middle of a file.
    #[error("the server does not start in the middle of a file, so the file is fetched as one")]
    NoRanges,
    /// The server accepted an offset, but sends the file from its beginning.
    #[error("the server sends a file from its beginning, so the file is fetched as one")]
    IgnoredRange,
    /// The part file that an earlier attempt left does not match the source.
    #[error("the part at the destination is not of this file")]
    Overlap,
    /// The source is neither a file nor a directory, so reading from it might never end.
    #[error(
        "it is a pipe, a device or a socket, and its end is not known: longhaul copy - DST copies standard input"
    )]
    NoFile,
    /// The source file is open for writing. Removing it would lose the bytes that are written
    /// later.
    #[error("it is open for writing")]
    Busy,
    /// Another process has opened the part file at the destination for writing.
    #[error("another process writes to the part at the destination")]
    PartTaken,
    /// The source has sent more bytes than its listing stated.
    #[error("the server sends more than the {0} bytes that it has listed")]
    Endless(u64),
    /// A listing is incomplete or unusable.
    #[error("{0}")]
    Listing(String),
    /// The bytes read back from the destination differ from the bytes that were sent.
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
            // The credentials are right, since an earlier log-in has succeeded. A server that has
            // reached its limit on clients may refuse a log-in.
            Self::Reconnection(error) => match error.retry_action() {
                RetryAction::LogInAgain => RetryAction::Reconnect,
                retry_action => retry_action,
            },
            Self::Disk { .. } | Self::Listing(_) | Self::Endless(_) | Self::NoFile => {
                RetryAction::GiveUpFile
            }
            // The remaining bytes of the transfer were not read, so the connection cannot be used
            // again.
            Self::Overlap | Self::Differs => RetryAction::Reconnect,
            Self::Changed | Self::NoRanges | Self::IgnoredRange | Self::Busy | Self::PartTaken => {
                RetryAction::Retry
            }
        }
    }

    /// Returns whether the error may have occurred because the name of a part file is too long.
    pub(super) fn is_of_name(&self) -> bool {
        match self {
            Self::Server(ServerError::Refused { command, reply }) => {
                matches!(*command, "STOR" | "RNFR") && !reply.is_temporary()
            }
            Self::Disk { source, .. } => source.kind() == io::ErrorKind::InvalidFilename,
            _ => false,
        }
    }

    /// Returns whether a server has refused a request. The connection is still usable.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Server(error) if error.is_refusal())
    }

    /// Returns whether the source has changed during its copy.
    pub(super) fn is_changed(&self) -> bool {
        matches!(self, Self::Changed)
    }

    /// Returns whether the name of a local part file is already in use.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self, Self::Disk { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }

    /// Returns whether the connections are still usable after the error.
    pub(super) fn keeps_connection(&self) -> bool {
        self.retry_action().keeps_connection()
    }

    /// Returns whether the next attempt must start again, because none of the moved bytes can be
    /// used.
    pub(super) fn is_anew(&self) -> bool {
        matches!(self, Self::Changed | Self::NoRanges | Self::IgnoredRange)
    }

    /// Converts the error for the plan. `moved_bytes` is the number of bytes moved before the
    /// error.
    pub(super) fn failure(&self, moved_bytes: u64) -> TaskFailure {
        TaskFailure {
            retry_action: self.retry_action(),
            message: match self {
                Self::Server(error) => with_hint(error),
                Self::Reconnection(error) => reconnection_message(error),
                Self::Disk { source, .. } if source.raw_os_error() == Some(EACCES) => {
                    format!("{} (this process runs as user {})", chain(self), own_user())
                }
                _ => chain(self),
            },
            // The bytes of a small file may only have reached a socket's buffer, so they do not
            // count as progress.
            has_moved: moved_bytes >= RESUME_LEAST.bytes()
                && matches!(self, Self::Server(_) | Self::Reconnection(_)),
            is_anew: self.is_anew(),
        }
    }
}

/// Returns the name of the user of this process, or the user's number if the user has no name.
fn own_user() -> &'static str {
    // The name is stored, because a job may report many files that it has no permission to read.
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let uid = geteuid();
        let user = User::from_uid(uid).ok().flatten();
        user.map_or_else(|| uid.to_string(), |it| it.name)
    })
}

/// Returns the text of a server's error. The text includes a hint for the user if the error has a
/// hint.
pub(super) fn with_hint(error: &ServerError) -> String {
    match error.hint() {
        Some(hint) => format!("{} ({hint})", chain(error)),
        None => chain(error),
    }
}

/// Returns the message of a failed reconnection. The message contains no hint about credentials,
/// because an earlier log-in with the same credentials has succeeded.
pub(super) fn reconnection_message(error: &ServerError) -> String {
    match error.is_of_log_in() {
        true => chain(error),
        false => with_hint(error),
    }
}

/// Returns the text of an error and of its sources on one line.
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
    use net::tls::CertificateRejection;
    use nix::errno::Errno;

    use super::*;
    use crate::server::tests::reply;

    fn certificate_fault() -> ServerError {
        ServerError::Tls {
            host: "server".to_owned(),
            is_of_gateway: false,
            source: io::ErrorKind::InvalidData.into(),
        }
    }

    #[test]
    fn a_certificate_for_another_name_names_the_place_of_the_name() {
        let hint = |is_of_gateway| {
            let rejection = CertificateRejection::Name {
                presented: "ftp.example.com".to_owned(),
                has_names: true,
                expected: "site-a".to_owned(),
            };
            with_hint(&ServerError::Tls {
                host: "site-a".to_owned(),
                is_of_gateway,
                source: io::Error::new(io::ErrorKind::InvalidData, rejection),
            })
        };
        let gateway = hint(true);
        let words = "it is for ftp.example.com, not for site-a (write a name of the certificate into --gateway; ";
        assert!(gateway.contains(words), "{gateway}");
        assert!(hint(false).contains("into the URL; "), "{}", hint(false));
        let other = with_hint(&certificate_fault());
        assert!(
            other.ends_with("(--tls-pin accepts one certificate, --tls-insecure any)"),
            "{other}"
        );
    }

    #[test]
    fn a_missing_permission_names_the_user_of_the_process() {
        let message = |errno| {
            let denied = io::Error::from(errno);
            let failed = TaskError::disk("reading /srv/f2".to_owned())(denied);
            failed.failure(0).message
        };
        let user = User::from_uid(geteuid()).ok().flatten();
        let user = user.map_or_else(|| geteuid().to_string(), |it| it.name);
        assert_eq!(
            message(Errno::EACCES),
            format!(
                "reading /srv/f2: Permission denied (os error 13) (this process runs as user {user})"
            )
        );
        assert_eq!(
            message(Errno::EIO),
            "reading /srv/f2: Input/output error (os error 5)"
        );
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
