//! Clients of a listener.

use std::{net::SocketAddr, sync::Arc};

use rustls::pki_types::CertificateDer;

use crate::Process;

/// A client of a listener, and the way by which it has come.
#[derive(Debug, Clone)]
pub struct Client {
    /// Its address.
    pub address: SocketAddr,
    /// The address of the listener to which it has connected.
    pub at: SocketAddr,
    /// It has come over TLS.
    pub is_tls: bool,
    /// Certificates that it has shown, its own first. Empty if they were not good when it came.
    pub certificates: Arc<[CertificateDer<'static>]>,
    /// The process at a Unix socket; `None`: it has come over TCP.
    pub process: Option<Process>,
    /// A proxy has passed the request on, or it is for one of the names in `hosts`: the client may be anywhere.
    pub is_forwarded: bool,
}

impl Client {
    /// A client of which nothing more is known.
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

    /// Whether only programs of this machine come in this way.
    pub fn is_local(&self) -> bool {
        let is_loopback = self.at.ip().to_canonical().is_loopback();
        self.process.is_some() || !self.is_tls && is_loopback && !self.is_forwarded
    }
}
