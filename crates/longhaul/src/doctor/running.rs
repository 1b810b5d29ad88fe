//! Findings about the gateway process: whether it runs, and why it could not start.
#![allow(
    clippy::disallowed_methods,
    reason = "looks whether addresses are free"
)]

use std::{
    io,
    net::{SocketAddr, TcpListener, UdpSocket},
};

use gatewayd::config::Config;
use relay::status::GatewaySnapshot;

use super::Findings;
use crate::{
    admin::{self, AdminPlace},
    places,
};

pub(super) fn examine(config: &Config, findings: &mut Findings) -> Option<GatewaySnapshot> {
    let asked = admin::ask_any(&places::places_of(config), "/status.json");
    let Ok((at, answer)) = asked else {
        stopped(config, findings);
        return None;
    };
    let Ok(snapshot) = serde_json::from_str::<GatewaySnapshot>(&answer.body) else {
        findings.wrong(
            "gateway",
            format!("the program at {at} is no gateway of this version"),
            "give the gateway another address by [admin] listen and socket, or upgrade it",
        );
        return None;
    };
    let own = env!("CARGO_PKG_VERSION");
    if snapshot.version == own {
        findings.good("gateway", format!("it runs, version {own}"));
    } else {
        findings.doubtful(
            "gateway",
            format!("version {} runs, and {own} is installed", snapshot.version),
            "restart the gateway: systemctl restart longhaul",
        );
    }
    if matches!(at, AdminPlace::Address(_)) {
        findings.doubtful(
            "orders",
            format!("{} does not answer", places::socket_of(config)),
            "run this as root or as the gateway's user; if that is so already, see the log of the gateway's start",
        );
    }
    for older in &snapshot.older_processes {
        findings.good(
            "older process",
            format!(
                "process {} (version {}) still serves: sessions: {}, transfers: {}; it ends after them",
                older.pid, older.version, older.sessions_open, older.transfers_open
            ),
        );
    }
    buffers(&snapshot, findings);
    Some(snapshot)
}

/// Checks whether the stopped gateway could start.
fn stopped(config: &Config, findings: &mut Findings) {
    findings.wrong(
        "gateway",
        format!(
            "it does not run: nothing answers at {} nor by {}",
            config.admin_listen,
            places::socket_of(config)
        ),
        "systemctl start longhaul, or longhaul gateway; journalctl -u longhaul shows the reason",
    );
    let link = config.link_listen;
    listen("UDP", link, UdpSocket::bind(link).err(), findings);
    let listeners = config.ftp.iter().map(|it| it.listen);
    let passed = config.pass_through.iter().map(|it| it.listen);
    let ssh = config.ssh.iter().map(|it| it.listen);
    let forwards = config.forwards.iter().map(|it| it.listen);
    for listener in listeners.chain(passed).chain(ssh).chain(forwards) {
        listen("TCP", listener, TcpListener::bind(listener).err(), findings);
    }
}

fn listen(kind: &str, at: SocketAddr, error: Option<io::Error>, findings: &mut Findings) {
    let Some(error) = error else { return };
    let port = at.port();
    let cure = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another program has the port: ss -lnp 'sport = {port}' names it; end it, or listen elsewhere"
        ),
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address: ip address shows those that it has".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 take CAP_NET_BIND_SERVICE, which the service has".to_owned()
        }
        _ => "choose another address".to_owned(),
    };
    findings.wrong(format!("{kind} {at}"), error.to_string(), cure);
}

fn buffers(snapshot: &GatewaySnapshot, findings: &mut Findings) {
    let asked = snapshot.socket_buffer_asked_bytes;
    let granted = snapshot
        .socket_buffer_receive_bytes
        .min(snapshot.socket_buffer_send_bytes);
    if granted >= asked {
        findings.good("socket buffers", format!("{granted} bytes"));
    } else {
        findings.doubtful(
            "socket buffers",
            format!("the kernel granted {granted} bytes of {asked}, which costs throughput"),
            format!(
                "sysctl -w net.core.rmem_max={asked} net.core.wmem_max={asked}, and the same lines in /etc/sysctl.d; \
                 then restart the gateway"
            ),
        );
    }
}
