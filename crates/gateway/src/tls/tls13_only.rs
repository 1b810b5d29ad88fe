//! Servers without TLS 1.2, the version that a server is offered first. From the second session on,
//! such a server is not connected twice. An entry expires, since servers change.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::target::Endpoint;

/// Which servers have turned out to be such, and when.
#[derive(Debug, Default)]
pub(crate) struct Tls13Only(Mutex<HashMap<Endpoint, Instant>>);

impl Tls13Only {
    pub(crate) fn contains(&self, server: &Endpoint, now: Instant) -> bool {
        let mut servers = self.lock();
        let found = servers.get(server).copied();
        let is_fresh = found.is_some_and(|at| now.saturating_duration_since(at) < KEPT);
        if found.is_some() && !is_fresh {
            servers.remove(server);
        }
        is_fresh
    }

    pub(crate) fn insert(&self, server: &Endpoint, now: Instant) {
        let mut servers = self.lock();
        if servers.len() >= SERVERS_MAX {
            // Each is found out again when it is asked next.
            servers.clear();
        }
        servers.insert(server.clone(), now);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Endpoint, Instant>> {
        // Nothing here panics halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Servers in memory.
const SERVERS_MAX: usize = 1024;

/// Time for which one is: finding it out again costs a connection.
const KEPT: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Host;

    #[test]
    fn a_server_is_remembered_for_an_hour() {
        let (servers, now) = (Tls13Only::default(), Instant::now());
        let server = Endpoint {
            host: Host::parse("192.0.2.1").expect("an address"),
            port: 21,
        };
        assert!(!servers.contains(&server, now));
        servers.insert(&server, now);
        assert!(servers.contains(&server, now + KEPT - Duration::from_secs(1)));
        assert!(!servers.contains(&server, now + KEPT));
        assert!(servers.lock().is_empty());
    }
}
