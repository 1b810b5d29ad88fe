//! Far gateway: the SSH client of servers.

mod channel;
mod connection;
mod exit;
mod login;
mod near_half;
mod session;
mod sftp;
mod user_keys;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use futures_util::future::BoxFuture;
use link::PeerId;
use relay::{
    Relay,
    service::{FarService, ServiceStream},
};
use tokio::sync::watch;
use tracing::{Instrument as _, info_span};

use crate::{
    settings::FarSsh,
    wire::{self, Token},
};

/// Returns two services: the far half of SSH sessions, and the far half of their channels. Both
/// services share one table of open sessions.
pub fn far_services(settings: FarSsh) -> Vec<Arc<dyn FarService>> {
    far_services_following(watch::Sender::new(settings).subscribe())
}

/// Returns the same services as [`far_services`], with settings that may change. A session keeps
/// the settings with which it started.
pub fn far_services_following(settings: watch::Receiver<FarSsh>) -> Vec<Arc<dyn FarService>> {
    let sessions = Arc::new(Sessions::default());
    vec![
        Arc::new(SessionService {
            settings,
            sessions: sessions.clone(),
        }),
        Arc::new(ChannelService { sessions }),
    ]
}

/// Open sessions. The streams of channels find their sessions here.
#[derive(Debug, Default)]
struct Sessions {
    open: Mutex<HashMap<(PeerId, Token), Weak<session::ServerSession>>>,
}

impl Sessions {
    fn find(&self, peer: PeerId, token: Token) -> Option<Arc<session::ServerSession>> {
        self.lock().get(&(peer, token))?.upgrade()
    }

    /// Adds a session. Returns false if the peer has used the token before.
    fn insert(&self, peer: PeerId, token: Token, session: &Arc<session::ServerSession>) -> bool {
        let mut open = self.lock();
        let is_new = !open.contains_key(&(peer, token));
        if is_new {
            open.insert((peer, token), Arc::downgrade(session));
        }
        is_new
    }

    fn remove(&self, peer: PeerId, token: Token) {
        self.lock().remove(&(peer, token));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(PeerId, Token), Weak<session::ServerSession>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Far half of SSH sessions.
#[derive(Debug)]
struct SessionService {
    settings: watch::Receiver<FarSsh>,
    sessions: Arc<Sessions>,
}

impl FarService for SessionService {
    fn name(&self) -> &'static str {
        wire::SESSION
    }

    fn serve(self: Arc<Self>, stream: ServiceStream, relay: Relay) -> BoxFuture<'static, ()> {
        let settings = Arc::new(self.settings.borrow().clone());
        let served = session::serve(settings, self.sessions.clone(), stream, relay);
        Box::pin(served.instrument(info_span!("ssh")))
    }
}

/// Far half of the channels of SSH sessions.
#[derive(Debug)]
struct ChannelService {
    sessions: Arc<Sessions>,
}

impl FarService for ChannelService {
    fn name(&self) -> &'static str {
        wire::CHANNEL
    }

    fn continues_sessions(&self) -> bool {
        true
    }

    fn serve(self: Arc<Self>, stream: ServiceStream, relay: Relay) -> BoxFuture<'static, ()> {
        let sessions = self.sessions.clone();
        Box::pin(async move { channel::serve(&sessions, stream, &relay).await })
    }
}
