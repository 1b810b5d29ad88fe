//! FTPS without decryption at the gateway. The gateway forwards the control connection and each
//! data connection. The server's data ports keep their numbers at the gateway.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use link::StreamClass;
use tokio::{net::TcpListener, task::JoinSet, time::Instant};
use tracing::{Instrument, info, info_span};

use super::{
    accept,
    forward::{ForwardOptions, relay_forward},
    log_refusal,
};
use crate::{
    gateway_context::GatewayContext,
    limits::{Permit, PermitPurpose, ReachedLimit},
    relay::Relay,
    settings::{Forward, PassThrough},
};
use net::{Connection, socket, target::HostPort};

/// A pass-through listener, and the open connections of its clients.
#[derive(Debug)]
pub struct PassThroughListener {
    config: PassThrough,
    shared: Arc<GatewayContext>,
    open: Arc<Mutex<HashMap<IpAddr, OpenConnections>>>,
    inherited: Arc<Mutex<InheritedClients>>,
    /// Whether another process accepts the data connections now.
    has_left_data: AtomicBool,
    /// Older listener that this listener replaced at a reload. The older listener has another
    /// server. `None` if the older listener had no clients at the latest reload.
    older: Option<Arc<Self>>,
}

/// Numbers of one client's open control connections and data connections. Data connections are
/// refused if the client has no control connection.
#[derive(Debug, Default)]
struct OpenConnections {
    controls: usize,
    data: usize,
}

/// Clients whose control connections are in an older process of this gateway, after an upgrade.
#[derive(Debug, Default)]
struct InheritedClients {
    /// For each client, the time at which its entry expires. Each data connection of the client
    /// extends this time.
    until: HashMap<IpAddr, Instant>,
}

/// Guard of one connection. The listener counts the connection until the guard is dropped.
struct ConnectionGuard {
    listener: Arc<PassThroughListener>,
    client: IpAddr,
    is_data: bool,
}

/// Accepts control connections and data connections of clients until the task is dropped.
pub async fn serve_pass_through(
    control: Arc<TcpListener>,
    data: Vec<Arc<TcpListener>>,
    listener: Arc<PassThroughListener>,
) {
    let _listening = listen_for_data(data, &listener);
    accept(&control.into(), |stream, client| {
        listener.control(stream, client)
    })
    .await;
}

/// Accepts only data connections, until the last client of the listener has disconnected.
pub async fn serve_data(data: Vec<Arc<TcpListener>>, listener: Arc<PassThroughListener>) {
    let _listening = listen_for_data(data, &listener);
    while listener.has_clients() {
        tokio::time::sleep(LEFT_CHECK).await;
    }
}

fn listen_for_data(
    data: Vec<Arc<TcpListener>>,
    listener: &Arc<PassThroughListener>,
) -> JoinSet<()> {
    let mut listening = JoinSet::new();
    for socket in data {
        let listener = listener.clone();
        listening.spawn(async move {
            let Ok(at) = socket.local_addr() else {
                return;
            };
            accept(&socket.into(), |stream, client| {
                listener.data(stream, client, at.port())
            })
            .await;
        });
    }
    listening
}

impl PassThroughListener {
    /// Creates a listener that replaces `before`. The clients of `before` stay connected.
    pub fn new(config: PassThrough, relay: Relay, before: Option<&Arc<Self>>) -> Arc<Self> {
        let (same, other): (Option<_>, Option<_>) = match before {
            Some(before) if before.config.target == config.target => (Some(before), None),
            before => (None, before.filter(|before| before.has_clients())),
        };
        Arc::new(Self {
            open: same.map_or_else(Arc::default, |same| same.open.clone()),
            inherited: same.map_or_else(Arc::default, |same| same.inherited.clone()),
            has_left_data: AtomicBool::new(false),
            older: match same {
                Some(same) => same.older.clone().filter(|older| older.has_clients()),
                None => other.cloned(),
            },
            config,
            shared: relay.0,
        })
    }

    /// Returns the settings of the listener.
    pub fn config(&self) -> &PassThrough {
        &self.config
    }

    /// Whether a client has a connection through this listener, or through an older listener that
    /// this listener replaced.
    pub fn has_clients(&self) -> bool {
        let older = self.older.as_ref();
        !self.lock().is_empty() || older.is_some_and(|older| older.has_clients())
    }

    fn control(self: &Arc<Self>, stream: Connection, client: SocketAddr) {
        match self.admit(client.ip()) {
            Ok((permit, held)) => {
                let port = self.config.target.port;
                self.relay(stream, client, port, held, Some(permit));
            }
            Err(reached) => {
                log_refusal(&self.shared, client, reached);
                // The client may expect TLS at once, so the gateway cannot send a reason.
                socket::abort(stream);
            }
        }
    }

    fn data(self: &Arc<Self>, stream: Connection, client: SocketAddr, port: u16) {
        if let Some(older) = &self.older
            && !self.lock().contains_key(&client.ip())
        {
            return older.data(stream, client, port);
        }
        let Some(held) = self.admit_data(client.ip()) else {
            self.shared.registry.count_refusal();
            info!(%client, port, "data connection refused");
            return socket::abort(stream);
        };
        self.relay(stream, client, port, held, None);
    }

    /// Forwards a connection to `port` of the server. The guard `held` is dropped when the
    /// connection ends.
    fn relay(
        self: &Arc<Self>,
        stream: Connection,
        client: SocketAddr,
        port: u16,
        held: ConnectionGuard,
        permit: Option<Permit>,
    ) {
        let Some(drain_guard) = self.shared.drain_guard.upgrade() else {
            return;
        };
        let forward = Forward {
            listen: self.config.listen,
            target: HostPort {
                host: self.config.target.host.clone(),
                port,
            },
            // This listener has checked the client already.
            clients: None,
            via: self.config.via,
            compresses: false,
        };
        let number = self.shared.session_number();
        let span = info_span!("pass-through", session = number, %client, port);
        let shared = self.shared.clone();
        let serve = async move {
            let _held = (drain_guard, permit);
            let _open = (!held.is_data).then(|| shared.registry.session());
            let limits = shared.settings.limits;
            let options = ForwardOptions {
                kind: if held.is_data { "ftp" } else { "forward" },
                class: if held.is_data {
                    StreamClass::Bulk
                } else {
                    StreamClass::Control
                },
                timeout: Some(if held.is_data {
                    limits.stall_timeout
                } else {
                    limits.idle_timeout
                }),
                // A control connection is idle while a transfer runs.
                is_needed: &|| !held.is_data && held.listener.may_have_data(held.client),
            };
            relay_forward(stream, client, number, options, &forward, &shared).await;
        };
        tokio::spawn(serve.instrument(span));
    }

    fn admit(self: &Arc<Self>, client: IpAddr) -> Result<(Permit, ConnectionGuard), ReachedLimit> {
        if !self.config.admits(client) {
            return Err(ReachedLimit::Stranger);
        }
        let permit = self.shared.usage.admit(client, PermitPurpose::Session)?;
        self.lock().entry(client).or_default().controls += 1;
        Ok((permit, self.hold(client, false)))
    }

    /// Admits another data connection of a client. Returns `None` if the client has no control
    /// connection, or if a limit is reached.
    fn admit_data(self: &Arc<Self>, client: IpAddr) -> Option<ConnectionGuard> {
        let most = self.shared.settings.limits.transfers_max;
        let mut open = self.lock();
        // Some connections of this listener are not in the registry yet.
        let of_listener: usize = open.values().map(|open| open.data).sum();
        if self
            .shared
            .registry
            .client_transfers_open()
            .max(of_listener)
            >= most
        {
            return None;
        }
        let is_inherited = self.is_inherited(client);
        let client_open = match is_inherited {
            true => open.entry(client).or_default(),
            false => open.get_mut(&client)?,
        };
        // The number of control connections in an older process is unknown.
        let controls = client_open.controls + if is_inherited { INHERITED_MAX } else { 0 };
        if client_open.data >= controls * DATA_PER_CONTROL_MAX {
            return None;
        }
        client_open.data += 1;
        drop(open);
        Some(self.hold(client, true))
    }

    fn may_have_data(&self, client: IpAddr) -> bool {
        self.has_left_data.load(Relaxed)
            || self.lock().get(&client).is_some_and(|open| open.data > 0)
    }

    /// Returns the clients that have connections, or that may open data connections.
    pub fn clients(&self) -> Vec<IpAddr> {
        let mut clients: Vec<_> = self.lock().keys().copied().collect();
        clients.extend(self.lock_inherited().until.keys());
        clients
    }

    /// Records that another process now accepts the data connections.
    pub fn leave_data(&self) {
        self.has_left_data.store(true, Relaxed);
    }

    /// Permits data connections of clients whose control connections are in an older process.
    pub fn inherit(&self, clients: impl Iterator<Item = IpAddr>) {
        let until = Instant::now() + self.shared.settings.limits.idle_timeout;
        let clients = clients.map(|client| (client, until));
        self.lock_inherited().until.extend(clients);
    }

    /// Whether `client` has a control connection in an older process. If so, the function extends
    /// the time for which the client may open data connections.
    fn is_inherited(&self, client: IpAddr) -> bool {
        let now = Instant::now();
        let mut inherited = self.lock_inherited();
        inherited.until.retain(|_, until| *until > now);
        let until = inherited.until.get_mut(&client);
        until.is_some_and(|until| {
            *until = now + self.shared.settings.limits.idle_timeout;
            true
        })
    }

    fn lock_inherited(&self) -> MutexGuard<'_, InheritedClients> {
        self.inherited
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn hold(self: &Arc<Self>, client: IpAddr, is_data: bool) -> ConnectionGuard {
        ConnectionGuard {
            listener: self.clone(),
            client,
            is_data,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, OpenConnections>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut all = self.listener.lock();
        if let Some(open) = all.get_mut(&self.client) {
            let count = if self.is_data {
                &mut open.data
            } else {
                &mut open.controls
            };
            *count -= 1;
            if open.controls + open.data == 0 {
                all.remove(&self.client);
            }
        }
    }
}

/// Maximum number of data connections for each control connection. Clients use one data connection
/// at a time, but earlier data connections may still be closing.
const DATA_PER_CONTROL_MAX: usize = 4;

/// Assumed number of control connections that a client has in older processes.
const INHERITED_MAX: usize = 16;

/// Interval between two checks for remaining clients of a removed listener.
const LEFT_CHECK: Duration = Duration::from_secs(1);
