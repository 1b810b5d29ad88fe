//! Limits on the resources of a gateway, so that one client cannot use up all of them.
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

/// Limits on the resources that clients of a gateway may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayLimits {
    /// Maximum number of concurrent control connections.
    pub sessions_max: usize,
    /// Maximum number of concurrent control connections and forwards of one client. A client is an
    /// IPv4 address or an IPv6 network of 64 bits.
    pub sessions_per_client_max: usize,
    /// Maximum number of concurrent data connections.
    pub transfers_max: usize,
    /// Maximum number of concurrent connections of `[[forward]]` sections.
    pub forwards_max: usize,
    /// Maximum number of failed log-ins of one client per minute.
    pub failed_logins_per_minute_max: u32,
    /// Time limit for a client to log in.
    pub login_timeout: Duration,
    /// Timeout: the gateway closes a control connection if there is neither a command nor a
    /// transfer for this time.
    pub idle_timeout: Duration,
    /// Timeout: the gateway resets a data connection if no byte moves for this time.
    pub stall_timeout: Duration,
}

impl RelayLimits {
    /// Returns the default limits for a link with `streams` streams. Each session, transfer and
    /// forward uses one stream. Each kind has a fixed share of the streams, so no kind can use up
    /// all streams. The timeouts are at least as long as the timeouts of common servers.
    pub fn fitting(streams: usize) -> Self {
        let share = |eighths: usize| (streams * eighths / SHARES).max(1);
        let sessions_max = share(SESSIONS_SHARES);
        Self {
            sessions_max,
            sessions_per_client_max: SESSIONS_PER_CLIENT.min(sessions_max),
            transfers_max: share(TRANSFERS_SHARES),
            forwards_max: share(FORWARDS_SHARES),
            failed_logins_per_minute_max: 20,
            // ProFTPD has the same login timeout. The timeout is long because people type
            // passwords.
            login_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(3600),
            stall_timeout: Duration::from_secs(3600),
        }
    }
}

/// Kind of a refusal, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// The client exceeds a limit, or its address is not allowed at the listener.
    Service(ReachedLimit),
    /// The client requested a server that the listener does not allow.
    Server,
    /// A request to the admin interface names a foreign host.
    AdminHost,
    /// A request to the dashboard has a wrong token.
    AdminToken,
    /// A connection to the dashboard has an invalid client certificate.
    AdminCertificate,
}

/// A limit that a client has reached. The error text becomes part of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ReachedLimit {
    /// The listener does not serve clients with this address.
    #[error("clients from this address are not served (see \"clients\" of the listener)")]
    Stranger,
    /// The total number of sessions.
    #[error("too many sessions, try again later")]
    Sessions,
    /// The total number of forwards.
    #[error("too many forwards at once")]
    Forwards,
    /// The number of sessions of one client.
    #[error("too many sessions from your address, try again later")]
    SessionsOfClient,
    /// The number of failed log-ins of one client.
    #[error("too many failed logins from your address, try again in a minute")]
    FailedLogins,
}

/// Current use of the limited resources.
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
    /// For each client, the time of its first failed log-in and the number of failures since that
    /// time.
    failed_logins: HashMap<IpAddr, (Instant, u32)>,
    /// For each client and kind of refusal, the time of the latest log line.
    refusals_logged: HashMap<(IpAddr, RefusalKind), Instant>,
}

/// Service for which a client needs a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermitPurpose {
    /// A control connection.
    Session,
    /// A connection of a `[[forward]]`.
    Forward,
}

/// Permit of one session or forward. [`Usage`] counts the session or forward until the permit is
/// dropped.
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

    /// Sets new limits. Clients that were already admitted stay connected.
    pub(crate) fn set_limits(&self, limits: RelayLimits) {
        self.lock().limits = limits;
    }

    /// Admits a client if no limit is reached. The client counts towards the limits until the
    /// permit is dropped.
    pub(crate) fn admit(
        self: &Arc<Self>,
        client: IpAddr,
        purpose: PermitPurpose,
    ) -> Result<Permit, ReachedLimit> {
        let client = network(client);
        let mut state = self.lock();
        state.check_failed_logins(client)?;
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

    /// Returns an error if the client has reached the limit of failed log-ins.
    pub(crate) fn check_failed_logins(&self, client: IpAddr) -> Result<(), ReachedLimit> {
        self.lock().check_failed_logins(network(client))
    }

    /// Counts a failed log-in of this client. Returns an error when the client has reached the
    /// limit.
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

    /// Whether the log should contain this refusal. Each kind of refusal of a client is logged at
    /// most once a minute.
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
            // At this limit, the refusals come from an attack that the log has already reported.
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

    fn check_failed_logins(&mut self, client: IpAddr) -> Result<(), ReachedLimit> {
        match self.failed_logins(client, Instant::now()) >= self.limits.failed_logins_per_minute_max
        {
            true => Err(ReachedLimit::FailedLogins),
            false => Ok(()),
        }
    }

    /// Returns the number of failed log-ins of the client in the present minute. The function drops
    /// the count of an earlier minute.
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
        // At this limit, the failures come from one attack. The attacker gains nothing if the
        // gateway forgets the failures.
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

/// Share of a peer's streams for sessions, in eighths. The next two constants are the shares for
/// transfers and forwards. A session usually has at most one transfer at a time, so transfers do
/// not need more streams than sessions.
const SESSIONS_SHARES: usize = 4;
const TRANSFERS_SHARES: usize = 3;
const FORWARDS_SHARES: usize = 1;
const SHARES: usize = SESSIONS_SHARES + TRANSFERS_SHARES + FORWARDS_SHARES;

/// Default of `sessions_per_client_max`. The value is high because one address may be the NAT
/// address of a large site.
const SESSIONS_PER_CLIENT: usize = 1000;

/// Maximum number of refusals for which the time of the latest log line is stored.
const REFUSALS_KEPT: usize = 1_000;

/// Maximum number of clients for which failed log-ins are stored.
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
