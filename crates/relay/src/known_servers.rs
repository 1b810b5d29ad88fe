//! Unusual traits of servers that sessions have detected. Later sessions with the same server start
//! with these traits. A trait expires after some time, because servers change.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ftp::session::far::{LearnedTrait, ServerTraits};
use tokio::time::Instant;

use net::target::HostPort;

/// An unusual trait of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ServerTrait {
    /// The server has the trait [`ServerTraits::dislikes_questions`].
    DislikesQuestions,
    /// The server has the trait [`ServerTraits::lacks_passive`].
    LacksPassive,
    /// The server supports only TLS 1.3. With other servers, the gateway first tries TLS 1.2.
    LacksTls12,
}

/// Detected traits of servers, and the time at which each trait was detected.
#[derive(Debug, Default)]
pub(crate) struct KnownServers(Mutex<HashMap<(HostPort, ServerTrait), Instant>>);

impl KnownServers {
    /// Whether an earlier session has detected the trait, and the trait has not expired.
    pub(crate) fn has(&self, server: &HostPort, which: ServerTrait, now: Instant) -> bool {
        let mut traits = self.lock();
        let key = (server.clone(), which);
        let learned_at = traits.get(&key).copied();
        let is_fresh = learned_at.is_some_and(|at| now.saturating_duration_since(at) < KEPT);
        if learned_at.is_some() && !is_fresh {
            traits.remove(&key);
        }
        is_fresh
    }

    /// Returns the server's known traits for a new FTP session.
    pub(crate) fn ftp(&self, server: &HostPort, now: Instant) -> ServerTraits {
        ServerTraits {
            dislikes_questions: self.has(server, ServerTrait::DislikesQuestions, now),
            lacks_passive: self.has(server, ServerTrait::LacksPassive, now),
        }
    }

    /// Stores a trait that was detected at `now`.
    pub(crate) fn learn(&self, server: &HostPort, which: ServerTrait, now: Instant) {
        let mut traits = self.lock();
        let key = (server.clone(), which);
        if traits.len() >= TRAITS_MAX && !traits.contains_key(&key) {
            // The oldest trait is removed. A later session with its server detects the trait again.
            let oldest = traits.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                traits.remove(&oldest);
            }
        }
        traits.insert(key, now);
    }

    /// Stores or removes a trait that an FTP session has detected.
    pub(crate) fn learn_ftp(&self, server: &HostPort, lesson: LearnedTrait, now: Instant) {
        match lesson {
            LearnedTrait::DislikesQuestions => {
                self.learn(server, ServerTrait::DislikesQuestions, now)
            }
            LearnedTrait::LacksPassive(true) => self.learn(server, ServerTrait::LacksPassive, now),
            LearnedTrait::LacksPassive(false) => {
                self.lock()
                    .remove(&(server.clone(), ServerTrait::LacksPassive));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(HostPort, ServerTrait), Instant>> {
        // No code here panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maximum number of stored traits.
const TRAITS_MAX: usize = 1024;

/// Lifetime of a trait. After that time, a session must detect the trait again. The client of this
/// session then waits for another connection to the server, or for a few seconds.
const KEPT: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;
    use net::target::Host;

    fn server(port: u16) -> HostPort {
        HostPort {
            host: Host::parse("192.0.2.1").expect("an address"),
            port,
        }
    }

    #[test]
    fn a_trait_is_known_for_an_hour_and_belongs_to_its_server() {
        let (servers, now) = (KnownServers::default(), Instant::now());
        servers.learn(&server(21), ServerTrait::LacksTls12, now);
        let later = now + KEPT - Duration::from_secs(1);
        servers.learn_ftp(&server(21), LearnedTrait::DislikesQuestions, later);
        assert!(servers.has(&server(21), ServerTrait::LacksTls12, later));
        assert!(!servers.has(&server(22), ServerTrait::LacksTls12, later));
        assert!(!servers.has(&server(21), ServerTrait::LacksTls12, now + KEPT));
        let traits = servers.ftp(&server(21), now + KEPT);
        assert!(traits.dislikes_questions && !traits.lacks_passive);
        assert_eq!(servers.lock().len(), 1);
    }

    #[test]
    fn a_trait_that_was_wrong_is_forgotten_alone() {
        let (servers, now) = (KnownServers::default(), Instant::now());
        servers.learn_ftp(&server(21), LearnedTrait::DislikesQuestions, now);
        servers.learn_ftp(&server(21), LearnedTrait::LacksPassive(true), now);
        assert!(servers.ftp(&server(21), now).lacks_passive);
        servers.learn_ftp(&server(21), LearnedTrait::LacksPassive(false), now);
        let traits = servers.ftp(&server(21), now);
        assert!(traits.dislikes_questions && !traits.lacks_passive);
    }

    #[test]
    fn the_oldest_traits_make_room() {
        let (servers, now) = (KnownServers::default(), Instant::now());
        for port in 1..2_000 {
            let at = now + Duration::from_millis(port.into());
            servers.learn(&server(port), ServerTrait::LacksPassive, at);
        }
        assert_eq!(servers.lock().len(), TRAITS_MAX);
        assert!(!servers.has(&server(1), ServerTrait::LacksPassive, now));
        assert!(servers.has(&server(1_999), ServerTrait::LacksPassive, now));
    }
}
