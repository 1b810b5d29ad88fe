//! Whether a file has the same content at both ends.

use super::{end::End, failure::TaskError, lane::Lane, moving::read_exactly};
use crate::{
    plan::{File, Outcome},
    server::Algorithm,
};

impl Lane {
    pub(super) async fn compare(&mut self, file: &File) -> Result<Outcome, TaskError> {
        let shared = self.shared.clone();
        let ours = shared.job.source_path(file.root, &file.path);
        let theirs = shared.job.destination_path(file.root, &file.path);
        let ends = (&mut self.source, &mut self.destination);
        if let Some(is_equal) = compare_hashes(ends, (&ours, &theirs)).await? {
            return Ok(Outcome::Compared { is_equal });
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
        Ok(Outcome::Compared { is_equal })
    }
}

/// Whether two files have the same content, by hashes that both ends make; `None` where they make none. Two files of this
/// machine are read anyway.
pub(super) async fn compare_hashes(
    (source, destination): (&mut End, &mut End),
    (ours, theirs): (&[u8], &[u8]),
) -> Result<Option<bool>, TaskError> {
    if matches!((&source, &destination), (End::Local, End::Local)) {
        return Ok(None);
    }
    let both_make = |it: &Algorithm| source.makes(*it) && destination.makes(*it);
    let Some(algorithm) = Algorithm::ALL.into_iter().find(both_make) else {
        return Ok(None);
    };
    let (ours, theirs) = tokio::try_join!(
        source.hash(ours, algorithm),
        destination.hash(theirs, algorithm)
    )?;
    Ok(ours.zip(theirs).map(|(ours, theirs)| ours == theirs))
}
