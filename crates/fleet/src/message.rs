//! Messages of the queue: jobs, and batches of files. Each message is a JSON object.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
};

use mover::plan::RelativePath;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};

/// The first message of a job. The worker that receives it lists the job's source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingOrder {
    /// Name of the job.
    pub job: String,
}

/// A batch: files of one job. One worker moves all files of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Name of the job.
    pub job: String,
    /// Number of the listing that found the files. A repeated listing finds the same files again,
    /// and makes earlier batches invalid.
    pub listing: u32,
    /// Number of the batch within its listing.
    pub number: u32,
    /// The files of the batch.
    pub files: Vec<BatchFile>,
}

/// A file in a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchFile {
    /// Index of the file's source among the job's sources.
    pub source: usize,
    /// Path of the file below the source. Empty if the source itself is the file.
    pub path: EncodedBytes,
    /// Size in bytes. `None` if the source does not report the size.
    pub size_bytes: Option<u64>,
    /// Time of the last change, in seconds of Unix time. `None` if the source does not report the
    /// time with a precision of seconds.
    pub modified_unix_s: Option<i64>,
}

/// Bytes of a command line argument or a path, as text. Control characters, bytes outside of ASCII,
/// quotation marks, backslashes and percent signs are percent-encoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EncodedBytes(String);

/// A message of the queue, after it was parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A job whose source must be listed.
    Order(ListingOrder),
    /// A batch of files to move.
    Batch(Batch),
}

/// Reason why a message is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The subject belongs to no known kind of messages.
    #[error("messages of the subject {0:?} are not known")]
    Subject(String),
    /// The payload is not a valid message of this kind.
    #[error("the message cannot be read")]
    Unreadable(#[from] serde_json::Error),
    /// The name of the job is not valid as one token of a NATS subject.
    #[error("the message names no job")]
    Job,
    /// The path of a file leads out of the source, for example with `..`.
    #[error("the message names a file outside of the source: {0:?}")]
    Path(String),
}

impl Message {
    /// Decodes a message. The last token of the subject determines the kind of the message.
    ///
    /// # Errors
    /// [`MessageError`] if the message is invalid.
    pub fn read(subject: &str, payload: &[u8]) -> Result<Self, MessageError> {
        let message = match subject.rsplit('.').next() {
            Some(ORDER) => Self::Order(serde_json::from_slice(payload)?),
            Some(BATCH) => Self::Batch(serde_json::from_slice(payload)?),
            _ => return Err(MessageError::Subject(subject.to_owned())),
        };
        if !is_name(message.job()) {
            return Err(MessageError::Job);
        }
        if let Self::Batch(batch) = &message {
            for file in &batch.files {
                file.relative_path()?;
            }
        }
        Ok(message)
    }

    /// Returns the name of the job to which the message belongs.
    pub fn job(&self) -> &str {
        match self {
            Self::Order(order) => &order.job,
            Self::Batch(batch) => &batch.job,
        }
    }

    /// Returns the kind of the message: the last token of the message's subject.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Order(_) => ORDER,
            Self::Batch(_) => BATCH,
        }
    }

    /// Returns the key of this listing or batch. The key is unique in the pool.
    pub fn key(&self) -> String {
        match self {
            Self::Order(order) => format!("{}.{ORDER}", order.job),
            Self::Batch(Batch {
                job,
                listing,
                number,
                ..
            }) => format!("{job}.{listing}.{number}"),
        }
    }

    /// Encodes the message as JSON.
    pub fn write(&self) -> Vec<u8> {
        let written = match self {
            Self::Order(order) => serde_json::to_vec(order),
            Self::Batch(batch) => serde_json::to_vec(batch),
        };
        written.expect("plain texts and numbers")
    }
}

impl BatchFile {
    /// Returns the file's path below the source.
    ///
    /// # Errors
    /// [`MessageError::Path`] if the path leads out of the source.
    pub fn relative_path(&self) -> Result<RelativePath, MessageError> {
        let bytes = self.path.to_bytes();
        let mut path = RelativePath::default();
        if bytes.is_empty() {
            return Ok(path);
        }
        for name in bytes.split(|it| *it == b'/') {
            let is_name = !matches!(name, b"" | b"." | b"..")
                && !name.iter().any(|it| matches!(it, b'\r' | b'\n' | 0));
            if !is_name {
                return Err(MessageError::Path(self.path.0.clone()));
            }
            path = path.join(name);
        }
        Ok(path)
    }
}

impl EncodedBytes {
    /// Encodes bytes as text.
    pub fn new(bytes: &[u8]) -> Self {
        Self(percent_encode(bytes, ENCODED).to_string())
    }

    /// Encodes a command line argument as text.
    pub fn from_os(word: &OsStr) -> Self {
        Self::new(word.as_bytes())
    }

    /// Decodes the text to bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        percent_decode_str(&self.0).collect()
    }

    /// Returns the encoded text.
    pub fn encoded(&self) -> &str {
        &self.0
    }

    /// Decodes the text to a command line argument.
    pub fn to_os(&self) -> OsString {
        OsString::from_vec(self.to_bytes())
    }
}

/// Last tokens of subjects, one for each kind of messages.
const ORDER: &str = "order";
const BATCH: &str = "batch";

/// Whether a text is permitted as the name of a job. The name must be valid as one token of a NATS
/// subject.
pub fn is_name(text: &str) -> bool {
    let is_fit = |it: u8| it.is_ascii_alphanumeric() || b"-_".contains(&it);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_fit)
}

const NAME_BYTES_MAX: usize = 64;

/// ASCII characters that are percent-encoded: the characters that JSON escapes, and the percent
/// sign itself. All characters outside of ASCII are encoded, too.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%').add(b'"').add(b'\\');

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn batch(path: &[u8]) -> Message {
        Message::Batch(Batch {
            job: "a1".to_owned(),
            listing: 1,
            number: 7,
            files: vec![BatchFile {
                source: 0,
                path: EncodedBytes::new(path),
                size_bytes: Some(5),
                modified_unix_s: None,
            }],
        })
    }

    fn read(message: &Message) -> Result<Message, MessageError> {
        let subject = format!("job.default.x.{}", message.kind());
        Message::read(&subject, &message.write())
    }

    proptest! {
        #[test]
        fn bytes_outlive_a_message(bytes: Vec<u8>) {
            let word = EncodedBytes::new(&bytes);
            prop_assert!(word.encoded().is_ascii());
            prop_assert_eq!(word.to_bytes(), bytes);
        }

        #[test]
        fn what_is_no_message_is_refused(bytes: Vec<u8>) {
            for subject in ["job.x.a1.order", "job.x.a1.batch", "job"] {
                prop_assert!(Message::read(subject, &bytes).is_err());
            }
        }
    }

    #[test]
    fn messages_are_written_and_read() {
        let order = Message::Order(ListingOrder {
            job: "a1".to_owned(),
        });
        for (message, key) in [
            (batch(b"a/\xfc b"), "a1.1.7"),
            (batch(b""), "a1.1.7"),
            (order, "a1.order"),
        ] {
            let read = read(&message).expect("it is ours");
            assert_eq!(read, message);
            assert_eq!(read.key(), key);
        }
    }

    #[test]
    fn a_broken_batch_is_no_order() {
        let payload = br#"{"job":"a1","listing":1,"number":"x","files":[]}"#;
        let read = Message::read("job.default.a1.batch", payload);
        assert!(matches!(read, Err(MessageError::Unreadable(_))), "{read:?}");
    }

    #[test]
    fn a_file_is_below_its_source() {
        for path in [&b"../x"[..], b"a/../../x", b"/x", b"a//b", b".", b"a\nb"] {
            let read = read(&batch(path));
            assert!(matches!(read, Err(MessageError::Path(_))), "{read:?}");
        }
    }

    #[test]
    fn a_job_has_a_name_of_one_word() {
        for job in ["", "a.b", "*", ">", "a b", &"x".repeat(65)] {
            let order = ListingOrder {
                job: job.to_owned(),
            };
            let read = read(&Message::Order(order));
            assert!(matches!(read, Err(MessageError::Job)), "{job}: {read:?}");
        }
    }
}
