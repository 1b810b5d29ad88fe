//! Siblings: handles that read the same file at the same time.
//!
//! Some clients download a file in several ranges at the same time. Each range has its own handle,
//! often on its own connection. Before the first READ of such a handle, the far half therefore
//! reads little ahead. Later, the read-ahead ends at the next offset where a sibling has started.
//!
//! Input: the path and the first offset of each handle. Output: whether a handle has siblings, and
//! where they have started.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    hash::{DefaultHasher, Hash, Hasher as _},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::ranged_files::PathHash;

/// Registry of the files that clients have open for reading. All sessions of a listener share it.
#[derive(Debug, Clone, Default)]
pub struct SharedFiles {
    registry: Arc<Mutex<Registry>>,
    /// Hash of the account. A path names different files for different accounts.
    account: u64,
}

#[derive(Debug, Default)]
struct Registry {
    files: HashMap<PathHash, OpenFile>,
    next_handle: u64,
}

#[derive(Debug, Default)]
struct OpenFile {
    /// Number of handles that read the file.
    handles: usize,
    /// Offset of the first READ and number of each handle that has sent a READ.
    first_offsets: BTreeSet<(u64, u64)>,
}

/// Registration of a handle that reads a file. Dropping this value removes the handle from the
/// registry.
#[derive(Debug)]
pub(super) struct ReadRegistration {
    registry: Arc<Mutex<Registry>>,
    path: PathHash,
    number: u64,
    first_offset: Option<u64>,
    /// Whether the handle had siblings when it was opened.
    had_siblings: bool,
}

impl SharedFiles {
    /// Returns the files of an account, such as a user at a server.
    #[must_use]
    pub fn for_account(&self, account: &impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        account.hash(&mut hasher);
        Self {
            registry: self.registry.clone(),
            account: hasher.finish(),
        }
    }

    pub(super) fn path_hash(&self, path: &[u8]) -> PathHash {
        PathHash::of(self.account, path)
    }

    /// Adds a handle that a client opens to read this file.
    pub(super) fn open(&self, path: PathHash) -> ReadRegistration {
        let mut registry = lock(&self.registry);
        let number = registry.next_handle;
        registry.next_handle += 1;
        let file = registry.files.entry(path).or_default();
        file.handles += 1;
        ReadRegistration {
            registry: self.registry.clone(),
            path,
            number,
            first_offset: None,
            had_siblings: file.handles > 1,
        }
    }
}

impl ReadRegistration {
    pub(super) fn path(&self) -> PathHash {
        self.path
    }

    /// Returns whether the handle had siblings when it was opened.
    pub(super) fn had_siblings(&self) -> bool {
        self.had_siblings
    }

    /// Stores the offset of the first READ.
    pub(super) fn start_at(&mut self, offset: u64) {
        let mut registry = lock(&self.registry);
        if let Some(file) = registry.files.get_mut(&self.path)
            && self.first_offset.is_none()
        {
            file.first_offsets.insert((offset, self.number));
            self.first_offset = Some(offset);
        }
    }

    /// Returns the lowest offset above `offset` at which a sibling has started.
    pub(super) fn next_start(&self, offset: u64) -> Option<u64> {
        let registry = lock(&self.registry);
        let file = registry.files.get(&self.path)?;
        let above = (Bound::Excluded((offset, u64::MAX)), Bound::Unbounded);
        let mut starts = file.first_offsets.range(above);
        let (start, _) = starts.find(|(_, number)| *number != self.number)?;
        Some(*start)
    }

    /// Returns whether a sibling has not sent a READ yet.
    pub(super) fn has_unread_siblings(&self) -> bool {
        let registry = lock(&self.registry);
        let own = usize::from(self.first_offset.is_none());
        let file = registry.files.get(&self.path);
        file.is_some_and(|file| file.handles > file.first_offsets.len() + own)
    }
}

impl Drop for ReadRegistration {
    fn drop(&mut self) {
        let mut registry = lock(&self.registry);
        if let Entry::Occupied(mut file) = registry.files.entry(self.path) {
            file.get_mut().handles -= 1;
            if let Some(offset) = self.first_offset {
                file.get_mut().first_offsets.remove(&(offset, self.number));
            }
            if file.get().handles == 0 {
                file.remove();
            }
        }
    }
}

fn lock(registry: &Mutex<Registry>) -> MutexGuard<'_, Registry> {
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl SharedFiles {
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.registry).files.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_one_file_know_each_other_until_they_are_closed() {
        let files = SharedFiles::default().for_account(&"ada");
        let path = files.path_hash(b"/film");
        let mut first = files.open(path);
        assert!(!first.had_siblings() && !first.has_unread_siblings());
        let mut second = files.clone().open(path);
        assert!(second.had_siblings() && first.has_unread_siblings());
        second.start_at(50);
        assert!(second.has_unread_siblings() && !first.has_unread_siblings());
        first.start_at(0);
        assert!(!second.has_unread_siblings());
        assert_eq!(first.next_start(0), Some(50));
        assert_eq!(first.next_start(50), None);
        // A handle is not limited by its own start.
        assert_eq!(second.next_start(0), None);
        drop(second);
        assert_eq!(first.next_start(0), None);
        drop(first);
        assert!(files.is_empty());
    }

    #[test]
    fn accounts_share_no_file() {
        let files = SharedFiles::default();
        let [ada, bob] = ["ada", "bob"].map(|name| files.for_account(&name));
        let _handle = ada.open(ada.path_hash(b"/film"));
        assert!(!bob.open(bob.path_hash(b"/film")).had_siblings());
        assert!(ada.open(ada.path_hash(b"/film")).had_siblings());
    }
}
