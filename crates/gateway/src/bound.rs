//! The sockets of a gateway, bound before anything else happens.
#![allow(clippy::disallowed_methods, reason = "owns the sockets of the daemon")]

use std::{
    io,
    net::{SocketAddr, TcpListener, UdpSocket},
};

use tracing::warn;

use crate::{config::Config, intercept};

/// The bound sockets of a configuration.
#[derive(Debug)]
pub struct Bound {
    /// The link's socket.
    pub link: UdpSocket,
    /// One for each `[[ftp]]`, in order.
    pub ftp: Vec<TcpListener>,
    /// One for each door of TLS that passes through, in order: for control and for data connections.
    pub pass_through: Vec<(TcpListener, Vec<TcpListener>)>,
    /// One for each `[[forward]]`, in order.
    pub forwards: Vec<TcpListener>,
    /// The admin address; `None` if it is taken and was not asked for.
    pub admin: Option<TcpListener>,
}

/// A socket could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {what} {address}")]
pub struct BindError {
    what: &'static str,
    address: SocketAddr,
    #[source]
    source: io::Error,
}

impl Bound {
    /// Binds all addresses of `config`.
    ///
    /// # Errors
    /// [`BindError`] names the first address that could not be bound.
    pub fn bind(config: &Config) -> Result<Self, BindError> {
        let address = config.link_listen;
        let link = UdpSocket::bind(address).map_err(|source| BindError {
            what: "link address (UDP)",
            address,
            source,
        })?;
        let ftp = config.ftp.iter().map(|door| {
            if !door.transparent {
                return bind_tcp("[[ftp]] address", door.listen);
            }
            intercept::socket::listen_for_control(door.listen).map_err(|source| BindError {
                what: "[[ftp]] address (transparent, which needs CAP_NET_ADMIN)",
                address: door.listen,
                source,
            })
        });
        let pass_through = config.pass_through.iter().map(|door| {
            let control = bind_tcp("[[ftp]] address", door.listen)?;
            let data = door.data_ports.clone().map(|port| {
                let address = SocketAddr::new(door.listen.ip(), port);
                bind_tcp("[[ftp]] passive port", address)
            });
            Ok((control, data.collect::<Result<_, _>>()?))
        });
        let forwards = config
            .forwards
            .iter()
            .map(|f| bind_tcp("[[forward]] address", f.listen));
        let admin = match bind_tcp("[admin] address", config.admin_listen) {
            Ok(listener) => Some(listener),
            Err(error) if config.admin_explicit => return Err(error),
            Err(error) => {
                warn!(%error, "no status: set [admin] listen to have it elsewhere");
                None
            }
        };
        Ok(Self {
            link,
            ftp: ftp.collect::<Result<_, _>>()?,
            pass_through: pass_through.collect::<Result<_, _>>()?,
            forwards: forwards.collect::<Result<_, _>>()?,
            admin,
        })
    }
}

/// Binds the listener of `what`.
pub(crate) fn bind_tcp(what: &'static str, address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).map_err(|source| BindError {
        what,
        address,
        source,
    })
}
