//! Who asks.

use std::{net::SocketAddr, sync::Arc};

use rustls::pki_types::CertificateDer;

use crate::Process;

/// Who asks, and how they have come.
#[derive(Debug, Clone)]
pub struct Client {
    /// Where they come from.
    pub address: SocketAddr,
    /// The address to which they have connected, as the gateway listens at it.
    pub at: SocketAddr,
    /// They have come over TLS.
    pub is_tls: bool,
    /// What they have shown, their own first, if it was good when they came.
    pub certificates: Arc<[CertificateDer<'static>]>,
    /// They have come by the admin socket.
    pub process: Option<Process>,
    /// A proxy has passed the request on, or it is for one of the names in `hosts`: they may be anywhere.
    pub is_forwarded: bool,
}

impl Client {
    /// One of whom nothing more is known.
    pub fn new(address: SocketAddr, at: SocketAddr, is_tls: bool) -> Self {
        Self {
            address,
            at,
            is_tls,
            certificates: Arc::default(),
            process: None,
            is_forwarded: false,
        }
    }

    /// Only programs of this machine come so.
    pub fn is_local(&self) -> bool {
        let is_loopback = self.at.ip().to_canonical().is_loopback();
        self.process.is_some() || !self.is_tls && is_loopback && !self.is_forwarded
    }
}
