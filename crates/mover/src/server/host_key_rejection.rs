//! Reasons why the host key of an SSH server is not trusted.

use std::{io, path::PathBuf};

/// Reason why the host key of an SSH server is not trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostKeyRejection {
    /// No file of known hosts has a key of the server.
    #[error(
        "the host key of {server} is not known: {} has no entry for it. The server presents {fingerprint} \
         ({algorithm}). If this is right, run ssh to the server once, which adds the key, or give --host-key",
        file.display()
    )]
    Unknown {
        /// Server, as the files name it.
        server: String,
        /// Fingerprint of the key that the server presents.
        fingerprint: String,
        /// Kind of the key.
        algorithm: String,
        /// The user's file of known hosts.
        file: PathBuf,
    },
    /// A file of known hosts has other keys of the server.
    #[error(
        "the host key of {server} has changed to {fingerprint} ({algorithm}): line {line} of {} has another key. \
         Someone may intercept the connection. Ask the administrator of the server. If the key is right, remove \
         the line: ssh-keygen -R {server:?} -f {file:?}",
        file.display()
    )]
    Changed {
        /// Server, as the files name it.
        server: String,
        /// Fingerprint of the key that the server presents.
        fingerprint: String,
        /// Kind of the key.
        algorithm: String,
        /// File with the other key.
        file: PathBuf,
        /// Number of the line, counted from 1.
        line: usize,
    },
    /// A file of known hosts revokes the key.
    #[error("the host key of {server} ({fingerprint}) is revoked by line {line} of {}", file.display())]
    Revoked {
        /// Server, as the files name it.
        server: String,
        /// Fingerprint of the key that the server presents.
        fingerprint: String,
        /// File that revokes the key.
        file: PathBuf,
        /// Number of the line, counted from 1.
        line: usize,
    },
    /// The presented key differs from the pinned key.
    #[error("the host key of {server} is {fingerprint}, and only {pinned} is permitted")]
    NotPinned {
        /// The server.
        server: String,
        /// Fingerprint of the key that the server presents.
        fingerprint: String,
        /// The permitted fingerprint.
        pinned: String,
    },
    /// A file of known hosts cannot be read or written.
    #[error("the host key of {server} cannot be checked: {} cannot be used", file.display())]
    File {
        /// The server.
        server: String,
        /// The file.
        file: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The host is not a valid host name or address.
    #[error("{0:?} is no host name or address")]
    Name(String),
}
