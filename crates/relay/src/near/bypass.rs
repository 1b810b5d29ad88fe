//! Fallback of a transparent listener if the peer does not answer. The gateway connects each client
//! directly to the server, with the client's address as the source, and relays bytes without
//! acceleration. Data connections of such a client do not pass through this module.

use std::{net::SocketAddr, time::Duration};

use tokio::{io::copy_bidirectional, net::TcpStream};
use tracing::{debug, info, warn};

use net::{socket, transparent};

/// Relays bytes between a client and `server` until both directions have ended. The client must not
/// have received any bytes from the gateway.
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

/// Time limit for the connection to the server. Clients wait at least 20 s for the server's
/// greeting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
