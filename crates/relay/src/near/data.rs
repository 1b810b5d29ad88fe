//! The client's data connection: its connection, for the pump that drives its machine.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ftp::session::data::{DataInput, near::DataOpening};
use tracing::debug;

use crate::pump::{BoxedFuture, SecureLeg};
use net::{
    Connection, Listener,
    pipe::PipeNetwork,
    socket,
    tls::{Acceptor, ConnectionKind, Leg},
    transparent,
};

/// Method by which the client's data connection is opened.
pub(super) enum ClientLeg {
    /// The client connects to this listener.
    Accept(Listener),
    /// The client listens at this address.
    Dial(SocketAddr),
}

impl ClientLeg {
    pub(super) fn opening(&self) -> DataOpening {
        match self {
            Self::Accept(_) => DataOpening::Accept,
            Self::Dial(_) => DataOpening::Dial,
        }
    }
}

/// Properties that the client's data connection shares with its control connection.
pub(super) struct DataClient {
    /// The gateway's end of the control connection: clients compare both addresses.
    pub(super) local: IpAddr,
    /// Whether that address is the server's.
    pub(super) is_transparent: bool,
    /// The only address that may connect.
    pub(super) address: IpAddr,
    /// The network within this process to which the client belongs.
    pub(super) network: Option<PipeNetwork>,
}

/// Connects the leg, without TLS.
///
/// # Errors
/// Input for the machine that describes the failure.
pub(super) async fn connect(leg: ClientLeg, client: DataClient) -> Result<Leg, DataInput> {
    let connection = match leg {
        // The listener accepts only one connection: the kernel refuses a second one.
        ClientLeg::Accept(listener) => socket::accept_from(&listener, client.address).await,
        ClientLeg::Dial(at) => {
            let connected = if let Some(network) = &client.network {
                network.connect(at).map(Connection::from)
            } else if client.is_transparent {
                let connected = transparent::connect_from(client.local, at, DIAL_TIMEOUT);
                connected.await.map(Connection::from)
            } else {
                let connected = socket::connect_from(client.local, at, DIAL_TIMEOUT);
                connected.await.map(Connection::from)
            };
            connected.map_err(|error| DataInput::NotConnected(format!("{at}: {error}")))?
        }
    };
    let tuned = socket::tune_data(&connection);
    if let Err(error) = tuned.and_then(|()| socket::bound_receive_buffer(&connection)) {
        debug!(%error, "socket options");
    }
    Ok(Leg::plain(connection))
}

/// Returns the start of TLS on the leg.
pub(super) fn secure(tls: Arc<Acceptor>) -> SecureLeg {
    Box::new(move |tcp| -> BoxedFuture<_> {
        Box::pin(async move {
            let accepted = tls.accept(tcp, ConnectionKind::Data).await;
            accepted.map_err(|error| DataInput::NotSecured(error.to_string()))
        })
    })
}

/// Timeout of the connection to the port that a client has named.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
