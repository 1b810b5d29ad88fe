//! The audit trail: who has changed something, and who has failed to log in. Its events have the target `audit`, which no filter
//! of the log leaves out.

use std::net::SocketAddr;

use tracing::{info, warn};
use x509_parser::parse_x509_certificate;

use crate::admin_socket::Process;

/// Who has something changed.
#[derive(Debug)]
pub(crate) enum Principal<'a> {
    /// A process at the admin socket.
    Process(Process),
    /// A client that has shown this certificate.
    Certificate(&'a [u8], SocketAddr),
    /// A client that has shown the token.
    Token(SocketAddr),
}

/// A principal had something changed, or ordered something.
pub(crate) fn changed(principal: &Principal<'_>, change: &'static str, detail: &str) {
    match principal {
        Principal::Process(Process { pid, uid }) => {
            info!(target: TARGET, by = "admin socket", uid, pid, change, detail, "changed");
        }
        Principal::Certificate(certificate, client) => {
            let subject = parse_x509_certificate(certificate)
                .map_or_else(|_| "unknown".to_owned(), |(_, it)| it.subject().to_string());
            info!(target: TARGET, by = "certificate", subject, %client, change, detail, "changed");
        }
        Principal::Token(client) => {
            info!(target: TARGET, by = "token", %client, change, detail, "changed");
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
