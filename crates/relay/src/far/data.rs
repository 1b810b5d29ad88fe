//! The server's data connection: its connection, for the pump that drives its machine. The gateway
//! connects as soon as the server announces its port, or accepts.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use ftp::session::data::DataInput;

use net::dial::CONNECT_TIMEOUT;
use net::{Connection, Listener, socket, tls::Leg};

/// Method by which the server's data connection is opened.
pub(super) enum ServerLeg {
    /// The server listens at this address.
    Dial(SocketAddr),
    /// The server connects to this listener, from this address.
    Accept(Listener, IpAddr),
}

impl ServerLeg {
    /// Returns the address of the server.
    pub(super) fn server(&self) -> IpAddr {
        match self {
            Self::Dial(to) => to.ip(),
            Self::Accept(_, server) => *server,
        }
    }

    pub(super) fn is_accepted(&self) -> bool {
        matches!(self, Self::Accept(..))
    }
}

/// Connects the leg, without TLS, from the address of the control connection: servers compare both.
///
/// # Errors
/// Input for the machine that describes the failure.
pub(super) async fn connect(leg: ServerLeg, local: IpAddr) -> Result<Leg, DataInput> {
    let connected = async {
        let connection = match leg {
            ServerLeg::Dial(to) => {
                Connection::from(socket::connect_from(local, to, CONNECT_TIMEOUT).await?)
            }
            ServerLeg::Accept(listener, server) => socket::accept_from(&listener, server).await,
        };
        socket::tune_data(&connection)?;
        Ok(Leg::plain(connection))
    };
    connected
        .await
        .map_err(|error: io::Error| DataInput::NotConnected(error.to_string()))
}
