//! A key-value table in a JetStream stream. Each subject of the stream stores one message, the
//! value of a key. A write succeeds only if the value still has the revision that the writer has
//! read.
//!
//! The key-value buckets of NATS are not used, because they cannot delete values without a marker
//! for each deleted key. Markers that expire need NATS 2.11. The measurements are in
//! ARCHITECTURE.md, section Dependencies.

use std::time::Duration;

use async_nats::jetstream::{
    consumer::{AckPolicy, pull},
    context::{Context, PublishErrorKind},
    message::PublishMessage,
    stream::{self, LastRawMessageErrorKind, Stream},
};
use futures_util::StreamExt as _;
use serde::{Serialize, de::DeserializeOwned};

use super::QueueError;

/// A table of values, each stored under a key.
#[derive(Debug, Clone)]
pub(super) struct ValueTable {
    context: Context,
    stream: Stream,
    /// Subject prefix of all keys. It ends with a dot.
    prefix: String,
}

/// A stored value with its revision.
#[derive(Debug)]
pub(super) struct ValueEntry<T> {
    /// The value. `None` if it is unreadable.
    pub(super) value: Option<T>,
    pub(super) revision: u64,
}

/// Outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// The value is stored with this new revision.
    Stored(u64),
    /// Another process has changed the value since it was read.
    Conflict,
}

impl ValueTable {
    /// Creates a table. The subject of each key starts with `subject`.
    pub(super) fn new(context: &Context, stream: Stream, subject: &str) -> Self {
        Self {
            context: context.clone(),
            stream,
            prefix: format!("{subject}."),
        }
    }

    /// Returns the value of a key. Returns `None` if the key has no value.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        key: &str,
    ) -> Result<Option<ValueEntry<T>>, QueueError> {
        let subject = format!("{}{key}", self.prefix);
        match self.stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => Ok(Some(parse_entry(&message.payload, message.sequence))),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(QueueError::refused("read a value")(error)),
        }
    }

    /// Writes the value of a key if its present revision is `before`. The revision 0 means that the
    /// key has no value yet.
    pub(super) async fn put<T: Serialize>(
        &self,
        key: &str,
        value: &T,
        before: u64,
    ) -> Result<WriteOutcome, QueueError> {
        let payload = serialize(value)?;
        let message = PublishMessage::build()
            .payload(payload.into())
            .expected_last_subject_sequence(before);
        let subject = format!("{}{key}", self.prefix);
        let what = "write a value";
        let sent = self.context.send_publish(subject, message).await;
        match sent.map_err(QueueError::refused(what))?.await {
            Ok(ack) => Ok(WriteOutcome::Stored(ack.sequence)),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
                Ok(WriteOutcome::Conflict)
            }
            Err(error) => Err(QueueError::refused(what)(error)),
        }
    }

    /// Writes the value of a key, regardless of its present revision.
    pub(super) async fn set<T: Serialize>(&self, key: &str, value: &T) -> Result<(), QueueError> {
        let payload = serialize(value)?;
        let subject = format!("{}{key}", self.prefix);
        let what = "write a value";
        let sent = self.context.publish(subject, payload.into()).await;
        let sent = sent.map_err(QueueError::refused(what))?.await;
        sent.map_err(QueueError::refused(what))?;
        Ok(())
    }

    /// Deletes the value with this revision. Returns false if the value no longer exists, or if a
    /// newer value has replaced it.
    pub(super) async fn delete(&self, revision: u64) -> Result<bool, QueueError> {
        match self.stream.delete_message(revision).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), stream::DeleteMessageErrorKind::JetStream(_)) => {
                Ok(false)
            }
            Err(error) => Err(QueueError::refused("take a value away")(error)),
        }
    }

    /// Returns all values with their keys. If `below` is given, returns only values whose key
    /// starts with `below` and a dot.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        below: Option<&str>,
    ) -> Result<Vec<(String, ValueEntry<T>)>, QueueError> {
        let filter = match below {
            Some(key) => format!("{}{key}.>", self.prefix),
            None => format!("{}>", self.prefix),
        };
        let found = list(&self.stream, filter).await?;
        let entries = found.into_iter();
        let entries = entries.map(|(subject, entry)| {
            let key = subject.strip_prefix(&self.prefix).unwrap_or(&subject);
            (key.to_owned(), entry)
        });
        Ok(entries.collect())
    }
}

/// Returns the values of a stream with their subjects, the oldest first. Omits subjects that do not
/// match the filter.
async fn list<T: DeserializeOwned>(
    stream: &Stream,
    filter: String,
) -> Result<Vec<(String, ValueEntry<T>)>, QueueError> {
    let what = QueueError::refused("list the values");
    let consumer = stream.create_consumer(pull::Config {
        filter_subject: filter,
        ack_policy: AckPolicy::None,
        ..pull::Config::default()
    });
    let mut consumer = consumer.await.map_err(what)?;
    let mut left = consumer.cached_info().num_pending;
    let mut entries = Vec::new();
    while left > 0 {
        // The request has a time limit. Without this limit, the wait would never end if the answer
        // were lost.
        let step = consumer.batch().expires(LIST_TIMEOUT);
        let batch = step.max_messages(left.min(LIST_STEP) as usize).messages();
        let mut batch = batch
            .await
            .map_err(QueueError::refused("list the values"))?;
        let mut count = 0;
        while let Some(message) = batch.next().await {
            let refused = |source| QueueError::Refused {
                what: "list the values",
                source,
            };
            let message = message.map_err(refused)?;
            count += 1;
            let sequence = message.info().map_err(refused)?.stream_sequence;
            let entry = parse_entry(&message.payload, sequence);
            entries.push((message.subject.to_string(), entry));
        }
        left = left.saturating_sub(count);
        if count == 0 {
            // Another process may have removed the remaining messages, or the server is slow.
            let info = consumer.info().await;
            left = info
                .map_err(QueueError::refused("list the values"))?
                .num_pending;
        }
    }
    // If the consumer cannot be removed here, the server removes it after a while.
    let _ = stream.delete_consumer(&consumer.cached_info().name).await;
    Ok(entries)
}

fn serialize<T: Serialize>(value: &T) -> Result<Vec<u8>, QueueError> {
    let payload = serde_json::to_vec(value).expect("plain texts and numbers");
    match payload.len() <= VALUE_BYTES_MAX {
        true => Ok(payload),
        false => Err(QueueError::TooLong),
    }
}

fn parse_entry<T: DeserializeOwned>(payload: &[u8], revision: u64) -> ValueEntry<T> {
    ValueEntry {
        value: serde_json::from_slice(payload).ok(),
        revision,
    }
}

/// Maximum length of a value in bytes. The default limit of NATS for a message is 1 MiB.
const VALUE_BYTES_MAX: usize = 1_000_000;

const LIST_STEP: u64 = 500;

const LIST_TIMEOUT: Duration = Duration::from_secs(2);
