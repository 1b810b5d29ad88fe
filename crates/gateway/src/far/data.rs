//! The server's data connection: how it is connected, for the pump that drives its machine. The
//! gateway dials as soon as the server announces its port, or accepts.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use ftp::session::data::Input;
use tokio::net::TcpListener;

use super::dial::CONNECT_PATIENCE;
use crate::{socket, tls::Leg};

/// How the server's data connection comes about.
pub(super) enum ServerLeg {
    /// The server listens at this address.
    Dial(SocketAddr),
    /// The server connects here, from this address.
    Accept(TcpListener, IpAddr),
}

impl ServerLeg {
    /// The server's name as a reader of streams: its address, whatever the port.
    pub(super) fn reader(&self) -> u64 {
        let server = match self {
            Self::Dial(to) => to.ip(),
            Self::Accept(_, server) => *server,
        };
        let mut hasher = DefaultHasher::new();
        server.hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn is_accepted(&self) -> bool {
        matches!(self, Self::Accept(..))
    }
}

/// Connects the leg, without TLS, from the address of the control connection: servers compare.
///
/// # Errors
/// What the machine hears.
pub(super) async fn connect(leg: ServerLeg, local: IpAddr) -> Result<Leg, Input> {
    let connected = async {
        let stream = match leg {
            ServerLeg::Dial(to) => socket::connect_from(local, to, CONNECT_PATIENCE).await?,
            ServerLeg::Accept(listener, server) => socket::accept_from(&listener, server).await,
        };
        socket::tune_data(&stream)?;
        Ok(Leg::plain(stream))
    };
    connected
        .await
        .map_err(|error: io::Error| Input::NotConnected(error.to_string()))
}

/// Time in which an upload must drain to the server when the client has sent its last byte and waits so long for the
/// final reply.
pub(super) fn upload_tail(wait: Duration) -> Duration {
    (wait / WAIT_SHARE).min(UPLOAD_TAIL_MAX)
}

/// The same for a client that does not say how long it waits: WinSCP waits 15 s, FileZilla 20 s.
pub(super) const UPLOAD_TAIL: Duration = Duration::from_secs(5);

/// A client's part of patience that is used: the server may become slower while the upload drains.
const WAIT_SHARE: u32 = 3;

/// More gains nothing on any path, and takes memory.
const UPLOAD_TAIL_MAX: Duration = Duration::from_secs(60);
