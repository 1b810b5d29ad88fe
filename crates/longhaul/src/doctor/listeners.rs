//! Findings about the gateway's listeners, and about the servers to which they lead.
#![allow(clippy::disallowed_methods, reason = "connects as a client would")]

use std::{
    io::{self, BufRead as _, BufReader, Read as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
};

use gatewayd::config::{Config, ListenerTls};
use net::target::HostPort;

use super::Findings;
use crate::ssh_server::TIMEOUT;

/// Connects to each listener as a client, and checks the greeting of the server behind the
/// listener.
pub(super) fn examine_near(config: &Config, findings: &mut Findings) {
    for listener in &config.ftp {
        let Some(target) = &listener.target else {
            continue;
        };
        let what = format!("listener {}", listener.listen);
        let local = local(listener.listen);
        if !listener.admits(local.ip()) || matches!(listener.tls, ListenerTls::Implicit(_)) {
            findings.doubtful(
                what,
                format!("{target} cannot be tested from this machine"),
                format!(
                    "connect from a client that the listener accepts: {}",
                    listener.listen
                ),
            );
            continue;
        }
        match greeting(local) {
            Ok(line) if line.starts_with("220") => {
                findings.good(what, format!("{target} greets"));
            }
            Ok(line) => findings.wrong(what, line.clone(), cure(&line, target)),
            Err(error) => findings.wrong(
                what,
                error.to_string(),
                "longhaul status shows whether the listener is open; longhaul reload opens new listeners",
            ),
        }
    }
}

/// Returns the recommended action for a refused client. `line` contains the reason that the gateway
/// has sent.
pub(super) fn cure(line: &str, target: &HostPort) -> String {
    if line.contains("no longer a peer") {
        "ask the operator of the far gateway for an invite: see above".to_owned()
    } else if line.contains("not allowed") {
        format!(
            "at the far gateway: longhaul setup far --allow {target} ..., or add it to [far] allow, and reload"
        )
    } else if line.contains("known_hosts") || line.contains("host_key") {
        "at the far gateway: longhaul doctor compares the host key of the server, and names the next step".to_owned()
    } else if line.contains("does not answer") || line.contains("no peer") {
        "the peer is down or missing: see above".to_owned()
    } else {
        format!(
            "see whether the server {target} runs: longhaul doctor at the far gateway asks it directly"
        )
    }
}

/// Checks that the passive ports are free, and that there are enough.
pub(super) fn examine_passive_ports(config: &Config, findings: &mut Findings, is_running: bool) {
    for listener in &config.ftp {
        let Some(ports) = &listener.passive_ports else {
            continue;
        };
        let what = format!("passive ports of {}", listener.listen);
        let count = ports.clone().count();
        if count < PASSIVE_PORTS_FEW {
            findings.doubtful(
                &*what,
                format!(
                    "there are {count}: as many transfers at a time, and a port rests after each"
                ),
                "make passive_ports a larger range, and the firewall's rule with it",
            );
        }
        // If the gateway is running, one of its transfers may use the port.
        let is_taken = |port: &u16| {
            let at = SocketAddr::new(listener.listen.ip(), *port);
            TcpListener::bind(at).is_err_and(|it| it.kind() == io::ErrorKind::AddrInUse)
        };
        match ports.clone().find(is_taken) {
            Some(port) if !is_running => findings.wrong(
                what,
                format!("another program has port {port}"),
                format!("ss -ltnp 'sport = {port}' names it; choose a range that is free"),
            ),
            Some(port) => findings.doubtful(
                what,
                format!("port {port} is taken, by a transfer or by another program"),
                format!("ss -ltnp 'sport = {port}' names the program"),
            ),
            None => findings.good(what, format!("{count}, all free")),
        }
    }
}

/// Connects as a client, and returns the first line that arrives.
fn greeting(at: SocketAddr) -> io::Result<String> {
    let stream = TcpStream::connect_timeout(&at, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut line = Vec::new();
    BufReader::new(stream.take(LINE_MAX_BYTES)).read_until(b'\n', &mut line)?;
    match line.is_empty() {
        true => Err(io::Error::other("the connection ended without a reply")),
        false => Ok(ftp::command::escape(line.trim_ascii_end())),
    }
}

/// Returns an address at which a program on this machine can connect to the listener.
pub(super) fn local(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

const LINE_MAX_BYTES: u64 = 4096;

/// Minimum number of passive ports. They suffice for a listing and a few transfers of one client.
const PASSIVE_PORTS_FEW: usize = 10;
