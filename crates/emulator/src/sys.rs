//! System calls without a safe wrapper. All `unsafe` code of the emulator is here.
#![expect(
    unsafe_code,
    reason = "packet sockets, ethtool and pre_exec have no safe wrapper"
)]

use std::{
    io::{self, IoSliceMut},
    mem::size_of,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::Command,
    ptr,
    time::Duration,
};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

/// Opens a packet socket on an interface of the current network namespace. Each message is a
/// `virtio_net_hdr` of 10 bytes and a raw Ethernet frame. The socket does not receive the frames
/// that it sends.
pub(super) fn packet_socket(interface_index: u32) -> io::Result<OwnedFd> {
    // With protocol 0, the socket receives nothing before it is bound to its interface.
    let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers are passed; a non-negative result is a new descriptor that we own.
    let socket = unsafe {
        let fd = check(libc::socket(libc::AF_PACKET, flags, 0))?;
        OwnedFd::from_raw_fd(fd)
    };
    for option in [
        libc::PACKET_VNET_HDR,
        libc::PACKET_IGNORE_OUTGOING,
        libc::PACKET_QDISC_BYPASS,
    ] {
        set_int(&socket, libc::SOL_PACKET, option, 1)?;
    }
    for (forced, plain) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        // Root may exceed the system's maximum. For other users, the system limits the size to this
        // maximum.
        set_int(&socket, libc::SOL_SOCKET, forced, SOCKET_BUFFER_BYTES)
            .or_else(|_| set_int(&socket, libc::SOL_SOCKET, plain, SOCKET_BUFFER_BYTES))?;
    }
    // SAFETY: sockaddr_ll is plain data for which zeroes are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = interface_index as i32;
    // SAFETY: the address is a whole sockaddr_ll and its length is passed.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    })?;
    Ok(socket)
}

/// Returns the number of packets that the kernel dropped since the last call because the socket's
/// buffer was full.
pub(super) fn packets_dropped(socket: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: tpacket_stats is plain data for which zeroes are valid.
    let mut stats: libc::tpacket_stats = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `stats`.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            ptr::from_mut(&mut stats).cast(),
            &raw mut length,
        )
    })?;
    Ok(u64::from(stats.tp_drops))
}

/// Disables checksum and segmentation offload of an interface in the socket's network namespace.
/// The kernel then delivers single packets with complete checksums.
pub(super) fn disable_offload(socket: BorrowedFd<'_>, interface: &str) -> io::Result<()> {
    const ETHTOOL_STXCSUM: u32 = 0x17;
    const ETHTOOL_SSG: u32 = 0x19;
    const ETHTOOL_SGRO: u32 = 0x2c;
    for command in [ETHTOOL_STXCSUM, ETHTOOL_SSG, ETHTOOL_SGRO] {
        let mut value = EthtoolValue { command, data: 0 };
        // SAFETY: ifreq is plain data for which zeroes are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(15)) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = ptr::from_mut(&mut value).cast();
        // SAFETY: the request names a structure that these three commands only read.
        check(unsafe {
            libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request)
        })?;
    }
    Ok(())
}

/// Makes the calling thread wake up on time. Disables timer slack, and sets real-time priority if
/// the system permits it. Returns whether the thread has real-time priority.
pub(super) fn make_real_time() -> bool {
    // SAFETY: PR_SET_TIMERSLACK takes a number; it concerns this thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
    let parameters = libc::sched_param {
        sched_priority: REAL_TIME_PRIORITY,
    };
    // SAFETY: pid 0 is the calling thread; the parameters are read only.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) == 0 }
}

/// Returns the processor time of the calling thread.
pub(super) fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Receives at least one byte, and the file descriptors attached to it.
pub(super) fn receive_with_descriptors(
    stream: &UnixStream,
    into: &mut [IoSliceMut<'_>],
) -> io::Result<Vec<OwnedFd>> {
    let mut space = nix::cmsg_space!([RawFd; 2]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(stream.as_raw_fd(), into, Some(&mut space), flags)?;
    if message.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut descriptors = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = control {
            // SAFETY: the kernel has just made these descriptors for this process, and no other
            // code has them.
            descriptors.extend(
                raw.into_iter()
                    .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            );
        }
    }
    Ok(descriptors)
}

/// Makes the command's process enter the network namespace before it starts its program.
pub(super) fn enter_before_exec(command: &mut Command, namespace: OwnedFd) {
    // SAFETY: setns is one system call; it neither allocates nor takes locks.
    unsafe {
        command.pre_exec(move || {
            check(libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET)).map(drop)
        });
    }
}

fn set_int(socket: &OwnedFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the option's value is an int, and its length is passed.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            ptr::from_ref(&value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    })
    .map(drop)
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// `struct ethtool_value` from linux/ethtool.h.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Size of the receive buffer in bytes. The buffer holds about 100 ms of packets at 1 Gbit/s,
/// including the kernel's overhead for each packet.
const SOCKET_BUFFER_BYTES: i32 = 32 << 20;

/// Real-time priority of the emulator's thread. It is above ordinary threads, and below the
/// kernel's own threads.
const REAL_TIME_PRIORITY: i32 = 5;
