//! FTP listeners: the near gateway's service for FTP clients.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{io::AsyncWriteExt, time::timeout};
use tracing::{Span, info_span};

use super::session;
use crate::{
    limits::{PermitPurpose, ReachedLimit},
    relay::Relay,
    service::{NearService, ServiceClient},
    settings::{FtpListener, ListenerTls},
};
use net::{
    Connection, socket,
    tls::{Acceptor, Leg},
};

/// Service for the FTP clients of one listener.
#[derive(Debug)]
pub struct FtpService {
    settings: Arc<FtpListener>,
    /// Address of the listener.
    address: SocketAddr,
    tls: Option<Arc<Acceptor>>,
}

impl FtpService {
    /// Creates the service for the listener at `address`. `tls` performs TLS handshakes with
    /// clients. `tls` is `None` if the settings disable TLS.
    pub fn new(settings: FtpListener, address: SocketAddr, tls: Option<Arc<Acceptor>>) -> Self {
        Self {
            settings: Arc::new(settings),
            address,
            tls,
        }
    }
}

impl NearService for FtpService {
    fn span(&self, session: u64, client: SocketAddr) -> Span {
        info_span!("ftp", session, %client)
    }

    fn purpose(&self) -> PermitPurpose {
        PermitPurpose::Session
    }

    fn admits(&self, client: IpAddr) -> bool {
        self.settings.admits(client)
    }

    fn turn_away(&self, connection: Connection, reached: ReachedLimit) {
        turn_away(
            connection,
            reached,
            matches!(self.settings.tls, ListenerTls::Implicit(_)),
        );
    }

    fn serve(self: Arc<Self>, client: ServiceClient, relay: Relay) -> BoxFuture<'static, ()> {
        let listener = Arc::new(session::SessionListener {
            config: self.settings.clone(),
            address: self.address,
            // Only data connections of this session can resume the client's TLS sessions.
            tls: self.tls.as_ref().map(|tls| Arc::new(tls.for_session())),
        });
        let ServiceClient {
            connection,
            address,
            session,
        } = client;
        Box::pin(session::serve(
            connection, address, session, listener, relay.0,
        ))
    }
}

/// Closes the connection after a reply that states the reason. If the listener uses implicit TLS,
/// the connection closes without a reply.
fn turn_away(connection: Connection, reached: ReachedLimit, has_tls: bool) {
    if has_tls {
        return socket::abort(connection);
    }
    let client = connection.peer_addr().map(|it| it.ip().to_canonical());
    let mut stream = Leg::plain(connection);
    tokio::spawn(async move {
        // A client behind address translation cannot know which address the gateway compares, so
        // the reply contains the address.
        let reason = match (reached, client) {
            (ReachedLimit::Stranger, Ok(client)) => {
                format!("clients from {client} are not served (see \"clients\" of the listener)")
            }
            _ => reached.to_string(),
        };
        let reply = format!("421 gateway: {reason}\r\n");
        let say = async {
            // The client may have disconnected.
            let _ = stream.write_all(reply.as_bytes()).await;
            let _ = stream.shutdown().await;
        };
        let _ = timeout(TURN_AWAY_TIMEOUT, say).await;
    });
}

/// Time limit for sending the reply to a refused client.
const TURN_AWAY_TIMEOUT: Duration = Duration::from_secs(2);
