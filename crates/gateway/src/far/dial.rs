//! Connects to a server on behalf of a peer: resolves the name once, checks each address, and dials
//! exactly an allowed one.
#![allow(
    clippy::disallowed_methods,
    reason = "owns sockets: asks which addresses are local"
)]

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    time::Duration,
};

use link::PeerId;
use tokio::{net::TcpStream, time::timeout};

use crate::{
    shared::Shared,
    target::{AllowList, Denied, Endpoint, Host},
};

/// Why there is no connection; the text is part of a reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// The peer asks for a target that its `allow` does not have.
    #[error("{target} is {denied}")]
    Denied { target: Endpoint, denied: Denied },
    /// The name does not resolve here.
    #[error("the name in {target} is unknown: {source}")]
    Unknown { target: Endpoint, source: io::Error },
    /// Nobody answers there, or not in time.
    #[error("server {target} cannot be reached: {source}")]
    Unreachable { target: Endpoint, source: io::Error },
}

impl DialError {
    /// Whether another attempt is useless.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Denied { .. })
    }

    /// Code of the reply that tells of it. (lftp takes a 5yz whose text has the words for a name
    /// server for a temporary failure; none of ours has.)
    pub(crate) fn code(&self) -> u16 {
        if self.is_refusal() { 530 } else { 421 }
    }
}

/// Connects to `target` if the peer may.
pub(crate) async fn dial(
    shared: &Shared,
    peer: PeerId,
    target: &Endpoint,
) -> Result<TcpStream, DialError> {
    let none = AllowList::default();
    let allow = shared.config.peer(peer).map_or(&none, |p| &p.allow);
    let denied = |denied| DialError::Denied {
        target: target.clone(),
        denied,
    };
    let addresses = match &target.host {
        Host::Ip(ip) => vec![*ip],
        Host::Name(_) if !allow.may_resolve(target) => return Err(denied(Denied::NotListed)),
        Host::Name(name) => resolve(name).await.map_err(|source| DialError::Unknown {
            target: target.clone(),
            source,
        })?,
    };
    let mut reason = denied(Denied::NotListed);
    for ip in addresses.into_iter().take(ADDRESSES_MAX) {
        let address = SocketAddr::new(ip, target.port);
        match allow.check(target, ip, is_own(&shared.own, address)) {
            Err(why) => reason = denied(why),
            Ok(()) => match connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(source) => {
                    reason = DialError::Unreachable {
                        target: target.clone(),
                        source,
                    };
                }
            },
        }
    }
    Err(reason)
}

async fn resolve(name: &str) -> io::Result<Vec<IpAddr>> {
    let found = timeout(CONNECT_PATIENCE, tokio::net::lookup_host((name, 0)))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok(found.map(|address| address.ip()).collect())
}

/// Connects to an address that was allowed before.
pub(super) async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    timeout(CONNECT_PATIENCE, TcpStream::connect(address))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Whether the gateway itself listens at `address`.
fn is_own(own: &[SocketAddr], address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    own.iter().any(|listener| {
        listener.port() == address.port()
            && (listener.ip().to_canonical() == ip
                || listener.ip().is_unspecified() && is_local(ip))
    })
}

/// Only addresses of this machine can be bound.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;

/// Time for a server to accept a connection; shorter than the 20 s that FileZilla waits for a
/// greeting.
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
