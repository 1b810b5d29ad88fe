//! The new process, as the old one sees it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use link::{Link, Succession};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Serialize;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::{
    UpgradeError,
    channel::{Channel, SOCKETS_MAX},
    message::{FromNew, FromOld, Going, PassThroughClients},
    older::{self, OlderProcesses, SuccessorOrders},
    predecessor::LINK,
    program::Program,
};
use crate::intercept::Interception;

/// State that a gateway hands over.
pub(crate) struct Handing<'a> {
    pub(crate) program: Option<&'a Program>,
    pub(crate) link_socket: BorrowedFd<'a>,
    /// The listeners and the admin interface, by name.
    pub(crate) listeners: Vec<(String, BorrowedFd<'a>)>,
    pub(crate) link: &'a Link,
    pub(crate) older: &'a OlderProcesses,
    pub(crate) peers_up: Vec<String>,
    pub(crate) pass_through: Vec<PassThroughClients>,
}

/// The process that replaces this one. If it is dropped before it is [done](Self::done), the
/// process is dismissed. It is killed if it may read the socket.
#[derive(Debug)]
pub(crate) struct Successor {
    channel: Channel,
    pid: Option<u32>,
    pub(crate) version: String,
    /// Its kernel tables.
    pub(crate) tables: Vec<String>,
    /// Its orders for this process, once it serves.
    pub(crate) orders: Option<SuccessorOrders>,
    /// Whether it may have started, and may still run.
    is_begun: bool,
    is_done: bool,
}

/// Replaces this process by another one. Afterwards both serve.
///
/// # Errors
/// [`UpgradeError`]. This process is then the only one.
pub(crate) async fn hand_over(
    handing: Handing<'_>,
    interception: &mut Interception,
) -> Result<Successor, UpgradeError> {
    let program = handing.program.ok_or(UpgradeError::NoProgram)?;
    if std::process::id() == 1 {
        return Err(UpgradeError::FirstProcess);
    }
    let mut successor = Successor::start(program)?;
    successor.send_sockets(&handing)?;
    match successor.hears(READY_PATIENCE).await? {
        FromNew::Ready {
            pid,
            version,
            tables,
        } => {
            (successor.pid, successor.version) = (Some(pid), version);
            successor.tables = tables;
        }
        other => return Err(UpgradeError::Unexpected(format!("{other:?}"))),
    }
    info!(
        pid = successor.pid,
        version = successor.version,
        "the new process is ready"
    );
    // Two processes that both update the kernel would contradict each other.
    interception.pause();
    let begun = successor.begin(&handing).await;
    if let Err(error) = begun {
        successor.give_up(handing.link, interception);
        return Err(error);
    }
    Ok(successor)
}

impl Successor {
    fn start(program: &Program) -> Result<Self, UpgradeError> {
        let of_start = |source| UpgradeError::Start {
            program: program.path().display().to_string(),
            source,
        };
        let (channel, theirs) = Channel::pair().map_err(of_start)?;
        program.start(theirs).map_err(of_start)?;
        Ok(Self {
            channel,
            pid: None,
            version: String::new(),
            tables: Vec::new(),
            orders: None,
            is_begun: false,
            is_done: false,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.unwrap_or_default()
    }

    fn send_sockets(&mut self, handing: &Handing<'_>) -> Result<(), UpgradeError> {
        let listeners = handing.listeners.iter();
        let mut sockets: Vec<_> = listeners
            .map(|(name, socket)| (name.as_str(), *socket))
            .collect();
        sockets.push((LINK, handing.link_socket));
        let (orders, theirs) = SuccessorOrders::pair().map_err(UpgradeError::Socket)?;
        self.orders = Some(orders);
        let older = handing.older.sockets();
        let older = older::named(&older, &theirs);
        sockets.extend(older.iter().map(|(name, socket)| (name.as_str(), *socket)));
        for some in sockets.chunks(SOCKETS_MAX) {
            let names = some.iter().map(|(name, _)| (*name).to_owned()).collect();
            let sockets: Vec<_> = some.iter().map(|(_, socket)| *socket).collect();
            self.send(&FromOld::Sockets(names), &sockets)?;
        }
        self.send(&FromOld::AllSockets, &[])
    }

    /// Permits the process to start, and waits until it serves.
    async fn begin(&mut self, handing: &Handing<'_>) -> Result<(), UpgradeError> {
        let Succession {
            generation,
            instance,
            remembered,
            older,
        } = handing.link.hand_over().await?;
        let (older, ways): (Vec<_>, Vec<OwnedFd>) = older
            .into_iter()
            .map(|(generation, way)| (generation, OwnedFd::from(way)))
            .unzip();
        let going = Going {
            generation,
            instance,
            remembered,
            older,
            peers_up: handing.peers_up.clone(),
            pass_through: handing.pass_through.clone(),
        };
        let ways: Vec<_> = ways.iter().map(OwnedFd::as_fd).collect();
        self.is_begun = true;
        self.send(&FromOld::Go(going), &ways)?;
        match self.hears(UP_PATIENCE).await? {
            FromNew::Up => Ok(()),
            other => Err(UpgradeError::Unexpected(format!("{other:?}"))),
        }
    }

    /// Informs the process that it is the gateway.
    ///
    /// # Errors
    /// If it has ended. This process then stays the gateway.
    pub(crate) fn done(&mut self) -> Result<(), UpgradeError> {
        self.send(&FromOld::Done, &[])?;
        self.is_done = true;
        Ok(())
    }

    /// Passes on an order that this process received.
    pub(crate) fn pass_on_order(&self) {
        if let Some(pid) = self.pid {
            let passed_on = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGHUP);
            match passed_on {
                Ok(()) => info!(pid, "an order to reload is passed on"),
                Err(error) => warn!(pid, %error, "an order to reload cannot be passed on"),
            }
        }
    }

    /// Continues without it.
    pub(crate) fn give_up(self, link: &Link, interception: &mut Interception) {
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

    /// Returns its next message.
    async fn hears(&self, patience: Duration) -> Result<FromNew, UpgradeError> {
        let mut channel = self.channel.try_clone().map_err(UpgradeError::Socket)?;
        let said = spawn_blocking(move || channel.receive::<FromNew>(patience)).await;
        match said.unwrap_or_else(|error| Err(error.into())) {
            Ok((FromNew::Failed(reason), _)) => Err(UpgradeError::Refused(reason)),
            Ok((said, _)) => Ok(said),
            Err(error) => Err(match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                    UpgradeError::Ended
                }
                io::ErrorKind::TimedOut => UpgradeError::Late(patience.as_secs()),
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
        let is_there = self.send(&FromOld::Abandoned, &[]).is_ok();
        let Some(pid) = self.pid.filter(|_| is_there && self.is_begun) else {
            return;
        };
        // Only one of the two may serve.
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
}

/// Time for the new process to read its configuration, and to prepare everything. The sum of both
/// times is shorter than the timeout of the admin interface.
const READY_PATIENCE: Duration = Duration::from_secs(5);
/// Time for the new process to connect to its peers, and to open its listeners.
const UP_PATIENCE: Duration = Duration::from_millis(4500);
