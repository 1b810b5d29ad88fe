//! The new process's connection to the old process during an upgrade.

use std::{
    collections::HashMap,
    env,
    error::Error,
    io::{self, stdin},
    net::{SocketAddr, TcpListener, UdpSocket},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixDatagram, UnixListener, UnixStream},
    },
    path::Path,
    time::Duration,
};

use link::LinkHandover;
use tracing::{info, warn};

use super::{
    handover_channel::HandoverChannel,
    message::{HandoverMessage, PassThroughClients, PredecessorMessage, SuccessorMessage},
    older_processes::is_older_name,
    program::VARIABLE,
};

/// The old process that this process replaces.
#[derive(Debug)]
pub struct Predecessor {
    channel: HandoverChannel,
    sockets: HashMap<String, OwnedFd>,
}

/// Error: standard input is not the handover channel of an old process.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE} is set, and standard input is not the process to replace")]
pub struct PredecessorError(#[from] io::Error);

/// State that the old process has passed to this process.
#[derive(Debug)]
pub(crate) struct Inherited {
    channel: HandoverChannel,
    pub(crate) peers_up: Vec<String>,
    pub(crate) pass_through: Vec<PassThroughClients>,
}

/// Name of the link's UDP socket in a handover.
pub(super) const LINK: &str = "link";

/// Returns the name of the admin interface's socket in a handover. The name contains the address.
pub(crate) fn admin_name(listen: SocketAddr) -> String {
    format!("admin at {listen}")
}

/// Returns the name of the admin socket in a handover.
pub(crate) fn admin_socket_name(path: &Path) -> String {
    format!("admin socket at {}", path.display())
}

/// Returns the name of the socket of `[admin.https]` in a handover.
pub(crate) fn admin_https_name(listen: SocketAddr) -> String {
    format!("admin over TLS at {listen}")
}

impl Predecessor {
    /// Returns the old process that has started this process as its replacement. Returns `None`
    /// outside of an upgrade.
    ///
    /// If the old process has already ended, this process keeps the sockets that have arrived.
    ///
    /// # Errors
    /// [`PredecessorError`] if the old process does not follow the protocol.
    pub fn from_environment() -> Result<Option<Self>, PredecessorError> {
        if env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let socket = stdin().as_fd().try_clone_to_owned()?;
        let mut channel = HandoverChannel::new(UnixStream::from(socket));
        let mut sockets = HashMap::new();
        loop {
            match receive_message(&mut channel)? {
                Some((PredecessorMessage::Sockets(names), arrived)) => {
                    sockets.extend(names.into_iter().zip(arrived));
                }
                Some((PredecessorMessage::AllSockets, _)) | None => break,
                Some((other, _)) => return Err(unexpected(&other).into()),
            }
        }
        Ok(Some(Self { channel, sockets }))
    }

    /// Reports to the old process why this process ends.
    pub fn refuse(mut self, error: &dyn Error) {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(deeper) = source {
            reason += &format!(": {deeper}");
            source = deeper.source();
        }
        // The old process may have ended.
        let _ = self.channel.send(&SuccessorMessage::Failed(reason), &[]);
    }

    /// If `prepared` is an error, reports the error to the old process, because this process then
    /// ends.
    pub(crate) fn report_failure<T, E: Error>(
        predecessor: &mut Option<Self>,
        prepared: Result<T, E>,
    ) -> Result<T, E> {
        prepared.inspect_err(|error| {
            if let Some(predecessor) = predecessor.take() {
                predecessor.refuse(error);
            }
        })
    }

    pub(crate) fn take_listener(&mut self, name: &str) -> Option<TcpListener> {
        self.sockets.remove(name).map(TcpListener::from)
    }

    /// Returns the sockets to all older processes. One of them leads to the old process that hands
    /// over.
    pub(crate) fn take_older_sockets(&mut self) -> Vec<OwnedFd> {
        let sockets = self.sockets.extract_if(|name, _| is_older_name(name));
        sockets.map(|(_, socket)| socket).collect()
    }

    pub(crate) fn take_unix_listener(&mut self, name: &str) -> Option<UnixListener> {
        self.sockets.remove(name).map(UnixListener::from)
    }

    pub(crate) fn take_link(&mut self) -> Option<UdpSocket> {
        self.sockets.remove(LINK).map(UdpSocket::from)
    }

    /// Reports that this process is prepared, and waits for the permission to start. Returns `None`
    /// if the old process has ended. In this case, this process may start without permission.
    ///
    /// # Errors
    /// If the old process continues to serve, or may still serve.
    pub(crate) async fn report_ready(
        mut self,
        tables: Vec<String>,
    ) -> io::Result<Option<(Inherited, LinkHandover)>> {
        let received = tokio::task::spawn_blocking(move || {
            let ready = SuccessorMessage::Ready {
                pid: std::process::id(),
                version: crate::VERSION.to_owned(),
                build: crate::build().to_owned(),
                tables,
            };
            // If the old process has ended, its last message can still be read.
            let _ = self.channel.send(&ready, &[]);
            Ok::<_, io::Error>((receive_message(&mut self.channel)?, self.channel))
        });
        match received.await.unwrap_or_else(|error| Err(error.into()))? {
            (Some((PredecessorMessage::Go(message), sockets)), channel) => {
                Ok(Some(Inherited::new(channel, message, sockets)))
            }
            (Some((other, _)), _) => Err(unexpected(&other)),
            (None, _) => {
                warn!("the old process ended before the handover");
                Ok(None)
            }
        }
    }
}

/// Returns the next message of the old process, with its attached sockets. Returns `None` if the
/// old process has ended without a message.
///
/// # Errors
/// If the old process continues to serve, or sends nothing although it runs.
fn receive_message(
    channel: &mut HandoverChannel,
) -> io::Result<Option<(PredecessorMessage, Vec<OwnedFd>)>> {
    match channel.receive(MESSAGE_TIMEOUT) {
        Ok((PredecessorMessage::Abandoned, _)) => {
            Err(io::Error::other("the old process continues alone"))
        }
        Ok(received) => Ok(Some(received)),
        Err(error) => match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Ok(None),
            _ => Err(error),
        },
    }
}

fn unexpected(received: &PredecessorMessage) -> io::Error {
    io::Error::other(format!("the old process sent {received:?}"))
}

impl Inherited {
    fn new(
        channel: HandoverChannel,
        message: HandoverMessage,
        sockets: Vec<OwnedFd>,
    ) -> (Self, LinkHandover) {
        let HandoverMessage {
            generation,
            instance,
            remembered,
            older,
            peers_up,
            pass_through,
        } = message;
        let inherited = Self {
            channel,
            peers_up,
            pass_through,
        };
        let sockets = sockets.into_iter().map(UnixDatagram::from);
        let link_handover = LinkHandover {
            generation,
            instance,
            remembered,
            older: older.into_iter().zip(sockets).collect(),
        };
        (inherited, link_handover)
    }

    /// Reports that this process serves clients. Waits until the old process confirms that this
    /// process is now the gateway.
    ///
    /// # Errors
    /// If the old process continues to serve, or may still serve.
    pub(crate) async fn report_up(mut self) -> io::Result<()> {
        let received = tokio::task::spawn_blocking(move || {
            let _ = self.channel.send(&SuccessorMessage::Up, &[]);
            receive_message(&mut self.channel)
        });
        match received.await.unwrap_or_else(|error| Err(error.into()))? {
            Some((PredecessorMessage::Done, _)) => {
                info!("the earlier process only finishes its open sessions and transfers");
            }
            Some((other, _)) => return Err(unexpected(&other)),
            None => warn!("the old process ended during the handover"),
        }
        Ok(())
    }
}

/// Timeout of the next message from the old process.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);
