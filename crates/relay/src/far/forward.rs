//! Forwards at the far gateway: connections to the TCP service that a stream requests.

use std::sync::Arc;

use link::PeerId;
use tracing::{debug, info, warn};

use crate::{
    forward,
    gateway_context::GatewayContext,
    pairing::StreamHalves,
    wire::{CodingOffer, reset},
};
use net::{Connection, socket, target::HostPort};

/// Connects to the server of a forward, and relays bytes between the stream and the server.
pub(super) async fn serve(
    shared: &Arc<GatewayContext>,
    peer: PeerId,
    target: HostPort,
    mut stream: StreamHalves,
    coding: Option<CodingOffer>,
) {
    let tcp = match shared.dial(peer, &target).await {
        Ok(tcp) => Connection::from(tcp),
        Err(error) => {
            shared.registry.count_refusal();
            warn!(%target, %error, "not forwarded");
            let code = if error.is_refusal() {
                reset::NOT_ALLOWED
            } else {
                reset::UNREACHABLE
            };
            stream.recv.stop(code);
            return stream.send.reset(code);
        }
    };
    if let Err(error) = socket::tune_forward(&tcp) {
        debug!(%error, "socket options");
    }
    let coding = coding.map(|offer| shared.settings.coding_with(peer, &offer));
    let name = target.to_string();
    let transfer = shared
        .registry
        .transfer("forward", false, 0, shared.peer_name(peer), "", &name);
    let result = tokio::select! {
        result = forward::join(tcp, stream, coding.as_ref(), transfer.clone()) => result,
        () = shared.wait_for_abort() => return,
    };
    match result {
        Ok(()) => transfer.mark_completed(),
        Err(error) => info!(%target, %error, "forward broken"),
    }
}
