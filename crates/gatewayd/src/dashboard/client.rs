//! Who asks.

use std::{net::SocketAddr, sync::Arc};

use rustls::pki_types::CertificateDer;

use crate::{admin_socket::Process, audit::Principal, config::Config};
use net::tls;

/// Who asks, and how they have come.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    /// The address to which they have connected, as the gateway listens at it.
    pub(crate) at: SocketAddr,
    pub(crate) is_tls: bool,
    /// What they have shown, their own first, if it was good when they came.
    pub(crate) certificates: Arc<[CertificateDer<'static>]>,
    /// They have come by the admin socket.
    pub(crate) process: Option<Process>,
    /// A proxy has passed the request on, or it is for one of the names in `hosts`: they may be anywhere.
    pub(crate) is_forwarded: bool,
}

impl Client {
    /// One of whom nothing more is known.
    pub(crate) fn new(address: SocketAddr, at: SocketAddr, is_tls: bool) -> Self {
        Self {
            address,
            at,
            is_tls,
            certificates: Arc::default(),
            process: None,
            is_forwarded: false,
        }
    }

    /// As the audit trail names them, once they may change something.
    pub(crate) fn principal(&self) -> Principal<'_> {
        match (self.process, self.certificates.first()) {
            (Some(process), _) => Principal::Process(process),
            (None, Some(certificate)) => Principal::Certificate(certificate, self.address),
            (None, None) => Principal::Token(self.address),
        }
    }

    /// Only programs of this machine come so.
    pub(crate) fn is_local(&self) -> bool {
        let is_loopback = self.at.ip().to_canonical().is_loopback();
        self.process.is_some() || !self.is_tls && is_loopback && !self.is_forwarded
    }

    /// Whether they have shown a certificate that is good by `config`, and still is.
    pub(super) fn is_known(&self, config: &Config) -> bool {
        let shown = &self.certificates;
        !shown.is_empty() && tls::judge(shown, config.client_ca()).is_ok()
    }
}
