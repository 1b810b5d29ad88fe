//! Matching of names that some destinations treat as equal. Such names differ in case, Unicode
//! form, or leading and trailing blanks.
//!
//! A listing does not show how a destination treats names. Therefore the plan lists a doubtful
//! directory again, once all other work in the directory is done. If the destination treats two
//! source names as equal, the second file fails. The plan does not delete an entry that may be a
//! file that the job has just uploaded. If a server has changed a name, the change is reported.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Instant,
};

use ftp::{command::escape, listing::ListingEntry};
use unicode_normalization::UnicodeNormalization as _;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Planner,
    event::ContentProof,
    file_event::FileOutcome,
    queue::QueuedTask,
    task::{Directory, File, RelativePath, Task},
    version::FileVersion,
};

/// Entries whose names are doubtful, grouped by directory.
#[derive(Debug, Default)]
pub(super) struct DoubtfulEntries {
    directories: BTreeMap<(usize, RelativePath), DoubtfulDirectory>,
    /// The destination's treatment of two kinds of names: names with non-ASCII characters, and
    /// names with leading or trailing blanks or a trailing dot.
    behaviours: [NameTreatment; 2],
}

/// Entries of one directory whose names are doubtful.
#[derive(Debug, Default)]
struct DoubtfulDirectory {
    /// Source entries whose names are similar to other source names. Each entry comes with the
    /// similar names.
    twins: Vec<(ListingEntry, Vec<Vec<u8>>)>,
    /// Extra files at the destination, each with the source names that are similar to its name.
    surplus: Vec<(ListingEntry, Vec<Vec<u8>>)>,
    /// Moved files whose names the destination may have changed.
    uploads: Vec<DoubtfulUpload>,
    /// Purpose of the repeated listing that is in progress, if any.
    asked: Option<RelistPurpose>,
}

/// Purpose of a repeated listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RelistPurpose {
    /// The listing checks the names of files that were moved before the listing.
    Names,
    /// The listing resolves all doubts, because no more files will be moved into the directory.
    All,
}

#[derive(Debug)]
struct DoubtfulUpload {
    file: File,
    version: FileVersion,
    proof: ContentProof,
    /// Whether the file was already at the destination when the repeated listing began.
    is_asked: bool,
}

/// A destination's treatment of one kind of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum NameTreatment {
    #[default]
    Unknown,
    /// Unknown. A directory that contains a name of this kind is being listed again.
    Asked,
    /// The destination stores such names unchanged.
    Keeps,
    /// The destination changes such names.
    Changes,
}

/// Names in a listing of the source, grouped by form. Similar names have the same form.
#[derive(Debug, Default)]
pub(super) struct NameForms {
    seen: HashMap<u64, FormNames>,
    /// Source entries whose names are similar to the name of another source entry.
    twins: Vec<ListingEntry>,
}

/// Data about all source names of one form.
#[derive(Debug, Clone, Copy, Default)]
struct FormNames {
    count: u8,
    /// Whether the destination's listing lacks at least one of the names.
    is_unlisted: bool,
}

/// Result of comparing a source name with other names of the source and of the destination.
pub(super) enum NameMatch {
    /// No other name is similar, or the destination lists each of the similar names.
    None,
    /// The destination has an entry with a similar name. The entry may be this file.
    There(ListingEntry),
    /// Another source entry has a similar name.
    Twin,
    /// Too many source entries have similar names.
    TooMany,
}

impl NameForms {
    /// Returns whether the source has a similar name that the destination does not list.
    fn has_unlisted(&self, name: &[u8]) -> bool {
        self.seen.get(&form(name)).is_some_and(|it| it.is_unlisted)
    }

    /// Records a name from the source's listing, and compares it with earlier names of that
    /// listing. `there` is the destination's listing.
    pub(super) fn note(&mut self, entry: &ListingEntry, there: &DestinationListing) -> NameMatch {
        let form = form(&entry.name);
        let is_listed = there.entries.contains_key(&entry.name);
        let seen = self.seen.entry(form).or_default();
        seen.count = seen.count.saturating_add(1);
        seen.is_unlisted |= !is_listed;
        if seen.count > 1 && seen.is_unlisted {
            if seen.count > ALIKE_MAX {
                return NameMatch::TooMany;
            }
            self.twins.push(entry.clone());
            return NameMatch::Twin;
        }
        let alike = there.forms.get(&form).filter(|_| !is_listed);
        match alike.and_then(|it| there.entries.get(it)) {
            Some(entry) => NameMatch::There(entry.clone()),
            None => NameMatch::None,
        }
    }
}

/// Listing of a directory at the destination.
#[derive(Debug, Default)]
pub(super) struct DestinationListing {
    pub(super) entries: HashMap<Vec<u8>, ListingEntry>,
    /// One destination name for each form. Similar names have the same form.
    forms: HashMap<u64, Vec<u8>>,
}

impl DestinationListing {
    pub(super) fn new(entries: Vec<ListingEntry>) -> Self {
        let forms = entries.iter().map(|it| (form(&it.name), it.name.clone()));
        Self {
            forms: forms.collect(),
            entries: entries
                .into_iter()
                .map(|it| (it.name.clone(), it))
                .collect(),
        }
    }

    fn has(&self, name: &[u8]) -> bool {
        self.entries.contains_key(name)
    }

    /// Returns a destination name that is similar to `name`.
    fn alike(&self, name: &[u8]) -> Option<&Vec<u8>> {
        self.forms.get(&form(name))
    }
}

impl Planner {
    /// Records the doubtful names of a directory once the source's listing has ended. Returns the
    /// extra files whose names are not doubtful.
    pub(super) fn doubt(
        &mut self,
        directory: &Directory,
        forms: NameForms,
        seen: &HashSet<Vec<u8>>,
        surplus: Vec<ListingEntry>,
    ) -> Vec<ListingEntry> {
        let (doubtful, certain): (Vec<_>, Vec<_>) = surplus
            .into_iter()
            .partition(|it| forms.has_unlisted(&it.name));
        if doubtful.is_empty() && forms.twins.is_empty() {
            return certain;
        }
        let in_doubt = doubtful.iter().chain(&forms.twins);
        let mut names: HashMap<u64, Vec<Vec<u8>>> =
            in_doubt.map(|it| (form(&it.name), Vec::new())).collect();
        for name in seen {
            if let Some(alike) = names
                .get_mut(&form(name))
                .filter(|it| it.len() < ALIKE_MAX.into())
            {
                alike.push(name.clone());
            }
        }
        let with_names = |entry: ListingEntry| {
            let alike = names[&form(&entry.name)].iter();
            let alike = alike.filter(|it| **it != entry.name).cloned().collect();
            (entry, alike)
        };
        let doubt = self.doubts.of(directory);
        doubt.twins.extend(forms.twins.into_iter().map(with_names));
        doubt.surplus.extend(doubtful.into_iter().map(with_names));
        certain
    }

    /// Records that a file was moved. If the destination may have changed the file's name, the file
    /// counts as moved only after a check of the name.
    pub(super) fn moved(&mut self, file: File, version: FileVersion, proof: ContentProof) {
        let name = file.path.names().last().map_or(&[][..], Vec::as_slice);
        let (Some(kind), Some(path)) = (kind_of(name), file.path.parent()) else {
            return self.accept(file, version, proof);
        };
        let behaviour = self.doubts.behaviours[kind];
        if behaviour == NameTreatment::Keeps {
            return self.accept(file, version, proof);
        }
        let directory = Directory {
            root: file.root,
            path,
        };
        let doubt = self.doubts.of(&directory);
        let asks = behaviour == NameTreatment::Unknown && doubt.asked.is_none();
        doubt.uploads.push(DoubtfulUpload {
            file,
            version,
            proof,
            is_asked: asks,
        });
        if asks {
            doubt.asked = Some(RelistPurpose::Names);
            self.doubts.behaviours[kind] = NameTreatment::Asked;
            self.queue.push(QueuedTask::new(Task::ListAgain(directory)));
        }
    }

    fn accept(&mut self, file: File, version: FileVersion, proof: ContentProof) {
        self.tally.moved += 1;
        self.note(&file, FileOutcome::Moved(version, proof));
        self.remove_source(file, version);
    }

    /// Queues repeated listings of all directories that have doubtful names. The function is called
    /// once all other work is done. Returns whether any listing was queued.
    pub(super) fn ask_doubts(&mut self) -> bool {
        let mut is_any = false;
        for ((root, path), doubt) in &mut self.doubts.directories {
            is_any = true;
            doubt.asked = Some(RelistPurpose::All);
            doubt.uploads.iter_mut().for_each(|it| it.is_asked = true);
            let (root, path) = (*root, path.clone());
            let directory = Directory { root, path };
            self.queue.push(QueuedTask::new(Task::ListAgain(directory)));
        }
        is_any
    }

    /// Processes a repeated listing of the destination.
    pub(super) fn listed_again(
        &mut self,
        directory: &Directory,
        entries: Vec<ListingEntry>,
        now: Instant,
    ) {
        let listed = DestinationListing::new(entries);
        let Some(doubt) = self.doubts.take(directory) else {
            return;
        };
        let (asked, others): (Vec<_>, Vec<_>) =
            doubt.uploads.into_iter().partition(|it| it.is_asked);
        for upload in asked {
            self.uploaded(upload, &listed);
        }
        if doubt.asked == Some(RelistPurpose::Names) {
            *self.doubts.of(directory) = DoubtfulDirectory {
                uploads: others,
                asked: None,
                ..doubt
            };
            return self.release();
        }
        self.release();
        let mut later = Vec::new();
        let mut forms = HashSet::new();
        for (entry, alike) in doubt.twins {
            if forms.insert(form(&entry.name)) {
                self.settle_twin(directory, entry, &alike, &listed, now);
            } else {
                // The entry waits until the first entry with the same form is at the destination.
                later.push((entry, alike));
            }
        }
        for (entry, alike) in doubt.surplus {
            let is_other = listed.has(&entry.name) && alike.iter().all(|it| listed.has(it));
            if is_other {
                self.surplus_one(directory, entry);
            } else {
                self.keep_alike(directory, entry);
            }
        }
        if !later.is_empty() {
            self.doubts.of(directory).twins = later;
        }
    }

    /// Checks whether a moved file has the name that the mover used.
    fn uploaded(&mut self, upload: DoubtfulUpload, listed: &DestinationListing) {
        let DoubtfulUpload {
            file,
            version,
            proof,
            ..
        } = upload;
        let name = file.path.names().last().cloned().unwrap_or_default();
        let kind = kind_of(&name);
        let (behaviour, other) = match listed.alike(&name) {
            _ if listed.has(&name) => (NameTreatment::Keeps, None),
            // There are three possible reasons: another program has moved the file away, the server
            // hides it, or the server has changed its name beyond recognition.
            None => (NameTreatment::Keeps, None),
            Some(other) if is_equivalent(&name, other) => (NameTreatment::Changes, None),
            Some(other) => (NameTreatment::Changes, Some(other)),
        };
        if let Some(kind) = kind
            && self.doubts.behaviours[kind] != NameTreatment::Changes
        {
            self.doubts.behaviours[kind] = behaviour;
        }
        let Some(other) = other else {
            return self.accept(file, version, proof);
        };
        let message = format!(
            "the server has stored {:?} as {:?}: give it a name that the server keeps",
            escape(&name),
            escape(other)
        );
        self.note_failure(file.root, file.path, &message);
    }

    /// Accepts moved files whose names need no further check.
    fn release(&mut self) {
        let behaviours = self.doubts.behaviours;
        let mut released = Vec::new();
        for doubt in self.doubts.directories.values_mut() {
            let is_certain = |it: &mut DoubtfulUpload| {
                it.kind()
                    .is_none_or(|kind| behaviours[kind] == NameTreatment::Keeps)
            };
            if doubt.asked.is_none() {
                released.extend(doubt.uploads.extract_if(.., is_certain));
            }
        }
        self.doubts.directories.retain(|_, it| !it.is_empty());
        for upload in released {
            self.accept(upload.file, upload.version, upload.proof);
        }
    }

    fn settle_twin(
        &mut self,
        directory: &Directory,
        entry: ListingEntry,
        alike: &[Vec<u8>],
        listed: &DestinationListing,
        now: Instant,
    ) {
        let there = listed.entries.get(&entry.name).cloned();
        if listed.alike(&entry.name).is_none() {
            return self.take_one(directory, entry, None, None, now);
        }
        let is_other = alike.iter().any(|it| listed.has(it));
        match there {
            Some(there) if is_other => self.take_one(directory, entry, Some(there), None, now),
            Some(_) => self.fall_together(directory, &entry),
            // The destination lists only an entry with a similar name. A query shows whether the
            // destination also finds that entry by the source entry's name.
            None => {
                let task = Task::FindEntry(directory.clone(), entry);
                self.queue.push(QueuedTask::new(task));
            }
        }
    }

    /// Processes the answer to a query for a source name, when the destination has an entry with a
    /// similar name.
    pub(super) fn looked_for_twin(
        &mut self,
        directory: &Directory,
        entry: ListingEntry,
        there: Option<ListingEntry>,
        now: Instant,
    ) {
        match there {
            Some(_) => self.fall_together(directory, &entry),
            None => self.take_one(directory, entry, None, None, now),
        }
    }

    fn fall_together(&mut self, directory: &Directory, entry: &ListingEntry) {
        let message = "another name of the source differs in case, Unicode form or blanks alone, and is the same to the \
                       destination";
        let path = directory.path.join(&entry.name);
        self.note_failure(directory.root, path, message);
    }

    /// Keeps a destination entry that may be a source file under a changed name.
    fn keep_alike(&mut self, directory: &Directory, entry: ListingEntry) {
        self.extra_files.keep(directory.root, &directory.path);
        if self.options.deletion().is_some() {
            let path = directory.path.join(&entry.name);
            let why =
                "its name differs from one of the source in case, Unicode form or blanks alone";
            self.leave_out(directory.root, path, why);
        }
    }

    /// Ends the checks of a directory's doubtful names after the destination has failed to list the
    /// directory again.
    pub(super) fn not_listed_again(&mut self, directory: &Directory, message: &str) {
        let Some(doubt) = self.doubts.take(directory) else {
            return;
        };
        for upload in doubt.uploads {
            if let Some(kind) = upload.kind() {
                // If the server provides no listing, the doubt cannot be resolved.
                self.doubts.behaviours[kind] = NameTreatment::Keeps;
            }
            self.accept(upload.file, upload.version, upload.proof);
        }
        self.release();
        for (entry, _) in doubt.twins {
            let path = directory.path.join(&entry.name);
            if self.options.is_dry_run {
                // A run without `--dry-run` would first make the directory of this entry.
                let why =
                    "another name of the source differs in case, Unicode form or blanks alone";
                self.leave_out(directory.root, path, why);
                continue;
            }
            self.note_failure(directory.root, path, message);
        }
        for (entry, _) in doubt.surplus {
            self.keep_alike(directory, entry);
        }
    }

    /// Ends all checks of doubtful names, because no more listings are possible.
    pub(super) fn end_doubts(&mut self, message: &str) {
        let directories: Vec<_> = self.doubts.directories.keys().cloned().collect();
        for (root, path) in directories {
            self.not_listed_again(&Directory { root, path }, message);
        }
    }
}

impl DoubtfulEntries {
    fn of(&mut self, directory: &Directory) -> &mut DoubtfulDirectory {
        let key = (directory.root, directory.path.clone());
        self.directories.entry(key).or_default()
    }

    fn take(&mut self, directory: &Directory) -> Option<DoubtfulDirectory> {
        self.directories
            .remove(&(directory.root, directory.path.clone()))
    }
}

impl DoubtfulDirectory {
    fn is_empty(&self) -> bool {
        self.twins.is_empty()
            && self.surplus.is_empty()
            && self.uploads.is_empty()
            && self.asked.is_none()
    }
}

impl DoubtfulUpload {
    fn kind(&self) -> Option<usize> {
        kind_of(self.file.path.names().last()?)
    }
}

/// Returns the index in `behaviours` for the kind of a name. Returns `None` if destinations store
/// the name unchanged.
fn kind_of(name: &[u8]) -> Option<usize> {
    let is_edge = |it: Option<&u8>| it.is_some_and(u8::is_ascii_whitespace);
    match name {
        _ if is_edge(name.first()) || is_edge(name.last()) || name.ends_with(b".") => Some(1),
        _ if !name.is_ascii() => Some(0),
        _ => None,
    }
}

/// Returns whether two names differ at most in case and Unicode form.
pub(super) fn is_equivalent(a: &[u8], b: &[u8]) -> bool {
    folded(a) == folded(b)
}

/// Returns a hash of the name's form. Similar names have the same form and therefore the same hash.
pub(super) fn form(name: &[u8]) -> u64 {
    let mut folded = folded(name);
    for byte in &mut folded {
        if byte.is_ascii_whitespace() {
            // Some servers store a blank as an underscore.
            *byte = b'_';
        }
    }
    let is_edge = |it: &u8| matches!(it, b'_' | b'.');
    let begin = folded
        .iter()
        .position(|it| *it != b'_')
        .unwrap_or(folded.len());
    let end = folded
        .iter()
        .rposition(|it| !is_edge(it))
        .map_or(begin, |it| it + 1);
    xxh3_64(&folded[begin..end.max(begin)])
}

/// Returns the name converted to one case and to one Unicode form.
fn folded(name: &[u8]) -> Vec<u8> {
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    match std::str::from_utf8(name) {
        Ok(text) => {
            let upper = text.nfd().flat_map(char::to_uppercase);
            let lower = upper.flat_map(char::to_lowercase);
            lower.nfc().collect::<String>().into_bytes()
        }
        Err(_) => name.to_ascii_lowercase(),
    }
}

/// Maximum number of names of one form. Such names are compared one by one.
const ALIKE_MAX: u8 = 100;
