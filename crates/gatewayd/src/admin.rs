//! The admin interface over HTTP.
//!
//! - `/status.json` and `/metrics` return the values of a [`GatewaySnapshot`].
//! - `/healthz` and `/readyz` serve monitoring programs.
//! - `GET /trace` serves programs on this machine.
//! - The dashboard serves people.
//!
//! Only the admin socket, the token and a valid client certificate give access to the names of
//! users, files and clients. The TLS address serves all pages except `/trace`, and only to clients
//! that the dashboard admits.
//!
//! Only the admin socket accepts the orders `POST /reload`, `POST /upgrade` and `POST /log`. The
//! module `pages::local` checks the user of the process that sends an order. The admin socket
//! serves all other pages, too.
//!
//! The gateway answers only requests for its own host names. A malicious web page can make its own
//! host name resolve to the gateway's address (DNS rebinding). The browser then sends the page's
//! host name in `Host`. [`BoundedListener`] limits the number of connections and the idle time of
//! each connection.

mod https;
mod qlog;
mod trace;

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{ConnectInfo, DefaultBodyLimit, FromRef, State},
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
    routing::{get, post},
};
use link::PeerState;
use tokio::{
    net::{TcpListener, UnixListener},
    sync::{mpsc, oneshot, watch},
};

pub(crate) use self::https::HttpsListener;
use crate::{
    audit::{self, Principal},
    dashboard::Dashboard,
    reload::{self, ReloadOutcome, SetLogFilter},
    running::RunningGateway,
    upgrade,
};
use pages::{BoundedListener, HostNames, PageClient, as_metrics};
use relay::{limits::RefusalKind, status::GatewaySnapshot};

/// The running gateway with its present settings.
type CurrentGateway = watch::Receiver<Arc<RunningGateway>>;

/// Channels over which the admin socket sends orders to the gateway.
pub(crate) struct OrderSenders {
    pub(crate) reloads: mpsc::Sender<reload::ReloadRequest>,
    /// Requests for an upgrade to another program file.
    pub(crate) upgrades: mpsc::Sender<upgrade::UpgradeRequest>,
    pub(crate) set_log: Option<SetLogFilter>,
}

/// Listeners of the admin interface.
pub(crate) struct AdminListeners {
    pub(crate) tcp: Option<TcpListener>,
    pub(crate) https: Option<HttpsListener>,
    pub(crate) socket: Option<UnixListener>,
}

/// State that the request handlers of the status pages share.
#[derive(Clone)]
struct ViewState {
    current: CurrentGateway,
    dashboard: Arc<Dashboard>,
}

impl FromRef<ViewState> for CurrentGateway {
    fn from_ref(state: &ViewState) -> Self {
        state.current.clone()
    }
}

/// Serves all listeners until the caller drops the future.
pub(crate) async fn serve(
    listeners: AdminListeners,
    current: CurrentGateway,
    orders: OrderSenders,
) -> std::io::Result<()> {
    let AdminListeners { tcp, https, socket } = listeners;
    let OrderSenders {
        reloads,
        upgrades,
        set_log,
    } = orders;
    let counted = current.borrow().clone();
    let others = counted.config.admin_hosts.clone();
    let counted_socket = counted.config.admin_socket.clone();
    let refused = move |client: IpAddr| {
        counted.relay.registry().count_refusal();
        counted
            .relay
            .usage()
            .should_log(client, RefusalKind::AdminHost)
    };
    let dashboard = Dashboard::new(current.clone(), reloads.clone());
    let pages = Router::new()
        .route("/status.json", get(status))
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
        .route("/readyz", get(readiness));
    let with_trace = pages.clone().route("/trace", get(trace::trace));
    let state = ViewState {
        current: current.clone(),
        dashboard: dashboard.clone(),
    };
    let over_tls = dashboard
        .guard(pages)
        .with_state(state.clone())
        .merge(dashboard.router());
    let with_trace = with_trace.with_state(state).merge(dashboard.router());
    let path = counted_socket.display().to_string();
    let elsewhere = Router::new()
        .route("/reload", post(order_elsewhere))
        .route("/upgrade", post(order_elsewhere))
        .route("/log", post(order_elsewhere))
        .with_state(Arc::from(path));
    let at_socket = with_trace
        .clone()
        .merge(
            Router::new()
                .route("/reload", post(reload))
                .with_state(reloads),
        )
        .merge(
            Router::new()
                .route("/upgrade", post(upgrade))
                .with_state(upgrades),
        )
        .merge(
            Router::new()
                .route("/log", post(log))
                .layer(DefaultBodyLimit::max(FILTER_MAX_BYTES))
                .with_state(set_log),
        );
    let router = with_trace.merge(elsewhere);
    let at_both = |listener, tls, router| {
        let names = HostNames {
            section: "[admin]",
            hosts: others.clone(),
        };
        pages::serve(listener, tls, names, router, refused.clone())
    };
    let local = async {
        match socket {
            Some(socket) => {
                let service = at_socket.into_make_service_with_connect_info::<PageClient>();
                axum::serve(BoundedListener::at_socket(socket), service).await
            }
            None => std::future::pending().await,
        }
    };
    let plain = async {
        match tcp {
            Some(listener) => at_both(listener, None, router).await,
            None => std::future::pending().await,
        }
    };
    let https = async {
        match https.map(|https| https.split(current)) {
            Some((listener, tls)) => at_both(listener, Some(tls), over_tls).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        served = local => served,
        served = plain => served,
        served = https => served,
        never = dashboard.follow() => match never {},
    }
}

async fn reload(
    State(reloads): State<mpsc::Sender<reload::ReloadRequest>>,
    ConnectInfo(from): ConnectInfo<PageClient>,
) -> Result<(StatusCode, Json<ReloadOutcome>), (StatusCode, &'static str)> {
    let (request, answered) = reload::ReloadRequest::new(reload::ReloadCause::Order);
    let outcome = ask(&reloads, request, answered).await?;
    audit::log_change(&Principal::from_client(&from), "reload", &outcome.summary());
    let code = code_of(outcome.error.as_deref());
    Ok((code, Json(outcome)))
}

async fn upgrade(
    State(upgrades): State<mpsc::Sender<upgrade::UpgradeRequest>>,
    ConnectInfo(from): ConnectInfo<PageClient>,
) -> Result<(StatusCode, Json<upgrade::UpgradeOutcome>), (StatusCode, &'static str)> {
    audit::log_change(&Principal::from_client(&from), "upgrade", "");
    let (request, answered) = oneshot::channel();
    let outcome = ask(&upgrades, request, answered).await?;
    let code = code_of(outcome.error.as_deref());
    Ok((code, Json(outcome)))
}

/// Sets the filter of log messages to the text in the request's body.
async fn log(
    State(set_log): State<Option<SetLogFilter>>,
    ConnectInfo(from): ConnectInfo<PageClient>,
    filter: String,
) -> Result<&'static str, (StatusCode, String)> {
    let Some(set_log) = set_log else {
        let text = "this process does not keep a log of its own\n";
        return Err((StatusCode::NOT_IMPLEMENTED, text.to_owned()));
    };
    audit::log_change(&Principal::from_client(&from), "log", filter.trim());
    match set_log(filter.trim()) {
        Ok(()) => Ok("until the next reload or restart\n"),
        Err(error) => Err((StatusCode::UNPROCESSABLE_ENTITY, error + "\n")),
    }
}

/// Refuses an order that arrived at a listener other than the admin socket.
async fn order_elsewhere(State(socket): State<Arc<str>>) -> (StatusCode, String) {
    let text = format!(
        "only the admin socket {socket} accepts orders: use longhaul reload, upgrade or log with --config FILE\n"
    );
    (StatusCode::FORBIDDEN, text)
}

/// Permits the request only to a program on this machine that is not a browser.
///
/// # Errors
/// An error response if the client is on another machine, or is a browser.
fn check_program(from: &PageClient, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    // A browser adds a header with the requesting page, or with the purpose of the request. No page
    // of the dashboard needs this request.
    let is_browser = headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
    let is_here = from.is_local() && from.address.ip().to_canonical().is_loopback();
    if !is_here || is_browser {
        return Err((StatusCode::FORBIDDEN, "only programs on this machine may\n"));
    }
    Ok(())
}

/// Sends an order to the gateway, and waits for the outcome.
async fn ask<R, T>(
    orders: &mpsc::Sender<R>,
    request: R,
    answered: oneshot::Receiver<T>,
) -> Result<T, (StatusCode, &'static str)> {
    let gone = (StatusCode::SERVICE_UNAVAILABLE, GONE);
    orders.send(request).await.map_err(|_| gone)?;
    answered.await.map_err(|_| gone)
}

/// Reply to an order that the gateway can no longer accept. During an upgrade, the new process
/// accepts orders.
const GONE: &str = "the gateway hands over to another process, or shuts down: ask again\n";

fn code_of(error: Option<&str>) -> StatusCode {
    match error {
        None => StatusCode::OK,
        Some(_) => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

async fn status(
    State(state): State<ViewState>,
    ConnectInfo(client): ConnectInfo<PageClient>,
    headers: HeaderMap,
) -> Json<GatewaySnapshot> {
    let mut snapshot = state.current.borrow().snapshot();
    if !state.dashboard.shows_names(&client, &headers) {
        snapshot.hide_names();
    }
    Json(snapshot)
}

/// Reports whether the gateway works. The reply itself shows that the tasks run. The function also
/// checks the link's thread.
async fn health(State(current): State<CurrentGateway>) -> (StatusCode, &'static str) {
    let link = current.borrow().relay.link().clone();
    match link.works(HEALTH_TIMEOUT).await {
        true => (StatusCode::OK, "ok\n"),
        false => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the link's thread does not answer\n",
        ),
    }
}

/// Reports whether the gateway can serve clients. The gateway must work, and must not be shutting
/// down. A gateway with listeners also needs a connection to at least one peer.
async fn readiness(State(current): State<CurrentGateway>) -> (StatusCode, &'static str) {
    let running = current.borrow().clone();
    let no = |why| (StatusCode::SERVICE_UNAVAILABLE, why);
    if running.relay.is_ending() {
        return no("shutting down\n");
    }
    let config = &running.config;
    let has_listeners = !(config.ftp.is_empty()
        && config.pass_through.is_empty()
        && config.ssh.is_empty()
        && config.forwards.is_empty());
    let peers = running.relay.link().snapshot().peers;
    let is_up =
        |peer: &link::PeerSnapshot| !peer.is_guest && matches!(peer.state, PeerState::Up { .. });
    match has_listeners && !peers.iter().any(is_up) {
        true => no("no peer answers\n"),
        false => health(State(current)).await,
    }
}

async fn metrics(State(current): State<CurrentGateway>) -> impl IntoResponse {
    as_metrics(current.borrow().snapshot().to_metrics())
}

/// Timeout of the health check. A thread that works answers within milliseconds.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum length of a log filter. A usual filter has a few words.
const FILTER_MAX_BYTES: usize = 4096;
