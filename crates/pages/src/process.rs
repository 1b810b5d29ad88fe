//! Processes that connect over Unix sockets.

use std::{io, os::fd::AsFd};

use nix::{
    sys::socket::{getsockopt, sockopt::PeerCredentials},
    unistd::geteuid,
};

/// A process that is connected over a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Process ID. It is zero for a process in another namespace.
    pub pid: i32,
    /// User ID.
    pub uid: u32,
}

/// Returns the process that is connected to a socket.
///
/// # Errors
/// The error of the system call.
pub fn peer_process(socket: impl AsFd) -> io::Result<Process> {
    // The kernel reports 0 for a process of another namespace.
    let credentials = getsockopt(&socket, PeerCredentials)?;
    Ok(Process {
        pid: credentials.pid(),
        uid: credentials.uid(),
    })
}

/// Returns whether `process` has permission to give orders to this process.
pub fn may_give_orders(process: Process) -> bool {
    [0, geteuid().as_raw()].contains(&process.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_give_no_orders() {
        let stranger = Process {
            pid: 1,
            uid: geteuid().as_raw() + 1,
        };
        assert!(!may_give_orders(stranger));
        assert!(may_give_orders(Process { pid: 1, uid: 0 }));
    }
}
