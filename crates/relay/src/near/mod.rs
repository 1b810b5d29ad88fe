//! The near gateway: front doors for clients.

mod bypass;
mod data;
mod named_target;
mod pass_through;
mod session;

pub use pass_through::{Door as PassThroughDoor, serve_data, serve_pass_through};

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use link::Class;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tracing::{Instrument, debug, info, info_span, warn};

use crate::{
    forward,
    limits::{Purpose, Reached, Refusal},
    pairing::Stream,
    relay::Relay,
    settings::{DoorTls, Forward, FtpDoor},
    shared::Shared,
    status::Transfer,
    wire::{Coding, Service},
};
use net::{socket, tls::Acceptor};

/// Accepts clients of an FTP front door until the task is dropped.
pub async fn serve_ftp(
    listener: Arc<TcpListener>,
    config: FtpDoor,
    tls: Option<Arc<Acceptor>>,
    relay: Relay,
) {
    let Relay(shared) = relay;
    let address = listener.local_addr().unwrap_or(config.listen);
    let config = Arc::new(config);
    accept(&listener, |stream, client| {
        let shared = shared.clone();
        let Some(alive) = shared.alive.upgrade() else {
            return;
        };
        let admitted = match config.admits(client.ip()) {
            true => shared.usage.admit(client.ip(), Purpose::Session),
            false => Err(Reached::Stranger),
        };
        let place = match admitted {
            Ok(place) => place,
            Err(reached) => {
                turned_away(&shared, client, reached);
                let has_tls = matches!(config.tls, DoorTls::Implicit(_));
                return turn_away(stream, reached, has_tls);
            }
        };
        let door = Arc::new(session::Door {
            config: config.clone(),
            address,
            // Only data connections of this session resume what the client begins.
            tls: tls.as_ref().map(|tls| Arc::new(tls.for_session())),
        });
        let number = shared.session_number();
        let span = info_span!("ftp", session = number, %client);
        let serve = async move {
            let _held = (alive, place);
            let _open = shared.registry.session();
            session::serve(stream, client, number, door, shared).await;
        };
        tokio::spawn(serve.instrument(span));
    })
    .await;
}

/// Counts a client that is not served, and says so in the log once a minute.
fn turned_away(shared: &Shared, client: SocketAddr, reached: Reached) {
    shared.registry.refused();
    if shared.usage.is_news(client.ip(), Refusal::Service(reached)) {
        info!(%client, %reached, "a client was turned away; for a minute this is not said again");
    }
}

/// Closes with a reply that says why, unless that would take TLS.
fn turn_away(mut stream: TcpStream, reached: Reached, has_tls: bool) {
    if has_tls {
        return socket::abort(stream);
    }
    tokio::spawn(async move {
        let reply = format!("421 gateway: {reached}\r\n");
        let say = async {
            // The client may be gone.
            let _ = stream.write_all(reply.as_bytes()).await;
            let _ = stream.shutdown().await;
        };
        let _ = timeout(TURN_AWAY_PATIENCE, say).await;
    });
}

/// Accepts clients of a forward until the task is dropped.
pub async fn serve_forward(listener: Arc<TcpListener>, forward: Forward, relay: Relay) {
    let Relay(shared) = relay;
    let forward = Arc::new(forward);
    accept(&listener, |stream, client| {
        let (forward, shared) = (forward.clone(), shared.clone());
        let Some(alive) = shared.alive.upgrade() else {
            return;
        };
        let admitted = match forward.admits(client.ip()) {
            true => shared.usage.admit(client.ip(), Purpose::Forward),
            false => Err(Reached::Stranger),
        };
        let place = match admitted {
            Ok(place) => place,
            Err(reached) => {
                turned_away(&shared, client, reached);
                // What the client expects to read is not known.
                return socket::abort(stream);
            }
        };
        let number = shared.session_number();
        let span = info_span!("forward", session = number, %client);
        let serve = async move {
            let _held = (alive, place);
            let _open = shared.registry.session();
            relay_forward(
                stream,
                client,
                number,
                ForwardOptions::FORWARD,
                &forward,
                &shared,
            )
            .await;
        };
        tokio::spawn(serve.instrument(span));
    })
    .await;
}

async fn accept(listener: &TcpListener, mut start: impl FnMut(TcpStream, SocketAddr)) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => start(stream, client),
            Err(error) => {
                // Out of descriptors, most likely: others may close some.
                warn!(%error, "cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// How a connection is forwarded.
struct ForwardOptions<'a> {
    /// The kind's name in `status`.
    kind: &'static str,
    class: Class,
    /// Time without a byte after which it is reset, unless `is_needed` says otherwise.
    patience: Option<Duration>,
    is_needed: &'a (dyn Fn() -> bool + Sync),
}

impl ForwardOptions<'_> {
    /// Any TCP service: it knows best how long it may be silent.
    const FORWARD: ForwardOptions<'static> = ForwardOptions {
        kind: "forward",
        class: Class::Bulk,
        patience: None,
        is_needed: &|| false,
    };

    /// Resolves when nothing moves on a connection that nothing else needs.
    async fn given_up(&self, transfer: &Transfer) {
        let Some(patience) = self.patience else {
            return std::future::pending().await;
        };
        loop {
            stalled(transfer, patience).await;
            if !(self.is_needed)() {
                return;
            }
        }
    }
}

/// Relays a client's connection to the target of `forward`.
async fn relay_forward(
    tcp: TcpStream,
    client: SocketAddr,
    number: u64,
    options: ForwardOptions<'_>,
    forward: &Forward,
    shared: &Shared,
) {
    let target = &forward.target;
    let coding = forward.compresses.then_some(Coding {
        compresses: true,
        store: None,
    });
    let service = |peer| {
        let service = Service::Forward {
            target: target.clone(),
            coding: coding.clone(),
        };
        let own = coding
            .as_ref()
            .map(|coding| shared.settings.coding_with(peer, coding));
        (service, own)
    };
    let reached = shared
        .reach(&target.host, forward.via, options.class, service)
        .await;
    let (peer, coding, send, recv) = match reached {
        Ok(reached) => reached,
        Err(error) => {
            shared.registry.refused();
            warn!(%target, %error, "not forwarded");
            return socket::abort(tcp);
        }
    };
    if let Err(error) = socket::tune_forward(&tcp) {
        debug!(%error, "socket options");
    }
    let transfer = shared.registry.transfer(
        options.kind,
        true,
        number,
        shared.peer_name(peer),
        &client.to_string(),
        &target.to_string(),
    );
    info!(%target, peer = shared.peer_name(peer), "forwarding");
    let stream = Stream {
        send,
        recv,
        first: Bytes::new(),
    };
    let result = tokio::select! {
        result = forward::join(tcp, stream, coding.as_ref(), transfer.clone()) => result,
        () = options.given_up(&transfer) => return info!("nothing moved for too long"),
        () = shared.cut_short() => return,
    };
    let (up_bytes, down_bytes) = (transfer.meters().0.bytes(), transfer.meters().1.bytes());
    match result {
        Ok(()) => {
            transfer.completed();
            info!(up_bytes, down_bytes, "forward complete");
        }
        Err(error) => info!(up_bytes, down_bytes, %error, "forward broken"),
    }
}

/// Resolves when for so long nothing has moved.
async fn stalled(transfer: &Transfer, patience: Duration) {
    let moved = || transfer.meters().0.bytes() + transfer.meters().1.bytes();
    let mut before = moved();
    loop {
        tokio::time::sleep(patience).await;
        let now = moved();
        if now == before {
            return;
        }
        before = now;
    }
}

/// Time in which a client that is turned away may hear why.
const TURN_AWAY_PATIENCE: Duration = Duration::from_secs(2);

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
