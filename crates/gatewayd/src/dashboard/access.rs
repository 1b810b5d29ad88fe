//! Access to the dashboard: permission to read, and permission to make changes.
//!
//! - A client at a loopback address may read without a token, but sees no names of users, files and
//!   clients.
//! - A client with the token sees these names and may make changes.
//! - At any other address, over TLS, or behind a proxy, a client without the token cannot even
//!   read.
//! - A process at the admin socket has every permission.
//!
//! Over TLS, a client certificate gives the same permissions as the token. The gateway checks the
//! certificate at each request. A program sends the token itself. A browser sends a cookie that the
//! gateway has issued for the token. The cookie contains a time and an authentication code, so the
//! gateway stores no sessions.

use std::time::{Duration, SystemTime};

use aws_lc_rs::{hmac, rand::SystemRandom};
use axum::http::{HeaderMap, header};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};

use super::{Dashboard, error::DashboardError};
use crate::config::{AdminToken, Config};
use net::tls;
use pages::PageClient;

/// Permission that a client needs for its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    /// Permission to read the state of the gateway.
    Read,
    /// Permission to change the gateway's behaviour, such as a rate limit.
    Change,
    /// Permission to create an invite, which is a secret.
    Invite,
}

/// Access control of the dashboard.
pub(super) struct AccessControl {
    /// Key that authenticates the cookies. The gateway creates a new key at each start.
    key: hmac::Key,
}

impl AccessControl {
    pub(super) fn new() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Self {
            key: key.expect("the system's randomness works"),
        }
    }

    fn allows(
        &self,
        permission: Permission,
        client: &PageClient,
        headers: &HeaderMap,
        token: Option<&AdminToken>,
    ) -> Result<(), DashboardError> {
        match (token, permission) {
            (None, _) if !client.is_local() => Err(DashboardError::without_token(client)),
            (None, Permission::Invite | Permission::Change) => Err(DashboardError::NeedsTokenFile),
            (None, Permission::Read) => Ok(()),
            (Some(_), Permission::Read) if client.is_local() => Ok(()),
            (Some(token), _) if self.has_token(client, headers, token) => Ok(()),
            (Some(_), _) => Err(DashboardError::NoToken),
        }
    }

    fn has_token(&self, client: &PageClient, headers: &HeaderMap, token: &AdminToken) -> bool {
        let shown = headers.get(header::AUTHORIZATION);
        let shown = shown.and_then(|it| it.to_str().ok()?.strip_prefix("Bearer "));
        let cookies = headers.get_all(header::COOKIE).into_iter();
        let mut cookies = cookies
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='));
        shown.is_some_and(|shown| token.is(shown))
            || cookies.any(|(name, value)| {
                name == cookie_name(client) && self.is_good(value, token, client, unix_s())
            })
    }

    /// Returns a cookie for a client that has sent the token.
    pub(super) fn cookie(&self, token: &AdminToken, client: &PageClient) -> String {
        let until_unix_s = unix_s() + SESSION.as_secs();
        let tag = hmac::sign(&self.key, &signed(until_unix_s, token, client));
        let tag = BASE64_URL_SAFE_NO_PAD.encode(tag);
        set_cookie(client, &format!("{until_unix_s}.{tag}"), SESSION.as_secs())
    }

    fn is_good(
        &self,
        value: &str,
        token: &AdminToken,
        client: &PageClient,
        now_unix_s: u64,
    ) -> bool {
        let check = || {
            let (until, tag) = value.split_once('.')?;
            let until_unix_s: u64 = until.parse().ok()?;
            let tag = BASE64_URL_SAFE_NO_PAD.decode(tag).ok()?;
            let is_signed =
                hmac::verify(&self.key, &signed(until_unix_s, token, client), &tag).is_ok();
            (is_signed && now_unix_s < until_unix_s).then_some(())
        };
        check().is_some()
    }
}

impl Dashboard {
    /// Checks whether the client that sent these headers has this permission.
    pub(super) fn allows(
        &self,
        permission: Permission,
        client: &PageClient,
        headers: &HeaderMap,
    ) -> Result<(), DashboardError> {
        let running = self.running();
        if client.process.is_some() || is_known(client, &running.config) {
            return Ok(());
        }
        let token = running.config.admin_token.as_ref();
        self.access.allows(permission, client, headers, token)
    }

    /// Whether the client that sent these headers may see the names of users, files and clients.
    pub(crate) fn shows_names(&self, client: &PageClient, headers: &HeaderMap) -> bool {
        self.allows(Permission::Change, client, headers).is_ok()
    }
}

/// Whether the client's certificate is valid: a root certificate of `config` has signed it, and it
/// has not expired.
pub(super) fn is_known(client: &PageClient, config: &Config) -> bool {
    let shown = &client.certificates;
    !shown.is_empty() && tls::judge(shown, config.client_ca()).is_ok()
}

/// Returns the value of a `Set-Cookie` header that deletes the browser's cookie.
pub(super) fn no_cookie(client: &PageClient) -> String {
    set_cookie(client, "", 0)
}

fn set_cookie(client: &PageClient, value: &str, age_s: u64) -> String {
    let name = cookie_name(client);
    let over_tls = if client.is_tls { "; Secure" } else { "" };
    format!("{name}={value}; Max-Age={age_s}; Path=/; HttpOnly; SameSite=Strict{over_tls}")
}

/// Returns the name of the cookie. The name contains the port, because browsers send all cookies of
/// a host to each of its ports.
fn cookie_name(client: &PageClient) -> String {
    format!("longhaul_{}", client.at.port())
}

fn signed(until_unix_s: u64, token: &AdminToken, client: &PageClient) -> Vec<u8> {
    let port = client.at.port().to_be_bytes();
    [&until_unix_s.to_be_bytes()[..], &port, token.hash()].concat()
}

fn unix_s() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// Lifetime of a cookie: 12 hours, which is longer than a working day.
const SESSION: Duration = Duration::from_secs(12 * 3600);

#[cfg(test)]
mod tests {

    use axum::http::HeaderValue;

    use super::*;

    fn token(text: &str) -> AdminToken {
        AdminToken::new(text).expect("a token")
    }

    /// Creates a client that is connected to this address of the gateway.
    fn client(at: &str) -> PageClient {
        let at = at.parse().expect("an address");
        PageClient::new(at, at, false)
    }

    fn with(name: header::HeaderName, value: &str) -> HeaderMap {
        let value = HeaderValue::from_str(value).expect("a value");
        HeaderMap::from_iter([(name, value)])
    }

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn loopback_shows_without_a_token_and_changes_nothing() {
        let (access, nobody) = (AccessControl::new(), HeaderMap::new());
        let local = client("127.0.0.1:1");
        assert!(
            access
                .allows(Permission::Read, &local, &nobody, None)
                .is_ok()
        );
        for permission in [Permission::Change, Permission::Invite] {
            let denied = access.allows(permission, &local, &nobody, None);
            assert!(matches!(denied, Err(DashboardError::NeedsTokenFile)));
        }
        let forwarded = PageClient {
            is_forwarded: true,
            ..local.clone()
        };
        let off = access.allows(Permission::Read, &forwarded, &nobody, None);
        assert!(matches!(off, Err(DashboardError::Off)));
        let token = token(TOKEN);
        assert!(
            access
                .allows(Permission::Read, &local, &nobody, Some(&token))
                .is_ok()
        );
        for permission in [Permission::Change, Permission::Invite] {
            let denied = access.allows(permission, &local, &nobody, Some(&token));
            assert!(matches!(denied, Err(DashboardError::NoToken)));
            let bearer = with(header::AUTHORIZATION, &format!("Bearer {TOKEN}"));
            assert!(
                access
                    .allows(permission, &local, &bearer, Some(&token))
                    .is_ok()
            );
        }
    }

    #[test]
    fn any_other_address_needs_one_for_everything() {
        for address in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1"] {
            let (access, nobody) = (AccessControl::new(), HeaderMap::new());
            let open = client(address);
            let off = access.allows(Permission::Read, &open, &nobody, None);
            assert!(matches!(off, Err(DashboardError::Off)));
            let denied = access.allows(Permission::Read, &open, &nobody, Some(&token(TOKEN)));
            assert!(matches!(denied, Err(DashboardError::NoToken)));
            let wrong = with(
                header::AUTHORIZATION,
                "Bearer 0123456789abcdef0123456789abcdee",
            );
            let denied = access.allows(Permission::Read, &open, &wrong, Some(&token(TOKEN)));
            assert!(matches!(denied, Err(DashboardError::NoToken)));
        }
    }

    #[test]
    fn over_tls_a_loopback_address_is_like_any_other() {
        let (access, nobody) = (AccessControl::new(), HeaderMap::new());
        let over_tls = PageClient {
            is_tls: true,
            ..client("127.0.0.1:1")
        };
        let look = |token| access.allows(Permission::Read, &over_tls, &nobody, token);
        assert!(matches!(look(None), Err(DashboardError::NoCertificate)));
        let token = token(TOKEN);
        assert!(matches!(look(Some(&token)), Err(DashboardError::NoToken)));
        let cookie = access.cookie(&token, &over_tls);
        assert!(cookie.ends_with("; SameSite=Strict; Secure"), "{cookie}");
    }

    #[test]
    fn a_cookie_is_good_for_its_time_its_token_and_its_process() {
        let (one, other) = (AccessControl::new(), AccessControl::new());
        let from = client("10.0.0.1:9");
        let token = token(TOKEN);
        let line = one.cookie(&token, &from);
        assert!(line.ends_with("; HttpOnly; SameSite=Strict"), "{line}");
        let (pair, _) = line.split_once(';').expect("attributes");
        let (name, value) = pair.split_once('=').expect("a pair");
        assert_eq!(name, "longhaul_9");
        let now = unix_s();
        assert!(one.is_good(value, &token, &from, now));
        let at_another_port = client("10.0.0.1:10");
        assert!(!one.is_good(value, &token, &at_another_port, now));
        assert!(!one.is_good(value, &token, &from, now + SESSION.as_secs() + 1));
        assert!(!one.is_good(value, &self::token(&TOKEN.replace('0', "1")), &from, now));
        assert!(!other.is_good(value, &token, &from, now));
        let later = format!("9{value}");
        assert!(!one.is_good(&later, &token, &from, now));
        assert!(!one.is_good("", &token, &from, now) && !one.is_good("1.", &token, &from, 0));
        let cookies = with(header::COOKIE, &format!("a=b; {pair}"));
        assert!(
            one.allows(Permission::Change, &from, &cookies, Some(&token))
                .is_ok()
        );
    }
}
