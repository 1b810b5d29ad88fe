//! Connections that this program opens to servers like a client. The module also inspects SSH
//! servers without a log-in.
#![allow(clippy::disallowed_methods, reason = "connects as a client would")]

use std::{
    future::Future,
    io,
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    time::Duration,
};

use anyhow::Context as _;
use net::target::{Host, HostPort};
use ssh::{FarSsh, HostKeyVerdict, InspectionError, ServerHostKey};

/// Connects to a server. A name stands for its first address.
///
/// # Errors
/// The error of the system. A name without an address also causes an error.
pub(crate) fn connect(server: &HostPort) -> io::Result<TcpStream> {
    let address = match &server.host {
        Host::Ip(ip) => SocketAddr::new(*ip, server.port),
        Host::Name(name) => {
            let mut addresses = (name.as_str(), server.port).to_socket_addrs()?;
            addresses.next().ok_or(io::ErrorKind::NotFound)?
        }
    };
    TcpStream::connect_timeout(&address, TIMEOUT)
}

/// Returns the host key that the far gateway would see at a server. Also returns the result of
/// checking this key against the far gateway's settings. A server may have several host keys.
///
/// # Errors
/// The server presents no host key, or `known_hosts` cannot be read.
pub(crate) fn host_key(
    server: &HostPort,
    far: &FarSsh,
) -> anyhow::Result<(ServerHostKey, HostKeyVerdict)> {
    let known_hosts = far.known_hosts.clone().unwrap_or_default();
    let in_file = || known_hosts.display().to_string();
    let mut offers = far.offers(server).with_context(in_file)?;
    // The server may no longer have any host key of the known kinds, because its keys have changed.
    // The last offer finds the new host key.
    offers.push(FarSsh::default().offers(server)?.remove(0));
    let mut found = None;
    let mut failure = None;
    for offer in offers {
        let fetched = connect(server).map_err(InspectionError::from);
        let fetched = fetched.and_then(|stream| {
            run(async { ssh::fetch_host_key(tokio_stream(stream)?, &offer).await })
        });
        match fetched {
            Ok(key) => {
                let verdict = far.verdict(server, &key).with_context(in_file)?;
                let is_known = verdict == HostKeyVerdict::Known;
                let first = found.get_or_insert((key.clone(), verdict));
                if is_known {
                    return Ok((key, verdict));
                }
                if far.host_key.is_none() {
                    return Ok(first.clone());
                }
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match (found, failure) {
        (Some(found), _) => Ok(found),
        (None, Some(error)) => Err(error.into()),
        (None, None) => anyhow::bail!("the far gateway offers no host key algorithm"),
    }
}

/// Returns the log-in methods that a server offers. An SSH listener of a gateway passes on the
/// log-in methods of the real server.
///
/// # Errors
/// The server offers nothing. The error contains the reason, if the server has sent one.
pub(crate) fn offered_methods(stream: TcpStream) -> Result<Vec<String>, InspectionError> {
    run(async { ssh::offered_methods(tokio_stream(stream)?, USER).await })
}

fn tokio_stream(stream: TcpStream) -> Result<tokio::net::TcpStream, InspectionError> {
    let stream = stream.set_nonblocking(true).map(|()| stream);
    let stream = stream.and_then(tokio::net::TcpStream::from_std);
    stream.map_err(InspectionError::from)
}

fn run<T>(
    inspection: impl Future<Output = Result<T, InspectionError>>,
) -> Result<T, InspectionError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(inspection)
}

/// User name of an inspection. Every server has this user, so the server does not log an attempt
/// for an unknown user.
const USER: &str = "root";

/// Timeout of a connection. A far gateway waits up to 10 s for a server.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);
