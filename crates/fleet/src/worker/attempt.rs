//! One attempt: lists a job's source, or moves the files of a batch.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ftp::listing::{Modified, Precision};
use mover::{
    job::Job,
    plan::{File, Note, RelativePath, Result as NoteResult, Step, Tally},
    run::{self, Browser, Summary},
};
use tokio::{sync::mpsc, time::timeout};

use super::{Crew, chain, guard::Stop};
use crate::{
    batches::Batches,
    message::{Batch, BatchFile, Message},
    queue::{ACK_WAIT, Held, QueueError, Taken},
    record::Counts,
};

/// What became of an attempt.
pub(super) enum Became {
    /// The files are there.
    Moved(Counts),
    /// The source is listed, and its batches wait.
    Listed(Listed),
    /// Something failed: why.
    Failed(String),
    /// The worker ends.
    Interrupted,
    /// Another worker has the work.
    Lost,
    /// The job was cancelled.
    Cancelled,
}

/// What a listing has found.
pub(super) struct Listed {
    pub(super) listing: u32,
    pub(super) batches: u32,
    pub(super) found: Counts,
    /// What could not be listed.
    pub(super) failure: Option<String>,
}

/// Why files have failed: some of the reasons, and how many there are.
#[derive(Default)]
struct Failures {
    told: Vec<String>,
    count: usize,
}

impl Crew {
    pub(super) async fn attempt(
        &self,
        taken: &Taken,
        message: &Message,
        held: &Held,
    ) -> Result<Became, QueueError> {
        let job = match (self.worker.make)(&message.words()) {
            Ok(job) => job,
            Err(reason) => return Ok(Became::Failed(reason)),
        };
        match message {
            Message::Order(_) => self.list(taken, message, held, job).await,
            Message::Batch(batch) => Ok(self.move_files(taken, message, held, job, batch).await),
        }
    }

    /// Lists the source by a dry run of the job. What it would move goes into the queue, from the first file on.
    async fn list(
        &self,
        taken: &Taken,
        message: &Message,
        held: &Held,
        mut job: Job,
    ) -> Result<Became, QueueError> {
        let name = message.job();
        let known = self.queue.change(name, |it| it.begin_listing());
        let Some(record) = known.await? else {
            return Ok(Became::Cancelled);
        };
        let listing = record.listing;
        if listing > 1 {
            self.queue.drop_batches(name).await?;
        }
        job.plan.is_dry_run = true;
        let (found, mut waiting) = mpsc::unbounded_channel::<Vec<BatchFile>>();
        let (mut batches, mut failures) = (Batches::default(), Failures::default());
        let mut wanted = 0;
        let run = async {
            let tell = |note: Option<Note>, _| {
                let Some(note) = note else {
                    return;
                };
                failures.hear(&note);
                if let NoteResult::Planned(Step::Move(version)) = note.result {
                    wanted += 1;
                    let full = batches.add(note.root, &note.path, version);
                    // Where the queue cannot be used, the attempt fails.
                    let _ = full.map(|it| found.send(it));
                }
            };
            let ran = self.run(taken, message, held, Arc::new(job), tell).await;
            let _ = batches.end().map(|it| found.send(it));
            drop(found);
            ran
        };
        let words = record.words().to_vec();
        let put = async {
            let mut number = 0;
            while let Some(files) = waiting.recv().await {
                let batch = Message::Batch(Batch {
                    job: name.to_owned(),
                    words: words.clone(),
                    listing,
                    number,
                    files,
                });
                self.insist(|| self.queue.put(&batch, "1")).await?;
                number += 1;
            }
            Ok::<u32, QueueError>(number)
        };
        let ((summary, stop), batches) = tokio::join!(run, put);
        let batches = batches?;
        if let Some(became) = broken_off(stop) {
            return Ok(became);
        }
        let tally = summary.tally;
        let failure = failures.reason(&summary);
        if let Some(reason) = &failure
            && wanted == 0
            && tally.same == 0
        {
            return Ok(Became::Failed(reason.clone()));
        }
        let found = Counts {
            wanted,
            same: tally.same,
            left_out: tally.left_out,
            ..Counts::default()
        };
        Ok(Became::Listed(Listed {
            listing,
            batches,
            found,
            failure,
        }))
    }

    async fn move_files(
        &self,
        taken: &Taken,
        message: &Message,
        held: &Held,
        mut job: Job,
        batch: &Batch,
    ) -> Became {
        let mut files = Vec::new();
        for file in &batch.files {
            match file.relative_path() {
                Ok(path) if file.source < job.roots.len() => files.push((file.source, path)),
                Ok(_) => return Became::Failed("the batch names a source that is none".to_owned()),
                Err(error) => return Became::Failed(chain(&error)),
            }
        }
        let (attempt, suffix) = (held.claim.attempt, job.moving.partial_suffix.take());
        let suffix_of = |attempt| part_suffix(suffix.as_deref(), &held.key, attempt);
        let parts_of = |attempt| match suffix_of(attempt) {
            Some(suffix) => job.parts(&files, &suffix),
            None => Vec::new(),
        };
        let own_parts = parts_of(attempt);
        let old_parts: Vec<_> = (1..attempt).flat_map(parts_of).collect();
        // No other attempt writes to the parts of this one, whoever makes it and however long.
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
            Some(note) if is_first => failures.hear(&note),
            Some(note) => failures.hear_of(&note, &files),
            None => {}
        };
        let progress = self.progress.beside();
        let progress = Arc::new(progress);
        let (summary, stop) = self
            .run_with(taken, message, held, job.clone(), progress.clone(), tell)
            .await;
        match stop {
            // The next attempt has the same number, and overwrites them.
            Some(Stop::Ending) => {}
            Some(Stop::Lost | Stop::Cancelled) => self.sweep(&job, &own_parts).await,
            // Whoever made the attempt before may have gone on for a while.
            None => self.sweep(&job, &old_parts).await,
        }
        if let Some(became) = broken_off(stop) {
            return became;
        }
        match failures.reason(&summary) {
            Some(reason) => Became::Failed(reason),
            None => Became::Moved(Counts {
                // What is there already was moved by an attempt that could not say so.
                moved: summary.tally.moved + summary.tally.same,
                bytes: progress.moved_bytes(),
                ..Counts::default()
            }),
        }
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

    async fn run(
        &self,
        taken: &Taken,
        message: &Message,
        held: &Held,
        job: Arc<Job>,
        tell: impl FnMut(Option<Note>, Tally),
    ) -> (Summary, Option<Stop>) {
        let progress = Arc::new(self.progress.beside());
        self.run_with(taken, message, held, job, progress, tell)
            .await
    }

    /// Runs a job to its end, or until it is to be broken off.
    async fn run_with(
        &self,
        taken: &Taken,
        message: &Message,
        held: &Held,
        job: Arc<Job>,
        progress: Arc<run::Progress>,
        tell: impl FnMut(Option<Note>, Tally),
    ) -> (Summary, Option<Stop>) {
        let stop = Mutex::new(None);
        let interrupt = async {
            let why = self.guard(taken, message, held).await;
            *stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        };
        let summary = run::run(job, None, progress, interrupt, tell).await;
        let why = *stop.lock().unwrap_or_else(PoisonError::into_inner);
        let why = why.filter(|_| summary.is_interrupted);
        (summary, why)
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

fn broken_off(stop: Option<Stop>) -> Option<Became> {
    Some(match stop? {
        Stop::Ending => Became::Interrupted,
        Stop::Lost => Became::Lost,
        Stop::Cancelled => Became::Cancelled,
    })
}

/// The suffix of parts that one attempt at some work makes.
fn part_suffix(suffix: Option<&[u8]>, key: &str, attempt: u32) -> Option<Vec<u8>> {
    let suffix = suffix?;
    let own = format!(".{}-{attempt}", key.replace('.', "-"));
    Some([own.as_bytes(), suffix].concat())
}

impl Failures {
    fn hear(&mut self, note: &Note) {
        if let NoteResult::Failed(reason) = &note.result {
            self.add(&note.path, reason);
        }
    }

    /// The same for files that are roots of their own.
    fn hear_of(&mut self, note: &Note, files: &[(usize, RelativePath)]) {
        if let NoteResult::Failed(reason) = &note.result {
            self.add(&files[note.root].1, reason);
        }
    }

    fn add(&mut self, path: &RelativePath, reason: &str) {
        self.count += 1;
        if self.told.len() < REASONS_MAX {
            self.told.push(match path.names() {
                [] => reason.to_owned(),
                _ => format!("{path}: {reason}"),
            });
        }
    }

    /// Why the attempt has failed, if it has.
    fn reason(&self, summary: &Summary) -> Option<String> {
        if self.count == 0 {
            let failed = summary.tally.failed;
            return (failed > 0).then(|| format!("{failed} files failed"));
        }
        let mut text = self.told.join("; ");
        if self.count > self.told.len() {
            text += &format!("; and {} more", self.count - self.told.len());
        }
        Some(text)
    }
}

/// Half of the time after which a worker that says nothing has lost its work.
const SWEEP_PATIENCE: Duration = Duration::from_secs(ACK_WAIT.as_secs() / 2);

/// Reasons that a dead letter has.
const REASONS_MAX: usize = 10;

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
