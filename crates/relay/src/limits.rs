//! Limits on the resources that clients of a gateway use, so that no client uses up all of them.
#![allow(
    clippy::disallowed_methods,
    reason = "the gateway's own clock: failed logins in a minute"
)]

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use net::target::network;

/// The limits of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayLimits {
    /// Concurrent control connections.
    pub sessions_max: usize,
    /// Concurrent control connections and forwards of one client: an IPv4 address, or an IPv6
    /// network of 64 bits.
    pub sessions_per_client_max: usize,
    /// Concurrent data connections.
    pub transfers_max: usize,
    /// Concurrent connections of `[[forward]]` sections.
    pub forwards_max: usize,
    /// Logins of one client that servers refuse within a minute.
    pub failed_logins_per_minute_max: u32,
    /// Time for a client to log in.
    pub login_timeout: Duration,
    /// Time after which a control connection without command and transfer is closed.
    pub idle_timeout: Duration,
    /// Time after which a data connection without progress is reset.
    pub stall_timeout: Duration,
}

impl RelayLimits {
    /// Each session, transfer and forward uses one stream, and each kind has its own share. No kind
    /// can thus use up all streams. Servers have shorter timeouts.
    pub fn fitting(streams: usize) -> Self {
        let share = |eighths: usize| (streams * eighths / SHARES).max(1);
        let sessions_max = share(SESSIONS_SHARES);
        Self {
            sessions_max,
            sessions_per_client_max: SESSIONS_PER_CLIENT.min(sessions_max),
            transfers_max: share(TRANSFERS_SHARES),
            forwards_max: share(FORWARDS_SHARES),
            failed_logins_per_minute_max: 20,
            // The login timeout of ProFTPD, since people type passwords.
            login_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(3600),
            stall_timeout: Duration::from_secs(3600),
        }
    }
}

/// A refusal of a client, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// The client exceeds a limit, or may not use the listener.
    Service(ReachedLimit),
    /// A server that the listener does not allow.
    Server,
    /// The admin interface, under a foreign host name.
    AdminHost,
    /// The dashboard, with a wrong token.
    AdminToken,
    /// The dashboard, with an invalid certificate.
    AdminCertificate,
}

/// A limit that is reached. Its text becomes part of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ReachedLimit {
    /// The listener does not serve the address of the client.
    #[error("clients from your address are not served")]
    Stranger,
    /// All sessions.
    #[error("too many sessions, try again later")]
    Sessions,
    /// All forwards.
    #[error("too many forwards at once")]
    Forwards,
    /// Sessions of one client.
    #[error("too many sessions from your address, try again later")]
    SessionsOfClient,
    /// Failed log-ins of one client.
    #[error("too many failed logins from your address, try again in a minute")]
    FailedLogins,
}

/// The current use.
#[derive(Debug)]
pub struct Usage {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limits: RelayLimits,
    sessions: usize,
    forwards: usize,
    of_client: HashMap<IpAddr, usize>,
    /// The time of the first failed login, and the number of failures.
    failed_logins: HashMap<IpAddr, (Instant, u32)>,
    /// Time of the latest log line about each refusal.
    refusals_logged: HashMap<(IpAddr, RefusalKind), Instant>,
}

/// Purpose of a client's permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermitPurpose {
    /// A control connection.
    Session,
    /// A connection of a `[[forward]]`.
    Forward,
}

/// Counts a session or a forward while it is held.
#[derive(Debug)]
pub(crate) struct Permit {
    usage: Arc<Usage>,
    purpose: PermitPurpose,
    client: IpAddr,
}

impl Usage {
    pub(crate) fn new(limits: RelayLimits) -> Arc<Self> {
        let state = State {
            limits,
            sessions: 0,
            forwards: 0,
            of_client: HashMap::new(),
            failed_logins: HashMap::new(),
            refusals_logged: HashMap::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// Applies other limits. Clients that are admitted already stay.
    pub(crate) fn set_limits(&self, limits: RelayLimits) {
        self.lock().limits = limits;
    }

    /// Admits a client while the permit is held.
    pub(crate) fn admit(
        self: &Arc<Self>,
        client: IpAddr,
        purpose: PermitPurpose,
    ) -> Result<Permit, ReachedLimit> {
        let client = network(client);
        let mut state = self.lock();
        if state.failed_logins(client, Instant::now()) >= state.limits.failed_logins_per_minute_max
        {
            return Err(ReachedLimit::FailedLogins);
        }
        match purpose {
            PermitPurpose::Session if state.sessions >= state.limits.sessions_max => {
                return Err(ReachedLimit::Sessions);
            }
            PermitPurpose::Forward if state.forwards >= state.limits.forwards_max => {
                return Err(ReachedLimit::Forwards);
            }
            _ => {}
        }
        let of_client_max = state.limits.sessions_per_client_max;
        let of_client = state.of_client.entry(client).or_default();
        if *of_client >= of_client_max {
            return Err(ReachedLimit::SessionsOfClient);
        }
        *of_client += 1;
        *state.count(purpose) += 1;
        Ok(Permit {
            usage: self.clone(),
            purpose,
            client,
        })
    }

    /// Counts a login of this client that a server has refused.
    pub(crate) fn record_failed_login(&self, client: IpAddr) -> Result<(), ReachedLimit> {
        let (client, now) = (network(client), Instant::now());
        let mut state = self.lock();
        let count = state.failed_logins(client, now) + 1;
        if count == 1 {
            state.make_room(now);
        }
        let since = state.failed_logins.get(&client).map_or(now, |(at, _)| *at);
        state.failed_logins.insert(client, (since, count));
        if count >= state.limits.failed_logins_per_minute_max {
            return Err(ReachedLimit::FailedLogins);
        }
        Ok(())
    }

    /// Whether the log should report this refusal: once a minute, regardless of the number of
    /// attempts.
    pub fn should_log(&self, client: IpAddr, refusal: RefusalKind) -> bool {
        self.should_log_at(client, refusal, Instant::now())
    }

    fn should_log_at(&self, client: IpAddr, refusal: RefusalKind, now: Instant) -> bool {
        let logged = &mut self.lock().refusals_logged;
        let key = (network(client), refusal);
        if logged.get(&key).is_some_and(|at| now - *at < MINUTE) {
            return false;
        }
        if logged.len() >= REFUSALS_KEPT {
            logged.retain(|_, at| now - *at < MINUTE);
        }
        if logged.len() >= REFUSALS_KEPT {
            // This many refusals at once are one attack, which the log has already reported.
            return false;
        }
        logged.insert(key, now);
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self, purpose: PermitPurpose) -> &mut usize {
        match purpose {
            PermitPurpose::Session => &mut self.sessions,
            PermitPurpose::Forward => &mut self.forwards,
        }
    }

    /// Returns the failed logins of the last minute, and forgets earlier ones.
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
        // This many clients at once are one attack. It gains nothing if its failures are forgotten.
        if self.failed_logins.len() >= FAILED_LOGINS_KEPT {
            self.failed_logins.clear();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.usage.lock();
        *state.count(self.purpose) -= 1;
        if let Some(count) = state.of_client.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                state.of_client.remove(&self.client);
            }
        }
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// Division of a peer's streams. A session mostly has one transfer at a time, and many sessions
/// have none.
const SESSIONS_SHARES: usize = 4;
const TRANSFERS_SHARES: usize = 3;
const FORWARDS_SHARES: usize = 1;
const SHARES: usize = SESSIONS_SHARES + TRANSFERS_SHARES + FORWARDS_SHARES;

/// Default of `sessions_per_client_max`: a client may be the address translation of a whole site.
const SESSIONS_PER_CLIENT: usize = 1000;

/// Refusals whose latest log line is remembered.
const REFUSALS_KEPT: usize = 1_000;

/// Clients whose failed logins are kept in memory.
const FAILED_LOGINS_KEPT: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RelayLimits = RelayLimits {
        sessions_max: 3,
        sessions_per_client_max: 2,
        transfers_max: 1,
        forwards_max: 1,
        failed_logins_per_minute_max: 2,
        login_timeout: MINUTE,
        idle_timeout: MINUTE,
        stall_timeout: MINUTE,
    };

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn one_client_leaves_permits_to_others_and_returns_its_own() {
        let usage = Usage::new(LIMITS);
        let first = usage
            .admit(ip("10.0.0.1"), PermitPurpose::Session)
            .expect("room");
        let _second = usage
            .admit(ip("::ffff:10.0.0.1"), PermitPurpose::Session)
            .expect("room");
        let third = usage.admit(ip("10.0.0.1"), PermitPurpose::Session);
        assert_eq!(third.err(), Some(ReachedLimit::SessionsOfClient));
        let _other = usage
            .admit(ip("2001:db8::1"), PermitPurpose::Session)
            .expect("room");
        assert_eq!(
            usage.admit(ip("10.0.0.3"), PermitPurpose::Session).err(),
            Some(ReachedLimit::Sessions)
        );
        drop(first);
        usage
            .admit(ip("10.0.0.1"), PermitPurpose::Session)
            .expect("room again");
    }

    #[test]
    fn forwards_and_sessions_leave_each_others_permits() {
        let usage = Usage::new(RelayLimits {
            sessions_per_client_max: 9,
            ..LIMITS
        });
        let admit = |purpose| usage.admit(ip("10.0.0.1"), purpose);
        let forward = admit(PermitPurpose::Forward).expect("room");
        assert_eq!(
            admit(PermitPurpose::Forward).err(),
            Some(ReachedLimit::Forwards)
        );
        let sessions = [(); 3].map(|()| admit(PermitPurpose::Session).expect("room"));
        assert_eq!(
            admit(PermitPurpose::Session).err(),
            Some(ReachedLimit::Sessions)
        );
        drop(forward);
        admit(PermitPurpose::Forward).expect("room again");
        drop(sessions);
    }

    #[test]
    fn the_log_names_each_refusal_of_a_client_once_a_minute() {
        let usage = Usage::new(LIMITS);
        let now = Instant::now();
        let stranger = RefusalKind::Service(ReachedLimit::Stranger);
        let should_log = |client, seconds| {
            usage.should_log_at(ip(client), stranger, now + Duration::from_secs(seconds))
        };
        assert!(should_log("10.0.0.1", 0));
        assert!((0..60).all(|second| !should_log("10.0.0.1", second)));
        assert!(should_log("10.0.0.2", 1), "another client");
        let other_refusal = usage.should_log_at(ip("10.0.0.1"), RefusalKind::AdminHost, now);
        assert!(other_refusal, "another refusal");
        assert!(should_log("10.0.0.1", 60));
        let others = (0..30_000u32).map(|n| IpAddr::from(n.to_be_bytes()));
        let told = others
            .filter(|client| usage.should_log_at(*client, stranger, now))
            .count();
        assert!(told <= REFUSALS_KEPT, "{told}");
        assert!(usage.lock().refusals_logged.len() <= REFUSALS_KEPT);
    }

    #[test]
    fn a_client_that_guesses_passwords_is_kept_out() {
        let usage = Usage::new(LIMITS);
        assert_eq!(usage.record_failed_login(ip("2001:db8::1")), Ok(()));
        let guess = usage.record_failed_login(ip("2001:db8::2"));
        assert_eq!(guess, Err(ReachedLimit::FailedLogins));
        let admitted = usage.admit(ip("2001:db8::3"), PermitPurpose::Session);
        assert_eq!(admitted.err(), Some(ReachedLimit::FailedLogins));
        usage
            .admit(ip("2001:db8:0:1::3"), PermitPurpose::Session)
            .expect("another client");
    }

    #[test]
    fn what_is_remembered_of_attackers_is_bounded() {
        let usage = Usage::new(LIMITS);
        for number in 0..30_000u32 {
            let _ = usage.record_failed_login(IpAddr::from(number.to_be_bytes()));
        }
        assert!(usage.lock().failed_logins.len() <= FAILED_LOGINS_KEPT);
    }
}
