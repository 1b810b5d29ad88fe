//! FTP front doors: the near end of FTP sessions.

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

/// An FTP front door that is open.
#[derive(Debug)]
pub struct FtpFrontDoor {
    settings: Arc<FtpDoor>,
    /// Where it listens.
    address: SocketAddr,
    tls: Option<Arc<Acceptor>>,
}

impl FtpFrontDoor {
    /// A door that listens at `address`. `tls` accepts the TLS that the settings ask for.
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
            // Only data connections of this session resume what the client begins.
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

/// Closes with a reply that says why, unless that would take TLS.
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

/// Time in which a client that is turned away may hear why.
const TURN_AWAY_PATIENCE: Duration = Duration::from_secs(2);
