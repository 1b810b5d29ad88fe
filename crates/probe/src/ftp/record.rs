//! What became of a session, with the time of each event.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Failure, FailureKind, failure};
use bench_kit::stats;

/// One session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The probe's label, such as "direct".
    pub side: String,
    /// From 0, in the order of arrival.
    pub number: u64,
    /// When it began, microseconds since 1970. All other times count from here.
    pub begun_unix_us: u64,
    /// When the control connection was up.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connected_us: Option<u64>,
    /// When the server's greeting had come.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub greeted_us: Option<u64>,
    /// In the order of sending.
    pub commands: Vec<Exchange>,
    /// Commands of the script, those that were never sent included.
    pub commands_planned: usize,
    /// Transfers of files in the script.
    pub transfers_planned: usize,
    /// When it was over.
    pub ended_us: u64,
    /// What ended it before its script was at the end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<Failure>,
}

/// A command and what followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// Without its argument.
    pub verb: String,
    /// When it was given to the kernel.
    pub sent_us: u64,
    /// When the first reply was complete; of a transfer, usually the preliminary one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replied_us: Option<u64>,
    /// The code of the last reply.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<u16>,
    /// The data connection, if it has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub data: Option<Data>,
}

/// A data connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Data {
    /// When it was up.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connected_us: Option<u64>,
    /// When the first byte came, or was taken by the kernel.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_byte_us: Option<u64>,
    /// When the last byte had come and the connection ended, or the kernel had taken the last byte.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_us: Option<u64>,
    /// When the final reply was complete.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub final_us: Option<u64>,
    /// Bytes that came, or that the kernel took.
    pub bytes: u64,
    /// Whether it carried a file, and not a listing.
    pub is_file: bool,
}

/// What many sessions say together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Sessions that were begun.
    pub sessions: usize,
    /// Of them, those that came to the end of their script.
    pub sessions_complete: usize,
    /// Commands of all scripts.
    pub commands_planned: usize,
    /// Of them, those that had the reply that they must have.
    pub commands_complete: usize,
    /// Transfers of files of all scripts.
    pub transfers_planned: usize,
    /// Of them, those whose bytes and final reply were right.
    pub transfers_complete: usize,
    /// What ended sessions early.
    pub failures: BTreeMap<FailureKind, usize>,
    /// Seconds from a command to its first reply, without those that move data.
    pub response_s: Option<stats::Summary>,
    /// Seconds of a transfer, from its command until the final reply.
    pub transfer_s: Option<stats::Summary>,
    /// Seconds of a session that was complete.
    pub session_s: Option<stats::Summary>,
}

impl Session {
    /// Commands that had the reply that they must have: a failure is always of the last one.
    pub fn commands_complete(&self) -> usize {
        let failed = usize::from(self.failure.is_some());
        self.commands.len().saturating_sub(failed)
    }

    /// Transfers of files that were complete, and right.
    pub fn transfers_complete(&self) -> impl Iterator<Item = &Exchange> {
        let sound = self.commands_complete();
        let sound = self.commands[..sound].iter();
        sound.filter(|command| command.data.as_ref().is_some_and(|data| data.is_file))
    }

    /// Seconds from each command to its first reply, without those that move data.
    pub fn response_seconds(&self) -> impl Iterator<Item = f64> {
        let plain = self
            .commands
            .iter()
            .filter(|command| command.data.is_none());
        plain.filter_map(|command| Some(seconds(command.replied_us? - command.sent_us)))
    }

    /// Seconds of each complete transfer of a file.
    pub fn transfer_seconds(&self) -> impl Iterator<Item = f64> {
        self.transfers_complete()
            .filter_map(Exchange::transfer_seconds)
    }

    /// Seconds from beginning to end.
    pub fn seconds(&self) -> f64 {
        seconds(self.ended_us)
    }
}

impl Exchange {
    /// Seconds from the command until the final reply after its data.
    pub fn transfer_seconds(&self) -> Option<f64> {
        Some(seconds(self.data.as_ref()?.final_us? - self.sent_us))
    }
}

impl Summary {
    /// Of sessions, in any order.
    pub fn of<'a>(sessions: impl Iterator<Item = &'a Session> + Clone) -> Self {
        let sum = |of: fn(&Session) -> usize| sessions.clone().map(of).sum();
        let of = |values: Vec<f64>| stats::Summary::of(&values);
        let complete = || sessions.clone().filter(|session| session.failure.is_none());
        Self {
            sessions: sessions.clone().count(),
            sessions_complete: complete().count(),
            commands_planned: sum(|session| session.commands_planned),
            commands_complete: sum(Session::commands_complete),
            transfers_planned: sum(|session| session.transfers_planned),
            transfers_complete: sum(|session| session.transfers_complete().count()),
            failures: failure::count(sessions.clone().filter_map(|s| s.failure.as_ref())),
            response_s: of(sessions
                .clone()
                .flat_map(Session::response_seconds)
                .collect()),
            transfer_s: of(sessions
                .clone()
                .flat_map(Session::transfer_seconds)
                .collect()),
            session_s: of(complete().map(Session::seconds).collect()),
        }
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
