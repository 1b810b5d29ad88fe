//! Removal of part files (incomplete files) that interrupted runs of a job have left at the
//! destination.
//!
//! The journal has records of some part files. Any other part file has a hash of the source's path
//! in its name, and belongs to the job if the hash matches.

use std::{
    collections::{BTreeMap, VecDeque},
    io::ErrorKind,
    sync::Arc,
    time::Duration,
};

use ftp::listing::{EntryKind, ListingEntry, TimePrecision};
use tokio::{task::spawn_blocking, time::sleep};

use super::{
    backend::Backend,
    blocking::on_disk,
    browse::BrowseError,
    delete::delete_file,
    failure::{TaskError, chain},
    job_context::JobContext,
    listing::{list, now_unix_s},
};
use crate::{
    disk::{FilesRole, LocalFiles, MachineFileSystem, PartRemoval, system::FileSystem},
    job::{Job, JobSite, Root},
    journal::Journal,
    names::{join, last_name, local, parent, shown},
    part_name::{digits_of, may_be_cut, part_path, short_part_path, stem_and_digits},
    plan::{DEPTH_MAX, DIRECTORIES_WAITING_MAX, PATH_BYTES_MAX},
};

/// Result of removing the part files that interrupted runs have left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CleanResult {
    /// Number of removed part files.
    pub removed: u64,
    /// Number of part files that were kept, because they may be in use or because another user owns
    /// them.
    pub kept: u64,
    /// Number of failed removals of part files, plus number of failed listings of directories.
    pub failed: u64,
    /// Descriptions of the first failures, with their paths and causes.
    pub failures: Vec<String>,
}

/// Removes the part files (incomplete files) that earlier runs of a job have left, and their
/// journal records.
///
/// The caller holds the job's journal, so no other process can run the same job. After a failure,
/// the function continues with the other parts.
///
/// # Errors
/// [`BrowseError`] if the destination cannot be reached, or if the journal cannot be used.
pub async fn clean(job: &Job, journal: Option<&Journal>) -> Result<CleanResult, BrowseError> {
    clean_on(Arc::new(MachineFileSystem), job, journal).await
}

/// Does the work of [`clean`] on any file system.
pub(super) async fn clean_on(
    system: Arc<dyn FileSystem>,
    job: &Job,
    journal: Option<&Journal>,
) -> Result<CleanResult, BrowseError> {
    let mut cleaner = Cleaner::open(system, job).await?;
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

/// Removes journal records of local part files that were already renamed to their final names. The
/// function is called at the end of a run.
///
/// Such a record remains if an earlier run has renamed a part and has ended before it removed the
/// record. If the part and the complete file are both missing, the record stays, because their disk
/// may not be mounted. If a record cannot be read now, a later run handles it.
pub(super) async fn forget_missing(shared: &Arc<JobContext>) {
    let is_local = matches!(shared.job.destination, JobSite::Local);
    let Some(journal) = shared.journal.clone().filter(|_| is_local) else {
        return;
    };
    let files = shared.destination_files.clone();
    let forget = move || {
        for part in journal.left().into_iter().flatten() {
            let look = |path: &[u8]| files.look(path);
            let is_missing = |name: &Vec<u8>| look(name).is_ok_and(|it| it.is_none());
            let is_file = |it: ListingEntry| it.kind == EntryKind::File;
            let has_name = |path: &Vec<u8>| look(path).is_ok_and(|it| it.is_some_and(is_file));
            let is_whole = part.is_absolute() && part.path.as_ref().is_some_and(has_name);
            if is_whole && part.names.iter().all(is_missing) {
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
    /// The source. If `None`, part files with shortened names are not found.
    source: Option<Backend>,
    destination: Backend,
    /// Part files that were found without a journal record and are still to be removed.
    found: BTreeMap<Vec<u8>, ListingEntry>,
    /// Whether the server's listing has contained a part file without a precise modification time.
    has_undated: bool,
    cleaned: CleanResult,
}

/// A destination directory that is still to be searched for part files.
struct PendingDirectory {
    from: Vec<u8>,
    to: Vec<u8>,
    depth: usize,
}

impl<'a> Cleaner<'a> {
    async fn open(system: Arc<dyn FileSystem>, job: &'a Job) -> Result<Self, BrowseError> {
        let (sources, destinations) = job.anchors();
        let side = FilesRole::Source {
            follows_links: false,
            is_removed: false,
        };
        let from = LocalFiles::new(system.clone(), sources, side);
        let side = FilesRole::Destination {
            removes_sources: false,
        };
        let to = LocalFiles::new(system, destinations, side);
        let destination = Backend::open(&job.destination, &to, None).await;
        Ok(Self {
            job,
            source: Backend::open(&job.source, &from, None).await.ok(),
            destination: destination?,
            found: BTreeMap::new(),
            has_undated: false,
            cleaned: CleanResult::default(),
        })
    }

    /// Removes the part files that have a record in the journal.
    async fn clean_journal(&mut self, journal: &Journal) -> Result<(), BrowseError> {
        for part in journal.left().map_err(unusable)? {
            if self.is_local() && !part.is_absolute() {
                // The path is relative. If the run had another working directory, the path now
                // leads to another file.
                self.count(PartRemoval::Kept);
                continue;
            }
            let mut left = Some(PartRemoval::Missing);
            for name in &part.names {
                match self.remove(name, true).await {
                    Ok(PartRemoval::Missing) => {}
                    Ok(there) => left = left.map(|_| there),
                    Err(error) => {
                        self.fail(error).await?;
                        left = None;
                    }
                }
            }
            let Some(left) = left else {
                continue;
            };
            self.count(left);
            if left != PartRemoval::Kept {
                let ended = journal.end(&part.key);
                ended
                    .and_then(|()| journal.end_pieces(&part.key))
                    .map_err(unusable)?;
            }
        }
        Ok(())
    }

    /// Searches for part files of the files below a root.
    async fn find_below(&mut self, root: &Root) -> Result<(), BrowseError> {
        let target = &root.destination;
        let directory = target.directory().to_vec();
        let there = self.destination.look(&directory).await?;
        let is_directory = there.is_some_and(|it| it.kind == EntryKind::Directory);
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
            match self.destination.look_for_file(&part).await {
                Ok(None) => {}
                Ok(Some(entry)) => self.find(part, entry),
                Err(error) => self.fail(error).await?,
            }
        }
        let source = match &mut self.source {
            Some(source) => source.look(&root.source).await.ok().flatten(),
            None => None,
        };
        let is_file = source.is_some_and(|it| it.kind != EntryKind::Directory);
        if is_file || !is_directory {
            return Ok(());
        }
        let mut waiting = VecDeque::from([PendingDirectory {
            from: root.source.clone(),
            to: directory,
            depth: 0,
        }]);
        // If links at a server lead back to directories above them, the tree has no end.
        let mut directories = 1;
        while let Some(next) = waiting.pop_front() {
            for below in self.find_in(&next).await? {
                if directories == DIRECTORIES_WAITING_MAX {
                    let what = format!("there are more than {DIRECTORIES_WAITING_MAX} directories");
                    return self.fail(TaskError::Listing(what)).await;
                }
                directories += 1;
                waiting.push_back(below);
            }
            if self.is_local() || self.found.len() >= FOUND_MAX {
                self.remove_found().await?;
            }
        }
        Ok(())
    }

    /// Searches for part files in one directory. Returns the subdirectories.
    async fn find_in(
        &mut self,
        directory: &PendingDirectory,
    ) -> Result<Vec<PendingDirectory>, BrowseError> {
        let PendingDirectory { from, to, depth } = directory;
        let suffix = self.suffix().to_vec();
        let (mut below, mut parts) = (Vec::new(), Vec::new());
        let take = |entries: Vec<ListingEntry>| {
            for entry in entries {
                match entry.kind {
                    EntryKind::Directory => below.push(entry.name),
                    EntryKind::File if stem_and_digits(&entry.name, &suffix).is_some() => {
                        parts.push(entry);
                    }
                    _ => {}
                }
            }
        };
        match list(&mut self.destination, to, false, take).await {
            Err(TaskError::Disk { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Ok(0) => {}
            Ok(lines) => {
                let what = format!("{}: {lines} lines are not understood", shown(&local(to)));
                self.fail(TaskError::Listing(what)).await?;
            }
            Err(error) => self.fail_at(to, error).await?,
        }
        let mut cut = Vec::new();
        for entry in parts {
            let parsed = stem_and_digits(&entry.name, &suffix);
            if parsed.is_some_and(|(stem, digits)| digits_of(&join(from, stem)) == digits) {
                self.find(join(to, &entry.name), entry);
            } else if may_be_cut(&entry.name) {
                cut.push(entry);
            }
        }
        self.find_cut((from, to), cut).await;
        let mut waiting = Vec::new();
        for name in below {
            let (from, to) = (join(from, &name), join(to, &name));
            if *depth == DEPTH_MAX || to.len() > PATH_BYTES_MAX {
                let what = "the directory is too deep, or has too long a path";
                self.fail_at(&to, TaskError::Listing(what.to_owned()))
                    .await?;
                continue;
            }
            let depth = depth + 1;
            waiting.push(PendingDirectory { from, to, depth });
        }
        Ok(waiting)
    }

    /// Searches for part files with shortened names. The listing of the source directory shows
    /// their full names.
    async fn find_cut(&mut self, (from, to): (&[u8], &[u8]), cut: Vec<ListingEntry>) {
        let Some(source) = self.source.as_mut().filter(|_| !cut.is_empty()) else {
            return;
        };
        let suffix = self.job.moving.partial_suffix.as_deref();
        let suffix = suffix.unwrap_or_default();
        let mut is_ours = vec![false; cut.len()];
        // Several parts may have the same digits.
        let mut by_digits: BTreeMap<u32, Vec<(usize, &[u8])>> = BTreeMap::new();
        for (at, part) in cut.iter().enumerate() {
            if let Some((stem, digits)) = stem_and_digits(&part.name, suffix) {
                by_digits.entry(digits).or_default().push((at, stem));
            }
        }
        let take = |entries: Vec<ListingEntry>| {
            for entry in entries {
                let alike = by_digits.get(&digits_of(&join(from, &entry.name)));
                for (at, stem) in alike.into_iter().flatten() {
                    is_ours[*at] |= entry.name.starts_with(stem);
                }
            }
        };
        // A failed listing shows no further parts.
        let _ = list(source, from, false, take).await;
        for (entry, is_ours) in cut.into_iter().zip(is_ours) {
            if is_ours {
                self.find(join(to, &entry.name), entry);
            }
        }
    }

    /// Records a part file for removal. A file at a server is kept if it is young or has no precise
    /// time, because another machine may be uploading it.
    fn find(&mut self, part: Vec<u8>, entry: ListingEntry) {
        let precise = entry
            .modified
            .filter(|it| it.precision == TimePrecision::Second);
        let is_dated = precise.is_some();
        let is_old =
            precise.is_some_and(|it| now_unix_s().saturating_sub(it.unix_s) >= AGE_LEAST_S);
        if self.is_local() || is_old {
            self.found.insert(part, entry);
        } else {
            self.has_undated |= !is_dated;
            self.count(PartRemoval::Kept);
        }
    }

    /// Removes the part files in `found`. If a file at a server has grown, the file is kept,
    /// because another machine is uploading it.
    async fn remove_found(&mut self) -> Result<(), BrowseError> {
        let found = std::mem::take(&mut self.found);
        if !self.is_local() && !found.is_empty() {
            sleep(GROWS_WITHIN).await;
        }
        if std::mem::take(&mut self.has_undated) {
            let what = "the server lists parts without precise times: another machine may upload them, so they stay";
            self.fail(TaskError::Listing(what.to_owned())).await?;
        }
        for (part, before) in found {
            match self.remove_one(&part, &before).await {
                Ok(left) => self.count(left),
                Err(error) => self.fail_at(&part, error).await?,
            }
        }
        Ok(())
    }

    async fn remove_one(
        &mut self,
        part: &[u8],
        before: &ListingEntry,
    ) -> Result<PartRemoval, TaskError> {
        if !self.is_local() {
            let now = self.destination.look_for_file(part).await?;
            if now.is_none() && self.destination.tells_size() {
                return Ok(PartRemoval::Missing);
            }
            let size_bytes = now.and_then(|it| it.size_bytes);
            if size_bytes.is_none() || size_bytes != before.size_bytes {
                return Ok(PartRemoval::Kept);
            }
        }
        self.remove(part, false).await
    }

    async fn remove(&mut self, part: &[u8], is_recorded: bool) -> Result<PartRemoval, TaskError> {
        if let Backend::Local(disk) = &self.destination {
            let what = format!("removing {}", shown(&local(part)));
            let (files, part) = (disk.files.clone(), part.to_vec());
            let (all, path) = (files.clone(), part.clone());
            let remove = move || files.remove_left_part(&part, is_recorded);
            let left = on_disk(remove, what.clone()).await?;
            if is_recorded && left == PartRemoval::Removed {
                // The journal can forget the part only after this sync.
                all.named(&path).await.map_err(TaskError::disk(what))?;
            }
            return Ok(left);
        }
        match delete_file(&mut self.destination, part).await {
            Err(error) if error.is_refusal() => match self.is_listed(part).await? {
                true => Err(error),
                false => Ok(PartRemoval::Missing),
            },
            deleted => deleted.map(|()| PartRemoval::Removed),
        }
    }

    /// Returns whether a server lists a part file. The function lists the whole directory, because
    /// some servers do not report single files.
    async fn is_listed(&mut self, part: &[u8]) -> Result<bool, TaskError> {
        let (above, name) = (parent(part).unwrap_or_default(), last_name(part));
        let mut is_listed = false;
        let take =
            |entries: Vec<ListingEntry>| is_listed |= entries.iter().any(|it| it.name == name);
        match list(&mut self.destination, above, false, take).await {
            Err(error) if error.is_refusal() => Ok(false),
            listed => listed.map(|_| is_listed),
        }
    }

    fn is_local(&self) -> bool {
        matches!(self.job.destination, JobSite::Local)
    }

    fn count(&mut self, left: PartRemoval) {
        match left {
            PartRemoval::Missing => {}
            PartRemoval::Removed => self.cleaned.removed += 1,
            PartRemoval::Kept => self.cleaned.kept += 1,
        }
    }

    /// Records a failure together with the path. Returns an error if no further requests are
    /// possible.
    async fn fail_at(&mut self, path: &[u8], error: TaskError) -> Result<(), BrowseError> {
        let is_named = matches!(error, TaskError::Disk { .. });
        self.note_failure(match is_named {
            true => chain(&error),
            false => format!("{}: {}", shown(&local(path)), chain(&error)),
        });
        self.go_on(error).await
    }

    /// Records a failure. Returns an error if no further requests are possible.
    async fn fail(&mut self, error: TaskError) -> Result<(), BrowseError> {
        self.note_failure(chain(&error));
        self.go_on(error).await
    }

    fn note_failure(&mut self, text: String) {
        self.cleaned.failed += 1;
        if self.cleaned.failures.len() < FAILURES_MAX {
            self.cleaned.failures.push(text);
        }
    }

    /// Prepares for further requests after a failure. Reconnects after an aborted transfer. Returns
    /// the error if the connection is lost.
    async fn go_on(&mut self, error: TaskError) -> Result<(), BrowseError> {
        if self.destination.is_usable() && error.keeps_connection() {
            return Ok(());
        }
        if !error.keeps_connection() {
            return Err(error.into());
        }
        let files = LocalFiles::without_roots();
        self.destination
            .reopen(&self.job.destination, &files)
            .await?;
        Ok(())
    }

    fn suffix(&self) -> &[u8] {
        self.job
            .moving
            .partial_suffix
            .as_deref()
            .unwrap_or_default()
    }
}

fn unusable(error: redb::Error) -> BrowseError {
    BrowseError::Unusable(format!("the journal cannot be used: {error}"))
}

/// Longest time without growth of a part file that is being uploaded.
const GROWS_WITHIN: Duration = Duration::from_secs(3);

/// Smallest age, in seconds, at which a part file at a server is removed. Another machine may still
/// be uploading a younger file.
const AGE_LEAST_S: i64 = 600;

/// Number of part files of a server in `found` at which their removal starts.
const FOUND_MAX: usize = 10_000;

/// Maximum number of failures whose descriptions are stored.
const FAILURES_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::ffi::OsStrExt as _, path::Path};

    use super::*;
    use crate::{
        job::{CopyOptions, RootTarget},
        plan::PlanOptions,
    };

    fn job(from: &Path, to: &Path) -> Job {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        Job {
            fence: None,
            source: JobSite::Local,
            destination: JobSite::Local,
            roots: vec![Root {
                source: bytes(from),
                destination: RootTarget::new(bytes(to), b"from".to_vec()),
            }],
            files: None,
            plan: PlanOptions::default(),
            moving: CopyOptions::default(),
            sharing: None,
            session_pool: None,
        }
    }

    /// Creates a part file with the name that the job would use at the destination. Returns the
    /// part's path.
    fn put_part(job: &Job, below: &str) -> std::path::PathBuf {
        let root = &job.roots[0];
        let source = join(&root.source, below.as_bytes());
        let path = join(root.destination.directory(), below.as_bytes());
        let part = local(&job.moving.partial(&source, &path));
        fs::create_dir_all(part.parent().expect("below a folder")).expect("room");
        fs::write(&part, b"half").expect("room");
        part
    }

    fn clean_now(job: &Job) -> CleanResult {
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
        // The source no longer has the file.
        gone.push(put_part(&ours, "b/removed"));
        let theirs = put_part(&job(&folder.path().join("other"), &to), "a");
        for name in ["plain", "film.part", "film.0123abcd.part"] {
            fs::write(to.join(name), b"a user's").expect("room");
        }
        let held = put_part(&ours, "held");
        let writer = fs::File::open(&held).expect("there");
        writer.try_lock().expect("free");
        let counts = |removed, kept| CleanResult {
            removed,
            kept,
            ..CleanResult::default()
        };
        assert_eq!(clean_now(&ours), counts(4, 1));
        assert!(gone.iter().all(|it| !it.exists()));
        assert!(theirs.exists() && held.exists());
        assert_eq!(fs::read_dir(&to).expect("a folder").count(), 6);
        drop(writer);
        assert_eq!(clean_now(&ours), counts(1, 0));
        assert_eq!(clean_now(&ours), CleanResult::default());
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
        assert_eq!(clean_now(&ours), CleanResult::default());
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
