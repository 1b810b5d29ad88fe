//! Extra files: entries that only the destination has. The job reports them, or deletes them once
//! all other work is done.
//!
//! The job deletes nothing if any task has failed or if the number of deletions exceeds the limit.
//! Therefore neither an interrupted listing nor an unmounted disk can empty the destination. The
//! job deletes files first, and then directories, the deepest first.

use std::collections::{HashMap, HashSet};

use ftp::listing::{EntryKind, ListingEntry};

use super::{
    Planner,
    file_event::{DryRunStep, FileEvent, FileOutcome},
    listing_events::check_path,
    name_matching::DestinationListing,
    options::JobPurpose,
    queue::QueuedTask,
    task::{Directory, File, RelativePath, RootedPath, Task},
};

/// Extra files of a job: entries that only the destination has.
#[derive(Debug, Default)]
pub(super) struct ExtraFiles {
    files: Vec<RootedPath>,
    directories: Vec<Directory>,
    /// Directories that cannot be removed, because an entry in them is kept.
    kept: HashSet<(usize, RelativePath)>,
    /// Files to move once a destination directory of the same name has been removed.
    replacing: HashMap<(usize, RelativePath), File>,
    /// Number of entries in all listings of the destination.
    there: u64,
    is_overfull: bool,
    stage: DeletionStage,
}

/// Stage of a job that deletes extra files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum DeletionStage {
    /// All work before the deletions.
    #[default]
    Moving,
    /// Deletion of extra files.
    Files,
    /// Removal of extra directories, the deepest first.
    Directories,
    Done,
}

impl ExtraFiles {
    /// Returns whether all deletions are done.
    pub(super) fn is_done(&self) -> bool {
        self.stage == DeletionStage::Done
    }

    /// Records that a directory and all its parent directories must not be removed, because an
    /// entry in the directory is kept.
    pub(super) fn keep(&mut self, root: usize, path: &RelativePath) {
        let mut next = Some(path.clone());
        while let Some(path) = next {
            next = path.parent();
            if !self.kept.insert((root, path)) {
                return;
            }
        }
    }

    /// Records that the directory that contains this path must not be removed. The same applies to
    /// its parent directories.
    pub(super) fn keep_above(&mut self, root: usize, path: &RelativePath) {
        if let Some(parent) = path.parent() {
            self.keep(root, &parent);
        }
    }

    fn is_kept(&self, directory: &Directory) -> bool {
        let key = (directory.root, directory.path.clone());
        self.kept.contains(&key)
    }

    /// Removes the deepest extra directories from the list, and returns them.
    fn next_directories(&mut self) -> Vec<Directory> {
        let depth = |it: &Directory| it.path.names().len();
        let deepest = self.directories.iter().map(depth).max();
        let deepest = self
            .directories
            .extract_if(.., |it| Some(depth(it)) == deepest);
        deepest.collect()
    }
}

impl Planner {
    /// Processes the destination's listing of a directory.
    pub(super) fn there(&mut self, directory: Directory, entries: Vec<ListingEntry>) {
        if let Err(message) = self.count_there(&entries) {
            return self.note_failure(directory.root, directory.path, &message);
        }
        let entries = self.without_parts(&directory, entries);
        self.tree.node(&directory).there = DestinationListing::new(entries);
        self.queue
            .push(QueuedTask::new(Task::ListSource(directory)));
    }

    /// Processes the destination's listing of an extra directory, which the source does not have.
    pub(super) fn surplus_listed(&mut self, directory: &Directory, entries: Vec<ListingEntry>) {
        if let Err(message) = self.count_there(&entries) {
            return self.note_failure(directory.root, directory.path.clone(), &message);
        }
        for entry in self.without_parts(directory, entries) {
            self.surplus_one(directory, entry);
        }
    }

    /// Returns the destination's entries without parts (incomplete files). Parts are not extra
    /// files, because a later run resumes them.
    fn without_parts(
        &mut self,
        directory: &Directory,
        mut entries: Vec<ListingEntry>,
    ) -> Vec<ListingEntry> {
        let count = entries.len();
        entries.retain(|it| !self.options.is_part(it));
        let parts = count - entries.len();
        if parts > 0 {
            self.extra_files.there -= parts as u64;
            self.extra_files.keep(directory.root, &directory.path);
        }
        entries
    }

    fn count_there(&mut self, entries: &[ListingEntry]) -> Result<(), String> {
        self.extra_files.there += entries.len() as u64;
        let most = self.limits.entries_there_max;
        if entries.len() > most {
            return Err(format!(
                "the destination's directory has more than {most} entries"
            ));
        }
        Ok(())
    }

    /// Processes the end of the source's listing of a directory.
    pub(super) fn ended(&mut self, directory: &Directory, not_understood: u64) {
        let node = self.tree.node(directory);
        let there = std::mem::take(&mut node.there);
        let seen = std::mem::take(&mut node.seen);
        let forms = std::mem::take(&mut node.forms);
        let is_overfull = node.is_overfull;
        let Directory { root, path } = directory.clone();
        if not_understood > 0 {
            let message = format!("{not_understood} lines of its listing are not understood");
            self.doubt(directory, forms, &seen, Vec::new());
            return self.note_failure(root, path, &message);
        }
        if is_overfull || self.options.purpose == JobPurpose::Copy {
            self.doubt(directory, forms, &seen, Vec::new());
            return;
        }
        let entries = there.entries.into_values();
        let mut extra_files: Vec<ListingEntry> =
            entries.filter(|it| !seen.contains(&it.name)).collect();
        extra_files.sort_by(|a, b| a.name.cmp(&b.name));
        if seen.is_empty() && self.is_suspicious(directory, &extra_files) {
            let message = format!(
                "the source lists nothing there, and the destination has {} entries: nothing is deleted without \
                 --trust-empty",
                extra_files.len()
            );
            return self.note_failure(root, path, &message);
        }
        for entry in self.doubt(directory, forms, &seen, extra_files) {
            self.surplus_one(directory, entry);
        }
    }

    /// Returns whether an empty listing of the source is suspicious, because it would cause
    /// deletions. The listing may be empty by mistake, for example because a disk is not mounted.
    fn is_suspicious(&self, directory: &Directory, extra_files: &[ListingEntry]) -> bool {
        let Some(deletion) = self.options.deletion() else {
            return false;
        };
        let is_doomed = |it: &ListingEntry| {
            let path = directory.path.join(&it.name);
            deletion.takes_excluded || !self.is_excluded(&path, it)
        };
        !deletion.trusts_empty && extra_files.iter().any(is_doomed)
    }

    /// Processes an entry of the destination that the source does not have or that a filter
    /// excludes.
    pub(super) fn surplus_one(&mut self, directory: &Directory, entry: ListingEntry) {
        let root = directory.root;
        let path = directory.path.join(&entry.name);
        let deletion = self.options.deletion();
        let is_excluded = self.is_excluded(&path, &entry);
        if is_excluded && !deletion.is_some_and(|it| it.takes_excluded) {
            return self.extra_files.keep(root, &directory.path);
        }
        if deletion.is_none() {
            self.tally.surplus += 1;
            let result = FileOutcome::Extra;
            return self.notes.push_back(FileEvent { root, path, result });
        }
        if entry.kind == EntryKind::Directory {
            self.doom_directory(Directory { root, path });
        } else if self.dooms() {
            self.extra_files.files.push(RootedPath { root, path });
        }
    }

    fn doom_directory(&mut self, directory: Directory) {
        if let Err(message) = check_path(&directory.path, true) {
            return self.note_failure(directory.root, directory.path, &message);
        }
        if self.dooms() {
            self.extra_files.directories.push(directory.clone());
            self.queue.push(QueuedTask::new(Task::ListExtra(directory)));
        }
    }

    /// Returns whether one more entry may be recorded for deletion. The first call beyond the limit
    /// reports a failure.
    fn dooms(&mut self) -> bool {
        let count = self.extra_files.files.len() + self.extra_files.directories.len();
        let most = self.limits.surplus_max;
        if count < most {
            return true;
        }
        if !self.extra_files.is_overfull {
            self.extra_files.is_overfull = true;
            let message = format!("more than {most} entries would be deleted");
            self.note_failure(0, RelativePath::default(), &message);
        }
        false
    }

    /// Replaces a directory of the destination with a file.
    pub(super) fn replace_directory(&mut self, file: File) {
        let directory = Directory {
            root: file.root,
            path: file.path.clone(),
        };
        let key = (file.root, file.path.clone());
        if self.options.deletion().is_some() {
            self.extra_files.replacing.insert(key, file);
            self.doom_directory(directory);
        } else if self.options.is_dry_run {
            self.move_now(file);
        } else {
            // The content of the directory may be valuable, so only an empty directory is removed.
            self.extra_files.replacing.insert(key, file);
            self.queue
                .push(QueuedTask::new(Task::RemoveDirectory(directory)));
        }
    }

    /// Starts the next stage once all work of the present stage is done.
    pub(super) fn advance(&mut self) {
        while self.is_at_rest() && self.extra_files.stage != DeletionStage::Done {
            if self.is_given_up {
                self.end_doubts("the destination was not listed again");
                self.end_extra_files("it was not removed");
                return;
            }
            if self.ask_doubts() {
                return;
            }
            match self.extra_files.stage {
                DeletionStage::Moving => self.begin_deletion(),
                DeletionStage::Files | DeletionStage::Directories => {
                    self.extra_files.stage = DeletionStage::Directories;
                    let directories = self.extra_files.next_directories();
                    if directories.is_empty() {
                        self.end_extra_files("something in it is kept");
                    }
                    for directory in directories {
                        if !self.extra_files.is_kept(&directory) {
                            self.queue
                                .push(QueuedTask::new(Task::RemoveDirectory(directory)));
                        }
                    }
                }
                DeletionStage::Done => {}
            }
        }
    }

    /// Starts the deletions. All other work must be done.
    fn begin_deletion(&mut self) {
        let extra_files = &self.extra_files;
        let removable = extra_files
            .directories
            .iter()
            .filter(|it| !extra_files.is_kept(it));
        let count = (extra_files.files.len() + removable.count()) as u64;
        self.tally.doomed = count;
        let Some(deletion) = self.options.deletion().filter(|_| count > 0) else {
            return self.end_extra_files("something in it is kept");
        };
        let refusal = if self.tally.failed > 0 {
            Some("something has failed".to_owned())
        } else if deletion.max.allows(count, extra_files.there) {
            None
        } else {
            Some(format!(
                "--max-delete {} does not allow that (look at them with -n, then give --max-delete {count})",
                deletion.max
            ))
        };
        if let Some(refusal) = refusal {
            let message = format!(
                "{count} of the {} entries of the destination would be deleted, and {refusal}: nothing is deleted",
                extra_files.there
            );
            self.note_failure(0, RelativePath::default(), &message);
            return self.end_extra_files("it is not deleted");
        }
        if self.options.is_dry_run {
            return self.plan_deletion();
        }
        self.extra_files.stage = DeletionStage::Files;
        for place in std::mem::take(&mut self.extra_files.files) {
            self.queue.push(QueuedTask::new(Task::Delete(place)));
        }
    }

    /// Reports the entries that a run without `--dry-run` would delete.
    fn plan_deletion(&mut self) {
        let files = std::mem::take(&mut self.extra_files.files);
        let mut places = files;
        loop {
            let directories = self.extra_files.next_directories();
            if directories.is_empty() {
                break;
            }
            let removable = directories
                .into_iter()
                .filter(|it| !self.extra_files.is_kept(it));
            places.extend(removable.map(|Directory { root, path }| RootedPath { root, path }));
        }
        for RootedPath { root, path } in places {
            let file = self.extra_files.replacing.remove(&(root, path.clone()));
            let result = FileOutcome::Planned(DryRunStep::Delete);
            self.notes.push_back(FileEvent { root, path, result });
            if let Some(file) = file {
                self.move_now(file);
            }
        }
        self.end_extra_files("something in it is kept");
    }

    /// Ends the deletions. Files that still wait for the removal of a directory fail.
    fn end_extra_files(&mut self, why: &str) {
        self.extra_files.stage = DeletionStage::Done;
        let mut waiting: Vec<File> = std::mem::take(&mut self.extra_files.replacing)
            .into_values()
            .collect();
        waiting.sort_by(|a, b| (a.root, &a.path).cmp(&(b.root, &b.path)));
        for file in waiting {
            let message = format!("the destination has a directory with this name, and {why}");
            self.note_failure(file.root, file.path, &message);
        }
    }

    pub(super) fn deleted(&mut self, root: usize, path: RelativePath) {
        self.tally.deleted += 1;
        let result = FileOutcome::Deleted;
        self.notes.push_back(FileEvent { root, path, result });
    }

    pub(super) fn removed(&mut self, directory: Directory) {
        let Directory { root, path } = directory;
        let file = self.extra_files.replacing.remove(&(root, path.clone()));
        self.deleted(root, path);
        if let Some(file) = file {
            self.move_now(file);
        }
    }

    /// Records that a directory cannot be removed.
    pub(super) fn not_removed(&mut self, directory: &Directory, message: &str) {
        let Directory { root, path } = directory.clone();
        self.extra_files.keep_above(root, &path);
        let file = self.extra_files.replacing.remove(&(root, path.clone()));
        if file.is_some() {
            let hint = match self.options.deletion() {
                Some(_) => "",
                None => ", and only --delete removes its entries",
            };
            let message =
                format!("the destination has a directory with this name{hint}: {message}");
            return self.note_failure(root, path, &message);
        }
        self.note_failure(root, path, message);
    }
}
