//! The old process's connection to the new process during an upgrade.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use link::{Link, LinkHandover};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Serialize;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::{
    UpgradeError, UpgradeOutcome,
    handover_channel::{HandoverChannel, SOCKETS_MAX},
    message::{HandoverMessage, PassThroughClients, PredecessorMessage, SuccessorMessage},
    older_processes::{self, OlderProcesses, SuccessorOrders},
    predecessor::LINK,
    program::Program,
};
use crate::intercept::Interception;

/// State that a gateway passes to the process that replaces it.
pub(crate) struct HandoverInput<'a> {
    pub(crate) program: Option<&'a Program>,
    pub(crate) link_socket: BorrowedFd<'a>,
    /// The sockets of the listeners and of the admin interface, with their names.
    pub(crate) listeners: Vec<(String, BorrowedFd<'a>)>,
    pub(crate) link: &'a Link,
    pub(crate) older: &'a OlderProcesses,
    pub(crate) peers_up: Vec<String>,
    pub(crate) pass_through: Vec<PassThroughClients>,
}

/// The process that replaces this process. If the value is dropped before
/// [`report_done`](Self::report_done), the new process receives a message to end. A new process
/// that was already permitted to start is also killed, because otherwise both processes could read
/// the link's socket.
#[derive(Debug)]
pub(crate) struct Successor {
    channel: HandoverChannel,
    pid: Option<u32>,
    version: String,
    /// Version and commit of the new process. Empty if it does not report them.
    build: String,
    /// Path of the program file.
    program: String,
    /// Whether the program file is still the file from which this process was started.
    is_same_program: bool,
    /// Names of the kernel tables that the new process uses.
    pub(crate) tables: Vec<String>,
    /// Channel on which the new process sends orders to this process. `None` until the sockets have
    /// been sent.
    pub(crate) orders: Option<SuccessorOrders>,
    /// Whether this process has permitted the new process to start.
    is_begun: bool,
    is_done: bool,
}

/// Starts a process that replaces this process. After success, the new process serves new clients,
/// and this process serves its open sessions.
///
/// # Errors
/// [`UpgradeError`]. The new process then does not serve, and this process continues.
pub(crate) async fn hand_over(
    input: HandoverInput<'_>,
    interception: &mut Interception,
) -> Result<Successor, UpgradeError> {
    let program = input.program.ok_or(UpgradeError::NoProgram)?;
    if std::process::id() == 1 {
        return Err(UpgradeError::FirstProcess);
    }
    let mut successor = Successor::start(program)?;
    let ready = match successor.send_sockets(&input) {
        Ok(()) => successor.receive(READY_TIMEOUT).await,
        Err(error) => Err(error),
    };
    match ready {
        Ok(SuccessorMessage::Ready {
            pid,
            version,
            build,
            tables,
        }) => {
            (successor.pid, successor.version) = (Some(pid), version);
            successor.build = build;
            successor.tables = tables;
        }
        Ok(other) => return Err(UpgradeError::Unexpected(format!("{other:?}"))),
        Err(UpgradeError::Ended) => return Err(program.early_end().await),
        Err(error) => return Err(error),
    }
    info!(
        pid = successor.pid,
        version = successor.version,
        "the new process is ready"
    );
    // Two processes that both update the kernel would contradict each other.
    interception.pause();
    let begun = successor.begin(&input).await;
    if let Err(error) = begun {
        successor.abandon(input.link, interception);
        return Err(error);
    }
    Ok(successor)
}

impl Successor {
    fn start(program: &Program) -> Result<Self, UpgradeError> {
        let of_start = |source| program.start_error(source);
        let is_same_program = !program.is_replaced();
        let (channel, theirs) = HandoverChannel::pair().map_err(of_start)?;
        program.start(theirs).map_err(of_start)?;
        Ok(Self {
            channel,
            pid: None,
            version: String::new(),
            build: String::new(),
            program: program.path().display().to_string(),
            is_same_program,
            tables: Vec::new(),
            orders: None,
            is_begun: false,
            is_done: false,
        })
    }

    /// Returns the outcome of the completed upgrade. `sessions` is the number of sessions that this
    /// process still serves.
    pub(crate) fn outcome(&self, sessions: u64) -> UpgradeOutcome {
        UpgradeOutcome {
            pid: Some(self.pid()),
            version: self.version.clone(),
            build: self.build.clone(),
            program: self.program.clone(),
            is_same_program: self.is_same_program,
            old_pid: std::process::id(),
            sessions,
            error: None,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.unwrap_or_default()
    }

    fn send_sockets(&mut self, input: &HandoverInput<'_>) -> Result<(), UpgradeError> {
        let listeners = input.listeners.iter();
        let mut sockets: Vec<_> = listeners
            .map(|(name, socket)| (name.as_str(), *socket))
            .collect();
        sockets.push((LINK, input.link_socket));
        let (orders, theirs) = SuccessorOrders::pair().map_err(UpgradeError::Socket)?;
        self.orders = Some(orders);
        let older = input.older.sockets();
        let older = older_processes::name_sockets(&older, &theirs);
        sockets.extend(older.iter().map(|(name, socket)| (name.as_str(), *socket)));
        for some in sockets.chunks(SOCKETS_MAX) {
            let names = some.iter().map(|(name, _)| (*name).to_owned()).collect();
            let sockets: Vec<_> = some.iter().map(|(_, socket)| *socket).collect();
            self.send(&PredecessorMessage::Sockets(names), &sockets)?;
        }
        self.send(&PredecessorMessage::AllSockets, &[])
    }

    /// Permits the new process to start, and waits until it serves clients.
    async fn begin(&mut self, input: &HandoverInput<'_>) -> Result<(), UpgradeError> {
        let LinkHandover {
            generation,
            instance,
            remembered,
            older,
        } = input.link.hand_over().await?;
        let (older, sockets): (Vec<_>, Vec<OwnedFd>) = older
            .into_iter()
            .map(|(generation, socket)| (generation, OwnedFd::from(socket)))
            .unzip();
        let message = HandoverMessage {
            generation,
            instance,
            remembered,
            older,
            peers_up: input.peers_up.clone(),
            pass_through: input.pass_through.clone(),
        };
        let sockets: Vec<_> = sockets.iter().map(OwnedFd::as_fd).collect();
        self.is_begun = true;
        self.send(&PredecessorMessage::Go(message), &sockets)?;
        match self.receive(UP_TIMEOUT).await? {
            SuccessorMessage::Up => Ok(()),
            other => Err(UpgradeError::Unexpected(format!("{other:?}"))),
        }
    }

    /// Informs the new process that it is the gateway now.
    ///
    /// # Errors
    /// If the new process has ended. This process then remains the gateway.
    pub(crate) fn report_done(&mut self) -> Result<(), UpgradeError> {
        self.send(&PredecessorMessage::Done, &[])?;
        self.is_done = true;
        Ok(())
    }

    /// Forwards a reload order, which this process has received, to the new process.
    pub(crate) fn pass_on_order(&self) {
        if let Some(pid) = self.pid {
            let passed_on = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGHUP);
            match passed_on {
                Ok(()) => info!(pid, "an order to reload is passed on"),
                Err(error) => warn!(pid, %error, "an order to reload cannot be passed on"),
            }
        }
    }

    /// Ends the new process. This process then continues as the gateway.
    pub(crate) fn abandon(self, link: &Link, interception: &mut Interception) {
        drop(self);
        link.take_back();
        interception.resume(link);
    }

    fn send(
        &mut self,
        message: &impl Serialize,
        sockets: &[BorrowedFd<'_>],
    ) -> Result<(), UpgradeError> {
        let sent = self.channel.send(message, sockets);
        sent.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => UpgradeError::Ended,
            _ => UpgradeError::Socket(error),
        })
    }

    /// Returns the next message of the new process.
    async fn receive(&self, timeout: Duration) -> Result<SuccessorMessage, UpgradeError> {
        let mut channel = self.channel.try_clone().map_err(UpgradeError::Socket)?;
        let received = spawn_blocking(move || channel.receive::<SuccessorMessage>(timeout)).await;
        match received.unwrap_or_else(|error| Err(error.into())) {
            Ok((SuccessorMessage::Failed(reason), _)) => Err(UpgradeError::Refused(reason)),
            Ok((received, _)) => Ok(received),
            Err(error) => Err(match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                    UpgradeError::Ended
                }
                io::ErrorKind::TimedOut => UpgradeError::Late(timeout.as_secs()),
                _ => UpgradeError::Unexpected(error.to_string()),
            }),
        }
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // A process that has ended needs no message.
        let is_there = self.send(&PredecessorMessage::Abandoned, &[]).is_ok();
        let Some(pid) = self.pid.filter(|_| is_there && self.is_begun) else {
            return;
        };
        // Only one of the two processes may serve.
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
}

/// Time within which the new process reads its configuration and prepares its start. The sum of
/// this time and the next constant is below the timeout of the admin interface.
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// Time within which the new process connects to its peers and opens its listeners.
const UP_TIMEOUT: Duration = Duration::from_millis(4500);
