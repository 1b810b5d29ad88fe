//! Log entries for log-ins that a server has refused. Programs such as fail2ban read them.

use std::net::SocketAddr;

use tracing::warn;

/// Target of the audit trail's events, which no filter of the log leaves out.
pub const AUDIT: &str = "audit";

/// Logs that an FTP client has failed to log in. The address stands in the message, so that programs that read one line find it
/// in each form of the log; what the client itself has sent comes last, and quoted.
pub(crate) fn login_failed(client: SocketAddr, server: &str, user: &str) {
    let ip = client.ip().to_canonical();
    let port = client.port();
    // Outside the session's span, whose fields would stand in front.
    warn!(target: AUDIT, parent: None, port, server, user, "failed log-in from {ip}");
}
