//! The admin interface over HTTP: `/status.json` and `/metrics`, both from one [`Snapshot`], and
//! `POST /reload` for programs on this machine.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    extract::{ConnectInfo, State},
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
    routing::{get, post},
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};

use crate::{
    reload::{Outcome, Request},
    shared::Shared,
    status::Snapshot,
};

/// Serves until the task is dropped. Reloads are asked for by `reloads`.
pub(crate) async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    reloads: mpsc::Sender<Request>,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/status.json", get(status))
        .route("/metrics", get(metrics))
        .with_state(shared)
        .merge(
            Router::new()
                .route("/reload", post(reload))
                .with_state(reloads),
        );
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await
}

async fn reload(
    State(reloads): State<mpsc::Sender<Request>>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Result<(StatusCode, Json<Outcome>), (StatusCode, &'static str)> {
    // A browser names the page that asks; no page has to.
    if !from.ip().to_canonical().is_loopback() || headers.contains_key(header::ORIGIN) {
        return Err((StatusCode::FORBIDDEN, "only programs on this machine may\n"));
    }
    let gone = (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n");
    let (answer, answered) = oneshot::channel();
    reloads.send(answer).await.map_err(|_| gone)?;
    let outcome = answered.await.map_err(|_| gone)?;
    let code = match &outcome.error {
        None => StatusCode::OK,
        Some(_) => StatusCode::UNPROCESSABLE_ENTITY,
    };
    Ok((code, Json(outcome)))
}

async fn status(State(shared): State<Arc<Shared>>) -> Json<Snapshot> {
    Json(shared.snapshot())
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (kind, shared.snapshot().to_metrics())
}

impl Shared {
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.registry
            .snapshot(&self.link.snapshot(), self.link.local_addr().to_string())
    }
}
