//! Files that grow while they are read, such as logs: a snapshot of the bytes that they had at the beginning, or all until
//! they rest.

use std::{os::unix::fs::FileExt as _, path::Path, time::Duration};

use xxhash_rust::xxh3::Xxh3;

use super::{Copied, End, Facts, Mover, Names, TaskError};
use crate::{
    job::Growing,
    names::{local, shown},
    run::end::on_disk,
};

/// The bytes that were read of a file of this machine.
#[derive(Clone)]
pub(super) struct ReadRange {
    /// Where the reading began.
    begin: u64,
    hash: Xxh3,
}

impl ReadRange {
    pub(super) fn from(begin: u64) -> Self {
        Self {
            begin,
            hash: Xxh3::new(),
        }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    /// Whether the file still has these bytes, up to `end`.
    fn is_still_in(&self, path: &Path, end: u64) -> std::io::Result<bool> {
        let file = std::fs::File::open(path)?;
        let mut now = Xxh3::new();
        let mut bytes = vec![0; STEP_BYTES];
        let mut at = self.begin;
        while at < end {
            let room = usize::try_from(end - at)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let count = file.read_at(&mut bytes[..room], at)?;
            if count == 0 {
                return Ok(false);
            }
            now.update(&bytes[..count]);
            at += count as u64;
        }
        Ok(now.digest() == self.hash.digest())
    }
}

impl Mover<'_> {
    /// Whether the end of a file of this machine is waited for.
    pub(super) fn follows(&self) -> bool {
        self.shared.job.moving.growing == Growing::Follow && matches!(self.source, End::Local)
    }

    /// Whether the source is longer than what was copied of it, and what was copied is its beginning. `now` is what the
    /// source says since.
    pub(super) async fn has_grown(
        &self,
        names: &Names,
        facts: &Facts,
        now: &Facts,
        copied: &Copied,
    ) -> Result<bool, TaskError> {
        let is_longer = now.size_bytes.is_some_and(|it| it > copied.bytes);
        if self.follows() {
            return Ok(is_longer);
        }
        if !matches!(self.source, End::Local) {
            return Ok(copied.is_grown && (is_longer || now.size_bytes.is_none()));
        }
        let stamps = facts.stamp.zip(now.stamp);
        if !is_longer || !stamps.is_some_and(|(before, now)| before.has_grown(&now)) {
            return Ok(false);
        }
        let Some(read) = copied.read.clone() else {
            // Another job has read it.
            return Ok(copied.is_spooled);
        };
        let (path, end) = (local(&names.source), copied.bytes);
        let what = format!("reading {}", shown(&path));
        on_disk(move || read.is_still_in(&path, end), what).await
    }
}

/// How often a file that is followed is looked at.
pub(super) const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// A file that has not grown for this time has come to its end.
pub(super) const FOLLOW_QUIET: Duration = Duration::from_secs(10);

const STEP_BYTES: usize = 256 * 1024;
