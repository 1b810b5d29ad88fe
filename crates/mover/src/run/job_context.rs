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
    /// Files of the source, if that is this machine.
    pub(super) source_files: Arc<LocalFiles>,
    /// Files of the destination, if that is this machine.
    pub(super) destination_files: Arc<LocalFiles>,
    /// Whether the destination has refused the long name of a part, and accepted a short one.
    pub(super) takes_short_names: AtomicBool,
    pub(super) progress: Arc<JobProgress>,
    /// Whether the gateway cannot connect to ports of this machine.
    pub(super) is_out_of_reach: AtomicBool,
    /// Whether the source announced support for offsets, but ignores them.
    pub(super) gives_no_ranges: AtomicBool,
    /// Whether a lane has been connected, which shows that the log-ins are right.
    pub(super) has_logged_in: AtomicBool,
    pub(super) ranges: Ranges,
    /// Journal keys of parts whose record ends with a name, by the path with that name.
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

    /// Schedules the removal of the record `key` for the time when the name of a file outlives a
    /// power cut.
    pub(super) fn end_later(&self, path: &[u8], key: &[u8]) {
        let mut ending = self.ending.lock().expect("nobody panics with it");
        ending.insert(path.to_vec(), key.to_vec());
    }

    /// Takes the key of the record that ends with this name.
    pub(super) fn take_ending(&self, path: &[u8]) -> Option<Vec<u8>> {
        let mut ending = self.ending.lock().expect("nobody panics with it");
        ending.remove(path)
    }

    /// Makes a symbolic link at the destination, which is on this machine.
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

    /// Fails unless this process may still take an irreversible step. The wait for the answer
    /// blocks no thread.
    pub(super) async fn pass_fence(&self) -> Result<(), TaskError> {
        match &self.job.fence {
            Some(fence) if !fence.allows().await => Err(ServerError::from(FencedError).into()),
            _ => Ok(()),
        }
    }

    /// Returns the proof by equal sizes. Between gateways the link also compares hashes of each
    /// stream's content.
    pub(super) fn proof_by_size(&self) -> ContentProof {
        let is_linked = |site: &JobSite| match site {
            JobSite::Local => true,
            JobSite::Server(dial) => dial.is_behind_gateway(),
            JobSite::Web(_) => false,
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
