//! Driver of the link. One thread owns the UDP socket and the endpoint, and applications use it
//! through handles.

mod clock;
mod deferred_wakes;
mod hand_over;
mod memory_file;
mod opening;
mod peers;
mod pending_open;
mod receive_budget;
mod reload;
mod report;
mod resolve;
mod run;
mod socket;
mod socket_handover;
mod stream;
#[cfg(test)]
mod tests;
mod trace;
mod transfer;

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::AsFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, SystemTime},
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::{
    sync::{Mutex as AsyncMutex, mpsc as async_mpsc, oneshot},
    time::timeout,
};
use units::BitRate;

pub use self::{
    socket_handover::{HandoverError, LinkHandover},
    stream::{RecvStream, SendStream, StreamError},
    trace::{ConnectionTrace, Sample, TraceError, TraceEvent, TraceObservation},
};
use crate::{LinkConfig, LinkSnapshot, PeerConfig, PeerId, StreamClass, StreamKey};

/// Handle of a running link endpoint with one UDP socket and one driver thread.
///
/// All clones refer to the same endpoint. Dropping the last clone closes the connections.
#[derive(Debug, Clone)]
pub struct Link {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    bell: Arc<Doorbell>,
    incoming: AsyncMutex<async_mpsc::Receiver<IncomingStream>>,
    snapshot: Arc<Mutex<LinkSnapshot>>,
    local_addr: SocketAddr,
}

/// Stream that a peer opened.
#[derive(Debug)]
pub struct IncomingStream {
    /// Peer that opened the stream.
    pub peer: PeerId,
    /// Priority class of the stream.
    pub class: StreamClass,
    /// Handle for sending bytes to the peer.
    pub send: SendStream,
    /// Handle for receiving bytes from the peer.
    pub recv: RecvStream,
}

/// Reason why a link could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A system call on the UDP socket failed.
    #[error("UDP socket: {0}")]
    Io(#[from] io::Error),
    /// The TLS library rejected a key.
    #[error("TLS: {0}")]
    Tls(String),
}

/// Reason why a stream could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamOpenError {
    /// The peer does not respond.
    #[error("gateway {name} does not answer")]
    PeerDown {
        /// Configured name of the peer.
        name: String,
        /// Arrival time of the last authentic datagram from the peer.
        last_answer: Option<SystemTime>,
    },
    /// The peer permits no more concurrent streams.
    #[error("gateway {name} accepts no more streams")]
    TooManyStreams {
        /// Configured name of the peer.
        name: String,
    },
    /// This link is shutting down.
    #[error("the link was closed")]
    Closed,
}

/// Maximum number of peer-opened streams that wait for [`Link::accept`].
const INCOMING_MAX: usize = 4096;

impl Link {
    /// Starts the driver thread on a bound socket.
    ///
    /// # Errors
    /// Returns [`LinkError::Io`] if the socket cannot be set up, or [`LinkError::Tls`] if a key is
    /// rejected.
    pub fn start(socket: UdpSocket, config: LinkConfig) -> Result<Self, LinkError> {
        Self::start_behind(socket, config, None)
    }

    /// Starts the driver thread on a bound socket. `handover` is the state that the previous
    /// process returned when it [handed over](Self::hand_over) the socket. It is `None` without a
    /// previous process.
    ///
    /// # Errors
    /// Returns the same errors as [`start`](Self::start).
    pub fn start_behind(
        socket: UdpSocket,
        config: LinkConfig,
        handover: Option<LinkHandover>,
    ) -> Result<Self, LinkError> {
        let local_addr = socket.local_addr()?;
        let (commands, command_queue) = mpsc::channel();
        let bell = Arc::new(Doorbell {
            commands: Mutex::new(commands),
            is_asleep: AtomicBool::new(false),
            event: EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
                .map_err(io::Error::from)?,
        });
        let (incoming_sender, incoming) = async_mpsc::channel(INCOMING_MAX);
        let snapshot = Arc::new(Mutex::new(LinkSnapshot::default()));
        run::spawn(
            socket,
            config,
            bell.clone(),
            command_queue,
            incoming_sender,
            snapshot.clone(),
            handover,
        )?;
        let handle = Handle {
            bell,
            incoming: AsyncMutex::new(incoming),
            snapshot,
            local_addr,
        };
        Ok(Self {
            handle: Arc::new(handle),
        })
    }

    /// Returns the local address of the socket.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local_addr
    }

    /// Opens a stream to a peer. Bytes that are written right after this call are sent together
    /// with the opening.
    ///
    /// If there is no connection to the peer yet, or the peer does not respond, the method waits up
    /// to 3 s.
    ///
    /// # Errors
    /// Returns [`StreamOpenError::PeerDown`] if the peer does not respond within 3 s.
    pub async fn open(
        &self,
        peer: PeerId,
        class: StreamClass,
    ) -> Result<(SendStream, RecvStream), StreamOpenError> {
        self.open_at(peer, None, class).await
    }

    /// Opens a stream to a process of the peer. The existing stream `beside` selects the process.
    ///
    /// During an upgrade of the peer, several of its processes have connections.
    ///
    /// # Errors
    /// Returns the same errors as [`open`](Self::open).
    pub async fn open_beside(
        &self,
        peer: PeerId,
        beside: StreamKey,
        class: StreamClass,
    ) -> Result<(SendStream, RecvStream), StreamOpenError> {
        self.open_at(peer, Some(beside), class).await
    }

    async fn open_at(
        &self,
        peer: PeerId,
        beside: Option<StreamKey>,
        class: StreamClass,
    ) -> Result<(SendStream, RecvStream), StreamOpenError> {
        let (reply, answer) = oneshot::channel();
        self.handle.bell.command(DriverCommand::Open {
            peer,
            beside,
            class,
            reply,
        });
        answer.await.unwrap_or(Err(StreamOpenError::Closed))
    }

    /// Hands the socket over to another process, and returns the state that the other process
    /// needs.
    ///
    /// Afterwards this process makes no new connections. The other process forwards the datagrams
    /// of the present connections, which therefore continue.
    ///
    /// # Errors
    /// Returns a [`HandoverError`] if the handover fails. In that case nothing has changed.
    pub async fn hand_over(&self) -> Result<LinkHandover, HandoverError> {
        let (reply, answer) = oneshot::channel();
        self.handle.bell.command(DriverCommand::HandOver(reply));
        answer.await.unwrap_or(Err(HandoverError::Gone))
    }

    /// Reads the socket again after the other process has ended.
    pub fn take_back(&self) {
        self.handle.bell.command(DriverCommand::TakeBack);
    }

    /// Makes all peers open their new streams on another connection. The caller uses this method
    /// when the other process has taken over the socket.
    pub fn retire(&self) {
        self.handle.bell.command(DriverCommand::Retire);
    }

    /// Waits for the next stream that a peer opens, and returns it. Returns `None` after shutdown.
    pub async fn accept(&self) -> Option<IncomingStream> {
        self.handle.incoming.lock().await.recv().await
    }

    /// Applies a new list of peers, and a new cap on the total sending rate to all peers.
    ///
    /// Each known peer keeps its [`PeerId`], and new peers follow the known peers. A peer without
    /// public keys has been removed and can no longer connect. A connection is closed at once if
    /// its key no longer belongs to its peer. A changed endpoint address is used at the next
    /// connection attempt.
    pub fn set_peers(&self, peers: Vec<PeerConfig>, rate_max: Option<BitRate>) {
        self.handle
            .bell
            .command(DriverCommand::Peers { peers, rate_max });
    }

    /// Closes all connections of a peer. The code in the CLOSE frames states that this gateway no
    /// longer accepts the peer's key. This method itself does not prevent new connections of the
    /// peer.
    pub fn dismiss(&self, peer: PeerId) {
        self.handle.bell.command(DriverCommand::Dismiss(peer));
    }

    /// Changes the rate cap of a peer in both directions. If `peer` is `None`, changes the cap on
    /// the total sending rate to all peers.
    ///
    /// The change lasts until the next call of [`set_peers`](Self::set_peers), which sets all caps.
    pub fn set_rate_max(&self, peer: Option<PeerId>, rate_max: Option<BitRate>) {
        self.handle
            .bell
            .command(DriverCommand::Rate { peer, rate_max });
    }

    /// Changes the interval of keep-alive packets to each peer. The default is 5 s. With a shorter
    /// interval, the loss of a peer is detected sooner.
    pub fn set_keep_alive(&self, every: Duration) {
        self.handle.bell.command(DriverCommand::KeepAlive(every));
    }

    /// Whether the driver thread replies to a request within `wait_max`.
    pub async fn works(&self, wait_max: Duration) -> bool {
        let (reply, answer) = oneshot::channel();
        self.handle.bell.command(DriverCommand::Echo(reply));
        matches!(timeout(wait_max, answer).await, Ok(Ok(())))
    }

    /// Starts a trace of the connections to a peer.
    ///
    /// # Errors
    /// Returns a [`TraceError`] if there is no such peer, or if too many traces are active.
    pub async fn trace(&self, peer: PeerId) -> Result<ConnectionTrace, TraceError> {
        let (reply, answer) = oneshot::channel();
        self.handle
            .bell
            .command(DriverCommand::Trace { peer, reply });
        answer.await.unwrap_or(Err(TraceError::Closed))
    }

    /// Returns a snapshot of the link, which may be up to 0.1 s old.
    pub fn snapshot(&self) -> LinkSnapshot {
        self.handle
            .snapshot
            .lock()
            .expect("no holder of this lock panics")
            .clone()
    }

    /// Shuts the link down, and returns the number of open streams that were aborted.
    ///
    /// The link no longer opens or accepts streams, and waits up to `drain` for open streams to
    /// end. Then it closes the connections, and writes the memory file for the next start.
    pub async fn shutdown(&self, drain: Duration) -> usize {
        let (reply, answer) = oneshot::channel();
        self.handle
            .bell
            .command(DriverCommand::Shutdown { drain, reply });
        answer.await.unwrap_or(0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.bell.command(DriverCommand::Abandon);
    }
}

/// Command from a handle to the driver thread.
#[derive(Debug)]
enum DriverCommand {
    /// Apply a new list of peers.
    Peers {
        peers: Vec<PeerConfig>,
        rate_max: Option<BitRate>,
    },
    /// Close all connections of a peer because its key is no longer accepted.
    Dismiss(PeerId),
    /// Change the rate cap of one peer, or the cap on the total rate.
    Rate {
        peer: Option<PeerId>,
        rate_max: Option<BitRate>,
    },
    /// Change the keep-alive interval.
    KeepAlive(Duration),
    /// Reply at once, to show that the driver thread runs.
    Echo(oneshot::Sender<()>),
    Trace {
        peer: PeerId,
        reply: oneshot::Sender<Result<ConnectionTrace, TraceError>>,
    },
    Open {
        peer: PeerId,
        /// Existing stream whose connection the new stream must use.
        beside: Option<StreamKey>,
        class: StreamClass,
        reply: oneshot::Sender<OpenResult>,
    },
    /// The state that a stream handle shares with the driver has changed.
    StreamChanged(StreamKey),
    Address {
        peer: usize,
        address: Option<SocketAddr>,
    },
    HandOver(oneshot::Sender<Result<LinkHandover, HandoverError>>),
    TakeBack,
    Retire,
    Shutdown {
        drain: Duration,
        reply: oneshot::Sender<usize>,
    },
    Abandon,
    #[cfg(test)]
    Panic,
}

type OpenResult = Result<(SendStream, RecvStream), StreamOpenError>;

/// Sender of commands to the driver. It wakes the driver if the driver sleeps.
#[derive(Debug)]
struct Doorbell {
    commands: Mutex<mpsc::Sender<DriverCommand>>,
    is_asleep: AtomicBool,
    event: EventFd,
}

impl Doorbell {
    fn ring(&self, key: StreamKey) {
        self.command(DriverCommand::StreamChanged(key));
    }

    fn command(&self, command: DriverCommand) {
        // After shutdown there is no driver. The handles' own state shows the shutdown.
        let _ = self
            .commands
            .lock()
            .expect("no holder of this lock panics")
            .send(command);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            let _ = self.event.write(1);
        }
    }

    fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.event.as_fd()
    }
}
