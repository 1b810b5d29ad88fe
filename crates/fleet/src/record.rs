//! The progress of a job, as one stored record.
//!
//! NATS may deliver a message twice, so a worker may apply the same change twice. The second
//! application of a change has no effect.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use crate::{
    message::{Batch, EncodedBytes, ListingOrder, Message},
    number_set::NumberSet,
};

/// The record of a job: its command line, its progress and its failures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Name of the job.
    pub job: String,
    /// Arguments for `longhaul copy`.
    pub words: Vec<EncodedBytes>,
    /// The sources as text for users.
    pub from: String,
    /// The destination as text for users.
    pub to: String,
    /// Time of the submission, in seconds of Unix time.
    pub submitted_unix_s: i64,
    /// Time of the job's end (success, failure or cancellation), in seconds of Unix time. `None`
    /// before the end.
    pub ended_unix_s: Option<i64>,
    /// Number of the latest listing of the source. Zero before the first listing.
    pub listing: u32,
    /// Number of the claim for the listing. If another worker claims the listing later, its claim
    /// has a higher number.
    pub lister: u64,
    /// Number of batches in the listing. `None` until the listing is complete.
    pub batches: Option<u32>,
    /// Numbers of the batches whose files have been moved.
    pub done: NumberSet,
    /// Numbers of the batches that failed at every attempt.
    pub dead: NumberSet,
    /// Reason why the source could not be listed completely.
    pub listing_failure: Option<String>,
    /// Whether a user has cancelled the job.
    pub is_cancelled: bool,
    /// Counts of files, by outcome.
    pub counts: FileCounts,
}

/// Counts of files, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCounts {
    /// Number of files to move.
    pub wanted: u64,
    /// Number of moved files. It includes files that an attempt moved but could not report.
    pub moved: u64,
    /// Number of files that the destination already had when the source was listed.
    pub same: u64,
    /// Number of entries that the listing omitted without an error, for example because of a
    /// filter.
    pub left_out: u64,
    /// Number of bytes that successful attempts moved.
    pub bytes: u64,
}

/// State of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// No worker has started to list the source.
    Queued,
    /// A worker is listing the source. Other workers may already move files.
    Listing,
    /// The listing is complete, and workers move files.
    Running,
    /// All files have been moved.
    Done,
    /// The source could not be listed completely, or some batches failed at every attempt. All
    /// other batches are done.
    Failed,
    /// A user has cancelled the job.
    Cancelled,
}

impl JobRecord {
    /// Creates the record of a new job.
    pub fn new(
        job: String,
        words: Vec<EncodedBytes>,
        from: String,
        to: String,
        now_unix_s: i64,
    ) -> Self {
        Self {
            job,
            words,
            from,
            to,
            submitted_unix_s: now_unix_s,
            ended_unix_s: None,
            listing: 0,
            lister: 0,
            batches: None,
            done: NumberSet::default(),
            dead: NumberSet::default(),
            listing_failure: None,
            is_cancelled: false,
            counts: FileCounts::default(),
        }
    }

    /// Returns the state of the job.
    pub fn state(&self) -> JobState {
        if self.is_cancelled {
            return JobState::Cancelled;
        }
        let Some(batches) = self.batches else {
            return match (&self.listing_failure, self.listing) {
                (Some(_), _) => JobState::Failed,
                (None, 0) => JobState::Queued,
                (None, _) => JobState::Listing,
            };
        };
        if self.done.len() + self.dead.len() < u64::from(batches) {
            JobState::Running
        } else if self.dead.is_empty() && self.listing_failure.is_none() {
            JobState::Done
        } else {
            JobState::Failed
        }
    }

    /// Whether the job still needs the listing or the batch of this message.
    pub fn wants(&self, message: &Message) -> bool {
        if self.is_cancelled {
            return false;
        }
        match message {
            Message::Order(_) => self.batches.is_none() && self.listing_failure.is_none(),
            Message::Batch(batch) => {
                batch.listing == self.listing
                    && !self.done.contains(batch.number)
                    && !self.dead.contains(batch.number)
            }
        }
    }

    /// Starts a new listing by the worker with the claim `lister`. Batches of an earlier listing
    /// become invalid.
    ///
    /// The new listing finds the files of the earlier listing again. The function changes nothing
    /// if another worker has a later claim. It also changes nothing if a listing is complete, or
    /// the job is cancelled.
    pub fn begin_listing(&mut self, lister: u64) {
        if lister <= self.lister || self.batches.is_some() || self.is_cancelled {
            return;
        }
        self.lister = lister;
        let (moved, bytes) = (self.counts.moved, self.counts.bytes);
        self.listing += 1;
        self.batches = None;
        self.done = NumberSet::default();
        self.dead = NumberSet::default();
        self.listing_failure = None;
        self.counts = FileCounts {
            // Batches of an earlier listing moved these files.
            moved,
            bytes,
            wanted: moved,
            ..FileCounts::default()
        };
    }

    /// Records that a listing has ended. `found` has the counts of files to move, of files already
    /// at the destination, and of entries left out. `failure` is the reason if the listing is not
    /// complete.
    pub fn mark_listed(
        &mut self,
        listing: u32,
        batches: u32,
        found: FileCounts,
        failure: Option<String>,
        now_unix_s: i64,
    ) {
        if listing != self.listing || self.batches.is_some() {
            return;
        }
        self.batches = Some(batches);
        self.listing_failure = failure;
        self.counts.wanted += found.wanted;
        self.counts.same += found.same;
        self.counts.left_out += found.left_out;
        self.record_end(now_unix_s);
    }

    /// Records that the files of a batch have been moved.
    pub fn mark_batch_done(
        &mut self,
        listing: u32,
        number: u32,
        counts: FileCounts,
        now_unix_s: i64,
    ) {
        if listing != self.listing || !self.done.insert(number) {
            return;
        }
        // A slower worker may have recorded the batch as failed.
        self.dead.remove(number);
        self.counts.moved += counts.moved;
        self.counts.left_out += counts.left_out;
        self.counts.bytes += counts.bytes;
        self.record_end(now_unix_s);
    }

    /// Records that a batch failed at every attempt. Some of its files may have been moved.
    pub fn mark_batch_failed(&mut self, listing: u32, number: u32, now_unix_s: i64) {
        if listing == self.listing && !self.done.contains(number) && self.dead.insert(number) {
            self.record_end(now_unix_s);
        }
    }

    /// Records that the listing failed at every attempt.
    pub fn mark_listing_failed(&mut self, reason: &str, now_unix_s: i64) {
        if self.batches.is_none() && self.listing_failure.is_none() {
            self.listing_failure = Some(reason.to_owned());
            self.ended_unix_s = Some(now_unix_s);
        }
    }

    /// Whether this batch has failed at every attempt.
    pub fn has_given_up(&self, batch: &Batch) -> bool {
        batch.listing == self.listing && self.dead.contains(batch.number)
    }

    /// Resets the failure of a listing or a batch, so that workers can try it again. For a listing,
    /// also reverts a cancellation and makes earlier batches invalid.
    pub fn retry(&mut self, message: &Message) {
        match message {
            Message::Order(_) => {
                self.is_cancelled = false;
                self.ended_unix_s = None;
                // The new number makes a running listing and its batches invalid.
                self.listing += 1;
                // If the server has lost its disk, the claims are lost, too, and their numbers
                // start from one again.
                self.lister = 0;
                self.listing_failure = None;
                self.batches = None;
            }
            Message::Batch(batch) => {
                if self.has_given_up(batch) {
                    self.dead.remove(batch.number);
                    self.ended_unix_s = None;
                }
            }
        }
    }

    /// Returns the arguments for `longhaul copy`.
    pub fn words(&self) -> Vec<OsString> {
        self.words.iter().map(EncodedBytes::to_os).collect()
    }

    /// Returns the message that orders a listing of the job's source.
    pub fn order(&self) -> Message {
        Message::Order(ListingOrder {
            job: self.job.clone(),
        })
    }

    fn record_end(&mut self, now_unix_s: i64) {
        if matches!(self.state(), JobState::Done | JobState::Failed) {
            self.ended_unix_s = Some(now_unix_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> JobRecord {
        let [job, from, to] = ["a1", "/src", "ftp://h/"].map(str::to_owned);
        JobRecord::new(job, vec![EncodedBytes::new(b"/src")], from, to, 100)
    }

    fn batch(listing: u32, number: u32) -> Message {
        Message::Batch(Batch {
            job: "a1".to_owned(),
            listing,
            number,
            files: Vec::new(),
        })
    }

    fn moved(moved: u64) -> FileCounts {
        FileCounts {
            moved,
            bytes: 10 * moved,
            ..FileCounts::default()
        }
    }

    fn wanted(wanted: u64) -> FileCounts {
        FileCounts {
            wanted,
            ..FileCounts::default()
        }
    }

    #[test]
    fn a_job_runs_from_the_queue_to_its_end() {
        let mut record = record();
        let order = record.order();
        assert_eq!(record.state(), JobState::Queued);
        assert!(record.wants(&order));
        record.begin_listing(11);
        assert_eq!(record.state(), JobState::Listing);
        assert!(record.wants(&batch(1, 0)));
        record.mark_batch_done(1, 0, moved(3), 101);
        assert_eq!(record.state(), JobState::Listing, "more may be found");
        record.mark_listed(1, 2, wanted(5), None, 102);
        assert_eq!(record.state(), JobState::Running);
        assert!(!record.wants(&order) && !record.wants(&batch(1, 0)));
        record.mark_batch_done(1, 1, moved(2), 103);
        assert_eq!(record.state(), JobState::Done);
        assert_eq!(record.ended_unix_s, Some(103));
        assert_eq!(
            record.counts,
            FileCounts {
                wanted: 5,
                ..moved(5)
            }
        );
    }

    #[test]
    fn clocks_that_jump_change_nothing_but_times() {
        let run = |times: [i64; 4]| {
            let mut record = record();
            record.submitted_unix_s = times[0];
            record.begin_listing(11);
            record.mark_batch_done(1, 0, moved(3), times[1]);
            record.mark_listed(1, 3, wanted(5), None, times[2]);
            assert_eq!(record.state(), JobState::Running);
            record.mark_batch_failed(1, 1, times[3]);
            record.mark_batch_done(1, 2, moved(1), times[1]);
            assert!(record.ended_unix_s.is_some());
            (record.submitted_unix_s, record.ended_unix_s) = (0, None);
            record
        };
        let usual = run([100, 101, 102, 103]);
        for jumped in [[100, 5, -7, 1], [i64::MAX, 0, i64::MIN, 5]] {
            assert_eq!(run(jumped), usual, "{jumped:?}");
        }
    }

    #[test]
    fn what_comes_twice_counts_once() {
        let mut record = record();
        record.begin_listing(1);
        for _ in 0..2 {
            record.begin_listing(1);
            record.mark_batch_done(1, 0, moved(3), 101);
            record.mark_batch_failed(1, 0, 101);
            record.mark_batch_failed(1, 1, 101);
            record.mark_listed(1, 2, wanted(5), None, 102);
        }
        assert_eq!(
            record.counts,
            FileCounts {
                wanted: 5,
                ..moved(3)
            }
        );
        assert_eq!(record.state(), JobState::Failed);
    }

    #[test]
    fn a_worker_that_was_outrun_ends_nothing() {
        let mut record = record();
        record.begin_listing(5);
        record.begin_listing(4);
        record.mark_listed(1, 1, wanted(1), None, 101);
        record.mark_batch_failed(1, 0, 102);
        record.mark_batch_done(1, 0, moved(1), 103);
        assert_eq!(record.state(), JobState::Done);
        record.begin_listing(4);
        record.begin_listing(6);
        assert_eq!((record.state(), record.listing), (JobState::Done, 1));
    }

    #[test]
    fn a_second_listing_makes_the_batches_of_the_first_void() {
        let mut record = record();
        record.begin_listing(12);
        record.mark_batch_done(1, 0, moved(3), 101);
        record.begin_listing(13);
        assert!(!record.wants(&batch(1, 1)));
        record.mark_batch_done(1, 1, moved(9), 102);
        record.mark_listed(1, 7, wanted(9), None, 103);
        assert_eq!(record.state(), JobState::Listing);
        record.mark_listed(2, 1, wanted(2), None, 104);
        record.mark_batch_done(2, 0, moved(2), 105);
        assert_eq!(record.state(), JobState::Done);
        assert_eq!(
            record.counts,
            FileCounts {
                wanted: 5,
                ..moved(5)
            }
        );
    }

    #[test]
    fn what_was_given_up_can_be_tried_again() {
        let mut record = record();
        record.begin_listing(14);
        record.mark_listed(1, 1, wanted(1), None, 101);
        record.mark_batch_failed(1, 0, 102);
        assert_eq!(record.state(), JobState::Failed);
        assert!(!record.wants(&batch(1, 0)));
        record.retry(&batch(1, 0));
        assert_eq!(
            (record.state(), record.ended_unix_s),
            (JobState::Running, None)
        );
        assert!(record.wants(&batch(1, 0)));
    }

    #[test]
    fn a_listing_that_was_given_up_ends_the_job() {
        let mut record = record();
        let order = record.order();
        record.begin_listing(15);
        record.mark_listing_failed("no such file", 101);
        assert_eq!(record.state(), JobState::Failed);
        assert!(!record.wants(&order));
        record.retry(&order);
        assert!(record.wants(&order));
        record.begin_listing(16);
        record.mark_listed(3, 0, wanted(0), None, 102);
        assert_eq!(record.state(), JobState::Done, "there was nothing to move");
    }

    #[test]
    fn a_job_whose_claims_were_lost_can_be_tried_again() {
        let mut record = record();
        record.begin_listing(90);
        record.retry(&record.order());
        record.begin_listing(1);
        assert_eq!((record.lister, record.listing), (1, 3));
    }

    #[test]
    fn a_partial_listing_moves_what_it_found_and_fails() {
        let mut record = record();
        record.begin_listing(17);
        record.mark_listed(
            1,
            1,
            wanted(1),
            Some("b: permission denied".to_owned()),
            101,
        );
        assert_eq!(record.state(), JobState::Running);
        record.mark_batch_done(1, 0, moved(1), 102);
        assert_eq!(record.state(), JobState::Failed);
    }

    #[test]
    fn a_listing_that_goes_on_while_its_job_is_tried_again_is_void() {
        let mut record = record();
        let order = record.order();
        record.begin_listing(18);
        record.is_cancelled = true;
        record.retry(&order);
        record.mark_listed(1, 79, wanted(2500), None, 102);
        assert!(record.wants(&order) && !record.wants(&batch(1, 3)));
        record.begin_listing(19);
        record.mark_listed(3, 1, wanted(2), None, 103);
        record.mark_batch_done(3, 0, moved(2), 104);
        assert_eq!(record.state(), JobState::Done);
    }

    #[test]
    fn a_cancelled_job_wants_nothing() {
        let mut record = record();
        record.begin_listing(20);
        record.is_cancelled = true;
        assert!(!record.wants(&batch(1, 0)));
        assert_eq!(record.state(), JobState::Cancelled);
    }
}
