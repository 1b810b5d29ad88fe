//! The kernel's data about a TCP connection (`TCP_INFO`). No safe wrapper provides all of these
//! fields.
#![expect(unsafe_code, reason = "TCP_INFO has no safe wrapper")]

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use serde::{Deserialize, Serialize};

/// The kernel's data about a TCP connection (`TCP_INFO`, linux/tcp.h).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpInfo {
    /// Window scale in the SYN that this host received. `None` if the connection has no window
    /// scaling.
    pub received_wscale: Option<u8>,
    /// Window scale in the SYN that this host sent. `None` if the connection has no window scaling.
    pub sent_wscale: Option<u8>,
    /// Number of retransmitted segments.
    pub retransmissions: u32,
    /// Minimum round-trip time so far, in microseconds.
    pub min_rtt_us: u32,
    /// Smoothed round-trip time, in microseconds.
    pub rtt_us: u32,
    /// Maximum payload of a segment, in bytes.
    pub mss_bytes: u32,
}

impl TcpInfo {
    /// Reads the kernel's present data about a connection.
    pub(super) fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut bytes = [0u8; 256];
        let mut length = bytes.len() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `bytes`.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self::read(&bytes))
    }

    fn read(bytes: &[u8; 256]) -> Self {
        let word =
            |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (low, high) = (bytes[6] & 0xf, bytes[6] >> 4);
        // The first field of a bit field is in the low bits on little-endian machines.
        let (snd, rcv) = if cfg!(target_endian = "little") {
            (low, high)
        } else {
            (high, low)
        };
        let is_scaled = bytes[5] & OPTION_WSCALE != 0;
        Self {
            received_wscale: is_scaled.then_some(snd),
            sent_wscale: is_scaled.then_some(rcv),
            retransmissions: word(100),
            min_rtt_us: word(148),
            rtt_us: word(68),
            mss_bytes: word(16),
        }
    }
}

const OPTION_WSCALE: u8 = 4;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn both_ends_tell_the_same_of_what_nobody_rewrote() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
        let (far, _) = listener.accept().expect("a connection");
        let [near, far] = [&near, &far].map(|end| TcpInfo::of(end).expect("TCP"));
        assert!(near.sent_wscale.is_some(), "Linux scales windows");
        assert_eq!(near.sent_wscale, far.received_wscale);
        assert_eq!(far.sent_wscale, near.received_wscale);
        assert!(
            near.mss_bytes > 1000 && near.min_rtt_us < 1_000_000,
            "{near:?}"
        );
    }
}
