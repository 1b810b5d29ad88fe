//! The old process, as the new one sees it.

use std::{
    collections::HashMap,
    env,
    error::Error,
    io::{self, stdin},
    net::{TcpListener, UdpSocket},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixDatagram, UnixStream},
    },
    time::Duration,
};

use link::Succession;
use tracing::{info, warn};

use super::{
    channel::Channel,
    message::{FromNew, FromOld, Going, PassThroughClients},
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

/// The names of the sockets that are not front doors.
pub(super) const LINK: &str = "link";
pub(crate) const ADMIN: &str = "admin";

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
            match channel.receive(PATIENCE) {
                Ok((FromOld::Sockets(names), came)) => sockets.extend(names.into_iter().zip(came)),
                Ok((FromOld::AllSockets, _)) => break,
                Ok((other, _)) => return Err(io::Error::other(format!("{other:?}")).into()),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error.into()),
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

    pub(crate) fn link(&mut self) -> Option<UdpSocket> {
        self.sockets.remove(LINK).map(UdpSocket::from)
    }

    /// Says that everything is prepared, and waits until this process is to begin. If the old process has died, it begins on
    /// its own.
    pub(crate) async fn ready(mut self) -> Option<(Taken, Succession)> {
        let said = tokio::task::spawn_blocking(move || {
            let ready = FromNew::Ready {
                pid: std::process::id(),
                version: crate::VERSION.to_owned(),
            };
            self.channel.send(&ready, &[])?;
            let came = self.channel.receive(PATIENCE)?;
            Ok::<_, io::Error>((self.channel, came))
        });
        match said.await.unwrap_or_else(|error| Err(error.into())) {
            Ok((channel, (FromOld::Go(going), ways))) => Some(Taken::new(channel, going, ways)),
            Ok((_, (other, _))) => {
                warn!(
                    ?other,
                    "the old process says something else than was expected"
                );
                None
            }
            Err(error) => {
                warn!(%error, "the old process has gone before it handed over");
                None
            }
        }
    }
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

    /// Says that this process serves, and waits until the old one has closed its front doors.
    pub(crate) async fn up(mut self) {
        let said = tokio::task::spawn_blocking(move || {
            self.channel.send(&FromNew::Up, &[])?;
            self.channel.receive::<FromOld>(PATIENCE)
        });
        match said.await.unwrap_or_else(|error| Err(error.into())) {
            Ok(_) => info!("the earlier process serves only what it has begun"),
            Err(error) => warn!(%error, "the old process has gone while it handed over"),
        }
    }
}

/// Time for the old process to say the next thing.
const PATIENCE: Duration = Duration::from_secs(30);
