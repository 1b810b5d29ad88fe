//! The record of a session, with the time of each event, and figures over many sessions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Failure, FailureKind, failure};
use bench_kit::stats;

/// One session. All times count from its beginning, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The probe's label, such as "direct".
    pub side: String,
    /// Counts from 0 in the order of arrival.
    pub number: u64,
    /// Begin, in microseconds since 1970.
    pub begun_unix_us: u64,
    /// When the control connection was open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connected_us: Option<u64>,
    /// When the server's greeting was complete.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub greeted_us: Option<u64>,
    /// In the order of sending.
    pub commands: Vec<CommandRecord>,
    /// Commands of the script, including unsent ones.
    pub commands_planned: usize,
    /// File transfers of the script.
    pub transfers_planned: usize,
    /// When the session ended.
    pub ended_us: u64,
    /// Why the session ended before the end of its script.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<Failure>,
}

/// A command with its replies and its data connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// The command without its argument.
    pub verb: String,
    /// When the kernel took the command.
    pub sent_us: u64,
    /// When the first reply was complete: the preliminary reply, for most transfers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replied_us: Option<u64>,
    /// Code of the last reply.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<u16>,
    /// Data connection of the command. `None` if it has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub data: Option<DataRecord>,
}

/// Data connection of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRecord {
    /// When the connection was open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connected_us: Option<u64>,
    /// When the first byte arrived, or the kernel had taken it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_byte_us: Option<u64>,
    /// When the connection ended after the last byte, or the kernel had taken the last byte.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_us: Option<u64>,
    /// When the final reply was complete.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub final_us: Option<u64>,
    /// Bytes that arrived, or that the kernel took.
    pub bytes: u64,
    /// Whether the connection carried a file rather than a listing.
    pub is_file: bool,
}

/// Figures over many sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// Sessions that began.
    pub sessions: usize,
    /// Sessions that reached the end of their script.
    pub sessions_complete: usize,
    /// Commands of all scripts.
    pub commands_planned: usize,
    /// Commands with the expected reply.
    pub commands_complete: usize,
    /// File transfers of all scripts.
    pub transfers_planned: usize,
    /// File transfers with the right bytes and the expected final reply.
    pub transfers_complete: usize,
    /// Failures that ended a session.
    pub failures: BTreeMap<FailureKind, usize>,
    /// Seconds from a command to its first reply, without transfer commands.
    pub response_s: Option<stats::Summary>,
    /// Seconds from a transfer command to the final reply.
    pub transfer_s: Option<stats::Summary>,
    /// Seconds of a complete session.
    pub session_s: Option<stats::Summary>,
}

impl SessionRecord {
    /// Commands with the expected reply. A failure always belongs to the last command.
    pub fn commands_complete(&self) -> usize {
        let failed = usize::from(self.failure.is_some());
        self.commands.len().saturating_sub(failed)
    }

    /// File transfers with the right bytes and the expected final reply.
    pub fn transfers_complete(&self) -> impl Iterator<Item = &CommandRecord> {
        let sound = self.commands_complete();
        let sound = self.commands[..sound].iter();
        sound.filter(|command| command.data.as_ref().is_some_and(|data| data.is_file))
    }

    /// Seconds from each command to its first reply, without transfer commands.
    pub fn response_seconds(&self) -> impl Iterator<Item = f64> {
        let plain = self
            .commands
            .iter()
            .filter(|command| command.data.is_none());
        plain.filter_map(|command| Some(seconds(command.replied_us? - command.sent_us)))
    }

    /// Seconds of each complete file transfer.
    pub fn transfer_seconds(&self) -> impl Iterator<Item = f64> {
        self.transfers_complete()
            .filter_map(CommandRecord::transfer_seconds)
    }

    /// Returns the length of the session in seconds.
    pub fn seconds(&self) -> f64 {
        seconds(self.ended_us)
    }
}

impl CommandRecord {
    /// Seconds from the transfer command to the final reply; `None` if the transfer did not
    /// complete.
    pub fn transfer_seconds(&self) -> Option<f64> {
        Some(seconds(self.data.as_ref()?.final_us? - self.sent_us))
    }
}

impl SessionSummary {
    /// Summarises sessions in any order.
    pub fn of<'a>(sessions: impl Iterator<Item = &'a SessionRecord> + Clone) -> Self {
        let sum = |of: fn(&SessionRecord) -> usize| sessions.clone().map(of).sum();
        let of = |values: Vec<f64>| stats::Summary::of(&values);
        let complete = || sessions.clone().filter(|session| session.failure.is_none());
        Self {
            sessions: sessions.clone().count(),
            sessions_complete: complete().count(),
            commands_planned: sum(|session| session.commands_planned),
            commands_complete: sum(SessionRecord::commands_complete),
            transfers_planned: sum(|session| session.transfers_planned),
            transfers_complete: sum(|session| session.transfers_complete().count()),
            failures: failure::count(sessions.clone().filter_map(|s| s.failure.as_ref())),
            response_s: of(sessions
                .clone()
                .flat_map(SessionRecord::response_seconds)
                .collect()),
            transfer_s: of(sessions
                .clone()
                .flat_map(SessionRecord::transfer_seconds)
                .collect()),
            session_s: of(complete().map(SessionRecord::seconds).collect()),
        }
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
