//! Names that some destinations do not tell apart: those that differ in case, in Unicode form, or in blanks at their ends.
//!
//! No listing says what a destination makes of names, so each doubt is settled by another one, once all else in a directory is
//! done: of two sources that fall together the second one fails, what may be a file just uploaded is not deleted, and a name
//! that a server has changed is told.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Instant,
};

use ftp::{command::escape, listing::Entry};
use unicode_normalization::UnicodeNormalization as _;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Planner,
    event::Proof,
    note::Result,
    queue::Queued,
    task::{Directory, File, RelativePath, Task},
    version::Version,
};

/// What is in doubt, by directory.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    directories: BTreeMap<(usize, RelativePath), Doubt>,
    /// What the destination makes of names beyond ASCII, and of those with blanks at their ends.
    behaviours: [Behaviour; 2],
}

/// What is in doubt of a directory.
#[derive(Debug, Default)]
struct Doubt {
    /// Entries of the source that look like another one, and the names of those.
    twins: Vec<(Entry, Vec<Vec<u8>>)>,
    /// Entries that only the destination has, and names of the source that look like them.
    surplus: Vec<(Entry, Vec<Vec<u8>>)>,
    /// Files that were moved, and may have been given other names.
    uploads: Vec<Upload>,
    /// It is being listed again.
    asked: Option<Asked>,
}

/// What a listing is to settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// The names of files that were moved before.
    Names,
    /// Everything: the directory has all that it gets.
    All,
}

#[derive(Debug)]
struct Upload {
    file: File,
    version: Version,
    proof: Proof,
    /// It was there before the listing began.
    is_asked: bool,
}

/// What a destination makes of names of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Behaviour {
    #[default]
    Unknown,
    /// A directory with such a name is being listed again.
    Asked,
    /// They stay as they are.
    Keeps,
    /// They do not.
    Changes,
}

/// Names of a listing of the source, by what they look like.
#[derive(Debug, Default)]
pub(super) struct Forms {
    seen: HashMap<u64, Seen>,
    /// Entries that look like another one of the source.
    twins: Vec<Entry>,
}

/// Names of a form.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    count: u8,
    /// The destination does not list one of them as it is.
    is_unlisted: bool,
}

/// What a name of the source is to the destination.
pub(super) enum Likeness {
    /// The name is like no other one, or each of those alike is listed.
    None,
    /// The destination has something that may be this.
    There(Entry),
    /// Another name of the source looks like this one.
    Twin,
    /// Too many do.
    TooMany,
}

impl Forms {
    /// Whether a name of the source that looks like this one is not listed by the destination.
    fn has_unlisted(&self, name: &[u8]) -> bool {
        self.seen.get(&form(name)).is_some_and(|it| it.is_unlisted)
    }

    /// Takes a name of the source. `there` is what the destination lists.
    pub(super) fn note(&mut self, entry: &Entry, there: &Listed) -> Likeness {
        let form = form(&entry.name);
        let is_listed = there.entries.contains_key(&entry.name);
        let seen = self.seen.entry(form).or_default();
        seen.count = seen.count.saturating_add(1);
        seen.is_unlisted |= !is_listed;
        if seen.count > 1 && seen.is_unlisted {
            if seen.count > ALIKE_MAX {
                return Likeness::TooMany;
            }
            self.twins.push(entry.clone());
            return Likeness::Twin;
        }
        let alike = there.forms.get(&form).filter(|_| !is_listed);
        match alike.and_then(|it| there.entries.get(it)) {
            Some(entry) => Likeness::There(entry.clone()),
            None => Likeness::None,
        }
    }
}

/// What the destination lists of a directory.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) entries: HashMap<Vec<u8>, Entry>,
    /// A name for each form.
    forms: HashMap<u64, Vec<u8>>,
}

impl Listed {
    pub(super) fn new(entries: Vec<Entry>) -> Self {
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

    /// A name that looks like this one.
    fn alike(&self, name: &[u8]) -> Option<&Vec<u8>> {
        self.forms.get(&form(name))
    }
}

impl Planner {
    /// The source's listing of a directory has ended. Returns what only the destination has beyond doubt.
    pub(super) fn doubt(
        &mut self,
        directory: &Directory,
        forms: Forms,
        seen: &HashSet<Vec<u8>>,
        surplus: Vec<Entry>,
    ) -> Vec<Entry> {
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
        let with_names = |entry: Entry| {
            let alike = names[&form(&entry.name)].iter();
            let alike = alike.filter(|it| **it != entry.name).cloned().collect();
            (entry, alike)
        };
        let doubt = self.doubts.of(directory);
        doubt.twins.extend(forms.twins.into_iter().map(with_names));
        doubt.surplus.extend(doubtful.into_iter().map(with_names));
        certain
    }

    /// A file was moved. Whether it has the name that it was given may be in doubt; then its note waits.
    pub(super) fn moved(&mut self, file: File, version: Version, proof: Proof) {
        let name = file.path.names().last().map_or(&[][..], Vec::as_slice);
        let (Some(kind), Some(path)) = (kind_of(name), file.path.parent()) else {
            return self.accept(file, version, proof);
        };
        let behaviour = self.doubts.behaviours[kind];
        if behaviour == Behaviour::Keeps {
            return self.accept(file, version, proof);
        }
        let directory = Directory {
            root: file.root,
            path,
        };
        let doubt = self.doubts.of(&directory);
        let asks = behaviour == Behaviour::Unknown && doubt.asked.is_none();
        doubt.uploads.push(Upload {
            file,
            version,
            proof,
            is_asked: asks,
        });
        if asks {
            doubt.asked = Some(Asked::Names);
            self.doubts.behaviours[kind] = Behaviour::Asked;
            self.queue.push(Queued::new(Task::ListAgain(directory)));
        }
    }

    fn accept(&mut self, file: File, version: Version, proof: Proof) {
        self.tally.moved += 1;
        self.note(&file, Result::Moved(version, proof));
        self.remove_source(file, version);
    }

    /// Asks what is left in doubt once all else is done. Returns whether there is something.
    pub(super) fn ask_doubts(&mut self) -> bool {
        let mut is_any = false;
        for ((root, path), doubt) in &mut self.doubts.directories {
            is_any = true;
            doubt.asked = Some(Asked::All);
            doubt.uploads.iter_mut().for_each(|it| it.is_asked = true);
            let (root, path) = (*root, path.clone());
            let directory = Directory { root, path };
            self.queue.push(Queued::new(Task::ListAgain(directory)));
        }
        is_any
    }

    /// The destination has listed a directory again.
    pub(super) fn listed_again(
        &mut self,
        directory: &Directory,
        entries: Vec<Entry>,
        now: Instant,
    ) {
        let listed = Listed::new(entries);
        let Some(doubt) = self.doubts.take(directory) else {
            return;
        };
        let (asked, others): (Vec<_>, Vec<_>) =
            doubt.uploads.into_iter().partition(|it| it.is_asked);
        for upload in asked {
            self.uploaded(upload, &listed);
        }
        if doubt.asked == Some(Asked::Names) {
            *self.doubts.of(directory) = Doubt {
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
                // When the first one is there.
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

    /// Whether a file has the name that it was given.
    fn uploaded(&mut self, upload: Upload, listed: &Listed) {
        let Upload {
            file,
            version,
            proof,
            ..
        } = upload;
        let name = file.path.names().last().cloned().unwrap_or_default();
        let kind = kind_of(&name);
        let (behaviour, other) = match listed.alike(&name) {
            _ if listed.has(&name) => (Behaviour::Keeps, None),
            // It has gone on, or the server hides it, or has changed more than can be recognised.
            None => (Behaviour::Keeps, None),
            Some(other) if is_equivalent(&name, other) => (Behaviour::Changes, None),
            Some(other) => (Behaviour::Changes, Some(other)),
        };
        if let Some(kind) = kind
            && self.doubts.behaviours[kind] != Behaviour::Changes
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

    /// Files whose names need not be looked at any more.
    fn release(&mut self) {
        let behaviours = self.doubts.behaviours;
        let mut released = Vec::new();
        for doubt in self.doubts.directories.values_mut() {
            let is_certain = |it: &mut Upload| {
                it.kind()
                    .is_none_or(|kind| behaviours[kind] == Behaviour::Keeps)
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
        entry: Entry,
        alike: &[Vec<u8>],
        listed: &Listed,
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
            // What it looks like is there. Whether that has this name, too, shows a look.
            None => {
                let task = Task::LookForTwin(directory.clone(), entry);
                self.queue.push(Queued::new(task));
            }
        }
    }

    /// A destination that has another name was asked for this one.
    pub(super) fn looked_for_twin(
        &mut self,
        directory: &Directory,
        entry: Entry,
        there: Option<Entry>,
        now: Instant,
    ) {
        match there {
            Some(_) => self.fall_together(directory, &entry),
            None => self.take_one(directory, entry, None, None, now),
        }
    }

    fn fall_together(&mut self, directory: &Directory, entry: &Entry) {
        let message = "another name of the source differs in case, Unicode form or blanks alone, and is the same to the \
                       destination";
        let path = directory.path.join(&entry.name);
        self.note_failure(directory.root, path, message);
    }

    /// Something at the destination may be what a name of the source has become.
    fn keep_alike(&mut self, directory: &Directory, entry: Entry) {
        self.surplus.keep(directory.root, &directory.path);
        if self.options.deletion().is_some() {
            let path = directory.path.join(&entry.name);
            let why =
                "its name differs from one of the source in case, Unicode form or blanks alone";
            self.leave_out(directory.root, path, why);
        }
    }

    /// The destination does not list a directory again.
    pub(super) fn not_listed_again(&mut self, directory: &Directory, message: &str) {
        let Some(doubt) = self.doubts.take(directory) else {
            return;
        };
        for upload in doubt.uploads {
            if let Some(kind) = upload.kind() {
                // A server that lists nothing cannot be asked.
                self.doubts.behaviours[kind] = Behaviour::Keeps;
            }
            self.accept(upload.file, upload.version, upload.proof);
        }
        self.release();
        for (entry, _) in doubt.twins {
            let path = directory.path.join(&entry.name);
            if self.options.is_dry_run {
                // Its directory would be made first.
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

    /// Nothing more can be asked.
    pub(super) fn end_doubts(&mut self, message: &str) {
        let directories: Vec<_> = self.doubts.directories.keys().cloned().collect();
        for (root, path) in directories {
            self.not_listed_again(&Directory { root, path }, message);
        }
    }
}

impl Doubts {
    fn of(&mut self, directory: &Directory) -> &mut Doubt {
        let key = (directory.root, directory.path.clone());
        self.directories.entry(key).or_default()
    }

    fn take(&mut self, directory: &Directory) -> Option<Doubt> {
        self.directories
            .remove(&(directory.root, directory.path.clone()))
    }
}

impl Doubt {
    fn is_empty(&self) -> bool {
        self.twins.is_empty()
            && self.surplus.is_empty()
            && self.uploads.is_empty()
            && self.asked.is_none()
    }
}

impl Upload {
    fn kind(&self) -> Option<usize> {
        kind_of(self.file.path.names().last()?)
    }
}

/// Which behaviour of a destination a name depends on.
fn kind_of(name: &[u8]) -> Option<usize> {
    let is_edge = |it: Option<&u8>| it.is_some_and(u8::is_ascii_whitespace);
    match name {
        _ if is_edge(name.first()) || is_edge(name.last()) || name.ends_with(b".") => Some(1),
        _ if !name.is_ascii() => Some(0),
        _ => None,
    }
}

/// Whether two names differ in case and Unicode form alone.
pub(super) fn is_equivalent(a: &[u8], b: &[u8]) -> bool {
    folded(a) == folded(b)
}

/// Stands for all names that look like this one.
pub(super) fn form(name: &[u8]) -> u64 {
    let mut folded = folded(name);
    for byte in &mut folded {
        if byte.is_ascii_whitespace() {
            // As some servers store blanks.
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

/// A name without case and Unicode form.
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

/// Most names that look alike and are told apart one after the other.
const ALIKE_MAX: u8 = 100;
