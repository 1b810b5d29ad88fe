//! Why nothing could be measured; what was tried and failed is in the records.

use std::io;

use super::Failure;

/// A measurement could not be made at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The settings make no sense; the text says which.
    #[error("{0}")]
    Invalid(String),
    /// A test of a single thing could not be made: the peer has no part in it, or cannot be reached.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The system gives no threads, descriptors or sockets.
    #[error("{what}")]
    System {
        /// What was wanted.
        what: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

impl ProbeError {
    /// For `map_err`: what was wanted, as a fragment.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
