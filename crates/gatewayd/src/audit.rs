//! The audit trail: changes of the gateway, and the principal that ordered each change. Its events
//! have the target [`AUDIT`], which no log filter drops. The relay crate logs failed log-ins.

use std::net::SocketAddr;

use relay::AUDIT;
use tracing::info;
use x509_parser::parse_x509_certificate;

use pages::{PageClient, Process};

/// The user or process that ordered a change.
#[derive(Debug)]
pub(crate) enum Principal<'a> {
    /// A process at the admin socket.
    Process(Process),
    /// A client that has sent this TLS certificate.
    Certificate(&'a [u8], SocketAddr),
    /// A client that has sent the token of the dashboard.
    Token(SocketAddr),
}

impl<'a> Principal<'a> {
    /// Returns the principal (process, certificate or token) under which the audit trail records a
    /// client.
    pub(crate) fn from_client(client: &'a PageClient) -> Self {
        match (client.process, client.certificates.first()) {
            (Some(process), _) => Principal::Process(process),
            (None, Some(certificate)) => Principal::Certificate(certificate, client.address),
            (None, None) => Principal::Token(client.address),
        }
    }
}

/// Logs a change or an order. The log entry contains the principal that requested it.
pub(crate) fn log_change(principal: &Principal<'_>, change: &'static str, detail: &str) {
    match principal {
        Principal::Process(Process { pid, uid }) => {
            info!(target: AUDIT, by = "admin socket", uid, pid, change, detail, "changed");
        }
        Principal::Certificate(certificate, client) => {
            let subject = parse_x509_certificate(certificate)
                .map_or_else(|_| "unknown".to_owned(), |(_, it)| it.subject().to_string());
            info!(target: AUDIT, by = "certificate", subject, %client, change, detail, "changed");
        }
        Principal::Token(client) => {
            info!(target: AUDIT, by = "token", %client, change, detail, "changed");
        }
    }
}

/// Logs an order that arrived as a signal. Only root and the gateway's own user can send signals to
/// the process.
pub(crate) fn log_signal(change: &'static str, detail: &str) {
    info!(target: AUDIT, by = "signal", change, detail, "changed");
}
