//! The segments of a store, with the files that are open for reading.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use super::{
    files::{StoreFile, StoreFileSystem},
    lock,
};

/// Segments by number. A newer segment always has a higher number.
#[derive(Default)]
pub(super) struct LiveSegments(Mutex<State>);

#[derive(Default)]
struct State {
    size_bytes: BTreeMap<u64, u64>,
    total_bytes: u64,
    /// Open segment files with their numbers, sorted by last use. The most recently used file is at
    /// the end.
    open: VecDeque<(u64, Arc<dyn StoreFile>)>,
}

impl LiveSegments {
    /// Adds a segment, or updates its size.
    pub(super) fn set(&self, number: u64, size_bytes: u64) {
        let mut state = lock(&self.0);
        let before = state.size_bytes.insert(number, size_bytes).unwrap_or(0);
        state.total_bytes = state.total_bytes + size_bytes - before;
    }

    pub(super) fn remove(&self, number: u64) {
        let mut state = lock(&self.0);
        let before = state.size_bytes.remove(&number).unwrap_or(0);
        state.total_bytes -= before;
        state.open.retain(|(open, _)| *open != number);
    }

    pub(super) fn clear(&self) {
        *lock(&self.0) = State::default();
    }

    pub(super) fn total_bytes(&self) -> u64 {
        lock(&self.0).total_bytes
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.0).size_bytes.len()
    }

    pub(super) fn oldest(&self) -> Option<u64> {
        lock(&self.0).size_bytes.keys().next().copied()
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        lock(&self.0).size_bytes.keys().copied().collect()
    }

    /// Returns the segment number that ends in these bits. At most one segment matches, since the
    /// numbers of all segments span less than 2¹⁶.
    pub(super) fn number(&self, last_bits: u16) -> Option<u64> {
        let state = lock(&self.0);
        let (newest, _) = state.size_bytes.last_key_value()?;
        let back = (*newest as u16).wrapping_sub(last_bits);
        let number = newest.checked_sub(u64::from(back))?;
        state.size_bytes.contains_key(&number).then_some(number)
    }

    /// Returns the file of a segment, open for reading.
    ///
    /// # Errors
    /// The error of opening the file.
    pub(super) fn file(
        &self,
        files: &dyn StoreFileSystem,
        folder: &Path,
        number: u64,
    ) -> io::Result<Arc<dyn StoreFile>> {
        let mut state = lock(&self.0);
        if let Some(at) = state.open.iter().position(|(open, _)| *open == number)
            && let Some(found) = state.open.remove(at)
        {
            let file = found.1.clone();
            state.open.push_back(found);
            return Ok(file);
        }
        drop(state);
        let file: Arc<dyn StoreFile> = files.open(&path(folder, number))?.into();
        let mut state = lock(&self.0);
        // Meanwhile, another thread may have opened or removed the file.
        let is_open = state.open.iter().any(|(open, _)| *open == number);
        if !is_open && state.size_bytes.contains_key(&number) {
            if state.open.len() == OPEN_MAX {
                state.open.pop_front();
            }
            state.open.push_back((number, file.clone()));
        }
        Ok(file)
    }
}

/// Returns the path of a segment's file.
pub(super) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:016x}{SUFFIX}"))
}

/// Returns the number of the segment whose file has this name. Returns `None` if `name` is not the
/// name of a segment file.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (number < NUMBER_END && format!("{number:016x}") == digits).then_some(number)
}

/// Maximum number of open files of a store. The limit is low because each peer and tenant may have
/// a store.
const OPEN_MAX: usize = 16;

const SUFFIX: &str = ".segment";

/// Upper limit of segment numbers. It suffices for one new segment per microsecond during eight
/// years.
const NUMBER_END: u64 = 1 << 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_known_by_its_last_bits_while_it_is_there() {
        let segments = LiveSegments::default();
        for number in 65_530..65_540 {
            segments.set(number, 10);
        }
        assert_eq!(segments.number(65_530), Some(65_530));
        assert_eq!(segments.number(3), Some(65_539));
        assert_eq!(segments.number(4), None, "there is none yet");
        segments.remove(65_539);
        assert_eq!(segments.number(3), None);
        assert_eq!((segments.count(), segments.total_bytes()), (9, 90));
    }

    #[test]
    fn names_of_segments_have_one_form() {
        let name = path(Path::new(""), 0xabc).display().to_string();
        assert_eq!(number_of(&name), Some(0xabc));
        for other in ["abc.segment", "0000000000000ABC.segment", "identity", ""] {
            assert_eq!(number_of(other), None);
        }
        assert_eq!(number_of("ffffffffffffffff.segment"), None);
    }
}
