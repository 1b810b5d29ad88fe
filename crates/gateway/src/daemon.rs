//! A gateway from its start to its end, as a function of its inputs.
#![allow(
    clippy::disallowed_methods,
    reason = "owns the sockets and the clock of the daemon"
)]

use std::{
    future::Future,
    io,
    net::{SocketAddr, TcpListener, UdpSocket},
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, SystemTime},
};

use link::{Link, LinkError};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{interval, timeout},
};
use tracing::{info, warn};

use crate::{
    admin,
    config::{Config, DoorTls},
    far,
    intercept::{self, InterceptError, Interception},
    limits::Usage,
    near,
    pairing::Pairing,
    reload,
    shared::Shared,
    status::{Registry, TransferStatus},
    tls::{Acceptor, CertError, Tls13Only},
    transfer_log::{self, TransferLog},
};

/// The bound sockets of a configuration.
#[derive(Debug)]
pub struct Bound {
    /// The link's socket.
    pub link: UdpSocket,
    /// One for each `[[ftp]]`, in order.
    pub ftp: Vec<TcpListener>,
    /// One for each door of TLS that passes through, in order: for control and for data connections.
    pub pass_through: Vec<(TcpListener, Vec<TcpListener>)>,
    /// One for each `[[forward]]`, in order.
    pub forwards: Vec<TcpListener>,
    /// The admin address; `None` if it is taken and was not asked for.
    pub admin: Option<TcpListener>,
}

/// A socket could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {what} {address}")]
pub struct BindError {
    what: &'static str,
    address: SocketAddr,
    #[source]
    source: io::Error,
}

/// A gateway could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The link did not start.
    #[error("the link did not start")]
    Link(#[from] LinkError),
    /// The link's driver has ended without a shutdown.
    #[error("the link has ended by itself")]
    LinkEnded,
    /// Connections to servers cannot be intercepted.
    #[error("no interception")]
    Intercept(#[from] InterceptError),
    /// The certificate of a front door cannot be used.
    #[error("the front door on {listen} has no certificate")]
    Certificate {
        listen: SocketAddr,
        /// The mistake in its certificate.
        source: CertError,
    },
    /// The transfer log cannot be written.
    #[error("no transfer log")]
    TransferLog(#[from] transfer_log::OpenError),
    /// A bound socket could not be used.
    #[error("a socket could not be used")]
    Socket(#[from] io::Error),
}

/// The connections that a shutdown cut short.
#[derive(Debug, Default)]
pub struct CutShort {
    /// Transfers and forwards that were still under way.
    pub transfers: Vec<TransferStatus>,
    /// Streams of the link that had not ended.
    pub streams: usize,
}

impl Bound {
    /// Binds all addresses of `config`.
    ///
    /// # Errors
    /// [`BindError`] names the first address that could not be bound.
    pub fn bind(config: &Config) -> Result<Self, BindError> {
        let tcp = |what, address| {
            TcpListener::bind(address).map_err(|source| BindError {
                what,
                address,
                source,
            })
        };
        let address = config.link_listen;
        let link = UdpSocket::bind(address).map_err(|source| BindError {
            what: "link address (UDP)",
            address,
            source,
        })?;
        let ftp = config.ftp.iter().map(|door| {
            if !door.transparent {
                return tcp("[[ftp]] address", door.listen);
            }
            intercept::socket::listen_for_control(door.listen).map_err(|source| BindError {
                what: "[[ftp]] address (transparent, which needs CAP_NET_ADMIN)",
                address: door.listen,
                source,
            })
        });
        let pass_through = config.pass_through.iter().map(|door| {
            let control = tcp("[[ftp]] address", door.listen)?;
            let data = door.data_ports.clone().map(|port| {
                let address = SocketAddr::new(door.listen.ip(), port);
                tcp("[[ftp]] passive port", address)
            });
            Ok((control, data.collect::<Result<_, _>>()?))
        });
        let forwards = config
            .forwards
            .iter()
            .map(|f| tcp("[[forward]] address", f.listen));
        let admin = match tcp("[admin] address", config.admin_listen) {
            Ok(listener) => Some(listener),
            Err(error) if config.admin_explicit => return Err(error),
            Err(error) => {
                warn!(%error, "no status: set [admin] listen to have it elsewhere");
                None
            }
        };
        Ok(Self {
            link,
            ftp: ftp.collect::<Result<_, _>>()?,
            pass_through: pass_through.collect::<Result<_, _>>()?,
            forwards: forwards.collect::<Result<_, _>>()?,
            admin,
        })
    }
}

/// Runs a gateway until `shutdown` resolves; then stops accepting, lets what is open end within
/// `drain`, and says what it cut short. Of the configurations that come by `reloads` it takes on the caps
/// on rates.
///
/// # Errors
/// [`RunError`] if the gateway cannot start, or its link ends before `shutdown`.
pub async fn run(
    config: Config,
    bound: Bound,
    reloads: mpsc::Receiver<Config>,
    shutdown: impl Future<Output = ()>,
    drain: Duration,
) -> Result<CutShort, RunError> {
    let passed = bound.pass_through.iter();
    let passed = passed.flat_map(|(control, data)| std::iter::once(control).chain(data));
    let listeners = bound.ftp.iter().chain(&bound.forwards).chain(&bound.admin);
    let listeners = listeners.chain(passed);
    let own = listeners
        .map(TcpListener::local_addr)
        .collect::<Result<_, _>>()?;
    let acceptors = acceptors(&config)?;
    let log = transfer_log::Opened::open(config.transfer_log.as_ref())?;
    let link = Link::start(bound.link, config.link.clone())?;
    warn_about_buffers(&link);
    let mut interception = Interception::start(&config, &link)?;
    let registry = Registry::new(TransferLog::start(log)?);
    let (cut, cut_seen) = watch::channel(false);
    let (alive, mut all_gone) = mpsc::channel(1);
    let shared = Arc::new(Shared {
        link: link.clone(),
        registry: registry.clone(),
        usage: Usage::new(config.limits),
        pairing: Pairing::default(),
        tls13_only: Tls13Only::default(),
        truncations: Arc::default(),
        own,
        next_session: AtomicU64::new(first_session()),
        cut: cut_seen,
        alive: alive.downgrade(),
        config,
    });
    let mut doors = JoinSet::new();
    let ftp = bound.ftp.into_iter().zip(&shared.config.ftp);
    for ((listener, door), tls) in ftp.zip(&acceptors) {
        info!(listen = %listener.local_addr()?, "FTP front door");
        doors.spawn(near::serve_ftp(
            tokio_listener(listener)?,
            door.clone(),
            tls.clone(),
            shared.clone(),
        ));
    }
    let passed = bound.pass_through.into_iter();
    for ((control, data), door) in passed.zip(&shared.config.pass_through) {
        info!(listen = %control.local_addr()?, target = %door.target, "FTP front door, unread");
        let data = data.into_iter().map(tokio_listener);
        doors.spawn(near::serve_pass_through(
            tokio_listener(control)?,
            data.collect::<Result<_, _>>()?,
            door.clone(),
            shared.clone(),
        ));
    }
    for (listener, forward) in bound.forwards.into_iter().zip(&shared.config.forwards) {
        info!(listen = %listener.local_addr()?, target = %forward.target, "forward");
        let listener = tokio_listener(listener)?;
        doors.spawn(near::serve_forward(
            listener,
            forward.clone(),
            shared.clone(),
        ));
    }
    let mut side_tasks = JoinSet::new();
    if let Some(listener) = bound.admin {
        let (listener, shared) = (tokio_listener(listener)?, shared.clone());
        side_tasks.spawn(async move {
            if let Err(error) = admin::serve(listener, shared).await {
                warn!(%error, "no status any more");
            }
        });
    }
    side_tasks.spawn(tick(registry.clone()));
    side_tasks.spawn(reload::serve(
        reloads,
        link.clone(),
        shared.config.clone(),
        acceptors.into_iter().flatten().collect(),
        registry.clone(),
    ));
    let mut accepting = JoinSet::new();
    accepting.spawn(far::serve(shared.clone()));
    info!(link = %link.local_addr(), "gateway up");
    tokio::select! {
        () = shutdown => {}
        // It serves as long as the link hands over streams.
        _ = accepting.join_next() => {
            drop((doors, alive));
            // Only a dropped receiver could make this fail, and `shared` holds one.
            let _ = cut.send(true);
            let _ = timeout(CUT_PATIENCE, all_gone.recv()).await;
            return Err(RunError::LinkEnded);
        }
    }
    info!("shutting down");
    interception.end();
    doors.shutdown().await;
    drop(alive);
    let mut cut_short = CutShort::default();
    if timeout(drain, all_gone.recv()).await.is_err() {
        cut_short.transfers = registry.open_transfers();
        // Only a dropped receiver could make this fail, and `shared` holds one.
        let _ = cut.send(true);
        let _ = timeout(CUT_PATIENCE, all_gone.recv()).await;
    }
    drop(interception);
    registry.transfer_log().flush(CUT_PATIENCE).await;
    cut_short.streams = link.shutdown(CUT_PATIENCE).await;
    accepting.shutdown().await;
    side_tasks.shutdown().await;
    Ok(cut_short)
}

/// The TLS acceptor of each FTP front door, if the door has TLS.
fn acceptors(config: &Config) -> Result<Vec<Option<Arc<Acceptor>>>, RunError> {
    let doors = config.ftp.iter().map(|door| match &door.tls {
        DoorTls::Explicit(source) | DoorTls::Implicit(source) => {
            let acceptor = Acceptor::new(source.clone());
            acceptor
                .map(|acceptor| Some(Arc::new(acceptor)))
                .map_err(|source| RunError::Certificate {
                    listen: door.listen,
                    source,
                })
        }
        DoorTls::Off => Ok(None),
    });
    doors.collect()
}

fn tokio_listener(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

async fn tick(registry: Arc<Registry>) {
    let mut ticks = interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        registry.tick();
    }
}

/// Numbers of sessions go on rising across restarts, so that none meets an old one's leftovers.
fn first_session() -> u64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    now.as_millis() as u64 * 1_000
}

/// Small socket buffers drop packets at high rates, and the kernel grants what two settings allow.
fn warn_about_buffers(link: &Link) {
    let buffers = link.snapshot().socket_buffers;
    let asked = buffers.asked.bytes();
    if buffers.receive_granted < buffers.asked || buffers.send_granted < buffers.asked {
        warn!(
            asked = %buffers.asked,
            receive_granted = %buffers.receive_granted,
            send_granted = %buffers.send_granted,
            "the kernel granted less socket buffer than asked, which costs throughput; as root: \
             sysctl -w net.core.rmem_max={asked} net.core.wmem_max={asked}"
        );
    }
}

/// Time for cut sessions to inform their clients, and for the link to close.
const CUT_PATIENCE: Duration = Duration::from_secs(2);
