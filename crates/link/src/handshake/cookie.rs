//! Cookies: under load, the sender of a hello must prove that it receives packets at its source
//! address.
//!
//! A cookie is a MAC of the address and the time. Its key never leaves the responder. The responder
//! stores nothing for a cookie, and can verify a returned cookie with its key alone. The endpoint
//! decides when to request a cookie.

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::{constant_time, hmac};

use crate::{identity::Identity, time::Time};

/// Proof that the sender of a hello receives packets at its source address.
pub(crate) type Cookie = [u8; COOKIE_SIZE];

pub(crate) const COOKIE_SIZE: usize = 16;
/// Period after which new cookies differ from old ones. A cookie stays valid until the end of the
/// next period. This time is enough for any handshake, but too short to collect cookies for a later
/// attack.
const PERIOD_NS: u64 = 120_000_000_000;

/// Creates and verifies cookies.
pub(crate) struct CookieJar {
    key: hmac::Key,
    instance: u64,
}

impl CookieJar {
    /// Creates the key for cookies of `identity`. Cookies are valid only for the same `instance`.
    pub(crate) fn new(identity: &Identity, instance: u64) -> Self {
        let secret = identity.pkcs8();
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret.secret_pkcs8_der()),
            instance,
        }
    }

    /// Returns the cookie for a sender at `address`.
    pub(crate) fn bake(&self, address: &SocketAddr, now: Time) -> Cookie {
        self.of_period(address, now.0 / PERIOD_NS)
    }

    /// Whether `cookie` was created for `address` in the present or the previous period.
    pub(crate) fn is_good(&self, cookie: &Cookie, address: &SocketAddr, now: Time) -> bool {
        let period = now.0 / PERIOD_NS;
        [Some(period), period.checked_sub(1)]
            .into_iter()
            .flatten()
            .map(|period| self.of_period(address, period))
            .any(|good| constant_time::verify_slices_are_equal(&good, cookie).is_ok())
    }

    fn of_period(&self, address: &SocketAddr, period: u64) -> Cookie {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut mac = hmac::Context::with_key(&self.key);
        mac.update(b"longhaul cookie v1");
        mac.update(&self.instance.to_be_bytes());
        mac.update(&period.to_be_bytes());
        mac.update(&ip.octets());
        mac.update(&address.port().to_be_bytes());
        mac.sign().as_ref()[..COOKIE_SIZE]
            .try_into()
            .expect("a SHA-256 MAC has 32 bytes")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_cookie_is_good_for_its_address_and_two_periods() {
        let jar = CookieJar::new(&Identity::from_seed([1; 32]), 1);
        let address: SocketAddr = ([192, 0, 2, 1], 4810).into();
        let baked = Time(3 * PERIOD_NS + 5);
        let cookie = jar.bake(&address, baked);
        let after = |s| baked + Duration::from_secs(s);
        assert!(jar.is_good(&cookie, &address, after(0)));
        assert!(jar.is_good(&cookie, &address, after(239)));
        assert!(!jar.is_good(&cookie, &address, after(240)));
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:4810".parse().expect("well formed");
        assert!(jar.is_good(&cookie, &mapped, after(0)), "the same host");
        for other in ["192.0.2.1:4811", "192.0.2.2:4810", "[2001:db8::1]:4810"] {
            let other = other.parse().expect("well formed");
            assert!(!jar.is_good(&cookie, &other, after(0)), "{other}");
        }
        for (seed, instance) in [(1, 2), (2, 1)] {
            let other = CookieJar::new(&Identity::from_seed([seed; 32]), instance);
            assert!(!other.is_good(&cookie, &address, after(0)));
        }
    }
}
