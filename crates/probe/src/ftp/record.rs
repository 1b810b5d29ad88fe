//! Record of a session with the time of each event, and statistics of many sessions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Failure, FailureKind, failure};
use bench_kit::stats;

/// Record of one session. All times are in microseconds from the beginning of the session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Label of the probe, such as "direct".
    pub side: String,
    /// Number of the session in the order of arrival, counted from 0.
    pub number: u64,
    /// Time at which the session began, in microseconds since 1970.
    pub begun_unix_us: u64,
    /// Time at which the control connection was open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connected_us: Option<u64>,
    /// Time at which the server's greeting was complete.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub greeted_us: Option<u64>,
    /// Records of the commands, in the order of sending.
    pub commands: Vec<CommandRecord>,
    /// Number of commands in the script, including commands that were not sent.
    pub commands_planned: usize,
    /// Number of file transfers in the script.
    pub transfers_planned: usize,
    /// Time at which the session ended.
    pub ended_us: u64,
    /// Failure that ended the session before the end of its script.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<Failure>,
}

/// Record of a command with its replies and its data connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// The command without its argument.
    pub verb: String,
    /// Time at which the kernel accepted the command.
    pub sent_us: u64,
    /// Time at which the first reply was complete. For most transfers this is the preliminary
    /// reply.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replied_us: Option<u64>,
    /// Code of the last reply.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<u16>,
    /// Record of the command's data connection. `None` if the command has no data connection.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub data: Option<DataRecord>,
}

/// Record of a command's data connection. All times are in microseconds from the beginning of the
/// session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRecord {
    /// Time at which the data connection was open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connected_us: Option<u64>,
    /// Time at which the first byte arrived. For an upload, the time at which the kernel accepted
    /// the first byte.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_byte_us: Option<u64>,
    /// Time at which the data connection ended after the last byte. For an upload, time at which
    /// the kernel accepted the last byte.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_us: Option<u64>,
    /// Time at which the final reply was complete.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub final_us: Option<u64>,
    /// Number of bytes that arrived. For an upload, the number of bytes that the kernel accepted.
    pub bytes: u64,
    /// Whether the data connection carried a file. If false, it carried a listing.
    pub is_file: bool,
}

/// Statistics of many sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// Number of sessions that began.
    pub sessions: usize,
    /// Number of sessions that reached the end of their script.
    pub sessions_complete: usize,
    /// Number of commands in all scripts.
    pub commands_planned: usize,
    /// Number of commands with the expected reply.
    pub commands_complete: usize,
    /// Number of file transfers in all scripts.
    pub transfers_planned: usize,
    /// Number of file transfers with the right bytes and the expected final reply.
    pub transfers_complete: usize,
    /// Number of failures that ended a session, by kind.
    pub failures: BTreeMap<FailureKind, usize>,
    /// Statistics of the time from a command to its first reply, in seconds. Transfer commands are
    /// not included.
    pub response_s: Option<stats::Summary>,
    /// Statistics of the time from a transfer command to its final reply, in seconds.
    pub transfer_s: Option<stats::Summary>,
    /// Statistics of the duration of complete sessions, in seconds.
    pub session_s: Option<stats::Summary>,
}

impl SessionRecord {
    /// Returns the number of commands with the expected reply. If the session failed, its last
    /// command does not count.
    pub fn commands_complete(&self) -> usize {
        let failed = usize::from(self.failure.is_some());
        self.commands.len().saturating_sub(failed)
    }

    /// Returns the file transfers with the right bytes and the expected final reply.
    pub fn transfers_complete(&self) -> impl Iterator<Item = &CommandRecord> {
        let sound = self.commands_complete();
        let sound = self.commands[..sound].iter();
        sound.filter(|command| command.data.as_ref().is_some_and(|data| data.is_file))
    }

    /// Returns the time from each command to its first reply, in seconds. Transfer commands are not
    /// included.
    pub fn response_seconds(&self) -> impl Iterator<Item = f64> {
        let plain = self
            .commands
            .iter()
            .filter(|command| command.data.is_none());
        plain.filter_map(|command| Some(seconds(command.replied_us? - command.sent_us)))
    }

    /// Returns the duration of each complete file transfer, in seconds.
    pub fn transfer_seconds(&self) -> impl Iterator<Item = f64> {
        self.transfers_complete()
            .filter_map(CommandRecord::transfer_seconds)
    }

    /// Returns the duration of the session in seconds.
    pub fn seconds(&self) -> f64 {
        seconds(self.ended_us)
    }
}

impl CommandRecord {
    /// Returns the time from the transfer command to the final reply, in seconds. Returns `None` if
    /// the transfer is not complete.
    pub fn transfer_seconds(&self) -> Option<f64> {
        Some(seconds(self.data.as_ref()?.final_us? - self.sent_us))
    }
}

impl SessionSummary {
    /// Computes the statistics of sessions, which may be in any order.
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
