//! The old process, as the new one sees it.

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

use link::Succession;
use tracing::{info, warn};

use super::{
    channel::Channel,
    message::{FromNew, FromOld, Going, PassThroughClients},
    older::is_older_name,
    program::VARIABLE,
};

/// The process whose place this one takes.
#[derive(Debug)]
pub struct Predecessor {
    channel: Channel,
    sockets: HashMap<String, OwnedFd>,
}

/// The old process does not hand over.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE} is set, and standard input is not the process whose place is to be taken")]
pub struct PredecessorError(#[from] io::Error);

/// What the old process has left.
#[derive(Debug)]
pub(crate) struct Taken {
    channel: Channel,
    pub(crate) peers_up: Vec<String>,
    pub(crate) pass_through: Vec<PassThroughClients>,
}

/// The name of the UDP socket.
pub(super) const LINK: &str = "link";

/// The name of the socket of the admin interface. At another address it is another one.
pub(crate) fn admin_name(listen: SocketAddr) -> String {
    format!("admin at {listen}")
}

/// The name of the admin socket.
pub(crate) fn admin_socket_name(path: &Path) -> String {
    format!("admin socket at {}", path.display())
}

/// The name of the socket of `[admin.https]`.
pub(crate) fn admin_https_name(listen: SocketAddr) -> String {
    format!("admin over TLS at {listen}")
}

impl Predecessor {
    /// The process that has started this one to take its place, if one has.
    ///
    /// If it has died meanwhile, this one has the sockets that came.
    ///
    /// # Errors
    /// [`PredecessorError`] if it does not say what it should.
    pub fn from_environment() -> Result<Option<Self>, PredecessorError> {
        if env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let socket = stdin().as_fd().try_clone_to_owned()?;
        let mut channel = Channel::new(UnixStream::from(socket));
        let mut sockets = HashMap::new();
        loop {
            match hear(&mut channel)? {
                Some((FromOld::Sockets(names), came)) => {
                    sockets.extend(names.into_iter().zip(came));
                }
                Some((FromOld::AllSockets, _)) | None => break,
                Some((other, _)) => return Err(unexpected(&other).into()),
            }
        }
        Ok(Some(Self { channel, sockets }))
    }

    /// Tells why this process ends.
    pub fn refuse(mut self, error: &dyn Error) {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(deeper) = source {
            reason += &format!(": {deeper}");
            source = deeper.source();
        }
        // It may be gone.
        let _ = self.channel.send(&FromNew::Failed(reason), &[]);
    }

    /// Tells why this process ends if `prepared` has failed.
    pub(crate) fn told<T, E: Error>(
        predecessor: &mut Option<Self>,
        prepared: Result<T, E>,
    ) -> Result<T, E> {
        prepared.inspect_err(|error| {
            if let Some(predecessor) = predecessor.take() {
                predecessor.refuse(error);
            }
        })
    }

    pub(crate) fn listener(&mut self, name: &str) -> Option<TcpListener> {
        self.sockets.remove(name).map(TcpListener::from)
    }

    /// The sockets to older processes, that of the process that hands over included.
    pub(crate) fn older(&mut self) -> Vec<OwnedFd> {
        let sockets = self.sockets.extract_if(|name, _| is_older_name(name));
        sockets.map(|(_, socket)| socket).collect()
    }

    pub(crate) fn unix_listener(&mut self, name: &str) -> Option<UnixListener> {
        self.sockets.remove(name).map(UnixListener::from)
    }

    pub(crate) fn link(&mut self) -> Option<UdpSocket> {
        self.sockets.remove(LINK).map(UdpSocket::from)
    }

    /// Says that everything is prepared, and waits until this process is to begin. If the old process has died, it begins on
    /// its own: `None`.
    ///
    /// # Errors
    /// If the old process goes on, or may do so.
    pub(crate) async fn ready(
        mut self,
        tables: Vec<String>,
    ) -> io::Result<Option<(Taken, Succession)>> {
        let said = tokio::task::spawn_blocking(move || {
            let ready = FromNew::Ready {
                pid: std::process::id(),
                version: crate::VERSION.to_owned(),
                tables,
            };
            // If it has gone, what it has said last is still to be read.
            let _ = self.channel.send(&ready, &[]);
            Ok::<_, io::Error>((hear(&mut self.channel)?, self.channel))
        });
        match said.await.unwrap_or_else(|error| Err(error.into()))? {
            (Some((FromOld::Go(going), ways)), channel) => {
                Ok(Some(Taken::new(channel, going, ways)))
            }
            (Some((other, _)), _) => Err(unexpected(&other)),
            (None, _) => {
                warn!("the old process has gone before it handed over");
                Ok(None)
            }
        }
    }
}

/// What the old process says next, and the sockets that come along; `None`: it has gone without a word.
///
/// # Errors
/// If it goes on by itself, or says nothing although it is there.
fn hear(channel: &mut Channel) -> io::Result<Option<(FromOld, Vec<OwnedFd>)>> {
    match channel.receive(PATIENCE) {
        Ok((FromOld::Abandoned, _)) => Err(io::Error::other("the old process goes on by itself")),
        Ok(said) => Ok(Some(said)),
        Err(error) => match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Ok(None),
            _ => Err(error),
        },
    }
}

fn unexpected(said: &FromOld) -> io::Error {
    io::Error::other(format!("the old process says {said:?}"))
}

impl Taken {
    fn new(channel: Channel, going: Going, ways: Vec<OwnedFd>) -> (Self, Succession) {
        let Going {
            generation,
            instance,
            remembered,
            older,
            peers_up,
            pass_through,
        } = going;
        let taken = Self {
            channel,
            peers_up,
            pass_through,
        };
        let ways = ways.into_iter().map(UnixDatagram::from);
        let succession = Succession {
            generation,
            instance,
            remembered,
            older: older.into_iter().zip(ways).collect(),
        };
        (taken, succession)
    }

    /// Says that this process serves, and waits until it is the gateway.
    ///
    /// # Errors
    /// If the old process goes on, or may do so.
    pub(crate) async fn up(mut self) -> io::Result<()> {
        let said = tokio::task::spawn_blocking(move || {
            let _ = self.channel.send(&FromNew::Up, &[]);
            hear(&mut self.channel)
        });
        match said.await.unwrap_or_else(|error| Err(error.into()))? {
            Some((FromOld::Done, _)) => {
                info!("the earlier process serves only what it has begun");
            }
            Some((other, _)) => return Err(unexpected(&other)),
            None => warn!("the old process has gone while it handed over"),
        }
        Ok(())
    }
}

/// Time for the old process to say the next thing.
const PATIENCE: Duration = Duration::from_secs(30);
