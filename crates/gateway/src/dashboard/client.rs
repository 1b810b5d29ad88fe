//! Who asks.

use std::{net::SocketAddr, sync::Arc};

use rustls::pki_types::CertificateDer;

use crate::{config::Config, tls};

/// Who asks, and how they have come.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    /// The address to which they have connected, as the gateway listens at it.
    pub(crate) at: SocketAddr,
    pub(crate) is_tls: bool,
    /// What they have shown, their own first, if it was good when they came.
    pub(crate) certificates: Arc<[CertificateDer<'static>]>,
}

impl Client {
    /// Only programs of this machine come so.
    pub(super) fn is_local(&self) -> bool {
        !self.is_tls && self.at.ip().to_canonical().is_loopback()
    }

    /// Whether they have shown a certificate that is good by `config`, and still is.
    pub(super) fn is_known(&self, config: &Config) -> bool {
        let shown = &self.certificates;
        !shown.is_empty() && tls::judge(shown, config.client_ca()).is_ok()
    }
}
