//! The two ends of a service that a relay carries. The near end serves clients of a listener, the
//! far end serves streams of peers.
//! one streams of peers.
//!
//! A new service implements both traits in a module of its own. The near ends of FTP sessions and
//! forwards implement [`NearService`]. Their far ends are older than [`FarService`], and have their
//! own messages in the hello of a stream.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use link::{PeerId, RecvStream, SendStream};
use net::Connection;
use tracing::Span;

use crate::{
    limits::{PermitPurpose, ReachedLimit},
    relay::Relay,
};

/// Near end of a service: serves the clients of a listener.
pub trait NearService: fmt::Debug + Send + Sync + 'static {
    /// Returns the tracing span for a client. It names the service and the client.
    fn span(&self, session: u64, client: SocketAddr) -> Span;

    /// Returns the limit that its clients count against: sessions and forwards have one each.
    fn purpose(&self) -> PermitPurpose;

    /// Whether a client with this address may use the service.
    fn admits(&self, client: IpAddr) -> bool;

    /// Closes the connection of a client that may not use the service now, with the reason if its
    /// protocol permits one.
    fn turn_away(&self, connection: Connection, reached: ReachedLimit);

    /// Serves a client until it leaves.
    ///
    /// If [`Relay::wait_for_abort`] resolves, the client is dropped a second later. [`Relay::open`]
    /// opens streams to a far end.
    fn serve(self: Arc<Self>, client: ServiceClient, relay: Relay) -> BoxFuture<'static, ()>;
}

/// A client of a listener.
#[derive(Debug)]
pub struct ServiceClient {
    /// Connection of the client.
    pub connection: Connection,
    /// The client's address.
    pub address: SocketAddr,
    /// Number of the session, unique among this relay's sessions.
    pub session: u64,
}

/// Far end of a service: serves the streams that near ends open for it.
pub trait FarService: fmt::Debug + Send + Sync + 'static {
    /// Returns the name by which near ends request it.
    fn name(&self) -> &'static str;

    /// Serves a stream until it ends. Connects to servers with [`Relay::dial`].
    fn serve(self: Arc<Self>, stream: ServiceStream, relay: Relay) -> BoxFuture<'static, ()>;
}

/// A link stream between the two ends of a service.
#[derive(Debug)]
pub struct ServiceStream {
    /// The gateway at the other end.
    pub peer: PeerId,
    /// Bytes to the other end.
    pub send: SendStream,
    /// Bytes from the other end, after `first`.
    pub recv: RecvStream,
    /// Bytes received with the hello.
    pub first: Bytes,
}
