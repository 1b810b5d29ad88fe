//! Limits on what the clients of a gateway use, so that no client uses everything.
#![allow(
    clippy::disallowed_methods,
    reason = "the gateway's own clock: failed logins in a minute"
)]

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The limits of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Concurrent control connections.
    pub sessions_max: usize,
    /// Of these, from one client: an IPv4 address, or an IPv6 network of 64 bits.
    pub sessions_per_client_max: usize,
    /// Concurrent data connections.
    pub transfers_max: usize,
    /// Logins of one client that servers refuse within a minute.
    pub failed_logins_per_minute_max: u32,
    /// Time for a client to log in.
    pub login_timeout: Duration,
    /// Time after which a control connection without command and transfer is closed.
    pub idle_timeout: Duration,
    /// Time after which a data connection on which nothing moves is reset.
    pub stall_timeout: Duration,
}

impl Default for Limits {
    /// Sessions enough for a site, patience longer than servers have.
    fn default() -> Self {
        Self {
            sessions_max: 2000,
            sessions_per_client_max: 1000,
            transfers_max: 2000,
            failed_logins_per_minute_max: 20,
            // People type; that of ProFTPD.
            login_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(3600),
            stall_timeout: Duration::from_secs(3600),
        }
    }
}

/// A limit that is reached. Its text is that of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Reached {
    #[error("clients from your address are not served")]
    Stranger,
    #[error("too many sessions, try again later")]
    Sessions,
    #[error("too many sessions from your address, try again later")]
    SessionsOfClient,
    #[error("too many failed logins from your address, try again in a minute")]
    FailedLogins,
}

/// The current use.
#[derive(Debug)]
pub(crate) struct Usage {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    limits: Limits,
    sessions: usize,
    of_client: HashMap<IpAddr, usize>,
    /// The time of the first failed login, and the number of failures.
    failed_logins: HashMap<IpAddr, (Instant, u32)>,
}

/// Counts a session while it is held.
#[derive(Debug)]
pub(crate) struct Place {
    usage: Arc<Usage>,
    client: IpAddr,
}

impl Usage {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        let usage = Self {
            state: Mutex::default(),
        };
        usage.set_limits(limits);
        Arc::new(usage)
    }

    /// Takes on other limits. Whoever has a place keeps it.
    pub(crate) fn set_limits(&self, limits: Limits) {
        self.lock().limits = limits;
    }

    /// Lets a client in, as long as the place is held.
    pub(crate) fn admit(self: &Arc<Self>, client: IpAddr) -> Result<Place, Reached> {
        let client = network(client);
        let mut state = self.lock();
        if state.failed_logins(client, Instant::now()) >= state.limits.failed_logins_per_minute_max
        {
            return Err(Reached::FailedLogins);
        }
        if state.sessions >= state.limits.sessions_max {
            return Err(Reached::Sessions);
        }
        let of_client_max = state.limits.sessions_per_client_max;
        let of_client = state.of_client.entry(client).or_default();
        if *of_client >= of_client_max {
            return Err(Reached::SessionsOfClient);
        }
        *of_client += 1;
        state.sessions += 1;
        Ok(Place {
            usage: self.clone(),
            client,
        })
    }

    /// A server has refused this client's login.
    pub(crate) fn login_failed(&self, client: IpAddr) -> Result<(), Reached> {
        let (client, now) = (network(client), Instant::now());
        let mut state = self.lock();
        let count = state.failed_logins(client, now) + 1;
        if count == 1 {
            state.make_room(now);
        }
        let since = state.failed_logins.get(&client).map_or(now, |(at, _)| *at);
        state.failed_logins.insert(client, (since, count));
        if count >= state.limits.failed_logins_per_minute_max {
            return Err(Reached::FailedLogins);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Failed logins of the last minute; those before are forgotten.
    fn failed_logins(&mut self, client: IpAddr, now: Instant) -> u32 {
        match self.failed_logins.get(&client) {
            Some((since, count)) if now - *since < MINUTE => *count,
            Some(_) => {
                self.failed_logins.remove(&client);
                0
            }
            None => 0,
        }
    }

    fn make_room(&mut self, now: Instant) {
        if self.failed_logins.len() >= FAILED_LOGINS_KEPT {
            self.failed_logins
                .retain(|_, (since, _)| now - *since < MINUTE);
        }
        // So many clients at once are one attack: it gains nothing from being forgotten.
        if self.failed_logins.len() >= FAILED_LOGINS_KEPT {
            self.failed_logins.clear();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.usage.lock();
        state.sessions -= 1;
        if let Some(count) = state.of_client.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                state.of_client.remove(&self.client);
            }
        }
    }
}

/// The address or network that counts as one client: a client can have any address of its IPv6
/// network.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) >> 64 << 64).into(),
        v4 => v4,
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// Clients whose failed logins are kept in memory.
const FAILED_LOGINS_KEPT: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        sessions_max: 3,
        sessions_per_client_max: 2,
        transfers_max: 1,
        failed_logins_per_minute_max: 2,
        login_timeout: MINUTE,
        idle_timeout: MINUTE,
        stall_timeout: MINUTE,
    };

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn one_client_leaves_places_to_others_and_gives_its_own_back() {
        let usage = Usage::new(LIMITS);
        let first = usage.admit(ip("10.0.0.1")).expect("room");
        let _second = usage.admit(ip("::ffff:10.0.0.1")).expect("room");
        let third = usage.admit(ip("10.0.0.1"));
        assert_eq!(third.err(), Some(Reached::SessionsOfClient));
        let _other = usage.admit(ip("2001:db8::1")).expect("room");
        assert_eq!(usage.admit(ip("10.0.0.3")).err(), Some(Reached::Sessions));
        drop(first);
        usage.admit(ip("10.0.0.1")).expect("room again");
    }

    #[test]
    fn a_client_that_guesses_passwords_is_kept_out() {
        let usage = Usage::new(LIMITS);
        assert_eq!(usage.login_failed(ip("2001:db8::1")), Ok(()));
        let guess = usage.login_failed(ip("2001:db8::2"));
        assert_eq!(guess, Err(Reached::FailedLogins));
        let admitted = usage.admit(ip("2001:db8::3"));
        assert_eq!(admitted.err(), Some(Reached::FailedLogins));
        usage.admit(ip("2001:db8:0:1::3")).expect("another client");
    }

    #[test]
    fn what_is_remembered_of_attackers_is_bounded() {
        let usage = Usage::new(LIMITS);
        for number in 0..30_000u32 {
            let _ = usage.login_failed(IpAddr::from(number.to_be_bytes()));
        }
        assert!(usage.lock().failed_logins.len() <= FAILED_LOGINS_KEPT);
    }
}
