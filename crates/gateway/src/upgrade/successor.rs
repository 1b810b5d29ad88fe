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
    predecessor::{ADMIN, LINK},
    program::Program,
};
use crate::intercept::Interception;

/// What a gateway hands over.
pub(crate) struct Handing<'a> {
    pub(crate) program: Option<&'a Program>,
    /// The UDP socket, the admin socket and the front doors, the last ones with their names.
    pub(crate) link_socket: BorrowedFd<'a>,
    pub(crate) admin_socket: Option<BorrowedFd<'a>>,
    pub(crate) doors: Vec<(String, BorrowedFd<'a>)>,
    pub(crate) link: &'a Link,
    pub(crate) peers_up: Vec<String>,
    pub(crate) pass_through: Vec<PassThroughClients>,
}

/// The process that takes this one's place. Dropped before that is [done](Self::done), it is killed.
#[derive(Debug)]
pub(crate) struct Successor {
    channel: Channel,
    pid: Option<u32>,
    pub(crate) version: String,
    is_done: bool,
}

/// Has another process take this one's place. Afterwards both serve.
///
/// # Errors
/// [`UpgradeError`]; then this process is the only one.
pub(crate) async fn hand_over(
    handing: Handing<'_>,
    interception: &mut Interception,
) -> Result<Successor, UpgradeError> {
    let program = handing.program.ok_or(UpgradeError::NoProgram)?;
    let mut successor = Successor::start(program)?;
    successor.send_sockets(&handing)?;
    match successor.hears(READY_PATIENCE).await? {
        FromNew::Ready { pid, version } => {
            (successor.pid, successor.version) = (Some(pid), version);
        }
        other => return Err(UpgradeError::Unexpected(format!("{other:?}"))),
    }
    info!(
        pid = successor.pid,
        version = successor.version,
        "the new process is ready"
    );
    // Two that tell the kernel who is up would contradict each other.
    interception.pause();
    let begun = successor.begin(&handing).await;
    if begun.is_err() {
        // The process may read the socket.
        drop(successor);
        handing.link.take_back();
        interception.resume(handing.link);
        return Err(begun.expect_err("it has failed"));
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
            is_done: false,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.unwrap_or_default()
    }

    fn send_sockets(&mut self, handing: &Handing<'_>) -> Result<(), UpgradeError> {
        let doors = handing.doors.iter();
        let mut sockets: Vec<_> = doors
            .map(|(name, socket)| (name.as_str(), *socket))
            .collect();
        sockets.push((LINK, handing.link_socket));
        sockets.extend(handing.admin_socket.map(|socket| (ADMIN, socket)));
        for some in sockets.chunks(SOCKETS_MAX) {
            let names = some.iter().map(|(name, _)| (*name).to_owned()).collect();
            let sockets: Vec<_> = some.iter().map(|(_, socket)| *socket).collect();
            self.send(&FromOld::Sockets(names), &sockets)?;
        }
        self.send(&FromOld::AllSockets, &[])
    }

    /// Lets the process begin, and waits until it serves.
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
        self.send(&FromOld::Go(going), &ways)?;
        match self.hears(UP_PATIENCE).await? {
            FromNew::Up => Ok(()),
            other => Err(UpgradeError::Unexpected(format!("{other:?}"))),
        }
    }

    /// Tells the process that this one accepts nothing more.
    pub(crate) fn done(&mut self) {
        self.is_done = true;
        if let Err(error) = self.send(&FromOld::Done, &[]) {
            warn!(%error, "the new process has gone");
        }
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

    /// What it says next.
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
        let Some(pid) = self.pid.filter(|_| !self.is_done) else {
            return;
        };
        // One of the two must not serve. It may have ended by itself.
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
}

/// Time for the new process to read its configuration and to prepare everything.
const READY_PATIENCE: Duration = Duration::from_secs(20);
/// Time for the new process to connect to its peers and to open its front doors.
const UP_PATIENCE: Duration = Duration::from_secs(10);
