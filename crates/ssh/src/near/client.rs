//! Connection of one client, from the first byte to the disconnect.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use net::{socket, tls::Leg};
use relay::{Relay, service::ServiceClient};
use russh::{Disconnect, server};
use tokio::{
    sync::{Mutex as AsyncMutex, watch},
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tracing::{debug, info};

use super::{
    SshNear,
    far_half::{FarHalf, SessionEnd},
    greeting::GreetedStream,
    handler::ClientHandler,
    login::LoginState,
    refusal,
    server_memory::ServerMemory,
};
use crate::{
    backpressure::{AbortOnDrop, Backpressure, PausableStream},
    settings::SshListener,
    wire::session::EndReason,
};

/// State of one client that its tasks share.
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
    /// Number of open channels.
    pub(super) channels: watch::Sender<usize>,
    pub(super) memory: Arc<ServerMemory>,
    /// Banner that the client has received.
    pub(super) shown_banner: Mutex<String>,
    /// Reason why the gateway disconnects the client as soon as the protocol permits it.
    refusal: Mutex<Option<SessionEnd>>,
}

/// Guard of an open channel.
#[derive(Debug)]
pub(super) struct ChannelGuard(Arc<Client>);

impl Client {
    /// Returns the far half of the session.
    pub(super) fn far_half(&self) -> Option<Arc<FarHalf>> {
        self.far.borrow().clone()
    }

    /// Counts a channel as open until the guard is dropped.
    pub(super) fn open_channel(self: &Arc<Self>) -> ChannelGuard {
        self.channels.send_modify(|count| *count += 1);
        ChannelGuard(self.clone())
    }

    /// Stores the reason of a refusal. The first reason counts.
    pub(super) fn refuse(&self, end: SessionEnd) {
        info!(text = end.text, "client refused");
        self.refusal().get_or_insert(end);
    }

    /// Returns the reason of a refusal. Returns `None` if the gateway has not refused the client.
    pub(super) fn refused(&self) -> Option<SessionEnd> {
        self.refusal().clone()
    }

    /// Returns the banner for the start of the log-in: the one of an earlier session.
    pub(super) fn first_banner(&self) -> Option<String> {
        let banner = self.memory.banner(&self.far_half()?.target)?;
        self.shown().clone_from(&banner);
        Some(banner)
    }

    /// Stores the banner of the server for later sessions.
    pub(super) fn remember_banner(&self, far: &FarHalf) {
        let banner = far.banner();
        if !banner.is_empty() {
            self.memory.store_banner(&far.target, &banner);
        }
    }

    /// Returns the banner of the server if the client has not received it yet, and stores it for
    /// later sessions.
    pub(super) fn new_banner(&self, far: &FarHalf) -> Option<String> {
        let banner = far.take_banner();
        if banner.is_empty() {
            return None;
        }
        self.memory.store_banner(&far.target, &banner);
        let mut shown = self.shown();
        if *shown == banner {
            return None;
        }
        shown.clone_from(&banner);
        Some(banner)
    }

    fn shown(&self) -> MutexGuard<'_, String> {
        let shown = self.shown_banner.lock();
        shown.unwrap_or_else(PoisonError::into_inner)
    }

    fn refusal(&self) -> MutexGuard<'_, Option<SessionEnd>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the far half has ended the session, and all channels are closed.
    async fn wait_for_far_end(&self) -> SessionEnd {
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

    /// Waits until the client has not logged in by the deadline.
    async fn wait_for_login_timeout(&self, deadline: Instant) {
        sleep_until(deadline).await;
        if *self.is_logged_in.borrow() {
            std::future::pending().await
        }
    }

    /// Waits until a client that has logged in has had no channel for `idle_timeout`.
    async fn wait_for_idleness(&self, idle_timeout: Duration) {
        let mut logged_in = self.is_logged_in.subscribe();
        // The sender is part of this value.
        let _ = logged_in.wait_for(|it| *it).await;
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

/// Serves a client until it disconnects.
pub(super) async fn serve(service: Arc<SshNear>, accepted: ServiceClient, relay: Relay) {
    let ServiceClient {
        connection,
        address,
        session,
    } = accepted;
    if let Err(error) = socket::tune_control(&connection, false) {
        return debug!(%error, "socket options");
    }
    let listener = service.listener.clone();
    let limits = relay.limits();
    let login_deadline = Instant::now() + limits.login_timeout;
    let greeted = GreetedStream::send_identification(Leg::plain(connection)).await;
    let Ok(mut greeted) = greeted else {
        return debug!("the client left at once");
    };
    let opening = async {
        match &listener.target {
            Some(target) => FarHalf::open(&relay, target, listener.via, address)
                .await
                .map(Some),
            None => Ok(None),
        }
    };
    let begun = async {
        // A client that leaves ends the other future.
        tokio::try_join!(async { Ok(opening.await) }, greeted.read_greeting())
    };
    let begun = tokio::select! {
        begun = begun => begun,
        () = relay.wait_for_abort() => return,
    };
    let opened = match begun {
        Ok((opened, ())) => opened,
        Err(error) => return debug!(%error, "no SSH client"),
    };
    let far = match opened {
        Ok(far) => far.map(Arc::new),
        Err(end) => return refusal::send(greeted.into_inner(), &end.text).await,
    };
    let config = match greeted.has_gcm {
        true => &service.configs.gcm,
        false => &service.configs.others,
    };
    let client = Arc::new(Client {
        listener,
        relay,
        address,
        session,
        backpressure: Arc::default(),
        far: watch::Sender::new(far),
        login: AsyncMutex::default(),
        is_logged_in: watch::Sender::new(false),
        channels: watch::Sender::new(0),
        memory: service.memory.clone(),
        shown_banner: Mutex::default(),
        refusal: Mutex::default(),
    });
    let backpressure = client.backpressure.clone();
    let _abort = AbortOnDrop(backpressure.clone());
    let stream = PausableStream::new(greeted, backpressure);
    let handler = ClientHandler::new(client.clone());
    let started = server::run_stream(config.clone(), stream, handler);
    let mut running = match timeout_at(login_deadline, started).await {
        Ok(Ok(running)) => running,
        Ok(Err(error)) => return debug!(%error, "no SSH client"),
        Err(_) => return debug!("the client sent no identification in time"),
    };
    let own_end = |text: &str| SessionEnd {
        reason: EndReason::Closed,
        text: text.to_owned(),
    };
    let end = tokio::select! {
        ended = &mut running => {
            match ended {
                Ok(()) => info!("client gone"),
                Err(error) => info!(%error, "client gone"),
            }
            return;
        }
        end = client.wait_for_far_end() => end,
        () = client.wait_for_login_timeout(login_deadline) => own_end("no log-in in time"),
        () = client.wait_for_idleness(limits.idle_timeout) => own_end("no channel for too long"),
        () = client.relay.wait_for_abort() => own_end("this gateway is shutting down"),
    };
    info!(text = end.text, "disconnecting the client");
    let handle = running.handle();
    let disconnect = async {
        let text = end.text.clone();
        // The client may be gone.
        let _ = handle.disconnect(reason(&end), text, String::new()).await;
        let _ = running.await;
    };
    tokio::select! {
        _ = timeout(DISCONNECT_TIMEOUT, disconnect) => {}
        () = async { client.relay.wait_for_abort().await; sleep(ABORT_TIMEOUT).await } => {}
    }
}

/// Returns the code of a disconnect message.
pub(super) fn reason(end: &SessionEnd) -> Disconnect {
    match end.reason {
        EndReason::Unavailable => Disconnect::ServiceNotAvailable,
        EndReason::HostKey => Disconnect::HostKeyNotVerifiable,
        EndReason::Closed => Disconnect::ByApplication,
    }
}

/// Time limit for the client to read the disconnect message.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for the disconnect message during a shutdown.
const ABORT_TIMEOUT: Duration = Duration::from_millis(500);

/// Time limit for the last output of the server to reach the client.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
