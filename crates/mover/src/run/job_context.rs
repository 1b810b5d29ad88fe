//! State that all lanes of a job share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, atomic::AtomicBool},
};

use super::{blocking::on_disk, failure::TaskError, progress::JobProgress, ranges::Ranges};
use crate::{
    disk::{FilesRole, LocalFiles, system::FileSystem},
    fence::FencedError,
    job::{Job, JobSite},
    journal::Journal,
    names::{local, shown},
    plan::{ContentProof, Links, RelativePath, TaskResult},
    server::ServerError,
};

/// State that all lanes of a job share.
#[derive(Debug)]
pub(super) struct JobContext {
    pub(super) job: Arc<Job>,
    pub(super) journal: Option<Arc<Journal>>,
    /// Access to the source's files, if the source is this machine.
    pub(super) source_files: Arc<LocalFiles>,
    /// Access to the destination's files, if the destination is this machine.
    pub(super) destination_files: Arc<LocalFiles>,
    /// Whether the destination has refused a long name of a part file and then accepted a short
    /// one.
    pub(super) takes_short_names: AtomicBool,
    pub(super) progress: Arc<JobProgress>,
    /// Whether the gateway cannot connect to this machine's ports.
    pub(super) is_out_of_reach: AtomicBool,
    /// Whether the source announced support for offsets but does not provide it.
    pub(super) gives_no_ranges: AtomicBool,
    /// Whether any lane has logged in successfully. If so, the credentials are right.
    pub(super) has_logged_in: AtomicBool,
    pub(super) ranges: Ranges,
    /// Journal keys of part files, by the final paths of their files. Each record is removed once
    /// the final name survives a power cut.
    ending: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
}

impl JobContext {
    pub(super) fn new(
        job: Arc<Job>,
        journal: Option<Journal>,
        progress: Arc<JobProgress>,
        system: Arc<dyn FileSystem>,
    ) -> Self {
        let plan = &job.plan;
        let removes_sources = plan.removes_source && !plan.is_dry_run;
        let (sources, destinations) = job.anchors();
        Self {
            source_files: LocalFiles::new(
                system.clone(),
                sources,
                FilesRole::Source {
                    follows_links: plan.links == Links::Follow,
                    is_removed: removes_sources,
                },
            ),
            destination_files: LocalFiles::new(
                system,
                destinations,
                FilesRole::Destination { removes_sources },
            ),
            takes_short_names: AtomicBool::new(false),
            job,
            journal: journal.map(Arc::new),
            progress,
            is_out_of_reach: AtomicBool::new(false),
            gives_no_ranges: AtomicBool::new(false),
            has_logged_in: AtomicBool::new(false),
            ranges: Ranges::default(),
            ending: Mutex::default(),
        }
    }

    /// Schedules the removal of the journal record `key`. The record is removed once the name of
    /// the file survives a power cut.
    pub(super) fn end_later(&self, path: &[u8], key: &[u8]) {
        let mut ending = self.ending.lock().expect("nobody panics with it");
        ending.insert(path.to_vec(), key.to_vec());
    }

    /// Removes and returns the journal key that `end_later` has stored for the file with this path.
    pub(super) fn take_ending(&self, path: &[u8]) -> Option<Vec<u8>> {
        let mut ending = self.ending.lock().expect("nobody panics with it");
        ending.remove(path)
    }

    /// Creates a symbolic link at the destination, which is this machine.
    pub(super) async fn make_link(
        &self,
        root: usize,
        below: &RelativePath,
        target: &[u8],
    ) -> Result<TaskResult, TaskError> {
        let path = self.job.destination_path(root, below);
        let part = self.job.source_path(root, below);
        let part = self.job.moving.partial(&part, &path);
        let what = format!("making the link {}", shown(&local(&path)));
        self.pass_fence().await?;
        let (files, target) = (self.destination_files.clone(), target.to_vec());
        on_disk(move || files.make_link(&target, &part, &path), what).await?;
        Ok(TaskResult::Moved {
            bytes: 0,
            modified_unix_s: None,
            proof: ContentProof::None,
        })
    }

    /// Checks whether this process may still take an irreversible step. If not, returns an error.
    /// The check is asynchronous, so no thread waits for its result.
    pub(super) async fn pass_fence(&self) -> Result<(), TaskError> {
        match &self.job.fence {
            Some(fence) if !fence.allows().await => Err(ServerError::from(FencedError).into()),
            _ => Ok(()),
        }
    }

    /// Returns the evidence for a copy whose size equals the size of the source. If the bytes
    /// passed between two gateways, the link has also compared hashes of each stream.
    pub(super) fn proof_by_size(&self) -> ContentProof {
        let is_linked = |site: &JobSite| match site {
            JobSite::Local => true,
            JobSite::Server(_) | JobSite::Web(_) | JobSite::Sftp(_) => site.is_behind_gateway(),
        };
        let Job {
            source,
            destination,
            ..
        } = &*self.job;
        let both_are_local = matches!((source, destination), (JobSite::Local, JobSite::Local));
        match is_linked(source) && is_linked(destination) && !both_are_local {
            true => ContentProof::Link,
            false => ContentProof::Size,
        }
    }
}
