//! What waits in the queue: jobs, and batches of files. A message is JSON.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
};

use mover::plan::RelativePath;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};

/// A job: its source is to be listed, and its files are to be moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Names the job.
    pub job: String,
    /// What `longhaul copy` has on its command line.
    pub words: Vec<Word>,
}

/// Some files of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Names the job.
    pub job: String,
    /// What `longhaul copy` has on its command line.
    pub words: Vec<Word>,
    /// Which listing of the source has found the files. What an earlier one has found is found again by the last one.
    pub listing: u32,
    /// Counts the batches of the listing.
    pub number: u32,
    /// The files.
    pub files: Vec<BatchFile>,
}

/// A file of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchFile {
    /// Which of the job's sources.
    pub source: usize,
    /// The path below the source; empty where the source is a file.
    pub path: Word,
    /// Bytes, where the source lists them.
    pub size_bytes: Option<u64>,
    /// Time of its last change to the second, in seconds since 1970, where the source lists it so.
    pub modified_unix_s: Option<i64>,
}

/// Bytes of a command line or a path, percent-encoded where they are no printable ASCII.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Word(String);

/// A message of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Of the subject of jobs.
    Order(Order),
    /// Of the subject of batches.
    Batch(Batch),
}

/// A message cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// It is no message of ours.
    #[error("the message cannot be read")]
    Unreadable(#[from] serde_json::Error),
    /// The name of a job would be more than one word of a subject.
    #[error("the message names no job")]
    Job,
    /// A path leads out of the source.
    #[error("the message names a file outside of the source: {0:?}")]
    Path(String),
}

impl Message {
    /// Reads a message. One with files is a batch.
    ///
    /// # Errors
    /// [`MessageError`] if it is none.
    pub fn read(payload: &[u8]) -> Result<Self, MessageError> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Batch(Batch),
            Order(Order),
        }
        let message = match serde_json::from_slice(payload)? {
            Either::Batch(batch) => Self::Batch(batch),
            Either::Order(order) => Self::Order(order),
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

    /// The job that the message belongs to.
    pub fn job(&self) -> &str {
        match self {
            Self::Order(order) => &order.job,
            Self::Batch(batch) => &batch.job,
        }
    }

    /// What `longhaul copy` has on its command line.
    pub fn words(&self) -> Vec<OsString> {
        let words = match self {
            Self::Order(order) => &order.words,
            Self::Batch(batch) => &batch.words,
        };
        words.iter().map(Word::to_os).collect()
    }

    /// Tells the work from all other work.
    pub fn key(&self) -> String {
        match self {
            Self::Order(order) => format!("{}.order", order.job),
            Self::Batch(Batch {
                job,
                listing,
                number,
                ..
            }) => format!("{job}.{listing}.{number}"),
        }
    }

    /// The message as it is sent.
    pub fn write(&self) -> Vec<u8> {
        let written = match self {
            Self::Order(order) => serde_json::to_vec(order),
            Self::Batch(batch) => serde_json::to_vec(batch),
        };
        written.expect("plain texts and numbers")
    }
}

impl BatchFile {
    /// The path below the source.
    ///
    /// # Errors
    /// [`MessageError::Path`] if it leads elsewhere.
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

impl Word {
    /// Encodes bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(percent_encode(bytes, ENCODED).to_string())
    }

    /// Encodes a word of a command line.
    pub fn of(word: &OsStr) -> Self {
        Self::new(word.as_bytes())
    }

    /// The bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        percent_decode_str(&self.0).collect()
    }

    /// As it is sent.
    pub fn encoded(&self) -> &str {
        &self.0
    }

    fn to_os(&self) -> OsString {
        OsString::from_vec(self.to_bytes())
    }
}

/// Whether a text can name a job: it is a word of subjects and keys.
pub fn is_name(text: &str) -> bool {
    let is_fit = |it: u8| it.is_ascii_alphanumeric() || b"-_".contains(&it);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_fit)
}

const NAME_BYTES_MAX: usize = 64;

/// What JSON would escape anyway, and the sign of the encoding. All that is not ASCII is encoded, too.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%').add(b'"').add(b'\\');

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn batch(path: &[u8]) -> Message {
        Message::Batch(Batch {
            job: "a1".to_owned(),
            words: vec![Word::new(b"/src"), Word::new(b"ftp://h/d%20e")],
            listing: 1,
            number: 7,
            files: vec![BatchFile {
                source: 0,
                path: Word::new(path),
                size_bytes: Some(5),
                modified_unix_s: None,
            }],
        })
    }

    proptest! {
        #[test]
        fn bytes_outlive_a_message(bytes: Vec<u8>) {
            let word = Word::new(&bytes);
            prop_assert!(word.encoded().is_ascii());
            prop_assert_eq!(word.to_bytes(), bytes);
        }

        #[test]
        fn what_is_no_message_is_refused(bytes: Vec<u8>) {
            prop_assert!(Message::read(&bytes).is_err());
        }
    }

    #[test]
    fn messages_are_written_and_read() {
        let order = Message::Order(Order {
            job: "a1".to_owned(),
            words: vec![Word::new(b"caf\xe9 %")],
        });
        for (message, key) in [
            (batch(b"a/\xfc b"), "a1.1.7"),
            (batch(b""), "a1.1.7"),
            (order, "a1.order"),
        ] {
            let read = Message::read(&message.write()).expect("it is ours");
            assert_eq!(read, message);
            assert_eq!(read.key(), key);
        }
        assert_eq!(batch(b"x").words(), ["/src", "ftp://h/d%20e"]);
    }

    #[test]
    fn a_file_is_below_its_source() {
        for path in [&b"../x"[..], b"a/../../x", b"/x", b"a//b", b".", b"a\nb"] {
            let read = Message::read(&batch(path).write());
            assert!(matches!(read, Err(MessageError::Path(_))), "{read:?}");
        }
    }

    #[test]
    fn a_job_has_a_name_of_one_word() {
        for job in ["", "a.b", "*", ">", "a b", &"x".repeat(65)] {
            let order = Order {
                job: job.to_owned(),
                words: Vec::new(),
            };
            let read = Message::read(&Message::Order(order).write());
            assert!(matches!(read, Err(MessageError::Job)), "{job}: {read:?}");
        }
    }
}
