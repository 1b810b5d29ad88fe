//! Sockets that are bound to the address of a server or a client, although the address belongs to
//! another machine. They need CAP_NET_ADMIN.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::socket::choose_port_late;

/// Listens for intercepted control connections, which clients make to the servers' own addresses.
/// Accepts IPv4 and IPv6 if `address` is the unspecified IPv6 address.
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

/// Makes an inherited listener accept connections to all addresses, too. An earlier process has
/// created the listener.
///
/// # Errors
/// The error of the system call.
pub fn make_transparent(listener: &std::net::TcpListener) -> io::Result<()> {
    let address = listener.local_addr()?;
    set_transparent(&SockRef::from(listener), address)
}

/// Listens for one data connection to the address `server`, at a port that the kernel chooses.
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

/// Connects to a client from the address `server`. The source port is the FTP data port, if it is
/// available.
///
/// # Errors
/// The error of the system call. [`io::ErrorKind::TimedOut`] after `timeout`.
pub async fn connect_from(
    server: IpAddr,
    client: SocketAddr,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let connect = async {
        match connect(
            SocketAddr::new(server, FTP_DATA_PORT),
            client,
            CancelledEnd::Reset,
        )
        .await
        {
            Err(error) if is_unavailable(&error) => {
                connect(SocketAddr::new(server, 0), client, CancelledEnd::Reset).await
            }
            result => result,
        }
    };
    connect_in_time(timeout, connect).await
}

/// Connects to a server from the address `client`.
///
/// # Errors
/// The errors of [`connect_from`].
pub async fn connect_as(
    client: IpAddr,
    server: SocketAddr,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let from = SocketAddr::new(client.to_canonical(), 0);
    connect_in_time(timeout, connect(from, server, CancelledEnd::Ended)).await
}

async fn connect_in_time(
    timeout: Duration,
    connect: impl Future<Output = io::Result<TcpStream>>,
) -> io::Result<TcpStream> {
    tokio::time::timeout(timeout, connect)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// How a cancelled connection attempt ends for the peer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CancelledEnd {
    /// The peer receives a reset, since it would interpret an orderly end as an empty file.
    Reset,
    /// The peer receives an orderly end.
    Ended,
}

async fn connect(from: SocketAddr, to: SocketAddr, end: CancelledEnd) -> io::Result<TcpStream> {
    let socket = match from {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    set_transparent(&SockRef::from(&socket), from)?;
    // Connections to several clients use the data port at the same time.
    socket.set_reuseaddr(from.port() != 0)?;
    if from.port() == 0 {
        choose_port_late(&socket);
    }
    if end == CancelledEnd::Reset {
        SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
    }
    socket.bind(from)?;
    socket.connect(to).await
}

/// Returns whether the source port is already in use for this client, or forbidden for this user.
fn is_unavailable(error: &io::Error) -> bool {
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

/// Port from which servers open data connections (RFC 959 section 3.2). Some clients require this
/// port.
const FTP_DATA_PORT: u16 = 20;

/// Maximum number of connections that wait for acceptance. The standard library has the same limit.
const CONTROL_BACKLOG: i32 = 128;
