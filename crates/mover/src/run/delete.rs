//! Deletions of a job: extra files at a sync's destination, and source files that were copied.

use std::io::ErrorKind;

use ftp::listing::EntryKind;

use super::{backend::Backend, blocking::on_disk, failure::TaskError, lane::Lane, listing::list};
use crate::{
    disk::SourceRemoval,
    job::Job,
    names::{local, parent, shown},
    plan::{Directory, ENTRIES_THERE_MAX, File, FileVersion, RootedPath, TaskResult},
    server::ServerError,
};

impl Lane {
    pub(super) async fn list_destination(
        &mut self,
        directory: &Directory,
    ) -> Result<TaskResult, TaskError> {
        let path = self.shared.job.destination_directory(directory);
        let mut all = Vec::new();
        let take = |entries| {
            // The plan refuses a listing that exceeds its limit. Therefore entries are no longer
            // collected once the limit is exceeded.
            if all.len() <= ENTRIES_THERE_MAX {
                all.extend(entries);
            }
        };
        let not_understood = list(&mut self.destination, &path, false, take).await?;
        if not_understood > 0 {
            let what =
                format!("{not_understood} lines of the destination's listing are not understood");
            return Err(TaskError::Listing(what));
        }
        Ok(TaskResult::Listed(all))
    }

    /// Deletes the file that has a directory's name, and then creates the directory.
    pub(super) async fn replace(&mut self, directory: &Directory) -> Result<TaskResult, TaskError> {
        let path = self.shared.job.destination_directory(directory);
        let refused = match delete_file(&mut self.destination, &path).await {
            Ok(()) => None,
            Err(error) if is_refused(&error) => Some(error),
            Err(error) => return Err(error),
        };
        match (self.destination.make_directory(&path, false).await, refused) {
            // The deletion may have failed because an earlier attempt has already made the
            // directory. It may also have failed because a link to a directory cannot be deleted.
            // The kind distinguishes the two cases.
            (Ok(()), Some(refused)) if self.kind_of(&path).await? != Some(EntryKind::Directory) => {
                Err(refused)
            }
            (Err(error), Some(refused)) if is_refused(&error) => Err(refused),
            (made, _) => made.map(|()| TaskResult::Made),
        }
    }

    pub(super) async fn delete(&mut self, place: &RootedPath) -> Result<TaskResult, TaskError> {
        let path = path_of(&self.shared.job, place);
        match delete_file(&mut self.destination, &path).await {
            Err(error) if is_refused(&error) && self.kind_of(&path).await?.is_none() => {}
            result => result?,
        }
        Ok(TaskResult::Deleted)
    }

    pub(super) async fn remove_directory(
        &mut self,
        directory: &Directory,
    ) -> Result<TaskResult, TaskError> {
        let path = self.shared.job.destination_directory(directory);
        let removed = match &mut self.destination {
            Backend::Local(disk) => {
                let what = format!("removing the directory {}", shown(&local(&path)));
                let (files, path) = (disk.files.clone(), path.clone());
                on_disk(move || files.remove_folder(&path), what).await
            }
            Backend::Remote(session) => Ok(session.remove_directory(&path).await?),
            Backend::Sftp(session) => Ok(session.remove_directory(&path).await?),
            Backend::Web(_) => Err(ServerError::SourceAlone.into()),
        };
        match removed {
            Err(error) if is_refused(&error) && self.kind_of(&path).await?.is_none() => {}
            result => result?,
        }
        Ok(TaskResult::Deleted)
    }

    /// Removes a source file if it still has the version that was copied. If the file does not
    /// exist, the function returns `Ok`.
    pub(super) async fn remove_source(
        &mut self,
        file: &File,
        version: &FileVersion,
    ) -> Result<TaskResult, TaskError> {
        let job = &self.shared.job;
        let path = job.source_path(file.root, &file.path);
        if let Backend::Local(disk) = &self.destination {
            let there = job.destination_path(file.root, &file.path);
            let what = || format!("syncing {}", shown(&local(&there)));
            let synced = disk.files.kept_for_good(&there).await;
            synced.map_err(|error| TaskError::disk(what())(error))?;
        }
        if let Backend::Local(disk) = &self.source {
            self.shared.pass_fence().await?;
            let what = format!("removing {}", shown(&local(&path)));
            let (files, version) = (disk.files.clone(), *version);
            let remove = move || {
                files.remove_source(&path, |now| {
                    version.is_same_as(&FileVersion {
                        size_bytes: now.size_bytes,
                        modified: now.modified,
                    })
                })
            };
            return Ok(match on_disk(remove, what).await? {
                SourceRemoval::Removed => TaskResult::Deleted,
                SourceRemoval::Kept => TaskResult::Kept,
            });
        }
        let Some(now) = self.source.look_for_file(&path).await? else {
            return Ok(TaskResult::Deleted);
        };
        let now = FileVersion {
            size_bytes: now.size_bytes,
            // Some servers report times only in listings, so the present time is unknown here.
            modified: now.modified.or(version.modified),
        };
        if !version.is_same_as(&now) {
            return Ok(TaskResult::Kept);
        }
        self.shared.pass_fence().await?;
        delete_file(&mut self.source, &path).await?;
        Ok(TaskResult::Deleted)
    }

    /// Returns the kind of a path according to the listing of its parent directory. Symbolic links
    /// are not followed. If the path is not listed, the function returns `None`.
    async fn kind_of(&mut self, path: &[u8]) -> Result<Option<EntryKind>, TaskError> {
        let above = parent(path).unwrap_or_default();
        let name = path.rsplit(|it| *it == b'/').next().unwrap_or_default();
        let mut found = None;
        let take = |entries: Vec<ftp::listing::ListingEntry>| {
            let mut entries = entries.into_iter();
            let same = entries.find(|it| it.name == name);
            found = found.take().or(same.map(|it| it.kind));
        };
        let not_understood = list(&mut self.destination, above, false, take).await?;
        if found.is_none() && not_understood > 0 {
            let what = "the destination's listing is not understood".to_owned();
            return Err(TaskError::Listing(what));
        }
        Ok(found)
    }
}

fn path_of(job: &Job, place: &RootedPath) -> Vec<u8> {
    job.destination_path(place.root, &place.path)
}

pub(super) async fn delete_file(backend: &mut Backend, path: &[u8]) -> Result<(), TaskError> {
    match backend {
        Backend::Local(disk) => {
            let what = format!("deleting {}", shown(&local(path)));
            let (files, path) = (disk.files.clone(), path.to_vec());
            on_disk(move || files.remove(&path), what).await
        }
        Backend::Remote(session) => Ok(session.delete(path).await?),
        Backend::Sftp(session) => Ok(session.delete(path).await?),
        Backend::Web(_) => Err(ServerError::SourceAlone.into()),
    }
}

/// Returns whether the file system or the server refused a deletion. The file may be gone already,
/// because an earlier attempt deleted it.
fn is_refused(error: &TaskError) -> bool {
    match error {
        TaskError::Server(error) => error.is_refusal(),
        TaskError::Disk { source, .. } => {
            matches!(source.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory)
        }
        _ => false,
    }
}
