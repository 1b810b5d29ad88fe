//! State that the tasks of one client share.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use relay::Relay;
use russh::server::Handle;
use sftp::SharedFiles;
use tokio::{
    sync::{Mutex as AsyncMutex, watch},
    time::{Instant, sleep_until, timeout},
};
use tracing::info;

use super::{
    far_half::{FarHalf, SessionEnd},
    login_state::LoginState,
    server_memory::ServerMemory,
};
use crate::{backpressure::Backpressure, settings::SshListener};

/// State that the tasks of one client share.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) listener: Arc<SshListener>,
    pub(super) relay: Relay,
    pub(super) address: SocketAddr,
    /// Number of the session.
    pub(super) session: u64,
    pub(super) backpressure: Arc<Backpressure>,
    /// Far half of the session. `None` until the server is known.
    pub(super) far: watch::Sender<Option<Arc<FarHalf>>>,
    pub(super) login: AsyncMutex<LoginState>,
    /// Whether the gateway has accepted the client's log-in.
    pub(super) is_logged_in: watch::Sender<bool>,
    /// Whether the client's identification is that of OpenSSH.
    pub(super) is_openssh: AtomicBool,
    /// Number of open channels.
    pub(super) channels: watch::Sender<usize>,
    pub(super) memory: Arc<ServerMemory>,
    /// Registry of the files that the clients of the listener read.
    pub(super) files: SharedFiles,
    /// Handle of the client's connection. Empty until the connection starts.
    pub(super) handle: OnceLock<Handle>,
    /// Reason why the gateway disconnects the client as soon as the protocol permits it.
    refusal: watch::Sender<Option<SessionEnd>>,
}

/// Guard of an open channel.
#[derive(Debug)]
pub(super) struct ChannelGuard(Arc<Client>);

impl Client {
    /// Creates the state of a client whose log-in has not started. `far` is `None` if the client
    /// names its server.
    pub(super) fn new(
        listener: Arc<SshListener>,
        relay: Relay,
        (memory, files): (Arc<ServerMemory>, SharedFiles),
        (address, session): (SocketAddr, u64),
        far: Option<Arc<FarHalf>>,
    ) -> Self {
        Self {
            listener,
            backpressure: Arc::new(Backpressure::new(relay.session_memory().clone())),
            relay,
            address,
            session,
            far: watch::Sender::new(far),
            login: AsyncMutex::default(),
            is_logged_in: watch::Sender::new(false),
            is_openssh: AtomicBool::new(false),
            channels: watch::Sender::new(0),
            memory,
            files,
            handle: OnceLock::new(),
            refusal: watch::Sender::new(None),
        }
    }

    /// Returns the far half of the session.
    pub(super) fn far_half(&self) -> Option<Arc<FarHalf>> {
        self.far.borrow().clone()
    }

    /// Counts a channel as open until the guard is dropped.
    pub(super) fn open_channel(self: &Arc<Self>) -> ChannelGuard {
        self.channels.send_modify(|count| *count += 1);
        ChannelGuard(self.clone())
    }

    /// Stores the reason of a refusal. Later reasons do not replace the first one.
    pub(super) fn refuse(&self, end: SessionEnd) {
        self.refusal.send_if_modified(|refusal| {
            let is_first = refusal.is_none();
            if is_first {
                info!(text = end.text, "client refused");
                *refusal = Some(end);
            }
            is_first
        });
    }

    /// Returns the reason of a refusal. Returns `None` if the gateway has not refused the client.
    pub(super) fn refused(&self) -> Option<SessionEnd> {
        self.refusal.borrow().clone()
    }

    /// Waits until the gateway has refused the client. Returns the reason.
    pub(super) async fn wait_for_refusal(&self) -> SessionEnd {
        let mut refusal = self.refusal.subscribe();
        let refused = refusal.wait_for(Option::is_some).await;
        match refused.ok().and_then(|it| it.clone()) {
            Some(end) => end,
            // The sender is part of this value, so this case does not occur.
            None => std::future::pending().await,
        }
    }

    /// Waits until the far half has ended the session, and all channels are closed.
    pub(super) async fn wait_for_far_end(&self) -> SessionEnd {
        let mut far = self.far.subscribe();
        let found = far.wait_for(Option::is_some).await.ok();
        let Some(far) = found.and_then(|it| it.clone()) else {
            return std::future::pending().await;
        };
        let end = far.wait_for_end().await;
        // Channels may still have output of the server.
        let mut channels = self.channels.subscribe();
        let _ = timeout(DRAIN_TIMEOUT, channels.wait_for(|count| *count == 0)).await;
        end
    }

    /// Waits for the deadline of the log-in. If the client logs in before the deadline, the
    /// function never returns.
    pub(super) async fn wait_for_login_timeout(&self, deadline: Instant) {
        sleep_until(deadline).await;
        if *self.is_logged_in.borrow() {
            std::future::pending().await
        }
    }

    /// Waits until the client has logged in.
    pub(super) async fn wait_for_login(&self) {
        let mut logged_in = self.is_logged_in.subscribe();
        // The sender is part of this value, so the wait cannot fail.
        let _ = logged_in.wait_for(|it| *it).await;
    }

    /// Waits until the client has logged in, and then until it has had no channel for
    /// `idle_timeout`.
    pub(super) async fn wait_for_idleness(&self, idle_timeout: Duration) {
        self.wait_for_login().await;
        let mut channels = self.channels.subscribe();
        loop {
            let _ = channels.wait_for(|count| *count == 0).await;
            let opened = timeout(idle_timeout, channels.wait_for(|count| *count > 0)).await;
            if opened.is_err() {
                return;
            }
        }
    }
}

impl Drop for ChannelGuard {
    fn drop(&mut self) {
        self.0.channels.send_modify(|count| *count -= 1);
    }
}

/// Time limit for the last output of the server to reach the client.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
