//! Files that grow while the mover reads them, such as logs. The mover copies the bytes that the
//! file had at the start, or follows the file until it stops growing.

use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

use super::{Backend, FinishedCopy, Mover, SourceStat, TaskError, TransferNames};
use crate::job::GrowthHandling;

/// Byte range that was read from a local file, with the hash of its bytes.
#[derive(Clone)]
pub(super) struct ReadRange {
    /// Offset of the first byte that was read.
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

    /// Returns whether the file at `path` of `source` still has the same bytes from `begin` to
    /// `end`.
    async fn is_still_in(
        &self,
        source: &mut Backend,
        path: &[u8],
        end: u64,
    ) -> Result<bool, TaskError> {
        let mut reader = source.read(path, self.begin).await?;
        let mut now = Xxh3::new();
        let mut bytes = vec![0; STEP_BYTES];
        let mut at = self.begin;
        while at < end {
            let room = usize::try_from(end - at)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let count = reader.read(&mut bytes[..room]).await?;
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
    /// Returns whether the mover waits until a local file stops growing.
    pub(super) fn follows(&self) -> bool {
        self.shared.job.moving.growing == GrowthHandling::Follow
            && matches!(self.source, Backend::Local(_))
    }

    /// Returns whether the source is longer than the copy and still begins with the copied bytes.
    /// `now` contains the source's present attributes.
    pub(super) async fn has_grown(
        &mut self,
        names: &TransferNames,
        stat: &SourceStat,
        now: &SourceStat,
        copied: &FinishedCopy,
    ) -> Result<bool, TaskError> {
        let is_longer = now.size_bytes.is_some_and(|it| it > copied.bytes);
        if self.follows() {
            return Ok(is_longer);
        }
        if !matches!(self.source, Backend::Local(_)) {
            return Ok(copied.is_grown && (is_longer || now.size_bytes.is_none()));
        }
        let stamps = stat.stamp.zip(now.stamp);
        if !is_longer || !stamps.is_some_and(|(before, now)| before.has_grown(&now)) {
            return Ok(false);
        }
        let Some(read) = copied.read.clone() else {
            // Another job has read the bytes.
            return Ok(copied.is_spooled);
        };
        read.is_still_in(self.source, &names.source, copied.bytes)
            .await
    }
}

/// Interval between two checks of a file that may still grow.
pub(super) const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// Time without growth after which a growing file counts as complete.
pub(super) const FOLLOW_QUIET: Duration = Duration::from_secs(10);

const STEP_BYTES: usize = 256 * 1024;
