//! Data connections to the client, for the pump that runs their state machine.

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
    /// The gateway listens with this socket, and the client connects.
    Accept(Listener),
    /// The client listens at this address, and the gateway connects.
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

/// Properties that the client's data connections share with its control connection.
pub(super) struct DataClient {
    /// Local address of the control connection. Data connections use the same address, because
    /// clients compare the two addresses.
    pub(super) local: IpAddr,
    /// Whether `local` is an address of the server (transparent listener).
    pub(super) is_transparent: bool,
    /// The only address from which a data connection is accepted.
    pub(super) address: IpAddr,
    /// Network of in-process pipes to which the client belongs. `None` for a TCP client.
    pub(super) network: Option<PipeNetwork>,
}

/// Opens the data connection without TLS.
///
/// # Errors
/// An input for the state machine that describes the failure.
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

/// Returns a function that performs the TLS handshake on a data connection.
pub(super) fn secure(tls: Arc<Acceptor>) -> SecureLeg {
    Box::new(move |tcp| -> BoxedFuture<_> {
        Box::pin(async move {
            let accepted = tls.accept(tcp, ConnectionKind::Data).await;
            accepted.map_err(|error| DataInput::NotSecured(error.to_string()))
        })
    })
}

/// Time limit for a connection to the port that the client has announced.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
