//! The sockets of a gateway. The gateway binds them before any other step of its start.
#![allow(clippy::disallowed_methods, reason = "owns the sockets of the daemon")]

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener, UdpSocket},
    os::unix::net::UnixListener,
};

use net::transparent;
use tracing::warn;

use crate::{
    admin_socket,
    config::Config,
    listener_id::{ListenerId, ListenerIds},
    upgrade::{Predecessor, admin_https_name, admin_name, admin_socket_name},
};

/// The bound sockets of a configuration.
#[derive(Debug)]
pub struct BoundSockets {
    /// The link's socket.
    pub link: UdpSocket,
    /// One listener for each `[[ftp]]` section, in the order of the file.
    pub ftp: Vec<TcpListener>,
    /// The sockets of each pass-through listener, in the order of the file. Each entry has the
    /// socket for control connections and the sockets for data connections.
    pub pass_through: Vec<(TcpListener, Vec<TcpListener>)>,
    /// One listener for each `[[ssh]]` section, in the order of the file.
    pub ssh: Vec<TcpListener>,
    /// One listener for each `[[forward]]` section, in the order of the file.
    pub forwards: Vec<TcpListener>,
    /// The admin interface. `None` if its address is the default address, and that address cannot
    /// be bound.
    pub admin: Option<TcpListener>,
    /// The admin socket. `None` if its path is the default path, and that path cannot be bound.
    pub admin_socket: Option<UnixListener>,
    /// The listener of `[admin.https]`, if the file has this section.
    pub admin_https: Option<TcpListener>,
    /// The old process that has passed sockets to this process. `None` outside of an upgrade.
    pub predecessor: Option<Predecessor>,
}

/// Error: a socket could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {what} {address} (longhaul doctor names the cause)")]
pub struct BindError {
    what: &'static str,
    address: String,
    #[source]
    source: io::Error,
}

impl BindError {
    fn new(what: &'static str, address: impl fmt::Display, source: io::Error) -> Self {
        Self {
            what,
            address: address.to_string(),
            source,
        }
    }
}

impl BoundSockets {
    /// Binds all addresses of `config`.
    ///
    /// # Errors
    /// [`BindError`] names the first address that could not be bound.
    pub fn bind(config: &Config) -> Result<Self, BindError> {
        Self::bind_or_inherit(config, None)
    }

    /// Uses the sockets that it receives from the old process (`predecessor`), and binds the
    /// missing sockets.
    ///
    /// # Errors
    /// [`BindError`] names the first address that could not be bound.
    pub fn bind_or_inherit(
        config: &Config,
        mut predecessor: Option<Predecessor>,
    ) -> Result<Self, BindError> {
        let inherited = Self::bind_all(config, &mut predecessor);
        let mut bound = Predecessor::report_failure(&mut predecessor, inherited)?;
        bound.predecessor = predecessor;
        Ok(bound)
    }

    fn bind_all(config: &Config, predecessor: &mut Option<Predecessor>) -> Result<Self, BindError> {
        let ids = ListenerIds::from_config(config);
        let address = config.link_listen;
        let link = match predecessor.as_mut().map(Predecessor::take_link) {
            Some(Some(socket)) => same_address(socket, address),
            _ => UdpSocket::bind(address),
        };
        let link = link.map_err(|source| BindError::new("link address (UDP)", address, source))?;
        let admin_socket = bind_admin_socket(config, predecessor)?;
        let mut listener =
            |name: &dyn ToString, bind: &dyn Fn() -> Result<TcpListener, BindError>| {
                let inherited = predecessor
                    .as_mut()
                    .and_then(|it| it.take_listener(&name.to_string()));
                inherited.map_or_else(bind, Ok)
            };
        let mut ftp = Vec::new();
        for (id, settings) in ids.ftp.iter().zip(&config.ftp) {
            let bind = || bind_control(settings.listen, settings.transparent);
            let bound = listener(id, &bind)?;
            if settings.transparent {
                transparent::make_transparent(&bound)
                    .map_err(|source| BindError::new(TRANSPARENT, settings.listen, source))?;
            }
            ftp.push(bound);
        }
        let mut pass_through = Vec::new();
        for ((id, data_ids), settings) in ids.pass_through.iter().zip(&config.pass_through) {
            let control = listener(id, &|| bind_control(settings.listen, false))?;
            let data = data_ids.iter().map(|id: &ListenerId| {
                listener(id, &|| bind_tcp("[[ftp]] passive port", id.address))
            });
            let data = data.collect::<Result<_, _>>()?;
            pass_through.push((control, data));
        }
        let mut ssh = Vec::new();
        for (id, settings) in ids.ssh.iter().zip(&config.ssh) {
            let bind = || bind_tcp("[[ssh]] address", settings.listen);
            ssh.push(listener(id, &bind)?);
        }
        let mut forwards = Vec::new();
        for (id, forward) in ids.forwards.iter().zip(&config.forwards) {
            let bind = || bind_tcp("[[forward]] address", forward.listen);
            forwards.push(listener(id, &bind)?);
        }
        let admin = listener(&admin_name(config.admin_listen), &|| {
            bind_tcp("[admin] address", config.admin_listen)
        });
        let admin = match admin {
            Ok(listener) => Some(listener),
            Err(error) if config.admin_explicit => return Err(error),
            Err(error) => {
                warn!(%error, "no status pages: set [admin] listen to another address");
                None
            }
        };
        let admin_https = config.admin_https.as_ref().map(|https| {
            listener(&admin_https_name(https.listen), &|| {
                bind_tcp("[admin.https] address", https.listen)
            })
        });
        Ok(Self {
            link,
            ftp,
            pass_through,
            ssh,
            forwards,
            admin,
            admin_socket,
            admin_https: admin_https.transpose()?,
            predecessor: None,
        })
    }
}

const TRANSPARENT: &str = "[[ftp]] address (transparent, which needs CAP_NET_ADMIN)";

/// Binds the control port of an FTP listener.
fn bind_control(address: SocketAddr, is_transparent: bool) -> Result<TcpListener, BindError> {
    if !is_transparent {
        return bind_tcp("[[ftp]] address", address);
    }
    let bound = transparent::listen_for_control(address);
    bound.map_err(|source| BindError::new(TRANSPARENT, address, source))
}

/// Uses the admin socket that the old process has passed on, or binds a new socket.
fn bind_admin_socket(
    config: &Config,
    predecessor: &mut Option<Predecessor>,
) -> Result<Option<UnixListener>, BindError> {
    let path = &config.admin_socket;
    let inherited = predecessor.as_mut();
    let inherited = inherited.and_then(|it| it.take_unix_listener(&admin_socket_name(path)));
    if inherited.is_some() {
        return Ok(inherited);
    }
    match admin_socket::bind(path) {
        Ok(listener) => Ok(Some(listener)),
        Err(source) => {
            let error = BindError::new("[admin] socket", path.display(), source);
            if config.admin_socket_explicit {
                return Err(error);
            }
            warn!(error = %format_with_source(&error), "only signals give orders: set [admin] socket to another path");
            Ok(None)
        }
    }
}

fn format_with_source(error: &BindError) -> String {
    format!("{error}: {}", error.source)
}

/// Returns the socket if it is bound to `address`, and an error otherwise. Connections of the old
/// process cannot move to another socket.
fn same_address(socket: UdpSocket, address: SocketAddr) -> io::Result<UdpSocket> {
    let bound = socket.local_addr()?;
    let is_same = bound.ip() == address.ip() && [0, bound.port()].contains(&address.port());
    match is_same {
        true => Ok(socket),
        false => Err(io::Error::other(format!(
            "the earlier process uses {bound}: a change of the address needs a restart"
        ))),
    }
}

/// Binds a TCP listener. An error contains `what`, the name of the listener.
pub(crate) fn bind_tcp(what: &'static str, address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).map_err(|source| BindError::new(what, address, source))
}
