//! Servers that have no TLS 1.2, which is what a server is offered first.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::target::Endpoint;

/// Which servers have turned out to be such.
#[derive(Debug, Default)]
pub(crate) struct Tls13Only(Mutex<HashSet<Endpoint>>);

impl Tls13Only {
    pub(crate) fn contains(&self, server: &Endpoint) -> bool {
        self.lock().contains(server)
    }

    /// Returns whether that is news.
    pub(crate) fn insert(&self, server: &Endpoint) -> bool {
        let mut servers = self.lock();
        if servers.len() == SERVERS_MAX {
            // Each is found out again when it is asked next.
            servers.clear();
        }
        servers.insert(server.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Endpoint>> {
        // Nothing here panics halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Servers that are remembered.
const SERVERS_MAX: usize = 1024;
