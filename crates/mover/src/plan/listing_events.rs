//! Decisions about the entries in listings.

use std::time::Instant;

use ftp::{
    command::escape,
    listing::{EntryKind, ListingEntry, ModifiedTime},
};

use super::{
    DIRECTORY_FAILED, Planner,
    compare::{Difference, FileDecision, compare, decide, what_is_there},
    event::RootKind,
    file_event::{DryRunStep, FileEvent, FileOutcome},
    limits::{DEPTH_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX},
    memory::FileStanding,
    name_matching::{NameMatch, is_equivalent},
    options::{JobPurpose, Links},
    parent_dirs::ParentState,
    queue::QueuedTask,
    shift::{HeldFile, TimeChange, described},
    task::{Directory, File, RelativePath, Task, TaskId},
    tree::Presence,
    version::FileVersion,
};
use crate::part_name;

impl Planner {
    pub(super) fn probed(&mut self, root: usize, probe: RootKind, now: Instant) {
        let path = RelativePath::default();
        match probe {
            RootKind::Missing => {
                self.note_failure(root, path, "there is no such file or directory")
            }
            RootKind::File {
                size_bytes,
                modified,
                there,
                above,
            } => {
                let file = File {
                    root,
                    path,
                    size_bytes,
                    modified,
                    link: None,
                };
                if let Some(file) = self.choose(file, there.as_ref(), None, false, now) {
                    self.move_root(file, above);
                }
            }
            RootKind::Directory { is_there } => self.enter(Directory { root, path }, is_there),
        }
    }

    /// Adds a file that was listed earlier. The file is moved without comparing it with the
    /// destination's files.
    pub(super) fn known(&mut self, file: File) {
        let root = file.root;
        let Some(path) = file.path.parent() else {
            // For a root that is a file, only the destination can report the final path.
            return self.queue.push(QueuedTask::new(Task::Probe { root }));
        };
        let directory = Directory { root, path };
        self.enter_unknown(&directory);
        let file = self.wanted(file);
        self.move_below(&directory, file);
    }

    /// Adds a directory and its parent directories to the tree. Whether they exist at the
    /// destination is determined when they are created.
    fn enter_unknown(&mut self, directory: &Directory) {
        let root = directory.root;
        let mut next = Some(directory.path.clone());
        while let Some(path) = next {
            next = path.parent();
            let directory = Directory { root, path };
            if !self.tree.has(&directory) {
                self.tree.enter(&directory, Presence::Missing);
            }
        }
    }

    fn enter(&mut self, directory: Directory, is_there: bool) {
        let presence = if is_there {
            Presence::There
        } else {
            Presence::Missing
        };
        self.tree.enter(&directory, presence);
        if is_there {
            let task = Task::ListDestination(directory);
            return self.queue.push(QueuedTask::new(task));
        }
        let is_wanted = self.options.makes_empty_directories || self.options.is_sync();
        match self.options.purpose {
            JobPurpose::Check { .. } if is_wanted => {
                self.missing(directory.root, directory.path.clone());
            }
            JobPurpose::Copy | JobPurpose::Sync { .. } if is_wanted => self.want(&directory),
            _ => {}
        }
        self.queue
            .push(QueuedTask::new(Task::ListSource(directory)));
    }

    /// Adds a source directory whose name belongs to a file at the destination. The directory will
    /// replace that file.
    fn enter_in_place_of_a_file(&mut self, directory: Directory) {
        self.tree.enter(&directory, Presence::Missing);
        self.tree.node(&directory).is_replacement = true;
        self.want(&directory);
        self.queue
            .push(QueuedTask::new(Task::ListSource(directory)));
    }

    fn want(&mut self, directory: &Directory) {
        if self.options.is_dry_run {
            return self.plan_to_make(directory);
        }
        if let Some(first) = self.tree.want(directory) {
            self.make(first);
        }
    }

    /// Creates a directory at the destination. The parent directory must exist.
    pub(super) fn make(&mut self, directory: Directory) {
        let task = if self.tree.node(&directory).is_replacement {
            Task::Replace(directory)
        } else {
            Task::Make(directory)
        };
        self.queue.push(QueuedTask::new(task));
    }

    /// Reports the directory and its missing parents, which a real run would create. Each directory
    /// is reported only once.
    fn plan_to_make(&mut self, directory: &Directory) {
        let root = directory.root;
        let mut missing = Vec::new();
        let mut next = Some(directory.path.clone());
        while let Some(path) = next {
            let node = self.tree.node(&Directory {
                root,
                path: path.clone(),
            });
            if node.presence != Presence::Missing {
                break;
            }
            node.presence = Presence::There;
            next = path.parent();
            missing.push(path);
        }
        for path in missing.into_iter().rev() {
            let result = FileOutcome::Planned(DryRunStep::Make);
            self.notes.push_back(FileEvent { root, path, result });
        }
    }

    pub(super) fn found(
        &mut self,
        lane: usize,
        id: TaskId,
        entries: Vec<ListingEntry>,
        now: Instant,
    ) {
        let given = self.lanes.find(lane, |it| it.id == id);
        let Some(Task::ListSource(directory)) = given.map(|it| &it.queued.task) else {
            return;
        };
        let directory = directory.clone();
        for entry in entries {
            let node = self.tree.node(&directory);
            if node.is_overfull || node.seen.contains(&entry.name) {
                continue;
            }
            if entry.name.len() > NAME_BYTES_MAX {
                node.is_overfull = true;
                let message =
                    format!("a name in the directory is longer than {NAME_BYTES_MAX} bytes");
                return self.note_failure(directory.root, directory.path, &message);
            }
            if node.seen.len() == self.limits.entries_max {
                node.is_overfull = true;
                let most = self.limits.entries_max;
                let message = format!("the directory has more than {most} entries");
                return self.note_failure(directory.root, directory.path, &message);
            }
            node.seen.insert(entry.name.clone());
            self.found_one(&directory, entry, now);
        }
    }

    fn found_one(&mut self, directory: &Directory, entry: ListingEntry, now: Instant) {
        let path = directory.path.join(&entry.name);
        let root = directory.root;
        if self.options.is_part(&entry) {
            return self.leave_out(root, path, "the part of a file that is not complete");
        }
        if self.options.leaves_partial && is_partial(&entry) {
            return self.leave_out(root, path, "another program has not completed it");
        }
        let node = self.tree.node(directory);
        let there = node.there.entries.get(&entry.name).cloned();
        if self.is_excluded(&path, &entry) {
            let takes_excluded = self.options.deletion().is_some_and(|it| it.takes_excluded);
            if let Some(there) = there.filter(|_| takes_excluded) {
                self.surplus_one(directory, there);
            }
            return self.leave_out(root, path, "a filter");
        }
        let node = self.tree.node(directory);
        match node.forms.note(&entry, &node.there) {
            NameMatch::None => self.take_one(directory, entry, there, None, now),
            NameMatch::There(alike) => self.take_one(directory, entry, None, Some(alike), now),
            NameMatch::Twin => {}
            NameMatch::TooMany => {
                let message = "too many names differ in case, Unicode form or blanks alone";
                self.note_failure(root, path, message);
            }
        }
    }

    /// Processes an entry of the source. `there` is the destination's entry of the same name.
    /// `alike` is a destination entry whose name is similar, so that it may be the same file.
    pub(super) fn take_one(
        &mut self,
        directory: &Directory,
        entry: ListingEntry,
        there: Option<ListingEntry>,
        alike: Option<ListingEntry>,
        now: Instant,
    ) {
        let path = directory.path.join(&entry.name);
        let root = directory.root;
        if !self.options.carries_line_breaks && !is_sendable(&entry.name) {
            let message = format!("the name {:?} has a line break", escape(&entry.name));
            return self.note_failure(root, path, &message);
        }
        if let Err(message) = check_path(&path, entry.kind == EntryKind::Directory) {
            return self.note_failure(root, path, &message);
        }
        let copies_links = self.options.links == Links::Copy;
        match entry.kind {
            EntryKind::File | EntryKind::Symlink { target: Some(_) }
                if copies_links || entry.kind == EntryKind::File =>
            {
                let file = File {
                    root,
                    path,
                    size_bytes: entry.size_bytes,
                    modified: entry.modified,
                    link: match entry.kind {
                        EntryKind::Symlink { target } => target,
                        _ => None,
                    },
                };
                let file = match alike {
                    Some(_) => Some(file),
                    None => self.hold_if_shifted(directory, file, there.as_ref(), now),
                };
                if let Some(file) = file
                    && let Some(file) = self.choose(file, there.as_ref(), alike, true, now)
                {
                    self.move_below(directory, file);
                }
            }
            EntryKind::Directory => {
                let is_alike = alike.is_some_and(|it| it.kind == EntryKind::Directory);
                let directory = Directory { root, path };
                if is_alike {
                    let task = Task::FindDirectory(directory);
                    return self.queue.push(QueuedTask::new(task));
                }
                self.found_directory(directory, there);
            }
            EntryKind::Symlink { .. } if self.options.links == Links::Follow => {
                self.leave_out(root, path, "a symbolic link to nothing, or in a circle");
            }
            EntryKind::Symlink { .. } => self.leave_out(root, path, "a symbolic link"),
            EntryKind::File | EntryKind::Other => {
                self.leave_out(root, path, "neither a file nor a directory")
            }
        }
    }

    /// Holds a file if its modification time differs from its known time by a multiple of a quarter
    /// hour. The file is held until its directory's listing has ended. Any other file is returned.
    fn hold_if_shifted(
        &mut self,
        directory: &Directory,
        file: File,
        there: Option<&ListingEntry>,
        now: Instant,
    ) -> Option<File> {
        // Times in listings of this machine depend on no time zone.
        let has_zone = self.options.source_has_zone || self.options.destination_has_zone;
        let has_times = has_zone && !self.options.is_check() && !self.options.compares_content;
        if !has_times || file.link.is_some() || self.tree.node(directory).shifts.is_over() {
            return Some(file);
        }
        let memory = self.options.memory.as_ref();
        let taken = memory
            .filter(|_| self.options.source_has_zone && !self.removes_sources())
            .and_then(|it| it.taken(&file.path));
        let known = taken.or_else(|| {
            // A job that removes sources requires that the destination's file has the time of the
            // source file.
            let there = there.filter(|it| it.kind == EntryKind::File && !self.removes_sources())?;
            Some(FileVersion {
                size_bytes: there.size_bytes,
                modified: there.modified,
            })
        });
        let change = known.and_then(|it| TimeChange::of(&it, &file.version()));
        let shifts = &mut self.tree.node(directory).shifts;
        match change {
            None => {}
            Some(TimeChange::Changed) => shifts.note_change(),
            Some(TimeChange::Same) => {
                let held = shifts.end();
                self.choose_held(directory, held);
            }
            Some(TimeChange::Shifted(shift_s)) => {
                shifts.hold(HeldFile {
                    file,
                    there: there.cloned(),
                    shift_s,
                    found: now,
                });
                return None;
            }
        }
        Some(file)
    }

    /// Decides about held files once the source's listing has ended. If the modification times of
    /// the listing have shifted by one common amount, files with that shift count as unchanged. All
    /// other held files are compared as usual.
    pub(super) fn end_shifts(&mut self, directory: &Directory) {
        let shifts = &mut self.tree.node(directory).shifts;
        let shift_s = shifts.shift_s(self.shift_s);
        let (shifted, others): (Vec<HeldFile>, Vec<HeldFile>) = shifts
            .end()
            .into_iter()
            .partition(|it| Some(it.shift_s) == shift_s);
        self.choose_held(directory, others);
        let Some(shift_s) = shift_s else { return };
        if self.shift_s.replace(shift_s) != Some(shift_s) {
            let message = format!(
                "the times of {} files have moved by {}, and their sizes are the same: the server's time zone has changed, \
                 and none of them is copied again",
                shifted.len(),
                described(shift_s)
            );
            let Directory { root, path } = directory.clone();
            let result = FileOutcome::Warning(message);
            self.notes.push_back(FileEvent { root, path, result });
        }
        for HeldFile { file, found, .. } in shifted {
            self.tally.found += 1;
            if let Some(memory) = &self.options.memory {
                // This call records that the run has found the file. The memory stores the file's
                // new time together with the outcome.
                memory.standing(&file, found);
            }
            self.same(file);
        }
    }

    /// Compares held files with the destination, and moves them if necessary.
    pub(super) fn choose_held(&mut self, directory: &Directory, held: Vec<HeldFile>) {
        for HeldFile {
            file, there, found, ..
        } in held
        {
            if let Some(file) = self.choose(file, there.as_ref(), None, true, found) {
                self.move_below(directory, file);
            }
        }
    }

    pub(super) fn found_directory(&mut self, directory: Directory, there: Option<ListingEntry>) {
        if self.tree.paths_bytes() > self.limits.paths_bytes_max {
            let message = "the names of all directories are too long together";
            return self.note_failure(directory.root, directory.path, message);
        }
        let most = self.limits.directories_waiting_max;
        if self.queue.directories() >= most {
            let message = format!("more than {most} directories wait to be listed");
            return self.note_failure(directory.root, directory.path, &message);
        }
        match there.map(|it| it.kind) {
            None => self.enter(directory, false),
            Some(EntryKind::Directory) => self.enter(directory, true),
            Some(kind) if self.options.is_check() => {
                self.differs(directory.root, directory.path, what_is_there(&kind));
            }
            Some(EntryKind::File | EntryKind::Symlink { .. }) if self.options.is_sync() => {
                self.enter_in_place_of_a_file(directory);
            }
            Some(kind) => self.conflict(directory.root, directory.path, &kind),
        }
    }

    /// Returns whether the filter excludes an entry of the source or of the destination.
    pub(super) fn is_excluded(&self, path: &RelativePath, entry: &ListingEntry) -> bool {
        let (filter, path) = (&self.options.filter, path.to_bytes());
        match entry.kind {
            EntryKind::Directory => !filter.enters(&path),
            _ => {
                let now = self.options.begun_unix_s;
                !filter.takes_file(&path, entry.size_bytes, entry.modified, now)
            }
        }
    }

    /// Returns the file if it must be moved. `is_below` is false if the file is a root itself.
    fn choose(
        &mut self,
        file: File,
        there: Option<&ListingEntry>,
        alike: Option<ListingEntry>,
        is_below: bool,
        now: Instant,
    ) -> Option<File> {
        self.tally.found += 1;
        if let Some(alike) = &alike
            && self.options.is_check()
        {
            let task = Task::LookAgain(file, alike.clone());
            self.queue.push(QueuedTask::new(task));
            return None;
        }
        if let JobPurpose::Check { compares_content } = self.options.purpose {
            self.check(file, there, compares_content);
            return None;
        }
        let memory = self.options.memory.as_ref();
        match memory.map_or(FileStanding::New, |it| it.standing(&file, now)) {
            FileStanding::New => {}
            FileStanding::Taken => {
                self.tally.same += 1;
                self.note(&file, FileOutcome::TakenBefore);
                let version = file.version();
                self.remove_source(file, version);
                return None;
            }
            FileStanding::Unsettled => {
                self.tally.unsettled += 1;
                self.note(&file, FileOutcome::LeftOut("it may still be written"));
                return None;
            }
        }
        if self.is_unsettled(&file) {
            self.tally.unsettled += 1;
            self.leave_out(file.root, file.path, "it may still be written");
            return None;
        }
        if let Some(alike) = alike {
            let task = Task::LookAgain(file, alike);
            self.queue.push(QueuedTask::new(task));
            return None;
        }
        match decide(&file, there, &self.options) {
            FileDecision::Move => return Some(self.wanted(file)),
            FileDecision::Compare => self.compare_content(file),
            // The destination was listed before the source. Meanwhile, a program may have moved the
            // file from the destination back to the source.
            FileDecision::Skip => match there.filter(|_| self.removes_sources()) {
                Some(there) => {
                    let task = Task::LookAgain(file, there.clone());
                    self.queue.push(QueuedTask::new(task));
                }
                None => self.same(file),
            },
            FileDecision::KeepNewer => self.keep_newer(file),
            FileDecision::Conflict(kind) => match kind {
                // In a sync, a link may replace a file, and a file may replace a link.
                EntryKind::Symlink { .. } | EntryKind::File if self.options.is_sync() => {
                    return Some(self.wanted(file));
                }
                EntryKind::Directory if self.options.is_sync() && is_below => {
                    let file = self.wanted(file);
                    self.replace_directory(file);
                }
                kind => self.conflict(file.root, file.path, &kind),
            },
        }
        None
    }

    fn wanted(&mut self, mut file: File) -> File {
        self.tally.wanted += 1;
        self.tally.bytes_wanted += file.size_bytes.unwrap_or(0);
        if self.options.follows_growth && file.link.is_none() {
            // The size of the file is unpredictable, so it is not batched with small files.
            file.size_bytes = None;
        }
        file
    }

    /// Processes the answer to a second query about a destination file. The file was listed before.
    pub(super) fn looked_again(
        &mut self,
        file: File,
        listed: &ListingEntry,
        now: Option<ListingEntry>,
    ) {
        let name = file.path.names().last();
        let is_listed = name.is_none_or(|it| *it == listed.name);
        if now.is_some() && !is_listed && !name.is_some_and(|it| is_equivalent(it, &listed.name)) {
            let message = format!("the destination has it as {:?}", escape(&listed.name));
            return self.note_failure(file.root, file.path, &message);
        }
        // Some servers report a size or a time only in listings.
        let now = now.map(|now| ListingEntry {
            size_bytes: now.size_bytes.or(listed.size_bytes),
            modified: now.modified.or(listed.modified),
            ..now
        });
        if let JobPurpose::Check { compares_content } = self.options.purpose {
            return self.check(file, now.as_ref(), compares_content);
        }
        match decide(&file, now.as_ref(), &self.options) {
            FileDecision::Skip => self.same(file),
            FileDecision::Move => {
                let file = self.wanted(file);
                self.move_to_be_made(file);
            }
            FileDecision::KeepNewer => self.keep_newer(file),
            FileDecision::Compare => self.compare_content(file),
            FileDecision::Conflict(kind) => self.conflict(file.root, file.path, &kind),
        }
    }

    /// Moves a file. If its directory may be missing at the destination, creates the directory
    /// first.
    fn move_to_be_made(&mut self, file: File) {
        match file.path.parent() {
            Some(path) => {
                let root = file.root;
                self.move_below(&Directory { root, path }, file);
            }
            None => self.move_now(file),
        }
    }

    fn compare_content(&mut self, file: File) {
        self.queue.push(QueuedTask::new(Task::Compare(file)));
    }

    /// Processes the result of comparing a file's content at the source and at the destination.
    pub(super) fn compared(&mut self, file: File, is_equal: bool) {
        match (is_equal, self.options.is_check()) {
            (true, _) => self.same(file),
            (false, true) => self.differs(file.root, file.path, "the content"),
            (false, false) => {
                let file = self.wanted(file);
                self.move_now(file);
            }
        }
    }

    /// Returns whether a program may still be writing a file, because the file was changed shortly
    /// before the job began.
    fn is_unsettled(&self, file: &File) -> bool {
        let since = |it: ModifiedTime| self.options.begun_unix_s - it.unix_s;
        let settle_s = self.options.settle_s;
        settle_s > 0 && file.modified.is_some_and(|it| since(it) < settle_s)
    }

    fn keep_newer(&mut self, file: File) {
        self.leave_out(file.root, file.path, "the destination's is newer");
    }

    fn same(&mut self, file: File) {
        self.tally.same += 1;
        let version = file.version();
        self.note(&file, FileOutcome::Same(version));
        self.remove_source(file, version);
    }

    fn removes_sources(&self) -> bool {
        self.options.removes_source && !self.options.is_dry_run
    }

    /// Removes the source of a file that the destination has, if the job removes sources.
    pub(super) fn remove_source(&mut self, file: File, version: FileVersion) {
        if self.removes_sources() {
            self.queue
                .push(QueuedTask::new(Task::RemoveSource(file, version)));
        }
    }

    fn check(&mut self, file: File, there: Option<&ListingEntry>, compares_content: bool) {
        let Some(there) = there else {
            return self.missing(file.root, file.path);
        };
        match compare(&file, there, compares_content) {
            Difference::None => {
                self.tally.same += 1;
                self.note(&file, FileOutcome::Same(file.version()));
            }
            Difference::In(what) => self.differs(file.root, file.path, what),
            Difference::InContentPerhaps => {
                let file = self.wanted(file);
                self.queue.push(QueuedTask::new(Task::Compare(file)));
            }
        }
    }

    /// Moves a root that is a file. If its destination directory may be missing, creates the
    /// directory first.
    fn move_root(&mut self, file: File, above: Option<Vec<u8>>) {
        let Some(above) = above.filter(|_| !self.options.is_dry_run) else {
            return self.move_now(file);
        };
        let root = file.root;
        match self.parent_dirs.request(&above, file) {
            ParentState::ToMake => {
                let task = Task::MakeParents { root, path: above };
                self.queue.push(QueuedTask::new(task));
            }
            ParentState::Waits => {}
            ParentState::Ready(file) => self.move_now(file),
            ParentState::Lost(file, reason) => self.note_failure(file.root, file.path, &reason),
        }
    }

    fn move_below(&mut self, directory: &Directory, file: File) {
        self.want(directory);
        match self.tree.wait(directory, file) {
            Ok(()) => {}
            Err((file, Presence::There)) => self.move_now(file),
            Err((file, _)) => {
                self.note_failure(file.root, file.path, DIRECTORY_FAILED);
            }
        }
    }

    /// Moves a file. Its destination directory must exist.
    pub(super) fn move_now(&mut self, file: File) {
        if self.options.is_dry_run {
            let step = DryRunStep::Move(file.version());
            self.note(&file, FileOutcome::Planned(step));
        } else {
            self.queue.push(QueuedTask::new(Task::Move(file)));
        }
    }

    /// Processes a directory that the destination does not list. The directory's content at the
    /// destination is therefore unknown.
    pub(super) fn unknown(&mut self, directory: Directory, message: String) {
        let Directory { root, path } = directory.clone();
        if self.options.is_check() {
            return self.note_failure(root, path, &message);
        }
        if self.options.deletion().is_some() {
            // Without the listing, the job can move the source's files, but it cannot determine
            // which files to delete.
            self.note_failure(root, path, &message);
        } else if !self.is_unknown_told {
            self.is_unknown_told = true;
            let result = FileOutcome::Unknown(message);
            self.notes.push_back(FileEvent { root, path, result });
        }
        self.queue
            .push(QueuedTask::new(Task::ListSource(directory)));
    }

    pub(super) fn differs(&mut self, root: usize, path: RelativePath, what: &'static str) {
        self.tally.differing += 1;
        let result = FileOutcome::Differs(what);
        self.notes.push_back(FileEvent { root, path, result });
    }

    fn missing(&mut self, root: usize, path: RelativePath) {
        self.tally.missing += 1;
        let result = FileOutcome::Missing;
        self.notes.push_back(FileEvent { root, path, result });
    }

    fn conflict(&mut self, root: usize, path: RelativePath, there: &EntryKind) {
        let message = format!(
            "the destination has {} with this name",
            what_is_there(there)
        );
        self.note_failure(root, path, &message);
    }

    pub(super) fn leave_out(&mut self, root: usize, path: RelativePath, why: &'static str) {
        self.tally.left_out += 1;
        let result = FileOutcome::LeftOut(why);
        self.notes.push_back(FileEvent { root, path, result });
    }
}

/// Returns an error if a path is too deep or too long.
pub(super) fn check_path(path: &RelativePath, is_directory: bool) -> Result<(), String> {
    let names = path.names();
    if is_directory && names.len() > DEPTH_MAX {
        return Err(format!("it lies deeper than {DEPTH_MAX} directories"));
    }
    let bytes: usize = names.iter().map(|it| it.len() + 1).sum();
    if bytes > PATH_BYTES_MAX {
        return Err(format!("its path is longer than {PATH_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// Returns whether an entry's name has a form that other programs use for incomplete files.
fn is_partial(entry: &ListingEntry) -> bool {
    !matches!(entry.kind, EntryKind::Directory) && part_name::is_partial_of_others(&entry.name)
}

/// Returns whether an FTP command can contain the name.
fn is_sendable(name: &[u8]) -> bool {
    !name.iter().any(|it| matches!(it, b'\r' | b'\n'))
}
