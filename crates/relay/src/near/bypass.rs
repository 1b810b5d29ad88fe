//! The fallback for an intercepted client whose peer turns out to be dead. The gateway connects to
//! the server with the client's address, and relays. It does not accelerate anything, and data
//! connections do not pass through this module.

use std::{net::SocketAddr, time::Duration};

use tokio::{io::copy_bidirectional, net::TcpStream};
use tracing::{debug, info, warn};

use net::{socket, transparent};

/// Relays between a client that has received no bytes yet and `server`, until both have ended.
pub(super) async fn relay(mut stream: TcpStream, server: SocketAddr) {
    let connected = match stream.peer_addr() {
        Ok(client) => transparent::connect_as(client.ip(), server, CONNECT_TIMEOUT).await,
        Err(error) => Err(error),
    };
    let mut direct = match connected {
        Ok(direct) => direct,
        Err(error) => {
            warn!(%server, %error, "the server cannot be reached directly either");
            return socket::abort(stream);
        }
    };
    for tcp in [&stream, &direct] {
        if let Err(error) = socket::keep_urgent_bytes(tcp) {
            debug!(%error, "socket options");
        }
    }
    info!(%server, "relayed directly");
    match copy_bidirectional(&mut stream, &mut direct).await {
        Ok((up_bytes, down_bytes)) => info!(up_bytes, down_bytes, "client gone"),
        Err(error) => {
            info!(%error, "a directly relayed connection broke");
            socket::abort(stream);
            socket::abort(direct);
        }
    }
}

/// Timeout of the connection to the server. Clients wait 20 s and more for its greeting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
