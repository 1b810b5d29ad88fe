//! What all lanes of a job share.

use std::sync::{Arc, atomic::AtomicBool};

use super::{end::on_disk, failure::TaskError, progress::Progress, ranges::Ranges};
use crate::{
    disk,
    job::{Job, Site},
    journal::Journal,
    names::{local, shown},
    plan::{Outcome, Proof, RelativePath},
};

/// What all lanes of a job share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) job: Arc<Job>,
    pub(super) journal: Option<Arc<Journal>>,
    pub(super) progress: Arc<Progress>,
    /// The gateway cannot connect to ports of this machine.
    pub(super) is_out_of_reach: AtomicBool,
    /// The source says that it begins in the midst of files, and does not.
    pub(super) gives_no_ranges: AtomicBool,
    pub(super) ranges: Ranges,
}

impl Shared {
    /// Makes a symbolic link at the destination, which is on this machine.
    pub(super) async fn make_link(
        &self,
        root: usize,
        below: &RelativePath,
        target: &[u8],
    ) -> Result<Outcome, TaskError> {
        let path = self.job.destination_path(root, below);
        let part = self.job.source_path(root, below);
        let part = local(&self.job.moving.partial(&part, &path));
        let (target, path) = (local(target), local(&path));
        let what = format!("making the link {}", shown(&path));
        on_disk(move || disk::make_link(&target, &part, &path), what).await?;
        Ok(Outcome::Moved {
            bytes: 0,
            modified_unix_s: None,
            proof: Proof::None,
        })
    }

    /// What the comparison of sizes proves: between gateways the link compares hashes of what each stream carries.
    pub(super) fn proof_by_size(&self) -> Proof {
        let is_linked = |site: &Site| match site {
            Site::Local => true,
            Site::Server(dial) => dial.is_behind_gateway(),
            Site::Web(_) => false,
        };
        let Job {
            source,
            destination,
            ..
        } = &*self.job;
        let both_are_local = matches!((source, destination), (Site::Local, Site::Local));
        match is_linked(source) && is_linked(destination) && !both_are_local {
            true => Proof::Link,
            false => Proof::Size,
        }
    }
}
