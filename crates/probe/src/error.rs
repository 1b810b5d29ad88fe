//! Errors that prevent a measurement. A failed trial is not an error, because its failure is stored
//! in a record.

use std::io;

use super::Failure;

/// Error that prevented the measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The settings are not valid. The text names the setting.
    #[error("{0}")]
    Invalid(String),
    /// A test that consists of one trial has failed. The peer cannot be reached or refuses the
    /// test.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The operating system could not provide threads, file descriptors or sockets.
    #[error("{what}")]
    System {
        /// Description of the missing resource.
        what: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
}

impl ProbeError {
    /// Returns a function for `map_err`. `what` describes the missing resource.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
