//! Forwards at the near gateway: TCP connections of clients to any service behind a peer.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use link::StreamClass;
use tracing::{Span, debug, info, info_span, warn};

use crate::{
    forward,
    gateway_context::GatewayContext,
    limits::{PermitPurpose, ReachedLimit},
    pairing::StreamHalves,
    relay::Relay,
    service::{NearService, ServiceClient},
    settings::Forward,
    status::OpenTransfer,
    wire::{CodingOffer, Service},
};
use net::{Connection, socket};

impl NearService for Forward {
    fn span(&self, session: u64, client: SocketAddr) -> Span {
        info_span!("forward", session, %client)
    }

    fn purpose(&self) -> PermitPurpose {
        PermitPurpose::Forward
    }

    fn admits(&self, client: IpAddr) -> bool {
        Self::admits(self, client)
    }

    fn turn_away(&self, connection: Connection, _: ReachedLimit) {
        // The protocol is unknown, so the gateway cannot send a reason.
        socket::abort(connection);
    }

    fn serve(self: Arc<Self>, client: ServiceClient, relay: Relay) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let ServiceClient {
                connection,
                address,
                session,
            } = client;
            let options = ForwardOptions::FORWARD;
            relay_forward(connection, address, session, options, &self, &relay.0).await;
        })
    }
}

/// Options of a forwarded connection.
pub(super) struct ForwardOptions<'a> {
    /// Kind of the connection, as `longhaul status` shows it.
    pub(super) kind: &'static str,
    pub(super) class: StreamClass,
    /// Timeout: the gateway resets the connection if no byte moves for this time, unless
    /// `is_needed` returns true.
    pub(super) timeout: Option<Duration>,
    pub(super) is_needed: &'a (dyn Fn() -> bool + Sync),
}

impl ForwardOptions<'_> {
    /// Options for any TCP service. There is no timeout, because only the service can decide how
    /// long a connection may be idle.
    const FORWARD: ForwardOptions<'static> = ForwardOptions {
        kind: "forward",
        class: StreamClass::Bulk,
        timeout: None,
        is_needed: &|| false,
    };

    /// Waits until the connection has been idle for the timeout and `is_needed` returns false.
    async fn wait_for_stall(&self, transfer: &OpenTransfer) {
        let Some(timeout) = self.timeout else {
            return std::future::pending().await;
        };
        loop {
            stalled(transfer, timeout).await;
            if !(self.is_needed)() {
                return;
            }
        }
    }
}

/// Relays bytes between a client's connection and the target of `forward`.
pub(super) async fn relay_forward(
    connection: Connection,
    client: SocketAddr,
    number: u64,
    options: ForwardOptions<'_>,
    forward: &Forward,
    shared: &GatewayContext,
) {
    let target = &forward.target;
    let coding = forward.compresses.then_some(CodingOffer {
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
            shared.registry.count_refusal();
            warn!(%target, %error, "not forwarded");
            return socket::abort(connection);
        }
    };
    if let Err(error) = socket::tune_forward(&connection) {
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
    let stream = StreamHalves {
        send,
        recv,
        first: Bytes::new(),
    };
    let result = tokio::select! {
        result = forward::join(connection, stream, coding.as_ref(), transfer.clone()) => result,
        () = options.wait_for_stall(&transfer) => return info!("nothing moved for too long"),
        () = shared.wait_for_abort() => return,
    };
    let (up_bytes, down_bytes) = (transfer.meters().0.bytes(), transfer.meters().1.bytes());
    match result {
        Ok(()) => {
            transfer.mark_completed();
            info!(up_bytes, down_bytes, "forward complete");
        }
        Err(error) => info!(up_bytes, down_bytes, %error, "forward broken"),
    }
}

/// Waits until no byte has moved for `timeout`.
async fn stalled(transfer: &OpenTransfer, timeout: Duration) {
    let moved = || transfer.meters().0.bytes() + transfer.meters().1.bytes();
    let mut before = moved();
    loop {
        tokio::time::sleep(timeout).await;
        let now = moved();
        if now == before {
            return;
        }
        before = now;
    }
}
