//! Addresses of pipes, and listeners at these addresses.

use std::{
    collections::{HashMap, VecDeque},
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::Pipe;

/// A loopback network within this process. All clones refer to the same network.
///
/// The addresses are 127.0.0.1 with port numbers. These ports are independent of the system's
/// ports.
#[derive(Clone, Default)]
pub struct PipeNetwork(Arc<Mutex<Ports>>);

#[derive(Default)]
struct Ports {
    listening: HashMap<u16, Arc<PendingConnections>>,
    /// Number of ports assigned so far. It determines the next port.
    given: u32,
}

/// Queue of connections that a listener has not accepted yet. It may be locked only while `ports`
/// is locked.
#[derive(Default)]
struct PendingConnections {
    waiting: Mutex<VecDeque<Pipe>>,
    arrived: Notify,
}

/// A listener in a [`PipeNetwork`]. Dropping it frees its address, and resets the connections in
/// its queue.
pub struct PipeListener {
    network: PipeNetwork,
    at: SocketAddr,
    queue: Arc<PendingConnections>,
}

impl PipeNetwork {
    /// Creates a network without listeners.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens at an unused port.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if no port is unused.
    pub fn listen(&self) -> io::Result<PipeListener> {
        let queue = Arc::<PendingConnections>::default();
        let mut ports = self.lock();
        let port = ports.unused().ok_or(io::ErrorKind::AddrInUse)?;
        ports.listening.insert(port, queue.clone());
        drop(ports);
        Ok(PipeListener {
            network: self.clone(),
            at: address(port),
            queue,
        })
    }

    /// Connects to a listener of this network. The call does not wait until the listener accepts
    /// the connection.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`] if no listener has the address, or if its queue is
    /// full. [`io::ErrorKind::AddrInUse`] if no port is free for the connection.
    pub fn connect(&self, at: SocketAddr) -> io::Result<Pipe> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        if at.ip().to_canonical() != IpAddr::V4(Ipv4Addr::LOCALHOST) {
            return Err(refused());
        }
        // The lock is held until the pipe is queued, so that the listener cannot be dropped
        // earlier.
        let mut ports = self.lock();
        let queue = ports.listening.get(&at.port()).ok_or_else(refused)?.clone();
        let mut waiting = queue.lock();
        if waiting.len() >= BACKLOG_MAX {
            return Err(refused());
        }
        let from = ports.unused().ok_or(io::ErrorKind::AddrInUse)?;
        let (here, there) = Pipe::joined(address(from), address(at.port()), Some(self.clone()));
        waiting.push_back(there);
        drop((waiting, ports));
        queue.arrived.notify_one();
        Ok(here)
    }

    #[cfg(test)]
    pub(super) fn listening(&self) -> usize {
        self.lock().listening.len()
    }

    fn lock(&self) -> MutexGuard<'_, Ports> {
        // Each change keeps the table consistent, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ports {
    /// Returns a port without a listener. Consecutive calls return different ports.
    fn unused(&mut self) -> Option<u16> {
        let count = u32::from(u16::MAX - PORT_MIN) + 1;
        (0..count).find_map(|_| {
            let port = PORT_MIN + (self.given % count) as u16;
            self.given = self.given.wrapping_add(1);
            (!self.listening.contains_key(&port)).then_some(port)
        })
    }
}

impl PendingConnections {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Pipe>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PipeListener {
    /// Accepts the next connection. Cancel safe.
    pub async fn accept(&self) -> Pipe {
        loop {
            let next = self.queue.lock().pop_front();
            if let Some(pipe) = next {
                return pipe;
            }
            self.queue.arrived.notified().await;
        }
    }

    /// Returns whether a connection is in the queue of the listener.
    pub fn has_waiting(&self) -> bool {
        !self.queue.lock().is_empty()
    }

    /// Returns the address of the listener.
    pub fn local_addr(&self) -> SocketAddr {
        self.at
    }

    /// Returns the network of the listener.
    pub fn network(&self) -> &PipeNetwork {
        &self.network
    }
}

impl Drop for PipeListener {
    fn drop(&mut self) {
        self.network.lock().listening.remove(&self.at.port());
        // The queue is no longer in the table, so no further connection can enter it.
        let waiting = std::mem::take(&mut *self.queue.lock());
        for pipe in waiting {
            pipe.mark_abort();
        }
    }
}

impl PartialEq for PipeNetwork {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PipeNetwork {}

impl fmt::Debug for PipeNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipeNetwork").finish_non_exhaustive()
    }
}

impl fmt::Debug for PipeListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PipeListener").field(&self.at).finish()
    }
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Maximum number of connections in the queue of one listener. Kernel listeners usually have the
/// same limit.
const BACKLOG_MAX: usize = 128;

/// Lowest port of pipes. FTP sessions refuse to connect to lower, privileged ports.
const PORT_MIN: u16 = 1024;
