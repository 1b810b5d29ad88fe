//! Records of trials, as one line of JSON for each trial. A record holds everything from which a
//! report computes its figures.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use bench_kit::stats;

use super::{
    cell::{Cell, WorkKind},
    side::Side,
};

/// Record of one trial of one compared program in one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// Version of the program's JSON format. It is 0 in records that were written before the format
    /// had a version.
    #[serde(default)]
    pub schema: u32,
    /// Name of the plan.
    pub plan: String,
    /// The emulated path and the work.
    pub cell: Cell,
    /// The program, or pair of gateways, that did the work.
    pub side: Side,
    /// Number of the trial among all trials of this program in this cell, counted from 0.
    pub repetition: u32,
    /// Seed of the path's impairments.
    pub seed: u64,
    /// Outcome of the trial.
    pub outcome: TrialEnd,
    /// Bytes that arrived at the receiver.
    pub bytes: u64,
    /// Seconds from the command until the final reply, or until the trial was aborted.
    pub seconds: f64,
    /// Seconds that a perfect sender would need for all bytes.
    pub ideal_seconds: f64,
    /// Processor time of each process, in seconds.
    pub cpu_seconds: BTreeMap<String, f64>,
    /// IP bytes sent from A to B, then IP bytes sent from B to A.
    pub wire_bytes: [u64; 2],
    /// Waiting times of users, for work that does not measure goodput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<UserExperience>,
    /// Rate that the competing flow reached during the trial, in bits per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_bits_per_s: Option<f64>,
    /// Whether the machine could not keep up with the emulation.
    pub saturated: bool,
    /// Processors, kernel and load of the machine.
    pub machine: String,
    /// Version and commit of Longhaul.
    pub version: String,
    /// Start of the trial in seconds since 1970.
    pub begun_unix_s: u64,
}

/// Waiting times of a server's users, and the completeness of their results.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UserExperience {
    /// Seconds of each successful wait, by kind of wait.
    pub seconds: BTreeMap<String, Vec<f64>>,
    /// Number of complete results and number of all results, by kind of result.
    pub complete: BTreeMap<String, [u64; 2]>,
    /// Number of failures, by kind of failure.
    pub failures: BTreeMap<String, u64>,
}

/// Outcome of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialEnd {
    /// All bytes arrived, and their hash equals the hash of the source.
    Complete,
    /// The trial reached its time limit. The bytes that arrived before the limit count.
    CutOff,
    /// The trial failed.
    Failed(String),
    /// The trial is impossible on this machine: a program is missing, or does not support this
    /// work.
    NotTried(String),
}

/// Identity of a trial: the cell, the compared program and the repetition, without the outcome.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TrialKey(String);

/// A file of records, open for appending.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
    file: File,
}

/// Error while reading or writing a file of records.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The file cannot be read or written.
    #[error("{path}")]
    Io {
        /// Path of the file.
        path: String,
        /// Error of the file system.
        source: io::Error,
    },
    /// A line does not contain a record.
    #[error("{path}:{line}: not a record")]
    Malformed {
        /// Path of the file.
        path: String,
        /// Number of the line, counted from 1.
        line: usize,
        /// Error of the parser.
        source: serde_json::Error,
    },
}

impl TrialRecord {
    /// Returns the identity of the trial.
    pub fn key(&self) -> TrialKey {
        TrialKey::new(&self.cell, self.side, self.repetition)
    }

    /// Returns whether the record is final for the time limit `limit`, so that the trial does not
    /// run again.
    pub fn is_final(&self, limit: Duration) -> bool {
        match self.outcome {
            TrialEnd::Complete | TrialEnd::Failed(_) => true,
            // Some clients are killed at the limit, but their measured time starts a little later.
            TrialEnd::CutOff => self.seconds >= 0.95 * limit.as_secs_f64(),
            TrialEnd::NotTried(_) => false,
        }
    }

    /// Returns the goodput in bits per second, or zero if the trial took no time.
    pub fn goodput_bits_per_s(&self) -> f64 {
        if self.seconds > 0.0 {
            self.bytes as f64 * 8.0 / self.seconds
        } else {
            0.0
        }
    }

    /// Returns the ideal time divided by the measured time. For an aborted trial, projects the time
    /// from the goodput that it reached. Returns zero for a failed trial.
    ///
    /// Returns `None` if the trial was not tried, or does not measure goodput.
    pub fn efficiency(&self) -> Option<f64> {
        if self.cell.work.job != WorkKind::Files {
            return None;
        }
        let size = self.cell.work.bytes().bytes() as f64;
        let full_seconds = match self.outcome {
            TrialEnd::NotTried(_) => return None,
            TrialEnd::Failed(_) => return Some(0.0),
            TrialEnd::Complete => self.seconds,
            TrialEnd::CutOff => self.seconds * size / self.bytes as f64,
        };
        let efficiency = self.ideal_seconds / full_seconds;
        Some(if efficiency.is_finite() {
            efficiency
        } else {
            0.0
        })
    }
}

impl UserExperience {
    /// Returns the completeness and the median waits as one line of text.
    pub fn summary(&self) -> String {
        let counts = self.complete.iter().map(|(what, [complete, all])| {
            let median = self
                .seconds
                .get(what)
                .and_then(|seconds| stats::median(seconds));
            let median = median.map(|median| format!(", {median:.3} s"));
            format!("{complete} of {all} {what}{}", median.unwrap_or_default())
        });
        counts.collect::<Vec<_>>().join("; ")
    }
}

impl TrialKey {
    /// Creates the identity of trial number `repetition` of `side` in `cell`.
    pub fn new(cell: &Cell, side: Side, repetition: u32) -> Self {
        let cell = serde_json::to_string(cell).expect("plain data");
        Self(format!("{cell} {side:?} {repetition}"))
    }
}

impl RecordFile {
    /// Opens a file for appending records, and returns the existing records. Creates the file if it
    /// does not exist.
    ///
    /// Removes an incomplete last line, which an interrupted run may leave.
    ///
    /// # Errors
    /// [`RecordsError`]. The file is then unchanged.
    pub fn open(path: &Path) -> Result<(Self, Vec<TrialRecord>), RecordsError> {
        let io = |source| RecordsError::Io {
            path: path.display().to_string(),
            source,
        };
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io(error)),
        };
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let records = parse(&text[..whole], path)?;
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(io)?;
        if whole < text.len() {
            file.set_len(whole as u64).map_err(io)?;
        }
        let path = path.to_owned();
        Ok((Self { path, file }, records))
    }

    /// Appends a record. The record is on the disk when this function returns.
    ///
    /// # Errors
    /// [`RecordsError::Io`]. The file may then end with an incomplete line, which the next
    /// [`RecordFile::open`] removes.
    pub fn add(&mut self, record: &TrialRecord) -> Result<(), RecordsError> {
        let mut line = serde_json::to_vec(record).expect("plain data");
        line.push(b'\n');
        let written = self
            .file
            .write_all(&line)
            .and_then(|()| self.file.sync_data());
        written.map_err(|source| RecordsError::Io {
            path: self.path.display().to_string(),
            source,
        })
    }
}

/// Reads a file of records for a report.
///
/// # Errors
/// [`RecordsError`], also if the last line is incomplete.
pub fn read(path: &Path) -> Result<Vec<TrialRecord>, RecordsError> {
    let text = fs::read(path).map_err(|source| RecordsError::Io {
        path: path.display().to_string(),
        source,
    })?;
    parse(&text, path)
}

/// Parses records. If a trial ran several times, only its last record counts. A trial runs again if
/// it was not tried, or if it was aborted at a limit shorter than the present limit.
fn parse(text: &[u8], path: &Path) -> Result<Vec<TrialRecord>, RecordsError> {
    let lines = text.split(|byte| *byte == b'\n').enumerate();
    let records: Vec<TrialRecord> = lines
        .filter(|(_, line)| !line.trim_ascii().is_empty())
        .map(|(index, line)| {
            serde_json::from_slice(line).map_err(|source| RecordsError::Malformed {
                path: path.display().to_string(),
                line: index + 1,
                source,
            })
        })
        .collect::<Result<_, _>>()?;
    let last: HashMap<TrialKey, usize> = records.iter().map(TrialRecord::key).zip(0..).collect();
    let records = records.into_iter().zip(0..);
    let kept = records.filter(|(record, place)| last[&record.key()] == *place);
    Ok(kept.map(|(record, _)| record).collect())
}

#[cfg(test)]
#[path = "record_tests.rs"]
pub(crate) mod tests;
