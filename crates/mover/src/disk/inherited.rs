//! Permissions that new files inherit from the default access control list of their folder.
//!
//! Many small files of one folder share one query of that list. A result is valid for only one
//! second, because the list may change during a run.

use std::{
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

/// Cache with the result of the last query.
#[derive(Debug, Default)]
pub(super) struct InheritedModes(Mutex<Option<FolderModes>>);

/// Result of a query for one folder.
#[derive(Debug)]
struct FolderModes {
    folder: Vec<u8>,
    /// Permissions of new files. `None` if the folder has no default access control list.
    mode: Option<u32>,
    /// Time of the query.
    at: Instant,
}

impl InheritedModes {
    /// Returns the permissions that new files inherit from `folder`.
    ///
    /// If the cache has no recent result, the function calls `ask`. The cache is not locked during
    /// the call. Therefore a slow disk does not delay queries for other folders.
    pub(super) fn mode(
        &self,
        folder: &[u8],
        now: Instant,
        ask: impl FnOnce() -> Option<u32>,
    ) -> Option<u32> {
        if let Some(answer) = &*self.last()
            && answer.folder == folder
            && now.saturating_duration_since(answer.at) < KEPT_MAX
        {
            return answer.mode;
        }
        let mode = ask();
        *self.last() = Some(FolderModes {
            folder: folder.to_vec(),
            mode,
            at: now,
        });
        mode
    }

    fn last(&self) -> MutexGuard<'_, Option<FolderModes>> {
        self.0.lock().expect("nobody panics with it")
    }
}

/// Longest time for which a cached result is valid.
const KEPT_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    #![allow(
        clippy::disallowed_methods,
        reason = "a moment to count virtual time from"
    )]

    use super::*;

    #[test]
    fn a_changed_default_list_applies_within_a_second() {
        let (modes, start) = (InheritedModes::default(), Instant::now());
        assert_eq!(modes.mode(b"a", start, || Some(0o660)), Some(0o660));
        let soon = start + KEPT_MAX / 2;
        let unasked = || unreachable!("the answer is known");
        assert_eq!(modes.mode(b"a", soon, unasked), Some(0o660));
        // The age of a cached answer starts at its query. Later uses of the answer do not extend
        // its validity.
        let later = start + KEPT_MAX;
        assert_eq!(modes.mode(b"a", later, || None), None);
    }

    #[test]
    fn a_question_holds_no_lock() {
        let (modes, now) = (InheritedModes::default(), Instant::now());
        let of_both = modes.mode(b"slow", now, || {
            assert_eq!(modes.mode(b"other", now, || Some(0o640)), Some(0o640));
            Some(0o600)
        });
        assert_eq!(of_both, Some(0o600));
        assert_eq!(modes.mode(b"other", now, || Some(0o644)), Some(0o644));
    }
}
