//! Clients that connect to a listener.

use std::{net::SocketAddr, sync::Arc};

use rustls::pki_types::CertificateDer;

use crate::Process;

/// A client of a listener, with the properties of its connection.
#[derive(Debug, Clone)]
pub struct PageClient {
    /// Address of the client.
    pub address: SocketAddr,
    /// Address of the listener to which the client connected.
    pub at: SocketAddr,
    /// Whether the client connected over TLS.
    pub is_tls: bool,
    /// Certificates that the client presented. The client's own certificate is the first. Empty if
    /// the certificates were not valid at the handshake.
    pub certificates: Arc<[CertificateDer<'static>]>,
    /// Process that connected to a Unix socket. `None` for a client over TCP.
    pub process: Option<Process>,
    /// Whether a proxy forwarded the request, or the request is for a name in `hosts`. The client
    /// may then be on any machine.
    pub is_forwarded: bool,
}

impl PageClient {
    /// Creates a client that has no certificates and no process.
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

    /// Returns whether the client must be a program on this machine.
    pub fn is_local(&self) -> bool {
        let is_loopback = self.at.ip().to_canonical().is_loopback();
        self.process.is_some() || !self.is_tls && is_loopback && !self.is_forwarded
    }
}
