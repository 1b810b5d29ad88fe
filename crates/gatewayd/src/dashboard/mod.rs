//! The dashboard at the admin address: a web page, and the data of this page.
//!
//! The page is static. Its data arrive as a stream of events from the module `feed`. Two requests
//! return more data: `history` returns the history of a peer, and `recent` returns finished
//! transfers. Only the POST requests in `controls` change state. `access` checks permissions.
//! `origin` checks which web page has sent a request. The module `admin` has already checked that a
//! request is for this gateway.
#![allow(
    clippy::disallowed_methods,
    reason = "reads the clock of the machine: sessions of browsers, invites"
)]

mod access;
mod assets;
mod controls;
mod error;
mod feed;
mod history;
mod login;
mod origin;
mod rate_overrides;
mod recent;
#[cfg(feature = "testing")]
mod testing;
mod view;

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::{ConnectInfo, DefaultBodyLimit, Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tokio::{
    sync::{mpsc, watch},
    time::{MissedTickBehavior, interval},
};

use self::{
    access::{AccessControl, Permission},
    error::DashboardError,
    feed::EventFeed,
    history::PeerHistories,
    rate_overrides::RateOverrides,
};
use crate::{reload, running::RunningGateway};
use pages::PageClient;

/// The dashboard of a gateway.
pub(crate) struct Dashboard {
    current: watch::Receiver<Arc<RunningGateway>>,
    reloads: mpsc::Sender<reload::ReloadRequest>,
    access: AccessControl,
    feed: EventFeed,
    /// Feed for pages that must not see names of users, files and clients.
    nameless_feed: EventFeed,
    history: Mutex<PeerHistories>,
    rates: Mutex<RateOverrides>,
}

impl Dashboard {
    pub(crate) fn new(
        current: watch::Receiver<Arc<RunningGateway>>,
        reloads: mpsc::Sender<reload::ReloadRequest>,
    ) -> Arc<Self> {
        Arc::new(Self {
            current,
            reloads,
            access: AccessControl::new(),
            feed: EventFeed::new(),
            nameless_feed: EventFeed::new(),
            history: Mutex::default(),
            rates: Mutex::default(),
        })
    }

    /// Returns the routes of the web page and of its requests.
    pub(crate) fn router(self: &Arc<Self>) -> Router {
        let reading = Router::new()
            .route("/", get(assets::page))
            .route("/dashboard/events", get(feed::events))
            .route("/dashboard/history", get(history::history))
            .route("/dashboard/recent", get(recent::recent));
        let changing = Router::new()
            .route("/dashboard/rate", post(controls::rate))
            .route("/dashboard/stop", post(controls::stop))
            .route("/dashboard/clear", post(controls::clear))
            .route("/dashboard/invite", post(controls::invite));
        #[cfg(feature = "testing")]
        let changing = changing.route("/dashboard/testing", post(testing::fill));
        let changing = changing
            .route_layer(middleware::from_fn_with_state(self.clone(), may_change))
            .route("/dashboard/login", post(login::login))
            .route("/dashboard/logout", post(login::logout))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .route_layer(middleware::from_fn(origin::check));
        Router::new()
            .merge(self.may_read(reading))
            .merge(changing)
            .route("/dashboard/access", get(login::access))
            .route("/dashboard/{asset}", get(assets::asset))
            .layer(middleware::from_fn_with_state(self.clone(), close_off))
            .with_state(self.clone())
    }

    /// Restricts these routes to clients that have the permission to read.
    pub(crate) fn guard<S: Clone + Send + Sync + 'static>(
        self: &Arc<Self>,
        pages: Router<S>,
    ) -> Router<S> {
        let pages = self.may_read(pages);
        pages.route_layer(middleware::from_fn_with_state(self.clone(), close_off))
    }

    fn may_read<S: Clone + Send + Sync + 'static>(self: &Arc<Self>, pages: Router<S>) -> Router<S> {
        pages.route_layer(middleware::from_fn_with_state(self.clone(), may_read))
    }

    /// Updates the feeds and the history at regular intervals. The feeds end when the caller drops
    /// the future.
    pub(crate) async fn follow(&self) -> Infallible {
        let _ends = [EndOfFeed(&self.feed), EndOfFeed(&self.nameless_feed)];
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for tick in (0..TICKS_PER_S).cycle() {
            ticks.tick().await;
            let is_second = tick == 0;
            if is_second || self.feed.has_readers() || self.nameless_feed.has_readers() {
                self.update(is_second);
            }
        }
        unreachable!("a cycle has no end")
    }

    fn update(&self, is_second: bool) {
        let running = self.running();
        let token = running.config.admin_token.as_ref();
        for feed in [&self.feed, &self.nameless_feed] {
            feed.check_credentials(token, running.config.client_ca());
        }
        let mut snapshot = running.snapshot();
        let recent_total = running.relay.registry().recent_total();
        let mut view = {
            let mut rates = lock(&self.rates);
            view::DashboardGateway::new(
                &snapshot,
                &running.config,
                rates.limits(&running),
                recent_total,
            )
        };
        let mut history = lock(&self.history);
        if is_second {
            history.add(&view);
        }
        for peer in &mut view.peers {
            let Some(path) = history.path(&peer.status.name) else {
                continue;
            };
            peer.set_path(path);
            if is_second {
                running
                    .relay
                    .registry()
                    .record_path(&peer.status.name, path);
            }
        }
        drop(history);
        self.feed.publish(&view, snapshot.transfers.clone());
        snapshot.hide_names();
        self.nameless_feed.publish(&view, snapshot.transfers);
    }

    /// Returns the running gateway with its present settings.
    fn running(&self) -> Arc<RunningGateway> {
        self.current.borrow().clone()
    }
}

/// Guard that ends a feed when it is dropped.
struct EndOfFeed<'a>(&'a EventFeed);

impl Drop for EndOfFeed<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

async fn may_read(
    State(dashboard): State<Arc<Dashboard>>,
    ConnectInfo(client): ConnectInfo<PageClient>,
    request: Request,
    next: Next,
) -> Result<Response, DashboardError> {
    let wants_page = request.uri().path() == "/";
    let (site, mode) = (
        request.headers().get("sec-fetch-site"),
        request.headers().get("sec-fetch-mode"),
    );
    let follows_link = mode.is_some_and(|mode| mode == "navigate");
    if !follows_link && site.is_some_and(|site| site == "cross-site") {
        // A page of another site cannot read the response, but could make the gateway perform a
        // search.
        return Err(DashboardError::Origin);
    }
    match dashboard.allows(Permission::Read, &client, request.headers()) {
        Ok(()) => Ok(next.run(request).await),
        Err(DashboardError::NoToken) if wants_page => Ok(assets::login_page()),
        Err(refused) => Err(refused),
    }
}

async fn may_change(
    State(dashboard): State<Arc<Dashboard>>,
    ConnectInfo(client): ConnectInfo<PageClient>,
    request: Request,
    next: Next,
) -> Result<Response, DashboardError> {
    dashboard.allows(Permission::Change, &client, request.headers())?;
    Ok(next.run(request).await)
}

/// Adds headers that isolate the dashboard. The browser does not cache it, and web pages of other
/// sites can neither embed nor read it. Its pages load nothing from other sites.
async fn close_off(
    State(dashboard): State<Arc<Dashboard>>,
    ConnectInfo(client): ConnectInfo<PageClient>,
    request: Request,
    next: Next,
) -> Response {
    let is_stranger = client.is_tls
        && dashboard
            .allows(Permission::Read, &client, request.headers())
            .is_err();
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, assets::POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(
        "cross-origin-resource-policy",
        HeaderValue::from_static("same-origin"),
    );
    // After an upgrade, only a new connection reaches the process that now has the admin address. A
    // stranger must not keep its connection.
    if dashboard.feed.is_over() || is_stranger {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let no_store = HeaderValue::from_static("no-store");
    headers.entry(header::CACHE_CONTROL).or_insert(no_store);
    response
}

/// Returns a response with the value as JSON.
fn json(value: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Locks the mutex. Ignores a panic of another holder of the lock, because the protected values are
/// only displayed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of updates of a page per second. Users notice delays of about a second.
const TICKS_PER_S: u32 = 3;
const TICK: Duration = Duration::from_nanos(1_000_000_000 / TICKS_PER_S as u64);

/// Maximum length of a request's body in bytes. The largest request contains a name, an endpoint
/// and a token.
const BODY_BYTES_MAX: usize = 4096;
