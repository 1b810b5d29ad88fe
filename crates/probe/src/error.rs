//! Errors that prevent a measurement. A failed trial is part of a record instead.

use std::io;

use super::Failure;

/// Nothing could be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The settings make no sense; the text names the wrong one.
    #[error("{0}")]
    Invalid(String),
    /// A test with a single trial failed: the peer is unreachable, or refuses to take part.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The system has no threads, descriptors or sockets left.
    #[error("{what}")]
    System {
        /// The missing resource.
        what: String,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
}

impl ProbeError {
    /// For `map_err`: `what` is a fragment that names the missing resource.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
