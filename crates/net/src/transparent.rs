//! Sockets bound to the address of a server or a client. They need CAP_NET_ADMIN.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::socket::choose_port_late;

/// A listener for control connections that clients make to the servers themselves; of both families if
/// it has every address of IPv6.
///
/// # Errors
/// The error of the system call.
pub fn listen_for_control(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    set_transparent(&SockRef::from(&socket), address)?;
    socket.bind(&address.into())?;
    socket.listen(CONTROL_BACKLOG)?;
    Ok(socket.into())
}

/// Has a listener of an earlier process take connections to all addresses, too.
///
/// # Errors
/// The error of the system call.
pub fn make_transparent(listener: &std::net::TcpListener) -> io::Result<()> {
    let address = listener.local_addr()?;
    set_transparent(&SockRef::from(listener), address)
}

/// A listener for one data connection to `server`, at any port.
///
/// # Errors
/// The error of the system call.
pub fn listen_for_data(server: IpAddr) -> io::Result<TcpListener> {
    let address = SocketAddr::new(server, 0);
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        None,
    )?;
    set_transparent(&SockRef::from(&socket), address)?;
    socket.bind(&address.into())?;
    socket.listen(1)?;
    TcpListener::from_std(socket.into())
}

/// Connects to a client from `server`, and from its port for data if that can be had.
///
/// # Errors
/// The error of the system call; [`io::ErrorKind::TimedOut`] after `patience`.
pub async fn connect_from(
    server: IpAddr,
    client: SocketAddr,
    patience: Duration,
) -> io::Result<TcpStream> {
    let connect = async {
        match connect(
            SocketAddr::new(server, FTP_DATA_PORT),
            client,
            GivenUp::Reset,
        )
        .await
        {
            Err(error) if cannot_be_had(&error) => {
                connect(SocketAddr::new(server, 0), client, GivenUp::Reset).await
            }
            result => result,
        }
    };
    within(patience, connect).await
}

/// Connects to a server from the address `client`.
///
/// # Errors
/// Those of [`connect_from`].
pub async fn connect_as(
    client: IpAddr,
    server: SocketAddr,
    patience: Duration,
) -> io::Result<TcpStream> {
    let from = SocketAddr::new(client.to_canonical(), 0);
    within(patience, connect(from, server, GivenUp::Ended)).await
}

async fn within(
    patience: Duration,
    connect: impl Future<Output = io::Result<TcpStream>>,
) -> io::Result<TcpStream> {
    tokio::time::timeout(patience, connect)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// What the other end sees of a connection that is given up while it comes about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GivenUp {
    /// A reset: an orderly end would be an empty file.
    Reset,
    /// An orderly end.
    Ended,
}

async fn connect(from: SocketAddr, to: SocketAddr, given_up: GivenUp) -> io::Result<TcpStream> {
    let socket = match from {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    set_transparent(&SockRef::from(&socket), from)?;
    // Connections to several clients have the port for data at once.
    socket.set_reuseaddr(from.port() != 0)?;
    if from.port() == 0 {
        choose_port_late(&socket);
    }
    if given_up == GivenUp::Reset {
        SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
    }
    socket.bind(from)?;
    socket.connect(to).await
}

/// The port is in use towards that client, or may not be used by this user.
fn cannot_be_had(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrInUse
            | io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::PermissionDenied
    )
}

fn set_transparent(socket: &SockRef<'_>, family: SocketAddr) -> io::Result<()> {
    match family {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true),
        SocketAddr::V6(_) => socket.set_ip_transparent_v6(true),
    }
}

/// Where servers open data connections from (RFC 959 section 3.2): some clients insist on it.
const FTP_DATA_PORT: u16 = 20;

/// Clients that have connected and not been accepted yet, as many as the standard library lets wait.
const CONTROL_BACKLOG: i32 = 128;
