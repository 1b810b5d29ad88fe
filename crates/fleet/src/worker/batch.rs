//! Execution of a batch: a worker moves its files.

use std::sync::Arc;

use ftp::listing::{ModifiedTime, TimePrecision};
use mover::{
    job::Job,
    plan::{File, FileEvent, RelativePath},
    run::{self, Browser, chain},
};
use tokio::time::timeout;

use super::{
    WorkerContext,
    failures::Failures,
    task::{ClaimedWork, Interruption, TaskOutcome},
};
use crate::{
    message::{Batch, BatchFile, Message},
    record::FileCounts,
};

impl WorkerContext {
    pub(super) async fn move_files(
        &self,
        task: &ClaimedWork<'_>,
        mut job: Job,
        batch: &Batch,
    ) -> TaskOutcome {
        let mut files = Vec::new();
        for file in &batch.files {
            match file.relative_path() {
                Ok(path) if file.source < job.roots.len() => files.push((file.source, path)),
                Ok(_) => {
                    return TaskOutcome::Failed("the batch names a source that is none".to_owned());
                }
                Err(error) => return TaskOutcome::Failed(chain(&error)),
            }
        }
        // The listing has checked the settle time, and has left out files that programs may still
        // be writing.
        job.plan.settle_s = 0;
        let suffix = job.moving.partial_suffix.take();
        let [old_parts @ .., own_parts] = &part_names(&job, &files, task, suffix.as_deref())[..]
        else {
            return TaskOutcome::Failed("the claim has no mark".to_owned());
        };
        // The parts of the newest attempts are the most likely to exist, so they come first.
        let old_parts: Vec<_> = old_parts.iter().rev().flatten().cloned().collect();
        let marks = &task.held.claim.marks;
        // If a worker continues after it has lost its claim, it must not write to the parts of
        // another worker.
        job.moving.partial_suffix = part_suffix(suffix.as_deref(), marks.last());
        // The mark is already random. The names must contain no other random digits, because the
        // next attempt must find the parts.
        job.moving.has_random_parts = false;
        job.fence = Some(self.fence(task));
        let is_first = marks.len() == 1;
        if is_first {
            job.files = Some(batch.files.iter().zip(&files).map(known_file).collect());
        } else {
            // An earlier attempt may have moved some files, and may have left parts of other files.
            job.narrow(&files);
            self.sweep(&job, &old_parts).await;
        }
        let job = Arc::new(job);
        let mut failures = Failures::default();
        let tell = |note: Option<FileEvent>, _| match note {
            Some(note) if is_first => failures.add(&note, &note.path),
            Some(note) => failures.add(&note, &files[note.root].1),
            None => {}
        };
        let progress = Arc::new(self.progress.beside());
        let (ours, interrupt) = (job.clone(), task.stopped());
        let summary = run::run(ours, None, progress.clone(), interrupt, tell).await;
        let failure = failures.reason(&summary);
        // If an interruption prevented the renaming of a file, the file counts as failed.
        let is_broken_off = summary.is_interrupted || failure.is_some();
        let stop = task.interruption().filter(|_| is_broken_off);
        // If this worker process ends, the next attempt deletes the parts of this attempt.
        if stop != Some(Interruption::Ending) {
            if stop.is_some() || failure.is_some() {
                self.sweep(&job, own_parts).await;
            }
            if stop != Some(Interruption::Lost) {
                // The worker of an earlier attempt may have continued for a while, and may have
                // created parts again.
                self.sweep(&job, &old_parts).await;
            }
        }
        if let Some(stop) = stop {
            return TaskOutcome::interrupted_by(stop);
        }
        if let Some(reason) = failure {
            return TaskOutcome::Failed(reason);
        }
        // If the destination already has a file, an earlier attempt moved the file but could not
        // report the move.
        let moved = summary.tally.moved + summary.tally.same;
        TaskOutcome::Moved(FileCounts {
            moved,
            left_out: (files.len() as u64).saturating_sub(moved),
            bytes: progress.moved_bytes(),
            ..FileCounts::default()
        })
    }

    /// Deletes the part files that earlier attempts have left. The function is called when no
    /// further attempt is permitted.
    pub(super) async fn sweep_last(&self, task: &ClaimedWork<'_>) {
        let (Message::Batch(batch), Ok(mut job)) = (&task.message, (self.worker.make)(&task.words))
        else {
            return;
        };
        let paths = batch
            .files
            .iter()
            .map(|it| Some((it.source, it.relative_path().ok()?)));
        let files: Option<Vec<_>> = paths.collect();
        let is_known = |it: &(usize, RelativePath)| it.0 < job.roots.len();
        let Some(files) = files.filter(|it| it.iter().all(is_known)) else {
            return;
        };
        let suffix = job.moving.partial_suffix.take();
        let all = part_names(&job, &files, task, suffix.as_deref());
        let all: Vec<_> = all.into_iter().rev().flatten().collect();
        self.sweep(&job, &all).await;
    }

    /// Deletes the part files `parts` at the destination, if they exist.
    async fn sweep(&self, job: &Job, parts: &[Vec<u8>]) {
        if parts.is_empty() {
            return;
        }
        let all = async {
            let mut browser = Browser::open(&job.destination, job.session_pool.clone()).await?;
            for part in parts {
                // Errors are ignored, because most parts do not exist.
                let _ = browser.delete(part).await;
            }
            browser.close().await;
            Ok::<(), run::BrowseError>(())
        };
        // If a worker sends no progress message for the whole acknowledgement timeout, it has lost
        // its work.
        match timeout(self.ack_wait / 2, all).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error = chain(&error), "old parts stay"),
            Err(_) => tracing::warn!("old parts stay: the server is slow"),
        }
    }
}

/// Returns a file with the size and the time that the listing has found.
fn known_file((file, (root, path)): (&BatchFile, &(usize, RelativePath))) -> File {
    File {
        root: *root,
        path: path.clone(),
        size_bytes: file.size_bytes,
        modified: file.modified_unix_s.map(|unix_s| ModifiedTime {
            unix_s,
            precision: TimePrecision::Second,
        }),
        link: None,
    }
}

/// Returns the paths of the part files of each attempt. The present attempt is last.
fn part_names(
    job: &Job,
    files: &[(usize, RelativePath)],
    task: &ClaimedWork<'_>,
    suffix: Option<&[u8]>,
) -> Vec<Vec<Vec<u8>>> {
    let marks = task.held.claim.marks.iter();
    let parts = marks.map(|mark| match part_suffix(suffix, Some(mark)) {
        Some(suffix) => job.parts(files, &suffix),
        None => Vec::new(),
    });
    parts.collect()
}

/// Returns the suffix of part files. The suffix contains the mark of an attempt.
fn part_suffix(suffix: Option<&[u8]>, mark: Option<&String>) -> Option<Vec<u8>> {
    let (suffix, mark) = (suffix?, mark?);
    Some([b".", mark.as_bytes(), suffix].concat())
}
