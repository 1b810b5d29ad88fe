//! Findings about SSH listeners and SSH servers.
#![allow(clippy::disallowed_methods, reason = "connects as a client would")]

use std::{net::TcpStream, time::Duration};

use gatewayd::config::Config;
use net::target::{HostPort, SSH_PORT};
use ssh::{HostKeyVerdict, InspectionError};

use super::{
    Findings,
    listeners::{cure, local},
};
use crate::ssh_server;

/// Connects as a client to each SSH listener that has a target. Waits until the server behind the
/// listener offers a log-in.
pub(super) fn examine_near(config: &Config, findings: &mut Findings) {
    for listener in &config.ssh {
        let Some(target) = &listener.target else {
            continue;
        };
        let what = format!("listener {}", listener.listen);
        let local = local(listener.listen);
        if !listener.admits(local.ip()) {
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
        let stream = TcpStream::connect_timeout(&local, ssh_server::TIMEOUT);
        let offered = stream
            .map_err(InspectionError::from)
            .and_then(ssh_server::offered_methods);
        match offered {
            Ok(methods) => findings.good(
                what,
                format!("{target} offers a log-in by {}", methods.join(", ")),
            ),
            Err(InspectionError::Refused(reason)) => {
                let cure = cure(&reason, target);
                findings.wrong(what, reason, cure);
            }
            Err(error) => findings.wrong(
                what,
                error.to_string(),
                "longhaul status shows whether the listener is open; longhaul reload opens new listeners",
            ),
        }
    }
}

/// Whether a server of an allow list is an SSH server, according to its port or its greeting.
pub(super) fn is_ssh(server: &HostPort, stream: &TcpStream) -> bool {
    if server.port == SSH_PORT {
        return true;
    }
    let mut start = [0; GREETING.len()];
    // A server that waits for its client's first bytes sends no greeting.
    let peeked = stream
        .set_read_timeout(Some(GREETING_TIMEOUT))
        .and_then(|()| stream.peek(&mut start));
    peeked.is_ok_and(|count| count > 0 && GREETING.starts_with(&start[..count]))
}

/// Checks the host key of an SSH server that accepts connections.
pub(super) fn examine_server(config: &Config, server: &HostPort, findings: &mut Findings) {
    let what = format!("server {server}");
    let far = &config.far_ssh;
    let (key, verdict) = match ssh_server::host_key(server, far) {
        Ok(found) => found,
        Err(error) => {
            return findings.wrong(
                what,
                format!("it accepts connections, but its host key cannot be checked: {error:#}"),
                "correct the server's configuration, or the port in [far] allow; run this command as root",
            );
        }
    };
    let (fingerprint, algorithm) = (key.fingerprint(), key.algorithm());
    let file = far.known_hosts.as_ref();
    let file = file.map_or_else(String::new, |it| it.display().to_string());
    let shown = format!("its host key is {algorithm} {fingerprint}");
    match verdict {
        HostKeyVerdict::Known => findings.good(
            what,
            format!("it accepts connections, and its host key {fingerprint} is known"),
        ),
        HostKeyVerdict::Unknown if far.trust_on_first_use => findings.doubtful(
            what,
            format!("{shown}, which the first log-in adds to {file}"),
            format!("compare the fingerprint at the server before: ssh-keygen -lf {SERVER_KEY_FILE}"),
        ),
        HostKeyVerdict::Unknown => findings.wrong(
            what,
            format!("{shown}, which is not in {file}: the gateway refuses log-ins there"),
            format!(
                "longhaul setup far --allow {server} ... adds it after a question; the server prints the fingerprint by \
                 ssh-keygen -lf {SERVER_KEY_FILE}"
            ),
        ),
        HostKeyVerdict::Changed { line } => findings.wrong(
            what,
            format!("{shown}, but line {line} of {file} has another key: the server has a new key, or it is another machine"),
            "compare the fingerprint at the server; if it is right, remove that line, and run longhaul setup far again",
        ),
        HostKeyVerdict::Revoked { line } => findings.wrong(
            what,
            format!("{shown}, which line {line} of {file} revokes"),
            "give the server a new host key",
        ),
        HostKeyVerdict::NotPinned => findings.wrong(
            what,
            format!("{shown}, and [far.ssh] host_key permits only another key"),
            "correct host_key, or use known_hosts for several servers",
        ),
    }
}

/// File with the public host key at a server with OpenSSH.
const SERVER_KEY_FILE: &str = "/etc/ssh/ssh_host_ed25519_key.pub";

/// Start of the identification of an SSH server (RFC 4253 section 4.2).
const GREETING: &[u8] = b"SSH-";

/// Time in which a server on the same LAN sends its greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(2);
