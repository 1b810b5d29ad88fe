//! Dead letters: batches and listings that failed at every attempt.

use serde::{Deserialize, Serialize};

/// A dead letter: a failed batch or listing with the reason. It is stored until a user retries or
/// cancels the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Name of the job. `None` if the message is unreadable.
    pub job: Option<String>,
    /// Key of the batch or listing. `None` if the message is unreadable.
    pub key: Option<String>,
    /// Reason why the work failed.
    pub reason: String,
    /// Name of the worker that recorded the failure.
    pub worker: String,
    /// Number of attempts.
    pub attempts: u32,
    /// Time of the failure, in seconds of Unix time.
    pub given_up_unix_s: i64,
    /// The text of the message. If the message is unreadable, only its first characters.
    pub payload: String,
}

impl DeadLetter {
    /// Converts a message to text. The text of an unreadable message is truncated.
    pub fn payload(payload: &[u8], is_readable: bool) -> String {
        let text = String::from_utf8_lossy(payload);
        match is_readable {
            true => text.into_owned(),
            false => text.chars().take(UNREADABLE_CHARS_MAX).collect(),
        }
    }
}

const UNREADABLE_CHARS_MAX: usize = 1000;
