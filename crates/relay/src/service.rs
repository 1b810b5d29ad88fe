//! The two halves of a service that a relay carries. The near half serves the clients of a
//! listener. The far half serves the streams that peers open.
//!
//! A new service implements [`NearService`] and [`FarService`] in its own module. FTP sessions and
//! forwards implement [`NearService`]. The far halves of FTP sessions and forwards do not implement
//! [`FarService`], which was added later.

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

/// Near half of a service, which serves the clients of a listener.
pub trait NearService: fmt::Debug + Send + Sync + 'static {
    /// Returns the tracing span for a client. The span contains the name of the service and the
    /// client's address.
    fn span(&self, session: u64, client: SocketAddr) -> Span;

    /// Returns the limit that applies to the clients of this service. There is one limit for
    /// sessions and one for forwards.
    fn purpose(&self) -> PermitPurpose;

    /// Whether a client with this address may use the service.
    fn admits(&self, client: IpAddr) -> bool;

    /// Closes the connection of a client that must not use the service at present. If the protocol
    /// permits it, the function first sends the reason.
    fn turn_away(&self, connection: Connection, reached: ReachedLimit);

    /// Serves a client until the client disconnects.
    ///
    /// The caller drops the returned future one second after [`Relay::wait_for_abort`] has
    /// resolved. The service calls [`Relay::open`] in order to open streams to a far half.
    fn serve(self: Arc<Self>, client: ServiceClient, relay: Relay) -> BoxFuture<'static, ()>;
}

/// A client of a listener, as a service receives it.
#[derive(Debug)]
pub struct ServiceClient {
    /// Connection of the client.
    pub connection: Connection,
    /// Address of the client.
    pub address: SocketAddr,
    /// Number of the session. The number is unique within this relay.
    pub session: u64,
}

/// Far half of a service, which serves the streams that near halves open.
pub trait FarService: fmt::Debug + Send + Sync + 'static {
    /// Returns the name by which near halves request this service.
    fn name(&self) -> &'static str;

    /// Whether the streams of this service belong to open sessions of another service. A process
    /// still serves such streams after another process has replaced it.
    fn continues_sessions(&self) -> bool {
        false
    }

    /// Serves a stream until it ends. The service calls [`Relay::dial`] in order to connect to
    /// servers.
    fn serve(self: Arc<Self>, stream: ServiceStream, relay: Relay) -> BoxFuture<'static, ()>;
}

/// A link stream between the near half and the far half of a service.
#[derive(Debug)]
pub struct ServiceStream {
    /// Peer that opened the stream.
    pub peer: PeerId,
    /// Sending half of the stream.
    pub send: SendStream,
    /// Receiving half of the stream. The bytes read from it follow the bytes in `first`.
    pub recv: RecvStream,
    /// Bytes that arrived together with the hello (the first message).
    pub first: Bytes,
}
