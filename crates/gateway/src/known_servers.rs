//! What sessions have learned of servers that keep no closer to the standards. The next session of the same server begins with
//! it. An entry expires, since servers change.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ftp::session::far::ServerTraits;
use tokio::time::Instant;

use crate::target::Endpoint;

/// Traits of servers, and when they were learned.
#[derive(Debug, Default)]
pub(crate) struct KnownServers(Mutex<HashMap<Endpoint, (ServerTraits, Instant)>>);

impl KnownServers {
    /// What is known of a server.
    pub(crate) fn traits(&self, server: &Endpoint, now: Instant) -> ServerTraits {
        let mut servers = self.lock();
        let Some((traits, at)) = servers.get(server).copied() else {
            return ServerTraits::default();
        };
        if now.saturating_duration_since(at) < KEPT {
            return traits;
        }
        servers.remove(server);
        ServerTraits::default()
    }

    /// Remembers what a session has learned.
    pub(crate) fn learn(&self, server: &Endpoint, traits: ServerTraits, now: Instant) {
        let mut servers = self.lock();
        if servers.len() >= SERVERS_MAX && !servers.contains_key(server) {
            // Each is found out again when it is asked next.
            servers.clear();
        }
        let known = servers
            .get(server)
            .map_or_else(ServerTraits::default, |it| it.0);
        let traits = ServerTraits {
            dislikes_questions: known.dislikes_questions || traits.dislikes_questions,
            lacks_passive: known.lacks_passive || traits.lacks_passive,
        };
        servers.insert(server.clone(), (traits, now));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Endpoint, (ServerTraits, Instant)>> {
        // Nothing here panics halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Servers in memory.
const SERVERS_MAX: usize = 1024;

/// Time for which one is: finding it out again costs a client some seconds at most.
const KEPT: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Host;

    #[test]
    fn a_server_is_known_for_an_hour_and_their_number_is_bounded() {
        let (servers, now) = (KnownServers::default(), Instant::now());
        let server = |port| Endpoint {
            host: Host::parse("192.0.2.1").expect("an address"),
            port,
        };
        let traits = ServerTraits {
            lacks_passive: true,
            ..ServerTraits::default()
        };
        servers.learn(&server(21), traits, now);
        assert_eq!(servers.traits(&server(21), now), traits);
        assert_eq!(servers.traits(&server(22), now), ServerTraits::default());
        assert_eq!(
            servers.traits(&server(21), now + KEPT),
            ServerTraits::default()
        );
        for port in 1..5_000 {
            servers.learn(&server(port), traits, now);
        }
        assert!(servers.lock().len() <= SERVERS_MAX);
    }
}
