//! What goes wrong at a NATS server.

use std::error::Error;

use super::server::ServerError;

/// The queue cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The server cannot be reached, or refuses.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The name of a pool is part of subjects.
    #[error("{0:?} is no pool: a name has letters, digits, - and _, 64 at most")]
    Pool(String),
    /// Nobody has submitted a job to it.
    #[error("there is no pool {0}: it is made by the first job or worker")]
    NoPool(String),
    /// The server keeps no messages.
    #[error(
        "the NATS server {0} has no JetStream: start it with nats-server -js, or add jetstream {{}} to its configuration"
    )]
    NoJetStream(String),
    /// The name of a job is part of subjects.
    #[error("{0:?} is no name of a job")]
    Job(String),
    /// What is known of a job cannot be read: a newer version has written it, or somebody else.
    #[error("what is known of the job {0} cannot be read")]
    Unreadable(String),
    /// A value is longer than a message may be.
    #[error("what is known of the job is longer than a message of NATS may be")]
    TooLong,
    /// Another worker has taken the work over.
    #[error("another worker has the work")]
    Lost,
    /// The server refuses, or is away.
    #[error("cannot {what}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

impl QueueError {
    /// Wraps what the client library says.
    pub(super) fn of<E: Error + Send + Sync + 'static>(
        what: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Refused {
            what,
            source: Box::new(source),
        }
    }
}
