//! What a command that is called for a file hears of the file.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, process::Stdio};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde::Serialize;
use tokio::process::{Child, Command};

use crate::names::printable;

/// A file that the destination has now.
#[derive(Debug)]
pub struct FileFacts<'a> {
    /// The job that has moved it, if the job has a name.
    pub job: Option<&'a str>,
    /// Its path below the job's source.
    pub path: &'a [u8],
    /// Where it came from: a path or a URL.
    pub source: &'a [u8],
    /// Where it is.
    pub destination: &'a [u8],
    /// Its bytes.
    pub size_bytes: Option<u64>,
    /// When it was changed last, in seconds since 1970.
    pub modified_unix_s: Option<i64>,
}

/// The same, as JSON.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a str>,
    path: String,
    source: String,
    destination: String,
    bytes: Option<u64>,
    modified_unix_s: Option<i64>,
}

impl FileFacts<'_> {
    /// What the command reads from its standard input.
    pub fn json(&self) -> Vec<u8> {
        let written = Written {
            job: self.job,
            path: printable(self.path),
            source: printable(self.source),
            destination: printable(self.destination),
            bytes: self.size_bytes,
            modified_unix_s: self.modified_unix_s,
        };
        serde_json::to_vec(&written).expect("plain facts")
    }

    /// Puts the facts into the environment of a command, which prints nowhere and gets a process group of its own.
    pub fn tell(&self, command: &mut Command) {
        command
            .env("LONGHAUL_PATH", OsStr::from_bytes(self.path))
            .env("LONGHAUL_SOURCE", OsStr::from_bytes(self.source))
            .env("LONGHAUL_DESTINATION", OsStr::from_bytes(self.destination))
            // The password of a server is no business of the command.
            .env_remove("LONGHAUL_PASSWORD")
            // A reader of our own output gets no one else's.
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

/// Kills a command and what it has started.
pub fn kill(child: &Child) {
    let Some(id) = child.id().and_then(|it| i32::try_from(it).ok()) else {
        return;
    };
    // It may have ended meanwhile.
    let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
}

/// Commands of a job that run at a time.
pub const CALLS_AT_ONCE: usize = 4;
