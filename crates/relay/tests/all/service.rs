//! Test of a service that is not part of the relay crate. This module contains both halves of the
//! service.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the clients around two relays"
)]

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use link::StreamClass;
use net::{
    Connection, socket,
    target::{AllowList, Host},
    tls::Leg,
};
use relay::{
    Relay,
    limits::{PermitPurpose, ReachedLimit},
    near,
    service::{FarService, NearService, ServiceClient, ServiceStream},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tracing::{Span, info_span};

use crate::common::{self, Pair};

/// Near half of an echo service, which connects each client with the far half at the only peer.
#[derive(Debug)]
struct EchoListener;

/// Far half of an echo service, which returns all received bytes.
#[derive(Debug)]
struct Echo;

const NAME: &str = "echo";

impl NearService for EchoListener {
    fn span(&self, session: u64, client: SocketAddr) -> Span {
        info_span!("echo", session, %client)
    }

    fn purpose(&self) -> PermitPurpose {
        PermitPurpose::Forward
    }

    fn admits(&self, client: IpAddr) -> bool {
        client.is_loopback()
    }

    fn turn_away(&self, connection: Connection, _: ReachedLimit) {
        socket::abort(connection);
    }

    fn serve(self: Arc<Self>, client: ServiceClient, relay: Relay) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let anywhere = Host::parse("echo.invalid").expect("a name");
            let opened = relay
                .open(NAME, &anywhere, Some(0), StreamClass::Bulk)
                .await;
            let Ok((_, mut send, mut recv)) = opened else {
                return socket::abort(client.connection);
            };
            let (mut from_client, mut to_client) = Leg::plain(client.connection).into_split();
            let up = async move {
                let mut bytes = vec![0; 65_536];
                while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
                    let sent = send.write(bytes[..count].to_vec().into()).await;
                    if sent.is_err() {
                        return;
                    }
                }
                send.finish();
                // If the stream were dropped before the peer has all bytes, the drop would reset
                // the stream.
                let _ = send.closed().await;
            };
            let down = async move {
                while let Ok(Some(bytes)) = recv.read().await {
                    if to_client.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                // The client may have closed the connection.
                let _ = to_client.shutdown().await;
            };
            tokio::join!(up, down);
        })
    }
}

impl FarService for Echo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn serve(self: Arc<Self>, stream: ServiceStream, _: Relay) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let ServiceStream {
                mut send,
                mut recv,
                first,
                ..
            } = stream;
            if !first.is_empty() && send.write(first).await.is_err() {
                return;
            }
            while let Ok(Some(bytes)) = recv.read().await {
                if send.write(bytes).await.is_err() {
                    return;
                }
            }
            send.finish();
            let _ = send.closed().await;
        })
    }
}

/// Starts two relays. If `service` is given, the far relay offers this service. Also returns the
/// address of the near listener.
async fn pair(service: Option<Arc<dyn FarService>>) -> (SocketAddr, Pair) {
    let pair = common::pair(AllowList::default(), service);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("bound");
    let listener = Arc::new(listener).into();
    tokio::spawn(near::serve(
        listener,
        Arc::new(EchoListener),
        pair.near.clone(),
    ));
    (at, pair)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_its_own_crosses_the_link() {
    let (listener, _pair) = pair(Some(Arc::new(Echo))).await;
    let sent: Vec<u8> = (0..3_000_000_u32).map(|it| (it % 251) as u8).collect();
    let (mut from_listener, mut to_listener) = TcpStream::connect(listener)
        .await
        .expect("open")
        .into_split();
    let expected = sent.clone();
    tokio::spawn(async move {
        to_listener.write_all(&sent).await.expect("it is read");
        to_listener.shutdown().await.expect("open");
    });
    let mut read = Vec::new();
    let all = timeout(TIMEOUT, from_listener.read_to_end(&mut read)).await;
    all.expect("in time").expect("an orderly end");
    assert!(
        read == expected,
        "{} of {} bytes",
        read.len(),
        expected.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_the_far_end_does_not_have_is_refused() {
    let (listener, _pair) = pair(None).await;
    let mut client = TcpStream::connect(listener).await.expect("open");
    let mut read = Vec::new();
    let ended = timeout(TIMEOUT, client.read_to_end(&mut read)).await;
    let _ = ended.expect("the client hears of it");
    assert!(read.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_process_takes_no_streams_of_a_service() {
    let (listener, pair) = pair(Some(Arc::new(Echo))).await;
    let mut before = TcpStream::connect(listener).await.expect("open");
    before.write_all(b"a").await.expect("it is read");
    let echoed = timeout(TIMEOUT, before.read_u8()).await;
    assert_eq!(echoed.expect("in time").expect("a byte"), b'a');
    pair.far.retire();
    let mut client = TcpStream::connect(listener).await.expect("open");
    let mut read = Vec::new();
    let ended = timeout(TIMEOUT, client.read_to_end(&mut read)).await;
    let _ = ended.expect("the client hears of it");
    assert!(read.is_empty());
    before.write_all(b"b").await.expect("its stream goes on");
    let echoed = timeout(TIMEOUT, before.read_u8()).await;
    assert_eq!(echoed.expect("in time").expect("a byte"), b'b');
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_a_service_that_waits_for_nothing_ends_with_its_relay() {
    let (listener, mut pair) = pair(Some(Arc::new(Echo))).await;
    let mut client = TcpStream::connect(listener).await.expect("open");
    client.write_all(b"a").await.expect("it is read");
    let echoed = timeout(TIMEOUT, client.read_u8()).await;
    assert_eq!(echoed.expect("in time").expect("a byte"), b'a');
    pair.sessions[0].abort(TIMEOUT).await;
    assert!(pair.near.is_ending());
    let mut read = Vec::new();
    let ended = timeout(TIMEOUT, client.read_to_end(&mut read)).await;
    let _ = ended.expect("the client hears of it");
    let ended = timeout(Duration::ZERO, pair.sessions[0].wait_for_end()).await;
    ended.expect("no session is left");
}

/// Time limit for a test step. Every step is shorter, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
