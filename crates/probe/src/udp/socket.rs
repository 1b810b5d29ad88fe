//! UDP sockets with arrival times and drop counts from the kernel.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    time::Duration,
};

use nix::sys::{
    socket::{
        ControlMessageOwned, MsgFlags, SockaddrLike as _, SockaddrStorage, recvmsg, setsockopt,
        sockopt,
    },
    time::TimeSpec,
};

use crate::clock;

#[derive(Debug, Clone, Copy)]
pub(crate) struct DatagramArrival {
    pub(crate) bytes: usize,
    pub(crate) from: Option<SocketAddr>,
    /// Arrival time according to the kernel's clock, in nanoseconds since 1970.
    pub(crate) at_ns: u64,
}

/// Sets a large receive buffer, kernel timestamps and a short read timeout on a socket.
pub(crate) fn prepare_receiver(socket: &UdpSocket) -> io::Result<()> {
    setsockopt(socket, sockopt::RcvBufForce, &BUFFER_BYTES)
        .or_else(|_| setsockopt(socket, sockopt::RcvBuf, &BUFFER_BYTES))?;
    setsockopt(socket, sockopt::ReceiveTimestampns, &true)?;
    socket.set_read_timeout(Some(TIMEOUT))
}

/// Receives the next datagram.
pub(crate) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<DatagramArrival> {
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(buffer)];
    let message = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut control),
        MsgFlags::empty(),
    )?;
    let time = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
        _ => None,
    });
    Ok(DatagramArrival {
        bytes: message.bytes,
        from: message.address.as_ref().and_then(address),
        at_ns: time.map_or_else(clock::unix_ns, |time| time.as_nanos() as u64),
    })
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    storage.family()?;
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some((v4.ip(), v4.port()).into());
    }
    let v6 = storage.as_sockaddr_in6()?;
    Some((IpAddr::V6(v6.ip()), v6.port()).into())
}

/// Returns the number of datagrams that the kernel has dropped because the socket's buffer was
/// full. The number comes from `/proc/net/udp`. Returns `None` if that file has no entry for the
/// socket.
pub(crate) fn dropped(socket: &UdpSocket) -> io::Result<Option<u64>> {
    let own = std::fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd()))?;
    let inode = std::os::unix::fs::MetadataExt::ino(&own).to_string();
    for table in ["udp", "udp6"] {
        // The file of the thread is read, because the thread may be in another network namespace
        // than the process.
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{table}"));
        for line in text.unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields.get(9) == Some(&inode.as_str()) {
                let drops = fields.last().and_then(|field| field.parse().ok());
                return Ok(drops);
            }
        }
    }
    Ok(None)
}

/// Size of the receive buffer in bytes. The buffer holds 0.1 s of full packets at 1 Gbit/s,
/// including the kernel's overhead. Only root receives the full size.
const BUFFER_BYTES: usize = 64 << 20;
const TIMEOUT: Duration = Duration::from_millis(100);
