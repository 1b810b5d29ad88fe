//! The two ends of a service that a relay carries: one serves clients of a listener, the other one streams of peers.
//!
//! A new service implements both traits in a module of its own. The near ends of FTP sessions and forwards implement
//! [`NearService`]. Their far ends are older than [`FarService`], and have messages of their own in the hello of a stream.

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
    limits::{Purpose, Reached},
    relay::Relay,
};

/// Near end of a service: serves the clients of a listener.
pub trait NearService: fmt::Debug + Send + Sync + 'static {
    /// Its name and the client, in front of all that is logged for this client.
    fn span(&self, session: u64, client: SocketAddr) -> Span;

    /// The limit that its clients count against: sessions and forwards have one each.
    fn purpose(&self) -> Purpose;

    /// Whether a client of this address may use it.
    fn admits(&self, client: IpAddr) -> bool;

    /// Closes the connection of a client that may not use it now, and says why where its protocol can.
    fn turn_away(&self, connection: Connection, reached: Reached);

    /// Serves a client until it leaves, or [`Relay::cut_short`] resolves: a second later the client is dropped. Streams to a far
    /// end come from [`Relay::open`].
    fn serve(self: Arc<Self>, client: Client, relay: Relay) -> BoxFuture<'static, ()>;
}

/// A client of a front door.
#[derive(Debug)]
pub struct Client {
    /// Its connection.
    pub connection: Connection,
    /// Where it comes from.
    pub address: SocketAddr,
    /// Number of its session, unique among this relay's.
    pub session: u64,
}

/// Far end of a service: serves the streams that near ends open for it.
pub trait FarService: fmt::Debug + Send + Sync + 'static {
    /// Name by which near ends ask for it.
    fn name(&self) -> &'static str;

    /// Serves a stream until it ends. Servers are reached by [`Relay::dial`].
    fn serve(self: Arc<Self>, stream: ServiceStream, relay: Relay) -> BoxFuture<'static, ()>;
}

/// A link stream between the two ends of a service.
#[derive(Debug)]
pub struct ServiceStream {
    /// The gateway at the other end.
    pub peer: PeerId,
    /// Bytes to the other end.
    pub send: SendStream,
    /// Bytes from the other end, behind those of `first`.
    pub recv: RecvStream,
    /// Bytes received with the hello.
    pub first: Bytes,
}
