//! The server's data connection: how it is connected, for the pump that drives its machine. The
//! gateway dials as soon as the server announces its port, or accepts.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use ftp::session::data::Input;

use net::dial::CONNECT_PATIENCE;
use net::{Connection, Listener, socket, tls::Leg};

/// How the server's data connection comes about.
pub(super) enum ServerLeg {
    /// The server listens at this address.
    Dial(SocketAddr),
    /// The server connects here, from this address.
    Accept(Listener, IpAddr),
}

impl ServerLeg {
    /// Address of the server.
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

/// Connects the leg, without TLS, from the address of the control connection: servers compare.
///
/// # Errors
/// What the machine hears.
pub(super) async fn connect(leg: ServerLeg, local: IpAddr) -> Result<Leg, Input> {
    let connected = async {
        let connection = match leg {
            ServerLeg::Dial(to) => {
                Connection::from(socket::connect_from(local, to, CONNECT_PATIENCE).await?)
            }
            ServerLeg::Accept(listener, server) => socket::accept_from(&listener, server).await,
        };
        socket::tune_data(&connection)?;
        Ok(Leg::plain(connection))
    };
    connected
        .await
        .map_err(|error: io::Error| Input::NotConnected(error.to_string()))
}
