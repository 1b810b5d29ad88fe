//! Work that nobody could do.

use serde::{Deserialize, Serialize};

/// What was given up, and why. It waits until somebody has it tried again, or cancels the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// The job; `None` where the message could not be read.
    pub job: Option<String>,
    /// Tells the work from all other work.
    pub key: Option<String>,
    /// Why it was given up.
    pub reason: String,
    /// Who gave it up.
    pub worker: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was given up, in seconds since 1970.
    pub given_up_unix_s: i64,
    /// The message, or what can be shown of it.
    pub payload: String,
}

impl Letter {
    /// A message as text. What cannot be read is cut.
    pub fn payload(payload: &[u8], is_readable: bool) -> String {
        let text = String::from_utf8_lossy(payload);
        match is_readable {
            true => text.into_owned(),
            false => text.chars().take(UNREADABLE_CHARS_MAX).collect(),
        }
    }
}

const UNREADABLE_CHARS_MAX: usize = 1000;
