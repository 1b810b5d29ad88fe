//! The audit trail: who has changed something, and who has failed to log in. Its events have the target `audit`, which no filter
//! of the log leaves out.

use std::net::SocketAddr;

use tracing::{info, warn};
use x509_parser::parse_x509_certificate;

use crate::{admin_socket::Process, dashboard::Client};

/// A client had something changed, or ordered something.
pub(crate) fn changed(client: &Client, change: &'static str, detail: &str) {
    let address = client.address;
    match (&client.process, client.certificates.first()) {
        (Some(Process { pid, uid }), _) => {
            info!(target: TARGET, by = "admin socket", uid, pid, change, detail, "changed");
        }
        (None, Some(certificate)) => {
            let subject = parse_x509_certificate(certificate)
                .map_or_else(|_| "unknown".to_owned(), |(_, it)| it.subject().to_string());
            info!(target: TARGET, by = "certificate", subject, client = %address, change, detail, "changed");
        }
        (None, None) => {
            info!(target: TARGET, by = "token", client = %address, change, detail, "changed");
        }
    }
}

/// A signal has the configuration read again: root or the gateway's own user has sent it.
pub(crate) fn signalled(change: &'static str, detail: &str) {
    info!(target: TARGET, by = "signal", change, detail, "changed");
}

/// An FTP client has failed to log in. The address stands in the message, so that programs that read one line find it in each
/// form of the log; what the client itself has sent comes last, and quoted.
pub(crate) fn login_failed(client: SocketAddr, server: &str, user: &str) {
    let ip = client.ip().to_canonical();
    let port = client.port();
    // Outside the session's span, whose fields would stand in front.
    warn!(target: TARGET, parent: None, port, server, user, "failed log-in from {ip}");
}

/// Of all events here.
const TARGET: &str = "audit";
