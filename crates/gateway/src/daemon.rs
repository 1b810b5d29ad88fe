//! A gateway from its start to its end, as a function of its inputs.
#![allow(
    clippy::disallowed_methods,
    reason = "owns the sockets and the clock of the daemon"
)]

use std::{
    fmt,
    future::Future,
    io,
    net::TcpListener,
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
    config::Config,
    doors::{Doors, Parts},
    far,
    intercept::{InterceptError, Interception},
    limits::Usage,
    reload::Reloader,
    shared::Shared,
    spool::Spools,
    status::{Registry, TransferStatus},
    transfer_log::{self, TransferLog},
};
pub use crate::{
    bound::{BindError, Bound},
    doors::DoorError,
    reload::Reloads,
};

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
    /// The front doors cannot be opened.
    #[error(transparent)]
    Doors(#[from] DoorError),
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

/// What a service manager hears of a gateway.
pub struct Watch {
    /// How long it waits for [`State::Working`] before it takes the gateway for hung; `None`: it does not.
    pub patience: Option<Duration>,
    /// Tells it.
    pub tell: Box<dyn Fn(State) + Send + Sync>,
}

/// How a gateway is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It serves.
    Up,
    /// Its tasks and its link have just been seen to work.
    Working,
    /// It lets what is open end.
    Ending,
}

impl Watch {
    /// Nobody watches.
    pub fn none() -> Self {
        Self {
            patience: None,
            tell: Box::new(|_| {}),
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// Runs a gateway until `shutdown` resolves; then stops accepting, lets what is open end within the
/// configuration's `drain_max`, and says what it cut short. Meanwhile it takes on what `reloads` bring, and tells `watch` how it
/// is.
///
/// # Errors
/// [`RunError`] if the gateway cannot start, or its link ends before `shutdown`.
pub async fn run(
    config: Config,
    mut bound: Bound,
    reloads: Reloads,
    watch: Watch,
    shutdown: impl Future<Output = ()>,
) -> Result<CutShort, RunError> {
    let admin = bound.admin.take().map(tokio_listener).transpose()?;
    let at_admin = admin.as_ref().map(|l| l.local_addr()).transpose()?;
    let parts = Parts::new(&config, &mut bound)?;
    let log = transfer_log::Opened::open(config.transfer_log.as_ref())?;
    let link = Link::start(bound.link, config.link.clone())?;
    warn_about_buffers(&link);
    let mut interception = Interception::start(&config, &link)?;
    let registry = Registry::new(TransferLog::start(log)?);
    let (cut, cut_seen) = watch::channel(false);
    let (alive, mut all_gone) = mpsc::channel(1);
    let names = config.peers.iter().map(|peer| peer.name.clone());
    let shared = Arc::new(Shared {
        link: link.clone(),
        registry: registry.clone(),
        usage: Usage::new(config.limits),
        pairing: Arc::default(),
        tls13_only: Arc::default(),
        truncations: Arc::default(),
        spools: config.spool.clone().map(Spools::new),
        own: parts.addresses().chain(at_admin).collect(),
        next_session: Arc::new(AtomicU64::new(first_session())),
        cut: cut_seen,
        alive: alive.downgrade(),
        peer_names: names.collect(),
        config: Arc::new(config),
    });
    let mut doors = Doors::default();
    doors.open(parts, &shared).await;
    let (current, currently) = watch::channel(shared.clone());
    let (asks, asked) = mpsc::channel(1);
    let for_far = asks.clone();
    let mut reloader = Reloader::new(current, doors, at_admin, reloads);
    let mut side_tasks = JoinSet::new();
    let for_admin = currently.clone();
    if let Some(listener) = admin {
        side_tasks.spawn(async move {
            if let Err(error) = admin::serve(listener, for_admin, asks).await {
                warn!(%error, "no status any more");
            }
        });
    }
    side_tasks.spawn(tick(registry.clone()));
    let mut accepting = JoinSet::new();
    accepting.spawn(far::serve(link.clone(), currently, for_far));
    info!(link = %link.local_addr(), "gateway up");
    let watch = Arc::new(watch);
    (watch.tell)(State::Up);
    if let Some(patience) = watch.patience {
        side_tasks.spawn(show_life(link.clone(), watch.clone(), patience));
    }
    tokio::select! {
        () = shutdown => {}
        never = reloader.serve(asked) => match never {},
        // It serves as long as the link hands over streams.
        _ = accepting.join_next() => {
            drop((reloader, alive));
            // Only a dropped receiver could make this fail, and sessions hold some.
            let _ = cut.send(true);
            let _ = timeout(CUT_PATIENCE, all_gone.recv()).await;
            return Err(RunError::LinkEnded);
        }
    }
    let drain = reloader.config().drain_max;
    (watch.tell)(State::Ending);
    info!(drain_s = drain.as_secs_f64(), "shutting down");
    interception.end();
    reloader.close().await;
    drop(alive);
    let mut cut_short = CutShort::default();
    if timeout(drain, all_gone.recv()).await.is_err() {
        cut_short.transfers = registry.open_transfers();
        // Only a dropped receiver could make this fail, and sessions hold some.
        let _ = cut.send(true);
        let _ = timeout(CUT_PATIENCE, all_gone.recv()).await;
    }
    drop(interception);
    registry.transfer_log().flush(CUT_PATIENCE).await;
    // A disk that does not write what is remembered holds nobody up.
    let closed = timeout(CLOSE_PATIENCE, link.shutdown(drain.min(CUT_PATIENCE))).await;
    cut_short.streams = closed.unwrap_or_default();
    accepting.shutdown().await;
    side_tasks.shutdown().await;
    Ok(cut_short)
}

fn tokio_listener(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

/// Says that the gateway works, as long as it does.
async fn show_life(link: Link, watch: Arc<Watch>, patience: Duration) {
    // Twice in that time, so that one that comes late does no harm.
    let mut times = interval(patience / 2);
    loop {
        times.tick().await;
        if link.works(patience / 2).await {
            (watch.tell)(State::Working);
        } else {
            warn!("the link's thread does not answer");
        }
    }
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

/// Time for cut sessions to inform their clients, and for streams of the link to end.
const CUT_PATIENCE: Duration = Duration::from_secs(2);
/// Time for the link to close.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);
