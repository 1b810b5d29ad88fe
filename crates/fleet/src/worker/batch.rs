//! Moves the files of a batch.

use std::{sync::Arc, time::Duration};

use ftp::listing::{Modified, Precision};
use mover::{
    job::Job,
    plan::{File, Note, RelativePath},
    run::{self, Browser},
};
use tokio::time::timeout;

use super::{
    Crew, chain,
    failures::Failures,
    task::{Became, Stop, Task},
};
use crate::{
    message::{Batch, BatchFile},
    queue::ACK_WAIT,
    record::Counts,
};

impl Crew {
    pub(super) async fn move_files(&self, task: &Task<'_>, mut job: Job, batch: &Batch) -> Became {
        let mut files = Vec::new();
        for file in &batch.files {
            match file.relative_path() {
                Ok(path) if file.source < job.roots.len() => files.push((file.source, path)),
                Ok(_) => return Became::Failed("the batch names a source that is none".to_owned()),
                Err(error) => return Became::Failed(chain(&error)),
            }
        }
        // The listing has left out what may still be written.
        job.plan.settle_s = 0;
        let (attempt, suffix) = (task.held.claim.attempt, job.moving.partial_suffix.take());
        let suffix_of = |attempt| part_suffix(suffix.as_deref(), &task.held.key, attempt);
        let parts_of = |attempt| match suffix_of(attempt) {
            Some(suffix) => job.parts(&files, &suffix),
            None => Vec::new(),
        };
        let own_parts = parts_of(attempt);
        let old_parts: Vec<_> = (1..attempt).flat_map(parts_of).collect();
        // No worker that was lost, and goes on, writes to the parts of another one.
        job.moving.partial_suffix = suffix_of(attempt);
        let is_first = attempt == 1;
        if is_first {
            job.files = Some(batch.files.iter().zip(&files).map(known).collect());
        } else {
            // An attempt that was lost may have moved some, and left parts of others.
            job.narrow(&files);
            self.sweep(&job, &old_parts).await;
        }
        let job = Arc::new(job);
        let mut failures = Failures::default();
        let tell = |note: Option<Note>, _| match note {
            Some(note) if is_first => failures.hear(&note, &note.path),
            Some(note) => failures.hear(&note, &files[note.root].1),
            None => {}
        };
        let progress = Arc::new(self.progress.beside());
        let (ours, interrupt) = (job.clone(), task.stopped());
        let summary = run::run(ours, None, progress.clone(), interrupt, tell).await;
        let stop = task.why().filter(|_| summary.is_interrupted);
        let failure = failures.reason(&summary);
        // The next attempt after an end of this worker has the same number, and overwrites its parts.
        if stop != Some(Stop::Ending) {
            if stop.is_some() || failure.is_some() {
                self.sweep(&job, &own_parts).await;
            }
            if stop != Some(Stop::Lost) {
                // Whoever made the attempt before may have gone on for a while.
                self.sweep(&job, &old_parts).await;
            }
        }
        if let Some(stop) = stop {
            return Became::broken_off(stop);
        }
        if let Some(reason) = failure {
            return Became::Failed(reason);
        }
        // What is there already was moved by an attempt that could not say so.
        let moved = summary.tally.moved + summary.tally.same;
        Became::Moved(Counts {
            moved,
            left_out: (files.len() as u64).saturating_sub(moved),
            bytes: progress.moved_bytes(),
            ..Counts::default()
        })
    }

    /// Deletes parts that an attempt has left.
    async fn sweep(&self, job: &Job, parts: &[Vec<u8>]) {
        if parts.is_empty() {
            return;
        }
        let all = async {
            let mut browser = Browser::open(&job.destination).await?;
            for part in parts {
                // Most are not there.
                let _ = browser.delete(part).await;
            }
            browser.close().await;
            Ok::<(), run::BrowseError>(())
        };
        match timeout(SWEEP_PATIENCE, all).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error = chain(&error), "old parts stay"),
            Err(_) => tracing::warn!("old parts stay: the server is slow"),
        }
    }
}

/// A file as it was found.
fn known((file, (root, path)): (&BatchFile, &(usize, RelativePath))) -> File {
    File {
        root: *root,
        path: path.clone(),
        size_bytes: file.size_bytes,
        modified: file.modified_unix_s.map(|unix_s| Modified {
            unix_s,
            precision: Precision::Second,
        }),
        link: None,
    }
}

/// The suffix of parts that one attempt at some work makes.
fn part_suffix(suffix: Option<&[u8]>, key: &str, attempt: u32) -> Option<Vec<u8>> {
    let suffix = suffix?;
    let own = format!(".{}-{attempt}", key.replace('.', "-"));
    Some([own.as_bytes(), suffix].concat())
}

/// Half of the time after which a worker that says nothing has lost its work.
const SWEEP_PATIENCE: Duration = Duration::from_secs(ACK_WAIT.as_secs() / 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_two_attempts_have_two_names() {
        let first = part_suffix(Some(b".part"), "a1.1.7", 1);
        assert_eq!(first.as_deref(), Some(&b".a1-1-7-1.part"[..]));
        assert_ne!(first, part_suffix(Some(b".part"), "a1.1.7", 2));
        assert_eq!(part_suffix(None, "a1.1.7", 1), None);
    }
}
