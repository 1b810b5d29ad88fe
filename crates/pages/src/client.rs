//! Clients of a listener.

use std::{net::SocketAddr, sync::Arc};

use rustls::pki_types::CertificateDer;

use crate::Process;

/// A client of a listener, and the way in which it connected.
#[derive(Debug, Clone)]
pub struct PageClient {
    /// Address of the client.
    pub address: SocketAddr,
    /// Address of the listener.
    pub at: SocketAddr,
    /// Whether the client connected over TLS.
    pub is_tls: bool,
    /// Certificates that the client presented, its own first. Empty if they were invalid at the
    /// handshake.
    pub certificates: Arc<[CertificateDer<'static>]>,
    /// Process at a Unix socket. `None` for a client over TCP.
    pub process: Option<Process>,
    /// Whether a proxy passed the request on, or the request is for a name in `hosts`. The client
    /// may then be on any machine.
    pub is_forwarded: bool,
}

impl PageClient {
    /// Creates a client without certificates and process.
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

    /// Whether only programs of this machine can connect in this way.
    pub fn is_local(&self) -> bool {
        let is_loopback = self.at.ip().to_canonical().is_loopback();
        self.process.is_some() || !self.is_tls && is_loopback && !self.is_forwarded
    }
}
