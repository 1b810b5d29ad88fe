//! Stored answers of servers to earlier log-ins: methods of authentication, and accepted keys.
#![allow(
    clippy::disallowed_methods,
    reason = "the gateway's own clock: the age of entries"
)]

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use aws_lc_rs::digest::{Context, SHA256};
use net::target::HostPort;

use crate::wire::session::Method;

/// Properties of the users of servers, as earlier sessions have seen them.
#[derive(Debug, Default)]
pub(super) struct ServerMemory {
    users: Mutex<HashMap<(HostPort, String), User>>,
}

/// User of a server.
#[derive(Debug)]
struct User {
    /// Methods that the server offered, and the time of its answer.
    methods: Option<(Vec<Method>, Instant)>,
    /// Keys by which the user has logged in, and the time of the latest log-in.
    keys: Vec<(KeyDigest, Instant)>,
}

/// SHA-256 of a public key and of a signature algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// Returns the digest of a key in its wire format, for an algorithm.
    pub(super) fn of(key: &[u8], algorithm: &str) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(&(key.len() as u64).to_be_bytes());
        context.update(key);
        context.update(algorithm.as_bytes());
        let mut bytes = [0; 32];
        bytes.copy_from_slice(context.finish().as_ref());
        Self(bytes)
    }
}

impl ServerMemory {
    /// Returns the methods that a server offered to a user, if the answer is not too old.
    pub(super) fn find(&self, server: &HostPort, user: &str) -> Option<Vec<Method>> {
        let users = self.lock();
        let user = users.get(&(server.clone(), user.to_owned()))?;
        let (methods, since) = user.methods.as_ref()?;
        is_new(*since).then(|| methods.clone())
    }

    /// Returns whether a user has logged in at a server by a key a short time ago.
    pub(super) fn has_key(&self, server: &HostPort, user: &str, key: KeyDigest) -> bool {
        let users = self.lock();
        let user = users.get(&(server.clone(), user.to_owned()));
        user.is_some_and(|it| it.keys.iter().any(|(it, at)| *it == key && is_new(*at)))
    }

    /// Stores the methods that a server offers to a user.
    pub(super) fn store(&self, server: &HostPort, user: &str, methods: &[Method]) {
        if !methods.is_empty() {
            self.change_user(server, user, |it| {
                it.methods = Some((methods.to_vec(), Instant::now()));
            });
        }
    }

    /// Stores a key by which a user has logged in.
    pub(super) fn store_key(&self, server: &HostPort, user: &str, key: KeyDigest) {
        self.change_user(server, user, |it| {
            it.keys.retain(|(known, _)| *known != key);
            if it.keys.len() == KEYS_MAX {
                it.keys.remove(0);
            }
            it.keys.push((key, Instant::now()));
        });
    }

    /// Forgets the methods and the keys of a user.
    pub(super) fn forget(&self, server: &HostPort, user: &str) {
        self.lock().remove(&(server.clone(), user.to_owned()));
    }

    fn change_user(&self, server: &HostPort, user: &str, change: impl FnOnce(&mut User)) {
        if user.len() > USER_MAX {
            return;
        }
        let mut users = self.lock();
        let name = (server.clone(), user.to_owned());
        if users.len() >= ENTRIES_MAX && !users.contains_key(&name) {
            users.retain(|_, it| it.is_new());
            if users.len() >= ENTRIES_MAX {
                // If there are this many user names at the same time, they are guesses.
                users.clear();
            }
        }
        change(users.entry(name).or_insert_with(|| User {
            methods: None,
            keys: Vec::new(),
        }));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(HostPort, String), User>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl User {
    fn is_new(&self) -> bool {
        let methods = self.methods.as_ref().map(|(_, at)| at);
        let mut times = self.keys.iter().map(|(_, at)| at).chain(methods);
        times.any(|at| is_new(*at))
    }
}

fn is_new(at: Instant) -> bool {
    at.elapsed() < AGE_MAX
}

/// Maximum age of an entry.
const AGE_MAX: Duration = Duration::from_secs(3600);

/// Maximum number of entries.
const ENTRIES_MAX: usize = 10_000;

/// Maximum length of a user name in an entry, in bytes.
const USER_MAX: usize = 256;

/// Maximum number of keys of a user.
const KEYS_MAX: usize = 4;

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

    #[test]
    fn keys_are_of_one_user_and_end_with_a_failure() {
        let memory = ServerMemory::default();
        let [server, other]: [HostPort; 2] =
            ["files.example:22", "other.example:22"].map(|it| it.parse().expect("a server"));
        let key = KeyDigest::of(b"a key", "rsa-sha2-512");
        memory.store_key(&server, "me", key);
        assert!(memory.has_key(&server, "me", key));
        assert!(!memory.has_key(&server, "you", key));
        assert!(!memory.has_key(&other, "me", key));
        assert!(!memory.has_key(&server, "me", KeyDigest::of(b"a key", "ssh-rsa")));
        memory.store(&server, "me", &[Method::PublicKey]);
        assert!(memory.has_key(&server, "me", key), "methods replace no key");
        for number in 0..2 * KEYS_MAX {
            let name = number.to_string();
            memory.store_key(&server, "me", KeyDigest::of(name.as_bytes(), ""));
        }
        assert!(!memory.has_key(&server, "me", key), "the oldest key");
        let keys = memory.lock().values().map(|it| it.keys.len()).max();
        assert_eq!(keys, Some(KEYS_MAX));
        memory.store_key(&server, "me", key);
        memory.forget(&server, "me");
        assert!(!memory.has_key(&server, "me", key));
    }
}
