//! The admin interface over HTTP: `/status.json` and `/metrics`, both from one [`Snapshot`].

use std::sync::Arc;

use axum::{Json, Router, extract::State, http::header, response::IntoResponse, routing::get};
use tokio::net::TcpListener;

use crate::{shared::Shared, status::Snapshot};

/// Serves until the task is dropped.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) -> std::io::Result<()> {
    let router = Router::new()
        .route("/status.json", get(status))
        .route("/metrics", get(metrics))
        .with_state(shared);
    axum::serve(listener, router).await
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
