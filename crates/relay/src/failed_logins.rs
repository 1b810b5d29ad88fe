//! Log entries for log-ins that a server has refused. Programs such as fail2ban read them.

use std::net::SocketAddr;

use tracing::warn;

/// Target of the audit trail's events, which no filter of the log leaves out.
pub const AUDIT: &str = "audit";

/// Logs a refused log-in of an FTP client.
///
/// The address is part of the message, so programs that read lines find it in each log format. The
/// client's own input comes last, quoted.
pub(crate) fn log_failed_login(client: SocketAddr, server: &str, user: &str) {
    let ip = client.ip().to_canonical();
    let port = client.port();
    // The event has no parent, since the fields of the session's span would precede the message.
    warn!(target: AUDIT, parent: None, port, server, user, "failed log-in from {ip}");
}
