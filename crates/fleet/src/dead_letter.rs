//! Work that failed at every attempt.

use serde::{Deserialize, Serialize};

/// A dead letter: failed work and its reason. It waits until a user retries or cancels the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Name of the job. `None` if the message could not be read.
    pub job: Option<String>,
    /// Key of the work.
    pub key: Option<String>,
    /// Reason of the failure.
    pub reason: String,
    /// Name of the worker that recorded the failure.
    pub worker: String,
    /// Number of attempts.
    pub attempts: u32,
    /// Time of the failure, in seconds since 1970.
    pub given_up_unix_s: i64,
    /// The message, or its readable part.
    pub payload: String,
}

impl DeadLetter {
    /// Converts a message to text. An unreadable one is cut.
    pub fn payload(payload: &[u8], is_readable: bool) -> String {
        let text = String::from_utf8_lossy(payload);
        match is_readable {
            true => text.into_owned(),
            false => text.chars().take(UNREADABLE_CHARS_MAX).collect(),
        }
    }
}

const UNREADABLE_CHARS_MAX: usize = 1000;
