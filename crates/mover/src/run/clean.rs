//! Removes the parts that interrupted runs of a job have left at its destination.
//!
//! The journal has some of them. The others are named after their sources: a part whose digits are those of the source that
//! goes there is the job's.

use std::{sync::Arc, time::Duration};

use ftp::listing::{Entry, Kind};
use tokio::{task::spawn_blocking, time::sleep};

use super::{
    blocking::on_disk, browse::BrowseError, delete::delete_file, end::End, failure::TaskError,
    lane::list, shared::Shared,
};
use crate::{
    disk::{LeftFile, LocalFiles, Machine, Side},
    job::{Job, Root, Site},
    journal::Journal,
    names::{join, local, shown},
    part_name::{digits_of, may_be_cut, part_path, short_part_path, stem_and_digits},
};

/// The parts of interrupted runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Parts that are gone now.
    pub removed: u64,
    /// Parts that were left alone: a process writes to them, or another user has them.
    pub kept: u64,
}

/// Removes the parts that earlier runs of a job have left. What the journal has of them is forgotten. The journal is that of
/// the job, so no other process does the same job meanwhile.
///
/// # Errors
/// [`BrowseError`] if a part cannot be removed; the journal then still has it.
pub async fn clean(job: &Job, journal: Option<&Journal>) -> Result<Cleaned, BrowseError> {
    let mut cleaner = Cleaner::open(job).await?;
    if let Some(journal) = journal {
        cleaner.clean_journal(journal).await?;
    }
    if job.moving.partial_suffix.is_some() {
        for root in &job.roots {
            cleaner.find_below(root).await?;
        }
        cleaner.remove_found().await?;
    }
    cleaner.destination.close(None).await;
    if let Some(source) = cleaner.source {
        source.close(None).await;
    }
    Ok(cleaner.cleaned)
}

/// Forgets parts of this machine that are gone, once a run is done: it may have been ended between the name of a file and
/// the end of its entry. What cannot be read or written is forgotten by a later run.
pub(super) async fn forget_missing(shared: &Arc<Shared>) {
    let is_local = matches!(shared.job.destination, Site::Local);
    let Some(journal) = shared.journal.clone().filter(|_| is_local) else {
        return;
    };
    let files = shared.destination_files.clone();
    let forget = move || {
        for part in journal.left().into_iter().flatten() {
            let is_missing = |name: &Vec<u8>| files.look(name).is_ok_and(|it| it.is_none());
            if part.names.iter().all(is_missing) {
                let ended = journal.end(&part.key);
                let _ = ended.and_then(|()| journal.end_pieces(&part.key));
            }
        }
    };
    spawn_blocking(forget)
        .await
        .expect("disk work does not panic");
}

struct Cleaner<'a> {
    job: &'a Job,
    /// Without it, parts with names that were cut are not recognised.
    source: Option<End>,
    destination: End,
    /// Parts that no journal has.
    found: Vec<(Vec<u8>, Entry)>,
    cleaned: Cleaned,
}

impl<'a> Cleaner<'a> {
    async fn open(job: &'a Job) -> Result<Self, BrowseError> {
        let (sources, destinations) = job.anchors();
        let side = Side::Source {
            follows_links: false,
            is_removed: false,
        };
        let from = LocalFiles::new(Arc::new(Machine), sources, side);
        let side = Side::Destination {
            removes_sources: false,
        };
        let to = LocalFiles::new(Arc::new(Machine), destinations, side);
        let destination = End::open(&job.destination, &to, None).await;
        Ok(Self {
            job,
            source: End::open(&job.source, &from, None).await.ok(),
            destination: destination?,
            found: Vec::new(),
            cleaned: Cleaned::default(),
        })
    }

    /// Removes the parts that the journal has.
    async fn clean_journal(&mut self, journal: &Journal) -> Result<(), BrowseError> {
        for part in journal.left().map_err(unusable)? {
            let mut left = LeftFile::Missing;
            for name in &part.names {
                match self.remove(name, true).await? {
                    LeftFile::Missing => {}
                    there => left = there,
                }
            }
            self.count(left);
            if left != LeftFile::Kept {
                let ended = journal.end(&part.key);
                ended
                    .and_then(|()| journal.end_pieces(&part.key))
                    .map_err(unusable)?;
            }
        }
        Ok(())
    }

    /// Looks for parts of files below a root.
    async fn find_below(&mut self, root: &Root) -> Result<(), BrowseError> {
        let target = &root.destination;
        let directory = target.directory().to_vec();
        let there = self.destination.look(&directory).await?;
        let is_directory = there.is_some_and(|it| it.kind == Kind::Directory);
        let suffix = self.suffix().to_vec();
        if target.needs_look() {
            target.found(is_directory);
        }
        // The root may be a file.
        let (path, digits) = (target.file(), digits_of(&root.source));
        for part in [
            part_path(&path, digits, &suffix),
            short_part_path(&path, digits, &suffix),
        ] {
            if let Some(entry) = self.destination.look_for_file(&part).await? {
                self.find(part, entry);
            }
        }
        let source = match &mut self.source {
            Some(source) => source.look(&root.source).await.ok().flatten(),
            None => None,
        };
        let is_file = source.is_some_and(|it| it.kind != Kind::Directory);
        if is_file || !is_directory {
            return Ok(());
        }
        let mut waiting = vec![(root.source.clone(), directory)];
        while let Some((from, to)) = waiting.pop() {
            let mut entries = Vec::new();
            let take = |found: Vec<Entry>| entries.extend(found.into_iter().filter(is_wanted));
            match list(&mut self.destination, &to, false, take).await {
                Err(TaskError::Disk { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound => {}
                listed => drop(listed?),
            }
            let mut cut = Vec::new();
            for entry in entries {
                let name = &entry.name;
                if entry.kind == Kind::Directory {
                    waiting.push((join(&from, name), join(&to, name)));
                } else if let Some((stem, digits)) = stem_and_digits(name, &suffix) {
                    if digits_of(&join(&from, stem)) == digits {
                        self.find(join(&to, name), entry);
                    } else if may_be_cut(name) {
                        cut.push(entry);
                    }
                }
            }
            self.find_cut((&from, &to), cut).await;
        }
        Ok(())
    }

    /// Looks for parts whose names were cut: the source has the whole names.
    async fn find_cut(&mut self, (from, to): (&[u8], &[u8]), cut: Vec<Entry>) {
        let Some(source) = self.source.as_mut().filter(|_| !cut.is_empty()) else {
            return;
        };
        let suffix = self.job.moving.partial_suffix.as_deref();
        let suffix = suffix.unwrap_or_default();
        let mut is_ours = vec![false; cut.len()];
        let take = |entries: Vec<Entry>| {
            for entry in entries {
                let digits_there = digits_of(&join(from, &entry.name));
                for (is_ours, part) in is_ours.iter_mut().zip(&cut) {
                    let parsed = stem_and_digits(&part.name, suffix);
                    *is_ours |= parsed.is_some_and(|(stem, digits)| {
                        digits == digits_there && entry.name.starts_with(stem)
                    });
                }
            }
        };
        // What cannot be listed shows no more of them.
        let _ = list(source, from, false, take).await;
        for (entry, is_ours) in cut.into_iter().zip(is_ours) {
            if is_ours {
                self.find(join(to, &entry.name), entry);
            }
        }
    }

    fn find(&mut self, part: Vec<u8>, entry: Entry) {
        if !self.found.iter().any(|(found, _)| *found == part) {
            self.found.push((part, entry));
        }
    }

    /// Removes what was found. A part at a server that grows meanwhile is another machine's.
    async fn remove_found(&mut self) -> Result<(), BrowseError> {
        let found = std::mem::take(&mut self.found);
        let is_local = matches!(self.job.destination, Site::Local);
        if !is_local && !found.is_empty() {
            sleep(GROWS_WITHIN).await;
        }
        for (part, before) in found {
            let left = match is_local {
                true => self.remove(&part, false).await?,
                false => {
                    let now = self.destination.look_for_file(&part).await?;
                    let size_bytes = now.as_ref().and_then(|it| it.size_bytes);
                    match now {
                        None => LeftFile::Missing,
                        Some(_) if size_bytes != before.size_bytes => LeftFile::Kept,
                        Some(_) => self.remove(&part, false).await?,
                    }
                }
            };
            self.count(left);
        }
        Ok(())
    }

    async fn remove(&mut self, part: &[u8], is_recorded: bool) -> Result<LeftFile, BrowseError> {
        if let End::Local(end) = &self.destination {
            let what = format!("removing {}", shown(&local(part)));
            let (files, part) = (end.files.clone(), part.to_vec());
            let (all, path) = (files.clone(), part.clone());
            let remove = move || files.remove_left_part(&part, is_recorded);
            let left = on_disk(remove, what.clone()).await?;
            if is_recorded && left == LeftFile::Removed {
                // Then the journal may forget it.
                let synced = all.named(&path).await;
                synced.map_err(TaskError::disk(what))?;
            }
            return Ok(left);
        }
        if self.destination.look_for_file(part).await?.is_none() {
            return Ok(LeftFile::Missing);
        }
        delete_file(&mut self.destination, part).await?;
        Ok(LeftFile::Removed)
    }

    fn count(&mut self, left: LeftFile) {
        match left {
            LeftFile::Missing => {}
            LeftFile::Removed => self.cleaned.removed += 1,
            LeftFile::Kept => self.cleaned.kept += 1,
        }
    }

    fn suffix(&self) -> &[u8] {
        self.job
            .moving
            .partial_suffix
            .as_deref()
            .unwrap_or_default()
    }
}

fn is_wanted(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::Directory | Kind::File)
}

fn unusable(error: redb::Error) -> BrowseError {
    BrowseError::Unusable(format!("the journal cannot be used: {error}"))
}

/// An upload under way grows within this time.
const GROWS_WITHIN: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::ffi::OsStrExt as _, path::Path};

    use super::*;
    use crate::{
        job::{Moving, Target},
        plan::Options,
    };

    fn job(from: &Path, to: &Path) -> Job {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        Job {
            fence: None,
            source: Site::Local,
            destination: Site::Local,
            roots: vec![Root {
                source: bytes(from),
                destination: Target::new(bytes(to), b"from".to_vec()),
            }],
            files: None,
            plan: Options::default(),
            moving: Moving::default(),
            sharing: None,
            kept: None,
        }
    }

    /// Makes the part that a file has at the destination of a job. Returns its path.
    fn put_part(job: &Job, below: &str) -> std::path::PathBuf {
        let root = &job.roots[0];
        let source = join(&root.source, below.as_bytes());
        let path = join(root.destination.directory(), below.as_bytes());
        let part = local(&job.moving.partial(&source, &path));
        fs::create_dir_all(part.parent().expect("below a folder")).expect("room");
        fs::write(&part, b"half").expect("room");
        part
    }

    fn clean_now(job: &Job) -> Cleaned {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(clean(job, None)).expect("cleaned")
    }

    #[test]
    fn parts_without_a_journal_are_found_by_their_sources_and_no_others() {
        let folder = tempfile::tempdir().expect("room");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let long = "n".repeat(250);
        for path in ["a", "b/c"] {
            fs::create_dir_all(from.join(path).parent().expect("below")).expect("room");
            fs::write(from.join(path), b"whole").expect("room");
        }
        fs::write(from.join(&long), b"whole").expect("room");
        let ours = job(&from, &to);
        let mut gone = vec![put_part(&ours, "a"), put_part(&ours, "b/c")];
        gone.push(put_part(&ours, &long));
        // The source has it no more.
        gone.push(put_part(&ours, "b/removed"));
        let theirs = put_part(&job(&folder.path().join("other"), &to), "a");
        for name in ["plain", "film.part", "film.0123abcd.part"] {
            fs::write(to.join(name), b"a user's").expect("room");
        }
        let held = put_part(&ours, "held");
        let writer = fs::File::open(&held).expect("there");
        writer.try_lock().expect("free");
        let counts = |removed, kept| Cleaned { removed, kept };
        assert_eq!(clean_now(&ours), counts(4, 1));
        assert!(gone.iter().all(|it| !it.exists()));
        assert!(theirs.exists() && held.exists());
        assert_eq!(fs::read_dir(&to).expect("a folder").count(), 6);
        drop(writer);
        assert_eq!(clean_now(&ours), counts(1, 0));
        assert_eq!(clean_now(&ours), Cleaned::default());
    }

    #[test]
    fn a_link_to_another_folder_is_not_followed_and_the_part_of_a_single_file_is_found() {
        let folder = tempfile::tempdir().expect("room");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("b")).expect("room");
        fs::create_dir(&to).expect("room");
        let outside = put_part(&job(&from, &folder.path().join("outside")), "b/c");
        let ours = job(&from, &to);
        std::os::unix::fs::symlink(folder.path().join("outside/b"), to.join("b")).expect("room");
        assert_eq!(clean_now(&ours), Cleaned::default());
        assert!(outside.exists());
        fs::write(from.join("film"), b"whole").expect("room");
        let one = job(&from.join("film"), &to.join("film"));
        let source = from.join("film");
        let part = ours.moving.partial(
            source.as_os_str().as_bytes(),
            one.roots[0].destination.directory(),
        );
        fs::write(local(&part), b"half").expect("room");
        assert_eq!(clean_now(&one).removed, 1);
    }
}
