//! The near side: front doors for clients.

mod data;
mod direct;
mod session;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use link::Class;
use tokio::net::{TcpListener, TcpStream};
use tracing::{Instrument, debug, info, info_span, warn};

use crate::{
    config::{Forward, FtpDoor},
    relay,
    shared::Shared,
    socket,
    wire::Service,
};

/// Accepts clients of an FTP front door until the task is dropped.
pub(crate) async fn serve_ftp(listener: TcpListener, door: FtpDoor, shared: Arc<Shared>) {
    let door = Arc::new(door);
    accept(listener, |stream, client| {
        let (door, shared) = (door.clone(), shared.clone());
        let Some(alive) = shared.alive.upgrade() else {
            return;
        };
        let number = shared.session_number();
        let span = info_span!("ftp", session = number, %client);
        let serve = async move {
            let _alive = alive;
            let _open = shared.registry.session();
            session::serve(stream, client, number, door, shared).await;
        };
        tokio::spawn(serve.instrument(span));
    })
    .await;
}

/// Accepts clients of a forward until the task is dropped.
pub(crate) async fn serve_forward(listener: TcpListener, forward: Forward, shared: Arc<Shared>) {
    let forward = Arc::new(forward);
    accept(listener, |stream, client| {
        let (forward, shared) = (forward.clone(), shared.clone());
        let Some(alive) = shared.alive.upgrade() else {
            return;
        };
        let number = shared.session_number();
        let span = info_span!("forward", session = number, %client);
        let serve = async move {
            let _alive = alive;
            let _open = shared.registry.session();
            relay_forward(stream, client, number, &forward, &shared).await;
        };
        tokio::spawn(serve.instrument(span));
    })
    .await;
}

async fn accept(listener: TcpListener, mut start: impl FnMut(TcpStream, SocketAddr)) {
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

async fn relay_forward(
    stream: TcpStream,
    client: SocketAddr,
    number: u64,
    forward: &Forward,
    shared: &Shared,
) {
    let target = &forward.target;
    let service = Service::Forward {
        target: target.clone(),
    };
    let reached = shared
        .reach(&target.host, forward.via, Class::Bulk, service)
        .await;
    let (peer, send, recv) = match reached {
        Ok(reached) => reached,
        Err(error) => {
            shared.registry.refused();
            warn!(%target, %error, "not forwarded");
            return socket::abort(stream);
        }
    };
    if let Err(error) = socket::tune_data(&stream) {
        debug!(%error, "socket options");
    }
    let transfer = shared.registry.transfer(
        "forward",
        true,
        number,
        shared.peer_name(peer),
        &client.to_string(),
        &target.to_string(),
    );
    info!(%target, peer = shared.peer_name(peer), "forwarding");
    let result = tokio::select! {
        result = relay::join(stream, send, recv, transfer.meters()) => result,
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

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
