//! Main loop of the driver. It receives datagrams, handles timeouts, moves bytes between streams
//! and handles, sends datagrams, and sleeps.

#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::AsFd,
    sync::{Arc, Mutex, atomic::Ordering, mpsc},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nix::{
    poll::{PollFd, PollFlags},
    sys::{
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
};
use tokio::sync::{mpsc as async_mpsc, oneshot};

use super::{
    Doorbell, DriverCommand, IncomingStream, LinkError,
    clock::DriverClock,
    deferred_wakes::DeferredWakes,
    memory_file::{self, MemoryFile},
    peers::{endpoint_peers, memory_of_one},
    pending_open::PendingOpen,
    receive_budget::ReceiveBudget,
    report::{LOG_INTERVAL, Reporter},
    resolve,
    socket::{ReceiveResult, Socket},
    socket_handover::{DatagramFeed, EarlierProcesses, LinkHandover},
    stream::{RecvShared, SendShared, StreamError},
    trace::Tracers,
};
use crate::{
    Endpoint, EndpointConfig, EndpointEvent, LinkConfig, LinkSnapshot, PeerId, StreamClass,
    StreamKey, Transmit, congestion, id_map::IdMap,
};

/// Starts the driver thread.
pub(super) fn spawn(
    socket: UdpSocket,
    config: LinkConfig,
    bell: Arc<Doorbell>,
    commands: mpsc::Receiver<DriverCommand>,
    incoming: async_mpsc::Sender<IncomingStream>,
    snapshot: Arc<Mutex<LinkSnapshot>>,
    handover: Option<LinkHandover>,
) -> Result<(), LinkError> {
    let driver = Driver::new(socket, config, bell, commands, incoming, snapshot, handover)?;
    std::thread::Builder::new()
        .name("longhaul-link".into())
        .spawn(move || driver.run())?;
    Ok(())
}

pub(super) struct Driver {
    pub(super) clock: DriverClock,
    /// Timer that ends a long sleep. The timeout of `poll` stops during a suspension of the
    /// machine, but this timer continues.
    alarm: TimerFd,
    pub(super) socket: Socket,
    pub(super) generation: u8,
    /// Earlier processes that still have connections. This process forwards their datagrams to
    /// them.
    pub(super) older: EarlierProcesses,
    /// Source of datagrams if another process reads the socket.
    pub(super) feed: Option<DatagramFeed>,
    pub(super) endpoint: Endpoint,
    pub(super) config: LinkConfig,
    pub(super) bell: Arc<Doorbell>,
    commands: mpsc::Receiver<DriverCommand>,
    /// Command that was already read from the channel and must be executed first.
    next_command: Option<DriverCommand>,
    pub(super) incoming: async_mpsc::Sender<IncomingStream>,
    pub(super) streams: IdMap<StreamKey, StreamEntry>,
    /// Streams whose handles have bytes that the endpoint could not accept.
    pub(super) blocked: HashSet<StreamKey>,
    pub(super) deferred_wakes: DeferredWakes,
    pub(super) pending_opens: Vec<PendingOpen>,
    /// Batch of datagrams that the kernel could not accept because its send buffer was full.
    unsent: Option<(Transmit, Vec<u8>)>,
    buffer: Vec<u8>,
    pub(super) reporter: Reporter,
    tracers: Tracers,
    memory_file: Option<MemoryFile>,
    send_error_logged: Option<Instant>,
    /// Whether the socket may have ICMP errors to read.
    has_transport_errors: bool,
    pub(super) receive_budget: ReceiveBudget,
    pub(super) stopping: Option<PendingShutdown>,
}

pub(super) struct StreamEntry {
    pub(super) class: StreamClass,
    pub(super) send: Arc<SendShared>,
    pub(super) recv: Arc<RecvShared>,
    pub(super) send_over: bool,
    pub(super) recv_over: bool,
}

pub(super) struct PendingShutdown {
    deadline: Instant,
    reply: Option<oneshot::Sender<usize>>,
    /// Number of streams that were aborted. `None` until the driver closes the connections.
    cut_short: Option<usize>,
}

/// Minimum duration of a sleep for which the driver sets the alarm timer.
const LONG_SLEEP: Duration = Duration::from_millis(200);
/// Minimum sleep. Shorter sleeps would only cost time, and the pacer compensates for the delay.
const SLEEP_MIN: Duration = Duration::from_micros(100);
/// Time after which the driver tries again to send while the kernel's buffer is full. The kernel
/// may fail to report free space.
const ROOM_TIMEOUT: Duration = Duration::from_millis(10);
/// Maximum sleep.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Maximum number of batches that the driver receives before it sends again.
pub(super) const RECEIVE_BATCHES_MAX: usize = 8;
/// Maximum number of batches that the driver sends before it receives again. No path carries more
/// batches between two runs of the driver.
const TRANSMITS_MAX: usize = 256;
/// Maximum number of ICMP errors that the driver handles before it handles packets again.
const TRANSPORT_ERRORS_MAX: usize = 16;
/// Maximum time for sending the CLOSE frames at shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(300);

impl Driver {
    fn new(
        socket: UdpSocket,
        config: LinkConfig,
        bell: Arc<Doorbell>,
        commands: mpsc::Receiver<DriverCommand>,
        incoming: async_mpsc::Sender<IncomingStream>,
        snapshot: Arc<Mutex<LinkSnapshot>>,
        handover: Option<LinkHandover>,
    ) -> Result<Self, LinkError> {
        let clock = DriverClock::new();
        let alarm = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC);
        let now = clock.now();
        let socket = Socket::new(socket)?;
        let peers = endpoint_peers(&config.peers);
        let random = |purpose: &str| {
            let mut bytes = [0; 8];
            aws_lc_rs::rand::fill(&mut bytes).expect(purpose);
            u64::from_le_bytes(bytes)
        };
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let policy = config.policy;
        let memory = config.memory_file.clone().map(MemoryFile::open);
        let (memory_file, mut remembered) = memory.transpose()?.unzip();
        let mut instance = random("the system's randomness works");
        let (mut generation, mut older) = (0, EarlierProcesses::default());
        if let Some(handover) = handover {
            (instance, generation) = (handover.instance, handover.generation);
            older = EarlierProcesses::new(handover.older)?;
            match memory_file::parse(&handover.remembered) {
                Ok(told) => remembered = Some(told),
                Err(line) => {
                    tracing::warn!(line, "the earlier process passed on a malformed line")
                }
            }
        }
        let endpoint = Endpoint::new(
            EndpointConfig {
                identity: config.identity.clone(),
                peers,
                rate_max: config.rate_max,
                memory_max: memory_of_one(&config),
                idle_timeout: config.idle_timeout,
                seed: random("the system's randomness works"),
                instance,
                generation: Some(generation),
                remembered: remembered.unwrap_or_default(),
                unix_ns: unix.as_nanos() as u64,
                controller: Arc::new(move |memory, rate_max| {
                    congestion::for_policy(policy, memory, rate_max)
                }),
            },
            now,
        )
        .map_err(|error| LinkError::Tls(error.to_string()))?;
        let receive_budget = ReceiveBudget::new(socket.granted.receive_granted, now);
        let mut reporter = Reporter::new(snapshot, socket.granted, config.peers.len(), now);
        reporter.publish(&endpoint, &config, now);
        Ok(Self {
            clock,
            alarm: alarm.map_err(io::Error::from)?,
            socket,
            generation,
            older,
            feed: None,
            endpoint,
            config,
            bell,
            commands,
            next_command: None,
            incoming,
            streams: IdMap::default(),
            blocked: HashSet::new(),
            deferred_wakes: DeferredWakes::default(),
            pending_opens: Vec::new(),
            unsent: None,
            buffer: Vec::with_capacity(64 * 1024),
            reporter,
            tracers: Tracers::default(),
            memory_file,
            send_error_logged: None,
            has_transport_errors: false,
            receive_budget,
            stopping: None,
        })
    }

    fn run(mut self) {
        loop {
            self.receive();
            let now = self.clock.now();
            self.handle_commands(now);
            self.endpoint.handle_timeout(now);
            self.handle_events(now);
            self.wake_readers(now);
            self.write_blocked();
            self.serve_pending_opens(now);
            self.transmit(now);
            self.housekeep(now);
            if self.is_over(now) {
                break;
            }
            self.sleep();
        }
        self.remember(self.clock.now());
        // The process may exit after this reply, so the state must be on disk before the reply.
        drop(self.memory_file.take());
        if let Some(stopping) = self.stopping.take()
            && let Some(reply) = stopping.reply
        {
            let _ = reply.send(stopping.cut_short.unwrap_or(0));
        }
    }

    fn take_command(&mut self) -> Option<DriverCommand> {
        let next = self.next_command.take();
        next.or_else(|| self.commands.try_recv().ok())
    }

    fn handle_commands(&mut self, now: Instant) {
        while let Some(command) = self.take_command() {
            match command {
                DriverCommand::Open {
                    peer,
                    beside,
                    class,
                    reply,
                } => self
                    .pending_opens
                    .push(PendingOpen::new(peer, beside, class, reply, now)),
                DriverCommand::StreamChanged(key) => self.look(key, now),
                DriverCommand::Peers { peers, rate_max } => self.set_peers(peers, rate_max, now),
                DriverCommand::Dismiss(PeerId(peer)) => self.endpoint.dismiss(peer),
                DriverCommand::Rate { peer, rate_max } => self.set_rate_max(peer, rate_max),
                DriverCommand::KeepAlive(every) => self.endpoint.set_keep_alive(every),
                DriverCommand::Echo(reply) => {
                    // The requester may be gone.
                    let _ = reply.send(());
                }
                DriverCommand::Trace { peer, reply } => {
                    // The requester may be gone. The trace then ends as well.
                    let _ = reply.send(self.tracers.begin(peer, self.config.peers.len(), now));
                }
                DriverCommand::Address { peer, address } => {
                    let address = address.map(|address| self.socket.native(address));
                    self.endpoint.set_address(peer, address, now);
                }
                DriverCommand::HandOver(reply) => {
                    let handed = self.hand_over(now);
                    if let Err(Ok(_)) = reply.send(handed) {
                        // The requester is gone.
                        self.take_back();
                    }
                }
                DriverCommand::TakeBack => self.take_back(),
                DriverCommand::Retire => self.endpoint.retire(),
                DriverCommand::Shutdown { drain, reply } => {
                    self.incoming = async_mpsc::channel(1).0;
                    let deadline = now + drain;
                    let reply = Some(reply);
                    self.stopping = Some(PendingShutdown {
                        deadline,
                        reply,
                        cut_short: None,
                    });
                }
                #[cfg(test)]
                DriverCommand::Panic => panic!("a fault of the driver"),
                DriverCommand::Abandon => {
                    if self.stopping.is_none() {
                        let deadline = now;
                        self.stopping = Some(PendingShutdown {
                            deadline,
                            reply: None,
                            cut_short: None,
                        });
                    }
                }
            }
        }
    }

    fn receive(&mut self) {
        let now = self.clock.now();
        if std::mem::take(&mut self.has_transport_errors) {
            for _ in 0..TRANSPORT_ERRORS_MAX {
                let Some(address) = self.socket.unreachable() else {
                    break;
                };
                self.endpoint.handle_unreachable(address, now);
            }
        }
        if self.feed.is_some() {
            return self.receive_fed(now);
        }
        let (mut bytes, mut has_more) = (0, true);
        for _ in 0..RECEIVE_BATCHES_MAX {
            let (endpoint, older) = (&mut self.endpoint, &mut self.older);
            let reading = (!older.is_empty()).then(|| self.clock.reading());
            let batch = self
                .socket
                .receive(&self.clock, |datagram, from, received| {
                    bytes += datagram.len();
                    if let Some(reading) = &reading
                        && older.take(datagram, from, reading.unix(received))
                    {
                        return;
                    }
                    endpoint.handle_datagram(datagram, from, received);
                });
            // This call reports ICMP errors of earlier sends. Loss detection handles the lost
            // packets.
            has_more = batch.is_ok_and(|batch| batch == ReceiveResult::Full);
            if !has_more {
                break;
            }
        }
        self.older.flush();
        self.receive_budget.fetched(bytes, has_more, now);
    }

    fn handle_events(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                EndpointEvent::Resolve { peer } => self.resolve(peer, now),
                EndpointEvent::Connected { peer } => {
                    let name = &self.config.peers[peer].name;
                    let address = self.endpoint.peer_view(peer).address;
                    let address = address.map(tracing::field::display);
                    tracing::info!(peer = %name, address, "connected");
                }
                EndpointEvent::Remember => {
                    self.remember(now);
                }
                EndpointEvent::Incoming { key, peer, class } => {
                    self.accept(key, PeerId(peer), class)
                }
                EndpointEvent::Readable { key } => self.read(key, now),
                EndpointEvent::SendDone { key } => self.end_send(key, Ok(())),
                EndpointEvent::Stopped { key, code } => {
                    self.end_send(key, Err(StreamError::Stopped { code }));
                }
                EndpointEvent::Lost { key, reason } => {
                    self.end_send(key, Err(reason.into()));
                    self.end_recv(key, Err(reason.into()));
                }
            }
        }
    }

    fn remember(&mut self, now: Instant) {
        // Only the process that reads the socket may write the memory file.
        if let Some(file) = &self.memory_file
            && self.feed.is_none()
        {
            file.write(self.endpoint.remembered(now));
        }
    }

    fn resolve(&mut self, peer: usize, now: Instant) {
        let Some(endpoint) = self.config.peers[peer].endpoint.clone() else {
            return;
        };
        if let Ok(address) = endpoint.parse::<SocketAddr>() {
            self.endpoint
                .set_address(peer, Some(self.socket.native(address)), now);
            return;
        }
        let attempt = self.endpoint.peer_view(peer).attempts as usize;
        let bell = self.bell.clone();
        if resolve::spawn(endpoint, self.socket.is_v6(), attempt, peer, bell).is_err() {
            self.endpoint.set_address(peer, None, now);
        }
    }

    fn transmit(&mut self, now: Instant) {
        if let Some((transmit, bytes)) = self.unsent.take()
            && !self.send(&transmit, &bytes, now)
        {
            self.unsent = Some((transmit, bytes));
            return;
        }
        let segments_max = self.socket.segments_max();
        for _ in 0..TRANSMITS_MAX {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            let transmit = self.endpoint.poll_transmit(&mut buffer, segments_max, now);
            let Some(transmit) = transmit else {
                self.buffer = buffer;
                return;
            };
            if !self.send(&transmit, &buffer, now) {
                self.unsent = Some((transmit, buffer));
                return;
            }
            self.buffer = buffer;
        }
    }

    /// Sends a batch of datagrams. Returns `false` if the kernel's buffer is full.
    ///
    /// After any other error, the batch counts as lost on the path. The error may be temporary,
    /// such as a network interface that is down.
    fn send(&mut self, transmit: &Transmit, bytes: &[u8], now: Instant) -> bool {
        match self.socket.send(transmit, bytes) {
            Ok(sent) => sent,
            Err(error) => {
                let due = self
                    .send_error_logged
                    .is_none_or(|logged| now.duration_since(logged) >= LOG_INTERVAL);
                if due {
                    self.send_error_logged = Some(now);
                    tracing::warn!(to = %transmit.to, %error, "cannot send; trying again");
                }
                true
            }
        }
    }

    fn housekeep(&mut self, now: Instant) {
        let is_dense = self.endpoint.turn(now).is_some();
        self.reporter
            .publish_if_due(&self.endpoint, &self.config, is_dense, now);
        self.reporter.log_drops(self.endpoint.dropped(), now);
        self.tracers.look(&self.endpoint, now);
    }

    fn is_over(&mut self, now: Instant) -> bool {
        let Some(stopping) = &mut self.stopping else {
            return false;
        };
        if stopping.cut_short.is_some() {
            return self.endpoint.is_idle() || now >= stopping.deadline;
        }
        if self.streams.is_empty() || now >= stopping.deadline {
            stopping.cut_short = Some(self.streams.len());
            stopping.deadline = now + CLOSE_TIMEOUT;
            self.endpoint.close();
        }
        false
    }

    /// Returns the time of the next event if no datagram arrives. A time in the past means that
    /// work is due now.
    fn wake(&mut self, turn: Option<Duration>, now: Instant) -> Instant {
        let mut wake = now + SLEEP_MAX;
        let mut of_endpoint = self.endpoint.next_timeout(now);
        if self.unsent.is_some() {
            // Until the kernel's buffer has free space, no packet can be sent, even if it is due.
            of_endpoint = of_endpoint.map(|due| due.max(now + ROOM_TIMEOUT));
        }
        let due = [
            of_endpoint,
            self.reporter.due(),
            self.tracers.due(now),
            self.deferred_wakes.due(),
            self.pending_opens.iter().map(|it| it.deadline).min(),
            self.stopping.as_ref().map(|it| it.deadline),
        ];
        for next in due.into_iter().flatten() {
            wake = wake.min(next);
        }
        if let Some(turn) = turn {
            wake = wake.min(now + turn.min(self.receive_budget.wait_max()));
        }
        wake
    }

    /// Returns the socket events that wake the driver.
    fn socket_events(&self, turn: Option<Duration>) -> PollFlags {
        let mut events = PollFlags::empty();
        // While traffic is dense, the driver receives packets once a turn, in batches.
        events.set(PollFlags::POLLIN, turn.is_none() && self.feed.is_none());
        events.set(PollFlags::POLLOUT, self.unsent.is_some());
        events
    }

    fn sleep(&mut self) {
        if self.receive_budget.wait_max().is_zero() {
            return;
        }
        let now = self.clock.now();
        let turn = self.endpoint.turn(now);
        let wake = self.wake(turn, now);
        let timeout = wake.saturating_duration_since(now).max(SLEEP_MIN);
        let is_long = timeout > LONG_SLEEP;
        let alarm = match is_long {
            true => PollFlags::POLLIN,
            false => PollFlags::empty(),
        };
        let mut fds = [
            PollFd::new(self.bell.fd(), PollFlags::POLLIN),
            PollFd::new(self.socket.fd(), self.socket_events(turn)),
            PollFd::new(self.alarm.as_fd(), alarm),
            match &self.feed {
                Some(feed) if turn.is_none() => PollFd::new(feed.fd(), PollFlags::POLLIN),
                Some(feed) => PollFd::new(feed.fd(), PollFlags::empty()),
                None => PollFd::new(self.alarm.as_fd(), PollFlags::empty()),
            },
        ];
        // While traffic is dense, the driver soon checks for commands anyway. Otherwise the sender
        // of a command must wake the driver.
        if turn.is_none() {
            self.bell.is_asleep.store(true, Ordering::SeqCst);
            // A command that was sent before the flag was set has not woken the driver.
            if let Ok(command) = self.commands.try_recv() {
                self.bell.is_asleep.store(false, Ordering::SeqCst);
                self.next_command = Some(command);
                return;
            }
        }
        let timeout = TimeSpec::from_duration(timeout);
        if is_long {
            let alarm = Expiration::OneShot(timeout);
            // If the alarm cannot be set, the poll still ends in time unless the machine is
            // suspended.
            let _ = self.alarm.set(alarm, TimerSetTimeFlags::empty());
        }
        let _ = nix::poll::ppoll(&mut fds, Some(timeout), None);
        let said = fds.map(|fd| fd.revents().unwrap_or_else(PollFlags::empty));
        self.bell.is_asleep.store(false, Ordering::SeqCst);
        // In most turns, neither a command nor an ICMP error has arrived. The checks then save two
        // system calls.
        if said[0].contains(PollFlags::POLLIN) {
            let _ = self.bell.event.read();
        }
        self.has_transport_errors = said[1].contains(PollFlags::POLLERR);
    }
}

impl Drop for Driver {
    /// Ends all streams with an error, so that no handle waits for a driver that has ended. This
    /// also happens after a panic.
    fn drop(&mut self) {
        self.reporter.publish_end();
        for entry in self.streams.values() {
            entry.send.lock().end(Err(StreamError::Closed));
            entry.recv.lock().end(Err(StreamError::Closed));
        }
    }
}
