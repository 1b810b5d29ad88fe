//! The subset of rtnetlink that creates two veth pairs. Requests block until the kernel
//! acknowledges them.
//!
//! A connection belongs to the network namespace in which it was opened, even if threads in other
//! namespaces use it.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// Properties of one end of a new veth pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct VethEnd<'a> {
    pub(super) name: &'a str,
    pub(super) index: u32,
    pub(super) mac: [u8; 6],
}

impl Netlink {
    /// Opens a connection to the network namespace of the current thread.
    pub(super) fn open() -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Creates a veth pair with the end `near` in this namespace and the end `far` in
    /// `far_namespace`.
    pub(super) fn add_veth(
        &mut self,
        near: VethEnd<'_>,
        far: VethEnd<'_>,
        far_namespace: BorrowedFd<'_>,
        mtu: u32,
    ) -> io::Result<()> {
        let mut message = NetlinkRequest::new(libc::RTM_NEWLINK, CREATE);
        message.interface(near.index, 0, 0);
        message.veth_end(near, mtu);
        message.nested(libc::IFLA_LINKINFO, |info| {
            info.attribute(libc::IFLA_INFO_KIND, b"veth");
            info.nested(libc::IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |peer| {
                    peer.interface(far.index, 0, 0);
                    peer.veth_end(far, mtu);
                    let fd = far_namespace.as_raw_fd().to_ne_bytes();
                    peer.attribute(libc::IFLA_NET_NS_FD, &fd);
                });
            });
        });
        self.request(message)
    }

    /// Removes an interface. If it belongs to a veth pair, both ends are removed.
    pub(super) fn delete_link(&mut self, index: u32) -> io::Result<()> {
        let mut message = NetlinkRequest::new(libc::RTM_DELLINK, 0);
        message.interface(index, 0, 0);
        self.request(message)
    }

    pub(super) fn set_up(&mut self, index: u32, up: bool) -> io::Result<()> {
        let flag = libc::IFF_UP as u32;
        let mut message = NetlinkRequest::new(libc::RTM_NEWLINK, 0);
        message.interface(index, if up { flag } else { 0 }, flag);
        self.request(message)
    }

    /// Disables the interface's automatic IPv6 address. The kernel would announce this address on
    /// the WAN, and the announcements would disturb measurements.
    pub(super) fn disable_link_local(&mut self, index: u32) -> io::Result<()> {
        const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
        let mut message = NetlinkRequest::new(libc::RTM_NEWLINK, 0);
        message.interface(index, 0, 0);
        message.nested(libc::IFLA_AF_SPEC, |families| {
            families.nested(libc::AF_INET6 as u16, |inet6| {
                inet6.attribute(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
            });
        });
        self.request(message)
    }

    /// Adds an address to an interface. It is no error if the interface already has the address.
    pub(super) fn add_address(
        &mut self,
        index: u32,
        address: IpAddr,
        prefix: u8,
    ) -> io::Result<()> {
        let (family, bytes) = address_bytes(address);
        let no_duplicate_detection = libc::IFA_F_NODAD as u8;
        let mut message = NetlinkRequest::new(libc::RTM_NEWADDR, REPLACE);
        message.bytes(&[family, prefix, no_duplicate_detection, 0]);
        message.bytes(&index.to_ne_bytes());
        message.attribute(libc::IFA_LOCAL, &bytes);
        message.attribute(libc::IFA_ADDRESS, &bytes);
        self.request(message)
    }

    /// Sets the congestion control of TCP connections within the network of `address`. The setting
    /// belongs to the route to this network, and applies to outgoing and to accepted connections. A
    /// change of the route needs no permission outside the namespace. A change of the system's
    /// default needs such a permission.
    pub(super) fn set_route_congestion_control(
        &mut self,
        index: u32,
        address: Ipv4Addr,
        prefix: u8,
        name: &str,
    ) -> io::Result<()> {
        let network = u32::from(address) & (u32::MAX << (32 - prefix));
        let mut message = NetlinkRequest::new(libc::RTM_NEWROUTE, REPLACE);
        // The fields of `struct rtmsg` are the family, the lengths of destination and source, TOS,
        // table, protocol, scope and type.
        message.bytes(&[libc::AF_INET as u8, prefix, 0, 0]);
        message.bytes(&[
            libc::RT_TABLE_MAIN,
            libc::RTPROT_KERNEL,
            libc::RT_SCOPE_LINK,
        ]);
        message.bytes(&[libc::RTN_UNICAST, 0, 0, 0, 0]);
        message.attribute(libc::RTA_DST, &network.to_be_bytes());
        message.attribute(libc::RTA_OIF, &index.to_ne_bytes());
        message.attribute(libc::RTA_PREFSRC, &address.octets());
        message.nested(libc::RTA_METRICS, |metrics| {
            metrics.attribute(RTAX_CC_ALGO, name.as_bytes());
        });
        self.request(message)
    }

    /// Adds a permanent entry for the hardware address of a neighbour, so that no address
    /// resolution passes through the WAN.
    pub(super) fn add_neighbour(
        &mut self,
        index: u32,
        address: IpAddr,
        mac: [u8; 6],
    ) -> io::Result<()> {
        let (family, bytes) = address_bytes(address);
        let mut message = NetlinkRequest::new(libc::RTM_NEWNEIGH, REPLACE);
        message.bytes(&[family, 0, 0, 0]);
        message.bytes(&index.to_ne_bytes());
        message.bytes(&libc::NUD_PERMANENT.to_ne_bytes());
        message.bytes(&[0, 0]);
        message.attribute(libc::NDA_DST, &bytes);
        message.attribute(libc::NDA_LLADDR, &mac);
        self.request(message)
    }

    /// Sends a request, and waits for the kernel's acknowledgement or error.
    fn request(&mut self, message: NetlinkRequest) -> io::Result<()> {
        self.sequence += 1;
        let bytes = message.finish(self.sequence);
        send(self.socket.as_raw_fd(), &bytes, MsgFlags::empty())?;
        let mut answer = [0u8; 4096];
        let length = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        // The message begins with a `struct nlmsghdr` (16 bytes). In an acknowledgement or an
        // error, the negative errno follows as an int.
        let word = |at: usize| {
            let bytes = answer[..length]
                .get(at..at + 4)
                .and_then(|bytes| bytes.try_into().ok());
            bytes.map(i32::from_ne_bytes)
        };
        match word(16) {
            Some(0) => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(-error)),
            None => Err(io::Error::other("short answer from rtnetlink")),
        }
    }
}

/// A request that is being assembled.
struct NetlinkRequest {
    bytes: Vec<u8>,
}

impl NetlinkRequest {
    fn new(kind: u16, flags: i32) -> Self {
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        Self { bytes }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Appends a `struct ifinfomsg`.
    fn interface(&mut self, index: u32, flags: u32, change: u32) {
        self.bytes(&[0, 0, 0, 0]);
        self.bytes(&index.to_ne_bytes());
        self.bytes(&flags.to_ne_bytes());
        self.bytes(&change.to_ne_bytes());
    }

    fn veth_end(&mut self, end: VethEnd<'_>, mtu: u32) {
        let mut name = end.name.as_bytes().to_vec();
        name.push(0);
        self.attribute(libc::IFLA_IFNAME, &name);
        self.attribute(libc::IFLA_ADDRESS, &end.mac);
        self.attribute(libc::IFLA_MTU, &mtu.to_ne_bytes());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |message| message.bytes(value));
    }

    fn nested(&mut self, kind: u16, content: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend([0, 0]);
        self.bytes.extend(kind.to_ne_bytes());
        content(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

fn address_bytes(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (libc::AF_INET as u8, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6 as u8, address.octets().to_vec()),
    }
}

const CREATE: i32 = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
const REPLACE: i32 = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;

/// Constant from linux/if_link.h.
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;

/// Constant from linux/rtnetlink.h.
const RTAX_CC_ALGO: u16 = 16;

/// Constant from linux/veth.h.
const VETH_INFO_PEER: u16 = 1;
