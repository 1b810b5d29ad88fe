//! Comparison of a file's content at the source and at the destination.

use super::{backend::compare_hashes, failure::TaskError, lane::Lane, moving::read_exactly};
use crate::plan::{File, TaskResult};

impl Lane {
    pub(super) async fn compare(&mut self, file: &File) -> Result<TaskResult, TaskError> {
        let shared = self.shared.clone();
        let ours = shared.job.source_path(file.root, &file.path);
        let theirs = shared.job.destination_path(file.root, &file.path);
        let ends = (&mut self.source, &mut self.destination);
        if let Some(is_equal) = compare_hashes(ends, (&ours, &theirs)).await? {
            return Ok(TaskResult::Compared { is_equal });
        }
        let mut source = self.source.read(&ours, 0).await?;
        let mut destination = self.destination.read(&theirs, 0).await?;
        let step_bytes = shared.progress.step_bytes();
        let (mut ours, mut theirs) = (vec![0; step_bytes], vec![0; step_bytes]);
        let is_equal = loop {
            let count = source.read(&mut ours).await?;
            if count == 0 {
                break destination.read(&mut theirs[..1]).await? == 0;
            }
            let is_whole = read_exactly(&mut destination, &mut theirs[..count], &shared).await?;
            if !is_whole || ours[..count] != theirs[..count] {
                break false;
            }
            shared.progress.moved(count).await;
        };
        if is_equal {
            source.finish().await?;
            destination.finish().await?;
        }
        Ok(TaskResult::Compared { is_equal })
    }
}
