//! Driver: one thread that owns the UDP socket and the endpoint, and the handles through which
//! applications use it.

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
mod stream;
mod succession;
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
    stream::{RecvStream, SendStream, StreamError},
    succession::{HandOverError, Succession},
    trace::{Sample, Trace, TraceError, TraceEvent, Traced},
};
use crate::{Class, LinkConfig, LinkSnapshot, PeerConfig, PeerId, StreamKey};

/// Running link endpoint: one UDP socket, one driver thread.
///
/// Clones share it. The last drop closes the connections.
#[derive(Debug, Clone)]
pub struct Link {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    bell: Arc<Doorbell>,
    incoming: AsyncMutex<async_mpsc::Receiver<Incoming>>,
    snapshot: Arc<Mutex<LinkSnapshot>>,
    local_addr: SocketAddr,
}

/// A stream that a peer opened.
#[derive(Debug)]
pub struct Incoming {
    /// The peer that opened the stream.
    pub peer: PeerId,
    /// The priority class of the stream.
    pub class: Class,
    /// The sending half at this end.
    pub send: SendStream,
    /// The receiving half at this end.
    pub recv: RecvStream,
}

/// Reason why a link could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A call on the UDP socket failed.
    #[error("UDP socket: {0}")]
    Io(#[from] io::Error),
    /// The TLS library refused a key.
    #[error("TLS: {0}")]
    Tls(String),
}

/// Reason why a stream could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The peer does not answer.
    #[error("gateway {name} does not answer")]
    PeerDown {
        /// Configured name of the peer.
        name: String,
        /// Arrival of the last authentic datagram.
        last_answer: Option<SystemTime>,
    },
    /// The peer permits no more streams at once.
    #[error("gateway {name} accepts no more streams")]
    TooManyStreams {
        /// Configured name of the peer.
        name: String,
    },
    /// This link is shutting down.
    #[error("the link was closed")]
    Closed,
}

/// Maximum number of streams of peers that wait to be accepted.
const INCOMING_MAX: usize = 4096;

impl Link {
    /// Starts the driver on a bound socket.
    ///
    /// # Errors
    /// [`LinkError::Io`] if the socket cannot be set up, [`LinkError::Tls`] if a key is refused.
    pub fn start(socket: UdpSocket, config: LinkConfig) -> Result<Self, LinkError> {
        Self::start_behind(socket, config, None)
    }

    /// Starts the driver on the socket of a process that [hands it over](Self::hand_over), if there
    /// is one.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start).
    pub fn start_behind(
        socket: UdpSocket,
        config: LinkConfig,
        succession: Option<Succession>,
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
            succession,
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

    /// Returns the address that the socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local_addr
    }

    /// Opens a stream to a peer; bytes written at once travel with the opening.
    ///
    /// Waits up to 3 s for a peer that is being connected or does not answer at the moment.
    ///
    /// # Errors
    /// [`OpenError::PeerDown`] after those 3 s.
    pub async fn open(
        &self,
        peer: PeerId,
        class: Class,
    ) -> Result<(SendStream, RecvStream), OpenError> {
        self.open_at(peer, None, class).await
    }

    /// Opens a stream to the process of the peer that owns the stream `beside`.
    ///
    /// During an upgrade of the peer, several processes answer for it.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub async fn open_beside(
        &self,
        peer: PeerId,
        beside: StreamKey,
        class: Class,
    ) -> Result<(SendStream, RecvStream), OpenError> {
        self.open_at(peer, Some(beside), class).await
    }

    async fn open_at(
        &self,
        peer: PeerId,
        beside: Option<StreamKey>,
        class: Class,
    ) -> Result<(SendStream, RecvStream), OpenError> {
        let (reply, answer) = oneshot::channel();
        self.handle.bell.command(DriverCommand::Open {
            peer,
            beside,
            class,
            reply,
        });
        answer.await.unwrap_or(Err(OpenError::Closed))
    }

    /// Leaves the socket to another process, and returns the state that it needs.
    ///
    /// From then on this process makes no new connections. Its present connections continue with
    /// datagrams from the other process.
    ///
    /// # Errors
    /// [`HandOverError`]; then nothing has changed.
    pub async fn hand_over(&self) -> Result<Succession, HandOverError> {
        let (reply, answer) = oneshot::channel();
        self.handle.bell.command(DriverCommand::HandOver(reply));
        answer.await.unwrap_or(Err(HandOverError::Gone))
    }

    /// Reads the socket again after the other process has gone.
    pub fn take_back(&self) {
        self.handle.bell.command(DriverCommand::TakeBack);
    }

    /// Makes all peers open new streams on another connection, since the other process is up.
    pub fn retire(&self) {
        self.handle.bell.command(DriverCommand::Retire);
    }

    /// Returns the next stream that a peer opened. `None` after shutdown.
    pub async fn accept(&self) -> Option<Incoming> {
        self.handle.incoming.lock().await.recv().await
    }

    /// Applies other peers, and another cap on the rate to all of them together.
    ///
    /// Each peer keeps its [`PeerId`], and new peers follow the known ones. A peer without a public
    /// key has been removed, and is not admitted any more. Connections end at once if their peer no
    /// longer has the key of the handshake. A new endpoint is used at the next connection attempt.
    pub fn set_peers(&self, peers: Vec<PeerConfig>, rate_max: Option<BitRate>) {
        self.handle
            .bell
            .command(DriverCommand::Peers { peers, rate_max });
    }

    /// Ends all connections of a peer with a message that it is not a peer any more. The peer is
    /// admitted again.
    pub fn dismiss(&self, peer: PeerId) {
        self.handle.bell.command(DriverCommand::Dismiss(peer));
    }

    /// Changes the caps on the rates to a peer and from it. Without a peer, it changes the cap on
    /// the rate to all of them together.
    ///
    /// The change lasts until [`set_peers`](Self::set_peers) sets both.
    pub fn set_rate_max(&self, peer: Option<PeerId>, rate_max: Option<BitRate>) {
        self.handle
            .bell
            .command(DriverCommand::Rate { peer, rate_max });
    }

    /// Changes the interval of packets to each peer without other traffic, which is 5 s at first. A
    /// shorter interval detects a dead peer sooner.
    pub fn set_keep_alive(&self, every: Duration) {
        self.handle.bell.command(DriverCommand::KeepAlive(every));
    }

    /// Whether the link's thread works: it answers within `wait_max`.
    pub async fn works(&self, wait_max: Duration) -> bool {
        let (reply, answer) = oneshot::channel();
        self.handle.bell.command(DriverCommand::Echo(reply));
        matches!(timeout(wait_max, answer).await, Ok(Ok(())))
    }

    /// Begins to trace the connections to a peer.
    ///
    /// # Errors
    /// [`TraceError`]: no such peer, or too many traces.
    pub async fn trace(&self, peer: PeerId) -> Result<Trace, TraceError> {
        let (reply, answer) = oneshot::channel();
        self.handle
            .bell
            .command(DriverCommand::Trace { peer, reply });
        answer.await.unwrap_or(Err(TraceError::Closed))
    }

    /// Returns a snapshot of the link. It may lack the last 0.1 s.
    pub fn snapshot(&self) -> LinkSnapshot {
        self.handle
            .snapshot
            .lock()
            .expect("no holder of this lock panics")
            .clone()
    }

    /// Shuts the link down, and returns the number of streams cut short.
    ///
    /// It opens and accepts no more streams, and waits up to `drain` for open streams to end. It
    /// then closes the connections, and writes the memory file for the next start.
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

/// Request of a handle to the driver.
#[derive(Debug)]
enum DriverCommand {
    /// Changed peers, or changed settings of peers.
    Peers {
        peers: Vec<PeerConfig>,
        rate_max: Option<BitRate>,
    },
    /// End of a peer's connections.
    Dismiss(PeerId),
    /// Another cap: of a peer, or of all together.
    Rate {
        peer: Option<PeerId>,
        rate_max: Option<BitRate>,
    },
    /// A new keep-alive.
    KeepAlive(Duration),
    /// Question whether this thread works.
    Echo(oneshot::Sender<()>),
    Trace {
        peer: PeerId,
        reply: oneshot::Sender<Result<Trace, TraceError>>,
    },
    Open {
        peer: PeerId,
        /// Stream whose connection is to be used.
        beside: Option<StreamKey>,
        class: Class,
        reply: oneshot::Sender<OpenResult>,
    },
    /// A stream's shared state has changed.
    StreamChanged(StreamKey),
    Address {
        peer: usize,
        address: Option<SocketAddr>,
    },
    HandOver(oneshot::Sender<Result<Succession, HandOverError>>),
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

type OpenResult = Result<(SendStream, RecvStream), OpenError>;

/// Passes commands to the driver and wakes it if it sleeps.
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
        // The driver is gone after shutdown; handles learn that from their own state.
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
