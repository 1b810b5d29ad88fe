//! Records of trials: one line of JSON each, with all that a figure is made from.

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

/// Record of one trial of one side in one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// Version of the program's JSON; 0 in records from before they had one.
    #[serde(default)]
    pub schema: u32,
    /// The plan's name.
    pub plan: String,
    /// Path and work.
    pub cell: Cell,
    /// The program, or pair of gateways, that did the work.
    pub side: Side,
    /// Counts the trials of this side in this cell from 0.
    pub repetition: u32,
    /// Seed of the path's impairments.
    pub seed: u64,
    /// How it ended.
    pub outcome: TrialEnd,
    /// Bytes that arrived.
    pub bytes: u64,
    /// From the command until the final reply, or until it was cut off.
    pub seconds: f64,
    /// Time of a perfect sender for all bytes.
    pub ideal_seconds: f64,
    /// Processor time by process, seconds.
    pub cpu_seconds: BTreeMap<String, f64>,
    /// IP bytes that were sent from A to B and from B to A.
    pub wire_bytes: [u64; 2],
    /// Waits of users, for jobs that are not about bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<UserExperience>,
    /// Rate that a neighbour received in this time, in bits per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_bits_per_s: Option<f64>,
    /// Whether the machine could not keep up with the emulation.
    pub saturated: bool,
    /// Processors, kernel, load.
    pub machine: String,
    /// Version and commit of Longhaul.
    pub version: String,
    /// Seconds since 1970.
    pub begun_unix_s: u64,
}

/// Experience of a server's users: their waits, and the completeness of their results.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UserExperience {
    /// Seconds of each successful wait, by its kind.
    pub seconds: BTreeMap<String, Vec<f64>>,
    /// Numbers of complete results and of all results, by their kind.
    pub complete: BTreeMap<String, [u64; 2]>,
    /// Numbers of failures, by kind.
    pub failures: BTreeMap<String, u64>,
}

/// How a trial ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialEnd {
    /// Every byte arrived, and the hash is that of the source.
    Complete,
    /// The limit was reached. The bytes that arrived count.
    CutOff,
    /// The trial failed.
    Failed(String),
    /// The trial is impossible here: a program is missing, or does not support this work.
    NotTried(String),
}

/// Identity of a trial, without its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TrialKey(String);

/// A file of records that can be added to.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
    file: File,
}

/// Error of a file of records.
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
    /// A line is no record.
    #[error("{path}:{line}: not a record")]
    Malformed {
        /// Path of the file.
        path: String,
        /// Counts from 1.
        line: usize,
        /// Error of the parser.
        source: serde_json::Error,
    },
}

impl TrialRecord {
    /// Returns the trial of the record.
    pub fn key(&self) -> TrialKey {
        TrialKey::new(&self.cell, self.side, self.repetition)
    }

    /// Returns whether another trial with this limit is unnecessary.
    pub fn is_final(&self, limit: Duration) -> bool {
        match self.outcome {
            TrialEnd::Complete | TrialEnd::Failed(_) => true,
            // Some clients are ended when the limit is over, and timed from a little later on.
            TrialEnd::CutOff => self.seconds >= 0.95 * limit.as_secs_f64(),
            TrialEnd::NotTried(_) => false,
        }
    }

    /// Bits per second that arrived; zero without time.
    pub fn goodput_bits_per_s(&self) -> f64 {
        if self.seconds > 0.0 {
            self.bytes as f64 * 8.0 / self.seconds
        } else {
            0.0
        }
    }

    /// Returns the ideal time divided by the measured time. A trial that was cut off counts by its
    /// rate. Zero for a failed trial.
    ///
    /// `None` if the trial was not tried, or is not about bytes.
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
    /// In a line.
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
    /// Returns the identity of the trial of `side` in `cell`.
    pub fn new(cell: &Cell, side: Side, repetition: u32) -> Self {
        let cell = serde_json::to_string(cell).expect("plain data");
        Self(format!("{cell} {side:?} {repetition}"))
    }
}

impl RecordFile {
    /// Opens a file for further records, and reads the existing ones. The file may not exist yet.
    ///
    /// An incomplete last line of an interrupted run is cut away.
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

    /// Adds a record; it is on the disk when this returns.
    ///
    /// # Errors
    /// [`RecordsError::Io`]; a part of the line may be there, which the next opening cuts away.
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
/// [`RecordsError`], also for a last line that is not whole.
pub fn read(path: &Path) -> Result<Vec<TrialRecord>, RecordsError> {
    let text = fs::read(path).map_err(|source| RecordsError::Io {
        path: path.display().to_string(),
        source,
    })?;
    parse(&text, path)
}

/// Parses records. A repeated trial, which could not be tried or was cut off early, counts by its
/// last outcome.
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
