//! Copies of small files between two local folders. Each file is copied in one blocking call.
//!
//! Switching between threads for each step would take longer than copying the bytes.

use tokio::task::spawn_blocking;

use super::{
    Backend, ContentProof, CopyVerification, File, Mover, TaskError, TaskResult, TransferNames,
};
use crate::run::{
    local::renaming,
    whole_file::{CopyOutcome, FileCopy, name},
};

impl Mover<'_> {
    /// Copies a file in one call. Returns `None` if the file must be copied in several steps.
    pub(super) async fn move_whole(
        &self,
        file: &File,
        names: &TransferNames,
    ) -> Result<Option<TaskResult>, TaskError> {
        if !self.moves_whole(file, names) {
            return Ok(None);
        }
        let shared = self.shared;
        let verify = shared.job.moving.verify;
        let copy = FileCopy {
            source_files: shared.source_files.clone(),
            destination_files: shared.destination_files.clone(),
            source: names.source.clone(),
            part: names.part.clone(),
            destination: names.destination.clone(),
            bytes_max: shared.progress.step_bytes() as u64,
            is_compared: verify != CopyVerification::None,
            is_named: shared.job.fence.is_none(),
        };
        let copied = spawn_blocking(move || copy.run());
        let (stamp, part) = match copied.await.expect("disk work does not panic")? {
            CopyOutcome::Whole(stamp, part) => (stamp, part),
            // A log may have grown.
            CopyOutcome::Changed => return Ok(None),
        };
        let bytes = stamp.size_bytes;
        shared
            .progress
            .moved(usize::try_from(bytes).unwrap_or(usize::MAX))
            .await;
        if let Some(part) = part {
            shared.pass_fence().await?;
            let path = names.destination.clone();
            let named = spawn_blocking(move || name(part, &path));
            let named = named.await.expect("disk work does not panic");
            named.map_err(|error| renaming(&names.part, &names.destination)(error))?;
        }
        Ok(Some(TaskResult::Moved {
            bytes,
            modified_unix_s: Some(stamp.modified_unix_s),
            proof: match verify {
                CopyVerification::None => ContentProof::None,
                _ => shared.proof_by_size(),
            },
        }))
    }

    /// Returns whether a file can be copied in one call. Source and destination must be this
    /// machine. The file must be small enough for one step of the rate limit. The job must neither
    /// read the copy back nor follow growing files.
    fn moves_whole(&self, file: &File, names: &TransferNames) -> bool {
        let are_local = matches!(
            (&*self.source, &*self.destination),
            (Backend::Local(_), Backend::Local(_))
        );
        let step_bytes = self.shared.progress.step_bytes() as u64;
        let is_small = file.size_bytes.is_some_and(|it| it <= step_bytes);
        let verify = self.shared.job.moving.verify;
        let is_simple =
            matches!(verify, CopyVerification::None | CopyVerification::Size) && !self.follows();
        are_local && is_small && is_simple && names.part != names.destination
    }
}
