//! FTP listeners: the near end of FTP sessions.

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
    limits::{Purpose, Reached},
    relay::Relay,
    service::{Client, NearService},
    settings::{DoorTls, FtpDoor},
};
use net::{
    Connection, socket,
    tls::{Acceptor, Leg},
};

/// An open FTP listener.
#[derive(Debug)]
pub struct FtpFrontDoor {
    settings: Arc<FtpDoor>,
    /// The listener's address.
    address: SocketAddr,
    tls: Option<Arc<Acceptor>>,
}

impl FtpFrontDoor {
    /// Creates a listener at `address`. `tls` accepts TLS as the settings require.
    pub fn new(settings: FtpDoor, address: SocketAddr, tls: Option<Arc<Acceptor>>) -> Self {
        Self {
            settings: Arc::new(settings),
            address,
            tls,
        }
    }
}

impl NearService for FtpFrontDoor {
    fn span(&self, session: u64, client: SocketAddr) -> Span {
        info_span!("ftp", session, %client)
    }

    fn purpose(&self) -> Purpose {
        Purpose::Session
    }

    fn admits(&self, client: IpAddr) -> bool {
        self.settings.admits(client)
    }

    fn turn_away(&self, connection: Connection, reached: Reached) {
        turn_away(
            connection,
            reached,
            matches!(self.settings.tls, DoorTls::Implicit(_)),
        );
    }

    fn serve(self: Arc<Self>, client: Client, relay: Relay) -> BoxFuture<'static, ()> {
        let door = Arc::new(session::Door {
            config: self.settings.clone(),
            address: self.address,
            // Only data connections of this session can resume the client's TLS sessions.
            tls: self.tls.as_ref().map(|tls| Arc::new(tls.for_session())),
        });
        let Client {
            connection,
            address,
            session,
        } = client;
        Box::pin(session::serve(connection, address, session, door, relay.0))
    }
}

/// Closes the connection with a reply that states the reason, or without one if the listener uses
/// TLS.
fn turn_away(connection: Connection, reached: Reached, has_tls: bool) {
    if has_tls {
        return socket::abort(connection);
    }
    let mut stream = Leg::plain(connection);
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

/// Timeout of the reply to a client that is turned away.
const TURN_AWAY_PATIENCE: Duration = Duration::from_secs(2);
