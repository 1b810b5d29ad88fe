//! The listeners of a running gateway, and the tasks that accept clients.
//!
//! A reload keeps sockets whose address stays the same, so that no client finds a closed port. All
//! listeners get new tasks. Sessions have their own tasks, and continue.

use std::{
    collections::HashMap,
    net::{SocketAddr, TcpListener as StdListener},
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use tokio::{net::TcpListener, task::JoinSet};
use tracing::info;

use crate::{
    bound::{BindError, Bound, bind_tcp},
    config::{Config, FtpListener, ListenerTls},
    place::{Place, Places, data_places},
    running::Running,
    upgrade::PassThroughClients,
};
use net::tls::{self, Acceptor, AcceptorError};
use relay::near::{self, FtpService, PassThroughListener};

/// The TLS acceptor of a listener. `None` without TLS.
type DoorAcceptor = Option<Arc<Acceptor>>;

/// All listeners.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    parts: Parts,
    pass_through: Vec<Arc<PassThroughListener>>,
    accepting: JoinSet<()>,
    /// Data ports of removed listeners whose clients are still connected.
    leaving: JoinSet<()>,
}

/// Parts of the listeners of a configuration, before they are in use.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    listeners: HashMap<Place, Arc<TcpListener>>,
    /// TLS acceptors in the order of the configuration's listeners, with their settings.
    acceptors: Vec<(ListenerTls, tls::TlsRules, DoorAcceptor)>,
}

/// Error: the listeners cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoorError {
    /// An address is in use.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The certificate of a listener cannot be used.
    #[error("the listener on {listen} has no TLS: {source}")]
    Certificate {
        /// Address of the listener.
        listen: SocketAddr,
        /// The mistake in its certificate, or in the roots of client certificates.
        source: AcceptorError,
    },
    /// A bound socket could not be used.
    #[error("a socket could not be used: {0}")]
    Socket(#[from] std::io::Error),
}

impl Parts {
    /// Creates the listeners from bound sockets.
    pub(crate) fn new(config: &Config, bound: &mut Bound) -> Result<Self, DoorError> {
        let places = Places::of(config);
        let mut listeners = HashMap::new();
        let mut keep = |place, listener| {
            listeners.insert(place, tokio_listener(listener)?);
            Ok::<_, DoorError>(())
        };
        for (place, listener) in places.ftp.into_iter().zip(bound.ftp.drain(..)) {
            keep(place, listener)?;
        }
        let passed = places
            .pass_through
            .into_iter()
            .zip(bound.pass_through.drain(..));
        for ((control, data), (control_listener, data_listeners)) in passed {
            keep(control, control_listener)?;
            for (place, listener) in data.into_iter().zip(data_listeners) {
                keep(place, listener)?;
            }
        }
        for (place, listener) in places.forwards.into_iter().zip(bound.forwards.drain(..)) {
            keep(place, listener)?;
        }
        let acceptors = acceptors(config, &[])?;
        Ok(Self {
            listeners,
            acceptors,
        })
    }

    /// Returns the sockets. Another process of this configuration requests each by its name.
    pub(crate) fn named(&self) -> Vec<(String, BorrowedFd<'_>)> {
        let listeners = self.listeners.iter();
        listeners
            .map(|(place, listener)| (place.to_string(), listener.as_fd()))
            .collect()
    }

    /// Returns the addresses of the listeners.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let listeners = self.listeners.values();
        listeners.filter_map(|listener| listener.local_addr().ok())
    }

    fn listener(&self, place: &Place) -> Arc<TcpListener> {
        let listener = self.listeners.get(place);
        listener.expect("every place has been bound").clone()
    }
}

impl Doors {
    /// Prepares the listeners of `config`. Unchanged sockets stay, and the others are created.
    ///
    /// # Errors
    /// [`DoorError`]. The present listeners are unchanged.
    pub(crate) fn prepare(&self, config: &Config) -> Result<Parts, DoorError> {
        let places = Places::of(config);
        let ftp = places.ftp.iter().map(|place| ("[[ftp]] address", *place));
        let passed = places.pass_through.iter().flat_map(|(control, data)| {
            let data = data.iter().map(|place| ("[[ftp]] passive port", *place));
            std::iter::once(("[[ftp]] address", *control)).chain(data)
        });
        let forwards = places.forwards.iter();
        let forwards = forwards.map(|place| ("[[forward]] address", *place));
        let mut listeners = HashMap::new();
        for (what, place) in ftp.chain(passed).chain(forwards) {
            let listener = match self.parts.listeners.get(&place) {
                Some(listener) => listener.clone(),
                None => tokio_listener(bind_tcp(what, place.address)?)?,
            };
            listeners.insert(place, listener);
        }
        Ok(Parts {
            listeners,
            acceptors: acceptors(config, &self.parts.acceptors)?,
        })
    }

    /// Opens the listeners of the present configuration, and closes all others.
    pub(crate) async fn open(&mut self, parts: Parts, running: &Running) {
        let (config, relay) = (&running.config, &running.relay);
        let places = Places::of(config);
        let mut accepting = JoinSet::new();
        let doors = places.ftp.iter().zip(&config.ftp).zip(&parts.acceptors);
        for ((place, door), (.., tls)) in doors {
            if !self.parts.listeners.contains_key(place) {
                info!(listen = %listening(&parts, place), "FTP listener");
            }
            let listener = parts.listener(place).into();
            let address = listening(&parts, place);
            let door = FtpService::new(door.clone(), address, tls.clone());
            accepting.spawn(near::serve(listener, Arc::new(door), relay.clone()));
        }
        let mut pass_through = Vec::new();
        for ((control, data), door) in places.pass_through.iter().zip(&config.pass_through) {
            if !self.parts.listeners.contains_key(control) {
                let listen = listening(&parts, control);
                info!(%listen, target = %door.target, "FTP listener, TLS passed through");
            }
            let mut before = self.pass_through.iter();
            let before = before.find(|before| before.config().listen == door.listen);
            let door = PassThroughListener::new(door.clone(), relay.clone(), before);
            accepting.spawn(near::serve_pass_through(
                parts.listener(control),
                data.iter().map(|place| parts.listener(place)).collect(),
                door.clone(),
            ));
            pass_through.push(door);
        }
        for (place, forward) in places.forwards.iter().zip(&config.forwards) {
            if !self.parts.listeners.contains_key(place) {
                let listen = listening(&parts, place);
                info!(%listen, target = %forward.target, "forward");
            }
            let forward = Arc::new(forward.clone());
            let listener = parts.listener(place).into();
            accepting.spawn(near::serve(listener, forward, relay.clone()));
        }
        for door in std::mem::take(&mut self.pass_through) {
            self.leave(&door, &parts);
        }
        std::mem::replace(&mut self.accepting, accepting)
            .shutdown()
            .await;
        self.pass_through = pass_through;
        self.parts = parts;
    }

    /// Returns the sockets, by name.
    pub(crate) fn named(&self) -> Vec<(String, BorrowedFd<'_>)> {
        self.parts.named()
    }

    /// Returns the clients of pass-through listeners.
    pub(crate) fn pass_through_clients(&self) -> Vec<PassThroughClients> {
        let doors = self.pass_through.iter();
        doors
            .map(|door| PassThroughClients {
                listen: door.config().listen,
                clients: door.clients(),
            })
            .collect()
    }

    /// Permits data connections of an older process's clients, as long as their control connections
    /// there last.
    pub(crate) fn inherit(&self, all: &[PassThroughClients]) {
        for door in &self.pass_through {
            let listen = door.config().listen;
            let of_door = all.iter().filter(|it| it.listen == listen);
            door.inherit(of_door.flat_map(|it| it.clients.iter().copied()));
        }
    }

    /// Stops accepting, since another process accepts.
    pub(crate) async fn leave_to_successor(&mut self) {
        for door in &self.pass_through {
            door.leave_data();
        }
        // Only the other process decides when they close.
        self.close().await;
    }

    /// Stops accepting and listening. The kernel then refuses clients.
    pub(crate) async fn close(&mut self) {
        self.accepting.shutdown().await;
        self.leaving.shutdown().await;
        self.parts = Parts::default();
    }

    /// Keeps listening on the data ports of `door` that are not part of `parts`, for its clients.
    fn leave(&mut self, door: &Arc<PassThroughListener>, parts: &Parts) {
        while self.leaving.try_join_next().is_some() {}
        let ports = data_places(door.config()).filter(|place| !parts.listeners.contains_key(place));
        let left = ports.filter_map(|place| self.parts.listeners.get(&place).cloned());
        let left: Vec<_> = left.collect();
        if !left.is_empty() && door.has_clients() {
            self.leaving.spawn(near::serve_data(left, door.clone()));
        }
    }
}

fn listening(parts: &Parts, place: &Place) -> SocketAddr {
    let at = parts.listener(place).local_addr();
    at.unwrap_or(place.address)
}

/// Returns the TLS acceptor of each FTP listener. An acceptor of `present` with the same settings
/// is kept, so that clients can resume their sessions. It reads its certificate again.
fn acceptors(
    config: &Config,
    present: &[(ListenerTls, tls::TlsRules, DoorAcceptor)],
) -> Result<Vec<(ListenerTls, tls::TlsRules, DoorAcceptor)>, DoorError> {
    let doors = config.ftp.iter().map(|door| {
        let is_same =
            |tls: &ListenerTls, rules: &tls::TlsRules| *tls == door.tls && *rules == door.tls_rules;
        let same = present.iter().find(|(tls, rules, _)| is_same(tls, rules));
        let acceptor = match same {
            Some((.., acceptor)) => {
                acceptor.iter().for_each(|acceptor| acceptor.reload());
                acceptor.clone()
            }
            None => acceptor(door)?,
        };
        Ok((door.tls.clone(), door.tls_rules.clone(), acceptor))
    });
    doors.collect()
}

fn acceptor(door: &FtpListener) -> Result<DoorAcceptor, DoorError> {
    match &door.tls {
        ListenerTls::Explicit(source) | ListenerTls::Implicit(source) => {
            let acceptor = Acceptor::new(source.clone(), &door.tls_rules);
            acceptor
                .map(|acceptor| Some(Arc::new(acceptor)))
                .map_err(|source| DoorError::Certificate {
                    listen: door.listen,
                    source,
                })
        }
        ListenerTls::Off => Ok(None),
    }
}

fn tokio_listener(listener: StdListener) -> std::io::Result<Arc<TcpListener>> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener).map(Arc::new)
}
