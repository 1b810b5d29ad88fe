//! Data connections to the server, for the pump that runs their state machine. As soon as the
//! server has announced its port, the gateway connects. If the server connects instead, the gateway
//! listens and accepts the connection.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use ftp::session::data::DataInput;

use net::dial::CONNECT_TIMEOUT;
use net::{Connection, Listener, socket, tls::Leg};

/// Method by which the server's data connection is opened.
pub(super) enum ServerLeg {
    /// The server listens at this address, and the gateway connects.
    Dial(SocketAddr),
    /// The gateway listens with this socket, and the server connects from this address.
    Accept(Listener, IpAddr),
}

impl ServerLeg {
    /// Returns the IP address of the server.
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

/// Opens the data connection without TLS. The data connection must have the same local address as
/// the control connection, because servers compare the two addresses.
///
/// # Errors
/// An input for the state machine that describes the failure.
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
