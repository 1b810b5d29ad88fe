//! The listeners of a running gateway, and the tasks that accept clients.
//!
//! At a reload, a listener whose address does not change keeps its socket. Its port is therefore
//! always open. All listeners get new accepting tasks. Sessions run in their own tasks and
//! continue.

use std::{
    collections::HashMap,
    net::{SocketAddr, TcpListener as StdListener},
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use tokio::{net::TcpListener, task::JoinSet};
use tracing::info;

use crate::{
    bound_sockets::{BindError, BoundSockets, bind_tcp},
    config::{Config, FtpListener, ListenerTls, name_gateway_user},
    listener_id::{ListenerId, ListenerIds, data_listener_ids},
    running::RunningGateway,
    upgrade::PassThroughClients,
};
use net::tls::{self, Acceptor, AcceptorError};
use relay::{
    near::{self, FtpService, PassThroughListener},
    status::SshListenerStatus,
};
use ssh::{HostKey, HostKeyError, SshNear};

/// TLS acceptor of a listener. `None` if the listener does not use TLS.
type ListenerAcceptor = Option<Arc<Acceptor>>;

/// All listeners of a running gateway.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    prepared: PreparedListeners,
    pass_through: Vec<Arc<PassThroughListener>>,
    accepting: JoinSet<()>,
    /// Tasks that serve the data ports of removed pass-through listeners. A task ends when the
    /// listener's clients have disconnected.
    leaving: JoinSet<()>,
}

/// Sockets and TLS acceptors for the listeners of one configuration.
#[derive(Debug, Default)]
pub(crate) struct PreparedListeners {
    listeners: HashMap<ListenerId, Arc<TcpListener>>,
    /// TLS acceptors in the order of the configuration's listeners. Each entry also has the
    /// settings from which the acceptor was created.
    acceptors: Vec<(ListenerTls, tls::TlsRules, ListenerAcceptor)>,
    /// Host keys of the SSH listeners.
    host_keys: HashMap<ListenerId, HostKey>,
}

/// Error: the listeners cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenerError {
    /// An address is in use.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The certificate of a listener is unusable.
    #[error("the listener on {listen} has no TLS: {}", name_gateway_user(source.to_string()))]
    Certificate {
        /// Address of the listener.
        listen: SocketAddr,
        /// The fault in the listener's certificate, or in the root certificates for clients.
        source: AcceptorError,
    },
    /// The host key of an SSH listener is unusable.
    #[error("the listener on {listen} has no host key: {}", name_gateway_user(source.to_string()))]
    HostKey {
        /// Address of the listener.
        listen: SocketAddr,
        /// The fault in the file, or the reason why the file cannot be made.
        source: Box<HostKeyError>,
    },
    /// A bound socket could not be used.
    #[error("a socket could not be used: {0}")]
    Socket(#[from] std::io::Error),
}

impl PreparedListeners {
    /// Creates the listeners from bound sockets.
    pub(crate) fn new(config: &Config, bound: &mut BoundSockets) -> Result<Self, ListenerError> {
        let ids = ListenerIds::from_config(config);
        let mut listeners = HashMap::new();
        let mut keep = |id, listener| {
            listeners.insert(id, tokio_listener(listener)?);
            Ok::<_, ListenerError>(())
        };
        for (id, listener) in ids.ftp.into_iter().zip(bound.ftp.drain(..)) {
            keep(id, listener)?;
        }
        let passed = ids
            .pass_through
            .into_iter()
            .zip(bound.pass_through.drain(..));
        for ((control, data), (control_listener, data_listeners)) in passed {
            keep(control, control_listener)?;
            for (id, listener) in data.into_iter().zip(data_listeners) {
                keep(id, listener)?;
            }
        }
        let host_keys = host_keys(config, &ids.ssh)?;
        for (id, listener) in ids.ssh.into_iter().zip(bound.ssh.drain(..)) {
            keep(id, listener)?;
        }
        for (id, listener) in ids.forwards.into_iter().zip(bound.forwards.drain(..)) {
            keep(id, listener)?;
        }
        Ok(Self {
            listeners,
            acceptors: acceptors(config, &[])?,
            host_keys,
        })
    }

    /// Returns the sockets with their names. A process that replaces this process requests each
    /// socket by its name.
    pub(crate) fn named_sockets(&self) -> Vec<(String, BorrowedFd<'_>)> {
        let listeners = self.listeners.iter();
        listeners
            .map(|(id, listener)| (id.to_string(), listener.as_fd()))
            .collect()
    }

    /// Returns the addresses of the listeners.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let listeners = self.listeners.values();
        listeners.filter_map(|listener| listener.local_addr().ok())
    }

    /// Returns the SSH listeners of `config` with the fingerprints of their host keys.
    pub(crate) fn ssh_status(&self, config: &Config) -> Vec<SshListenerStatus> {
        let ids = ListenerIds::from_config(config);
        let listeners = ids.ssh.iter().zip(&config.ssh);
        let listeners = listeners.map(|(id, settings)| SshListenerStatus {
            listen: listening(self, id).to_string(),
            target: settings.target.as_ref().map(ToString::to_string),
            host_key: self.host_key(id).fingerprint(),
        });
        listeners.collect()
    }

    fn listener(&self, id: &ListenerId) -> Arc<TcpListener> {
        let listener = self.listeners.get(id);
        listener.expect("every place has been bound").clone()
    }

    fn host_key(&self, id: &ListenerId) -> &HostKey {
        let key = self.host_keys.get(id);
        key.expect("every SSH listener has a host key")
    }
}

impl Listeners {
    /// Prepares the listeners of `config`. Keeps the sockets of unchanged listeners and binds new
    /// sockets for the others.
    ///
    /// # Errors
    /// [`ListenerError`]. The active listeners remain unchanged.
    pub(crate) fn prepare(&self, config: &Config) -> Result<PreparedListeners, ListenerError> {
        let ids = ListenerIds::from_config(config);
        let ftp = ids.ftp.iter().map(|id| ("[[ftp]] address", *id));
        let passed = ids.pass_through.iter().flat_map(|(control, data)| {
            let data = data.iter().map(|id| ("[[ftp]] passive port", *id));
            std::iter::once(("[[ftp]] address", *control)).chain(data)
        });
        let ssh = ids.ssh.iter().map(|id| ("[[ssh]] address", *id));
        let forwards = ids.forwards.iter();
        let forwards = forwards.map(|id| ("[[forward]] address", *id));
        let mut listeners = HashMap::new();
        for (what, id) in ftp.chain(passed).chain(ssh).chain(forwards) {
            let listener = match self.prepared.listeners.get(&id) {
                Some(listener) => listener.clone(),
                None => tokio_listener(bind_tcp(what, id.address)?)?,
            };
            listeners.insert(id, listener);
        }
        Ok(PreparedListeners {
            listeners,
            acceptors: acceptors(config, &self.prepared.acceptors)?,
            host_keys: host_keys(config, &ids.ssh)?,
        })
    }

    /// Activates the prepared listeners and closes all other listeners.
    pub(crate) async fn open(&mut self, prepared: PreparedListeners, running: &RunningGateway) {
        let (config, relay) = (&running.config, &running.relay);
        let ids = ListenerIds::from_config(config);
        let mut accepting = JoinSet::new();
        let ftp = ids.ftp.iter().zip(&config.ftp).zip(&prepared.acceptors);
        for ((id, settings), (.., tls)) in ftp {
            if !self.prepared.listeners.contains_key(id) {
                info!(listen = %listening(&prepared, id), "FTP listener");
            }
            let listener = prepared.listener(id).into();
            let address = listening(&prepared, id);
            let service = FtpService::new(settings.clone(), address, tls.clone());
            accepting.spawn(near::serve(listener, Arc::new(service), relay.clone()));
        }
        let mut pass_through = Vec::new();
        for ((control, data), settings) in ids.pass_through.iter().zip(&config.pass_through) {
            if !self.prepared.listeners.contains_key(control) {
                let listen = listening(&prepared, control);
                info!(%listen, target = %settings.target, "FTP listener, TLS passed through");
            }
            let mut before = self.pass_through.iter();
            let before = before.find(|before| before.config().listen == settings.listen);
            let listener = PassThroughListener::new(settings.clone(), relay.clone(), before);
            accepting.spawn(near::serve_pass_through(
                prepared.listener(control),
                data.iter().map(|id| prepared.listener(id)).collect(),
                listener.clone(),
            ));
            pass_through.push(listener);
        }
        for (id, settings) in ids.ssh.iter().zip(&config.ssh) {
            let host_key = prepared.host_key(id);
            let fingerprint = host_key.fingerprint();
            let before = self.prepared.host_keys.get(id).map(HostKey::fingerprint);
            if before.as_ref() != Some(&fingerprint) {
                let listen = listening(&prepared, id);
                info!(%listen, host_key = fingerprint, "SSH listener");
            }
            let listener = prepared.listener(id).into();
            let service = SshNear::new(Arc::new(settings.clone()), host_key.clone());
            accepting.spawn(near::serve(listener, Arc::new(service), relay.clone()));
        }
        for (id, forward) in ids.forwards.iter().zip(&config.forwards) {
            if !self.prepared.listeners.contains_key(id) {
                let listen = listening(&prepared, id);
                info!(%listen, target = %forward.target, "forward");
            }
            let forward = Arc::new(forward.clone());
            let listener = prepared.listener(id).into();
            accepting.spawn(near::serve(listener, forward, relay.clone()));
        }
        for listener in std::mem::take(&mut self.pass_through) {
            self.keep_data_ports(&listener, &prepared);
        }
        std::mem::replace(&mut self.accepting, accepting)
            .shutdown()
            .await;
        self.pass_through = pass_through;
        self.prepared = prepared;
    }

    /// Returns the sockets of all listeners with their names.
    pub(crate) fn named_sockets(&self) -> Vec<(String, BorrowedFd<'_>)> {
        self.prepared.named_sockets()
    }

    /// Returns the clients of each pass-through listener, including clients that older processes
    /// serve.
    pub(crate) fn pass_through_clients(&self) -> Vec<PassThroughClients> {
        let listeners = self.pass_through.iter();
        listeners
            .map(|listener| PassThroughClients {
                listen: listener.config().listen,
                clients: listener.clients(),
            })
            .collect()
    }

    /// Permits clients to open data connections here while an older process serves their control
    /// connections. The permission ends if a client opens no data connection within the idle
    /// timeout.
    pub(crate) fn inherit(&self, all: &[PassThroughClients]) {
        for listener in &self.pass_through {
            let listen = listener.config().listen;
            let inherited = all.iter().filter(|it| it.listen == listen);
            listener.inherit(inherited.flat_map(|it| it.clients.iter().copied()));
        }
    }

    /// Stops accepting clients, because another process has started to accept them.
    pub(crate) async fn hand_over(&mut self) {
        for listener in &self.pass_through {
            listener.leave_data();
        }
        // From now on, only the other process decides when these listeners close.
        self.close().await;
    }

    /// Stops accepting clients and closes the sockets. The kernel then refuses new connections.
    pub(crate) async fn close(&mut self) {
        self.accepting.shutdown().await;
        self.leaving.shutdown().await;
        self.prepared = PreparedListeners::default();
    }

    /// Continues to accept data connections for the present clients of `listener`, on the data
    /// ports that `prepared` does not contain.
    fn keep_data_ports(
        &mut self,
        listener: &Arc<PassThroughListener>,
        prepared: &PreparedListeners,
    ) {
        while self.leaving.try_join_next().is_some() {}
        let ports =
            data_listener_ids(listener.config()).filter(|id| !prepared.listeners.contains_key(id));
        let left = ports.filter_map(|id| self.prepared.listeners.get(&id).cloned());
        let left: Vec<_> = left.collect();
        if !left.is_empty() && listener.has_clients() {
            self.leaving.spawn(near::serve_data(left, listener.clone()));
        }
    }
}

fn listening(prepared: &PreparedListeners, id: &ListenerId) -> SocketAddr {
    let at = prepared.listener(id).local_addr();
    at.unwrap_or(id.address)
}

/// Returns the TLS acceptor of each FTP listener. An acceptor with unchanged settings is kept, so
/// that clients can resume their TLS sessions. A kept acceptor reads its certificate files again.
fn acceptors(
    config: &Config,
    present: &[(ListenerTls, tls::TlsRules, ListenerAcceptor)],
) -> Result<Vec<(ListenerTls, tls::TlsRules, ListenerAcceptor)>, ListenerError> {
    let listeners = config.ftp.iter().map(|listener| {
        let is_same = |tls: &ListenerTls, rules: &tls::TlsRules| {
            *tls == listener.tls && *rules == listener.tls_rules
        };
        let same = present.iter().find(|(tls, rules, _)| is_same(tls, rules));
        let acceptor = match same {
            Some((.., acceptor)) => {
                acceptor.iter().for_each(|acceptor| acceptor.reload());
                acceptor.clone()
            }
            None => acceptor(listener)?,
        };
        Ok((listener.tls.clone(), listener.tls_rules.clone(), acceptor))
    });
    listeners.collect()
}

fn acceptor(listener: &FtpListener) -> Result<ListenerAcceptor, ListenerError> {
    match &listener.tls {
        ListenerTls::Explicit(source) | ListenerTls::Implicit(source) => {
            let acceptor = Acceptor::new(source.clone(), &listener.tls_rules);
            acceptor
                .map(|acceptor| Some(Arc::new(acceptor)))
                .map_err(|source| ListenerError::Certificate {
                    listen: listener.listen,
                    source,
                })
        }
        ListenerTls::Off => Ok(None),
    }
}

/// Returns the host key of each SSH listener. Makes the files that do not exist.
fn host_keys(
    config: &Config,
    ids: &[ListenerId],
) -> Result<HashMap<ListenerId, HostKey>, ListenerError> {
    let keys = ids.iter().zip(&config.ssh).map(|(id, listener)| {
        match HostKey::load_or_create(&listener.host_key_file) {
            Ok(key) => Ok((*id, key)),
            Err(error) => Err(ListenerError::HostKey {
                listen: listener.listen,
                source: Box::new(error),
            }),
        }
    });
    keys.collect()
}

fn tokio_listener(listener: StdListener) -> std::io::Result<Arc<TcpListener>> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener).map(Arc::new)
}
