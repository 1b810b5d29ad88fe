//! Connections to the servers of an allow list.
//!
//! The name is resolved once, and each of its addresses is checked. The gateway connects to the
//! allowed addresses in turn, until one attempt succeeds.
#![allow(
    clippy::disallowed_methods,
    reason = "owns sockets: asks which addresses are local"
)]

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    time::Duration,
};

use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::target::{AllowList, DialRefusal, Host, HostPort};

/// Reason why a connection attempt failed. The text is suitable for users.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// The allow list does not contain the target.
    #[error("{target} is {denied}")]
    Denied {
        /// Host and port of the attempt.
        target: HostPort,
        /// Reason of the refusal.
        denied: DialRefusal,
    },
    /// This machine cannot resolve the name.
    #[error("the name in {target} is unknown: {source}")]
    Unknown {
        /// Host and port of the attempt.
        target: HostPort,
        /// Error of the resolver.
        source: io::Error,
    },
    /// No address accepted a connection before the timeout.
    #[error(
        "server {target} cannot be reached: {source}; check that it runs, or run longhaul doctor \
         at the far gateway"
    )]
    Unreachable {
        /// Host and port of the attempt.
        target: HostPort,
        /// Error of the last attempt to connect to an address.
        source: io::Error,
    },
}

impl DialError {
    /// Returns whether the allow list refuses the target. Another attempt is then useless.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Denied { .. })
    }
}

/// Connects to `target` if `allow` contains it.
///
/// `own` are the addresses at which this program listens. These addresses are refused unless an
/// entry of the allow list names the exact address.
///
/// # Errors
/// [`DialError`], after at most 20 s.
pub async fn dial(
    target: &HostPort,
    allow: &AllowList,
    own: &[SocketAddr],
) -> Result<TcpStream, DialError> {
    let denied = |denied| DialError::Denied {
        target: target.clone(),
        denied,
    };
    let addresses = match &target.host {
        Host::Ip(ip) => vec![*ip],
        Host::Name(_) if !allow.may_resolve(target) => return Err(denied(DialRefusal::NotListed)),
        Host::Name(name) => resolve(name).await.map_err(|source| DialError::Unknown {
            target: target.clone(),
            source,
        })?,
    };
    let is_own = |address| is_own(own, address);
    let allowed = allowed(allow, target, addresses, is_own).map_err(denied)?;
    let connected = first_to_connect(alternate_families(allowed), TcpStream::connect).await;
    connected.map_err(|source| DialError::Unreachable {
        target: target.clone(),
        source,
    })
}

/// Returns those addresses of `target` that the allow list permits, in the same order.
///
/// # Errors
/// [`DialRefusal`] if the allow list permits no address.
fn allowed(
    allow: &AllowList,
    target: &HostPort,
    addresses: Vec<IpAddr>,
    is_own: impl Fn(SocketAddr) -> bool,
) -> Result<Vec<SocketAddr>, DialRefusal> {
    let mut reason = DialRefusal::NotListed;
    let mut allowed = Vec::new();
    for ip in addresses {
        let address = SocketAddr::new(ip, target.port);
        match allow.check(target, ip, is_own(address)) {
            Ok(()) => allowed.push(address),
            Err(why) => reason = why,
        }
    }
    if allowed.is_empty() {
        return Err(reason);
    }
    Ok(allowed)
}

/// Sorts addresses so that the address families alternate, starting with the family of the first
/// address (RFC 8305 section 4). Within a family, the addresses keep the resolver's order.
fn alternate_families(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = addresses.first().map(SocketAddr::is_ipv6) else {
        return addresses;
    };
    let (same, other): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv6() == first);
    let (mut same, mut other) = (same.into_iter(), other.into_iter());
    let mut turns = Vec::new();
    while turns.len() < ADDRESSES_MAX {
        let pair = [same.next(), other.next()];
        if pair == [None, None] {
            break;
        }
        turns.extend(pair.into_iter().flatten());
    }
    turns.truncate(ADDRESSES_MAX);
    turns
}

/// Returns the first successful connection (RFC 8305 section 5).
///
/// Starts the next attempt when the previous attempt has failed, or has taken [`ATTEMPT_DELAY`].
/// The first success aborts the other attempts.
///
/// # Errors
/// The error of the last failed attempt. [`io::ErrorKind::TimedOut`] after [`CONNECT_TIMEOUT`].
async fn first_to_connect<T, F>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<T>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let race = async {
        let mut waiting = addresses.into_iter();
        // When this set is dropped, it aborts the remaining attempts.
        let mut attempts = JoinSet::new();
        let mut reason = io::ErrorKind::NotFound.into();
        loop {
            if let Some(address) = waiting.next() {
                attempts.spawn(connect(address));
            }
            let is_last = waiting.len() == 0;
            tokio::select! {
                ended = attempts.join_next() => match ended {
                    Some(Ok(Ok(connection))) => return Ok(connection),
                    Some(Ok(Err(error))) => reason = error,
                    Some(Err(panicked)) => reason = io::Error::other(panicked),
                    None => return Err(reason),
                },
                () = sleep(ATTEMPT_DELAY), if !is_last => {}
            }
        }
    };
    timeout(CONNECT_TIMEOUT, race)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn resolve(name: &str) -> io::Result<Vec<IpAddr>> {
    let found = timeout(CONNECT_TIMEOUT, tokio::net::lookup_host((name, 0)))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok(found.map(|address| address.ip()).collect())
}

/// Connects to an address without checking the allow list. The caller must have checked the
/// address.
///
/// # Errors
/// The error of the connection. [`io::ErrorKind::TimedOut`] after [`CONNECT_TIMEOUT`].
pub async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    timeout(CONNECT_TIMEOUT, TcpStream::connect(address))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Returns whether the gateway itself listens at `address`.
fn is_own(own: &[SocketAddr], address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    own.iter().any(|listener| {
        listener.port() == address.port()
            && (listener.ip().to_canonical() == ip
                || listener.ip().is_unspecified() && is_local(ip))
    })
}

/// Returns whether an address belongs to this machine. A socket can be bound only to such an
/// address.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// Maximum number of addresses tried for one name. The last attempt starts 1.75 s after the first.
const ADDRESSES_MAX: usize = 8;

/// Time after which an attempt to the next address starts, although the previous attempt still runs
/// (RFC 8305 section 8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Timeout for connecting to a server. It covers the attempts to all addresses of the server.
/// FileZilla waits longer for a greeting: 20 s.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        pin::Pin,
        sync::{Arc, Mutex},
    };

    use tokio::time::Instant;

    use super::*;

    type Attempt = Pin<Box<dyn Future<Output = io::Result<SocketAddr>> + Send>>;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        let parse = |text: &&str| SocketAddr::new(text.parse().expect("an address"), 21);
        texts.iter().map(parse).collect()
    }

    fn in_virtual_time<T>(what: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(what)
    }

    #[test]
    fn an_address_that_swallows_packets_costs_a_quarter_of_a_second() {
        in_virtual_time(async {
            let begun = Instant::now();
            let connect = |address: SocketAddr| -> Attempt {
                match address.is_ipv6() {
                    true => Box::pin(pending()),
                    false => Box::pin(ready(Ok(address))),
                }
            };
            let both = addresses(&["2001:db8::1", "192.0.2.1"]);
            let connected = first_to_connect(both, connect).await;
            assert_eq!(connected.expect("connected").to_string(), "192.0.2.1:21");
            assert_eq!(begun.elapsed(), ATTEMPT_DELAY);
        });
    }

    #[test]
    fn one_that_refuses_makes_way_at_once() {
        in_virtual_time(async {
            let begun = Instant::now();
            let connect = |address: SocketAddr| -> Attempt {
                Box::pin(ready(match address.is_ipv6() {
                    true => Err(io::ErrorKind::ConnectionRefused.into()),
                    false => Ok(address),
                }))
            };
            let both = addresses(&["2001:db8::1", "192.0.2.1"]);
            assert!(first_to_connect(both, connect).await.is_ok());
            assert_eq!(begun.elapsed(), Duration::ZERO);
            let refused = first_to_connect(addresses(&["2001:db8::1"]), connect).await;
            let error = refused.expect_err("nobody is there");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        });
    }

    #[test]
    fn the_first_connection_wins_and_the_others_are_closed() {
        struct Open(Arc<Mutex<i32>>);
        impl Drop for Open {
            fn drop(&mut self) {
                *self.0.lock().expect("no panic") -= 1;
            }
        }
        in_virtual_time(async {
            let open = Arc::new(Mutex::new(0));
            let connect = |address: SocketAddr| {
                *open.lock().expect("no panic") += 1;
                let socket = Open(open.clone());
                async move {
                    // The attempt to the first address takes longer than the attempt to the second
                    // address.
                    let first = address.is_ipv6();
                    sleep(Duration::from_millis(if first { 1_000 } else { 600 })).await;
                    Ok((address, socket))
                }
            };
            let both = addresses(&["2001:db8::1", "192.0.2.1"]);
            let begun = Instant::now();
            let (address, socket) = first_to_connect(both, connect).await.expect("connected");
            assert_eq!(address.to_string(), "192.0.2.1:21");
            assert_eq!(begun.elapsed(), Duration::from_millis(850));
            tokio::task::yield_now().await;
            assert_eq!(*open.lock().expect("no panic"), 1, "the loser is closed");
            drop(socket);
        });
    }

    #[test]
    fn where_nobody_answers_all_of_it_ends_after_ten_seconds() {
        in_virtual_time(async {
            let begun = Instant::now();
            let tried = Mutex::new(0);
            let connect = |_| -> Attempt {
                *tried.lock().expect("no panic") += 1;
                Box::pin(pending())
            };
            let four = addresses(&["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"]);
            let error = first_to_connect(four, connect).await.expect_err("silence");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(begun.elapsed(), CONNECT_TIMEOUT);
            assert_eq!(*tried.lock().expect("no panic"), 4);
        });
    }

    #[test]
    fn families_take_turns() {
        let mixed = addresses(&["2001:db8::1", "2001:db8::2", "2001:db8::3", "192.0.2.1"]);
        let expected = addresses(&["2001:db8::1", "192.0.2.1", "2001:db8::2", "2001:db8::3"]);
        assert_eq!(alternate_families(mixed), expected);
        let many: Vec<_> = (0..100).map(|n| format!("192.0.2.{n}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(alternate_families(addresses(&many)).len(), ADDRESSES_MAX);
    }

    #[test]
    fn what_is_not_allowed_is_never_tried() {
        let list = AllowList(vec!["ftp.example.com".parse().expect("an entry")]);
        let target: HostPort = "ftp.example.com".parse().expect("a target");
        let ips = |texts: &[&str]| addresses(texts).iter().map(SocketAddr::ip).collect();
        let found = allowed(
            &list,
            &target,
            ips(&["10.0.0.1", "192.0.2.1", "127.0.0.1"]),
            |_| false,
        );
        assert_eq!(found, Ok(addresses(&["192.0.2.1"])));
        let none = allowed(&list, &target, ips(&["192.0.2.1"]), |_| true);
        assert_eq!(none, Err(DialRefusal::Own));
        let none = allowed(&list, &target, ips(&["192.0.2.1", "10.0.0.1"]), |address| {
            address.ip().to_string() == "192.0.2.1"
        });
        assert!(
            matches!(none, Err(DialRefusal::Internal { .. })),
            "{none:?}"
        );
    }
}
