//! Description of a moved file, as input for the command that is called for the file.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, process::Stdio};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde::Serialize;
use tokio::process::{Child, Command};

use crate::names::printable;

/// Description of a file that has arrived at the destination.
#[derive(Debug)]
pub struct FileFacts<'a> {
    /// Name of the job that has moved the file, if the job has a name.
    pub job: Option<&'a str>,
    /// Path below the job's source.
    pub path: &'a [u8],
    /// The source of the file: a path or a URL.
    pub source: &'a [u8],
    /// The destination of the file: a path or a URL.
    pub destination: &'a [u8],
    /// Size of the file in bytes, if known.
    pub size_bytes: Option<u64>,
    /// Time of the last change, in seconds since 1970, if known.
    pub modified_unix_s: Option<i64>,
}

/// JSON form of [`FileFacts`].
#[derive(Serialize)]
struct FactsJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a str>,
    path: String,
    source: String,
    destination: String,
    bytes: Option<u64>,
    modified_unix_s: Option<i64>,
}

impl FileFacts<'_> {
    /// Returns the JSON text that the command reads from its standard input.
    pub fn json(&self) -> Vec<u8> {
        let written = FactsJson {
            job: self.job,
            path: printable(self.path),
            source: printable(self.source),
            destination: printable(self.destination),
            bytes: self.size_bytes,
            modified_unix_s: self.modified_unix_s,
        };
        serde_json::to_vec(&written).expect("plain facts")
    }

    /// Sets the command's environment variables, which describe the file. Also makes the command
    /// run in a new process group, and discards its output.
    pub fn tell(&self, command: &mut Command) {
        command
            .env("LONGHAUL_PATH", OsStr::from_bytes(self.path))
            .env("LONGHAUL_SOURCE", OsStr::from_bytes(self.source))
            .env("LONGHAUL_DESTINATION", OsStr::from_bytes(self.destination))
            // The command does not need the password of a server.
            .env_remove("LONGHAUL_PASSWORD")
            // A program that reads our output must not receive the command's output.
            .stdout(Stdio::null())
            .process_group(0);
        if let Some(job) = self.job {
            command.env("LONGHAUL_JOB", job);
        }
        if let Some(bytes) = self.size_bytes {
            command.env("LONGHAUL_BYTES", bytes.to_string());
        }
        if let Some(unix_s) = self.modified_unix_s {
            command.env("LONGHAUL_MODIFIED", unix_s.to_string());
        }
    }
}

/// Kills a command and all programs of its process group.
pub fn kill(child: &Child) {
    let Some(id) = child.id().and_then(|it| i32::try_from(it).ok()) else {
        return;
    };
    // The command may already have ended.
    let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
}

/// Maximum number of commands of one job that run at the same time.
pub const CALLS_AT_ONCE: usize = 4;
