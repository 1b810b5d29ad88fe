//! Stored methods of authentication that servers offered to earlier sessions.
#![allow(
    clippy::disallowed_methods,
    reason = "the gateway's own clock: the age of entries"
)]

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use net::target::HostPort;

use crate::wire::session::Method;

/// Properties of servers, as earlier sessions have seen them.
#[derive(Debug, Default)]
pub(super) struct ServerMemory {
    entries: Mutex<HashMap<(HostPort, String), Entry>>,
}

#[derive(Debug)]
struct Entry {
    methods: Vec<Method>,
    since: Instant,
}

impl ServerMemory {
    /// Returns the methods that a server offered to a user, if the entry is not too old.
    pub(super) fn find(&self, server: &HostPort, user: &str) -> Option<Vec<Method>> {
        let entries = self.lock();
        let entry = entries.get(&(server.clone(), user.to_owned()))?;
        (entry.since.elapsed() < AGE_MAX).then(|| entry.methods.clone())
    }

    /// Stores the methods that a server offers to a user.
    pub(super) fn store(&self, server: &HostPort, user: &str, methods: &[Method]) {
        if methods.is_empty() || user.len() > USER_MAX {
            return;
        }
        let mut entries = self.lock();
        if entries.len() >= ENTRIES_MAX {
            entries.retain(|_, it| it.since.elapsed() < AGE_MAX);
        }
        if entries.len() >= ENTRIES_MAX {
            // If there are this many user names at the same time, they are guesses.
            entries.clear();
        }
        let entry = Entry {
            methods: methods.to_vec(),
            since: Instant::now(),
        };
        entries.insert((server.clone(), user.to_owned()), entry);
    }

    /// Forgets the methods of a user.
    pub(super) fn forget(&self, server: &HostPort, user: &str) {
        self.lock().remove(&(server.clone(), user.to_owned()));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(HostPort, String), Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maximum age of an entry.
const AGE_MAX: Duration = Duration::from_secs(3600);

/// Maximum number of entries.
const ENTRIES_MAX: usize = 10_000;

/// Maximum length of a user name in an entry, in bytes.
const USER_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_of_one_user_and_bounded() {
        let cache = ServerMemory::default();
        let server: HostPort = "files.example:22".parse().expect("a server");
        let methods = [Method::PublicKey];
        cache.store(&server, "me", &methods);
        assert_eq!(cache.find(&server, "me"), Some(methods.to_vec()));
        assert_eq!(cache.find(&server, "you"), None);
        cache.forget(&server, "me");
        assert_eq!(cache.find(&server, "me"), None);
        for number in 0..3 * ENTRIES_MAX {
            cache.store(&server, &number.to_string(), &methods);
        }
        assert!(cache.lock().len() <= ENTRIES_MAX);
    }
}
