//! The near gateway: listeners that accept clients.

mod bypass;
mod data;
mod forward;
mod ftp;
mod named_target;
mod pass_through;
mod session;

pub use ftp::FtpService;
pub use pass_through::{PassThroughListener, serve_data, serve_pass_through};

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::time::sleep;
use tracing::{Instrument, info, warn};

use crate::{
    gateway_context::GatewayContext,
    limits::{ReachedLimit, RefusalKind},
    relay::Relay,
    service::{NearService, ServiceClient},
};
use net::{Connection, Listener};

/// Accepts clients of a service until the task is dropped.
///
/// If the listener is a [`Listener::Pipe`], data connections of its clients use the same pipe
/// network.
pub async fn serve(listener: Listener, service: Arc<dyn NearService>, relay: Relay) {
    accept(&listener, |connection, client| {
        let shared = &relay.0;
        let Some(drain_guard) = shared.drain_guard.upgrade() else {
            return;
        };
        let admitted = match service.admits(client.ip()) {
            true => shared.usage.admit(client.ip(), service.purpose()),
            false => Err(ReachedLimit::Stranger),
        };
        let permit = match admitted {
            Ok(permit) => permit,
            Err(reached) => {
                log_refusal(shared, client, reached);
                return service.turn_away(connection, reached);
            }
        };
        let session = shared.session_number();
        let span = service.span(session, client);
        let open = shared.registry.session();
        let served = service.clone().serve(
            ServiceClient {
                connection,
                address: client,
                session,
            },
            relay.clone(),
        );
        let relay = relay.clone();
        let serve = async move {
            let _held = (drain_guard, permit, open);
            tokio::select! {
                () = served => {}
                () = wait_after_abort(&relay) => {}
            }
        };
        tokio::spawn(serve.instrument(span));
    })
    .await;
}

/// Waits for an abort, and then for a short time in which the session can end itself.
async fn wait_after_abort(relay: &Relay) {
    relay.wait_for_abort().await;
    sleep(ABORT_TIMEOUT).await;
}

/// Counts a refused client, and logs the refusal at most once a minute.
fn log_refusal(shared: &GatewayContext, client: SocketAddr, reached: ReachedLimit) {
    shared.registry.count_refusal();
    if shared
        .usage
        .should_log(client.ip(), RefusalKind::Service(reached))
    {
        info!(%client, %reached, "client refused; further refusals are not logged for a minute");
    }
}

async fn accept(listener: &Listener, mut start: impl FnMut(Connection, SocketAddr)) {
    loop {
        match listener.accept().await {
            Ok((connection, client)) => start(connection, client),
            Err(error) => {
                // The process has probably used up its file descriptors. Other connections may end
                // and release some.
                warn!(%error, "cannot accept");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Time in which an aborted session can send messages to its client and to the far gateway.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
