//! Errors of the queue at a NATS server.

use std::error::Error;

use super::server::NatsError;

/// Reason why an operation on the queue failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The server cannot be reached, or refuses the connection.
    #[error(transparent)]
    Server(#[from] NatsError),
    /// The name of the pool is not valid as one token of a NATS subject.
    #[error("{0:?} is no pool: a name has letters, digits, - and _, 64 at most")]
    Pool(String),
    /// The pool does not exist. The first submitted job or the first worker creates the pool.
    #[error("there is no pool {0}: it is made by the first job or worker")]
    NoPool(String),
    /// JetStream is disabled at the server.
    #[error(
        "the NATS server {0} has no JetStream: start it with nats-server -js, or add jetstream {{}} to its configuration"
    )]
    NoJetStream(String),
    /// The name of the job is not valid as one token of a NATS subject.
    #[error("{0:?} is no name of a job")]
    Job(String),
    /// The record of a job is unreadable. A newer version or another program has written it.
    #[error("the record of the job {0} cannot be read")]
    Unreadable(String),
    /// A value exceeds the maximum length of a NATS message.
    #[error("the record of the job is longer than a NATS message may be")]
    TooLong,
    /// Another worker has claimed the same batch or listing.
    #[error("another worker has the work")]
    Lost,
    /// The server refuses a request, or cannot be reached.
    #[error("cannot {what}")]
    Refused {
        /// The failed request, as the end of the sentence "cannot ...".
        what: &'static str,
        /// The error of the client library.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

impl QueueError {
    /// Returns a function that converts an error of the client library to [`QueueError::Refused`].
    pub(super) fn refused<E: Error + Send + Sync + 'static>(
        what: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Refused {
            what,
            source: Box::new(source),
        }
    }
}
