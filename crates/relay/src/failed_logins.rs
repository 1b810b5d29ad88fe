//! Log entries for log-ins that a server has refused. Programs such as fail2ban parse these
//! entries.

use std::net::SocketAddr;

use tracing::warn;

/// Log target of audit events. No log filter suppresses this target.
pub const AUDIT: &str = "audit";

/// Logs a refused log-in of an FTP client.
///
/// The message contains the client's address, so that programs find the address in every log
/// format. Text that the client has sent is quoted and stands at the end.
pub(crate) fn log_failed_login(client: SocketAddr, server: &str, user: &str) {
    let ip = client.ip().to_canonical();
    let port = client.port();
    // The event has no parent, since the fields of the session's span would precede the message.
    warn!(target: AUDIT, parent: None, port, server, user, "failed log-in from {ip}");
}
