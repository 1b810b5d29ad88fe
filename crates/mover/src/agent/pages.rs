//! HTTP pages of the agent: `/status.json` and `/metrics`. Each page shows an
//! [`AgentSnapshot`].

use std::{io, sync::Arc};

use axum::{Json, Router, extract::State, response::IntoResponse, routing::get};
use net::target::Host;
use pages::{HostNames, as_metrics};
use tokio::net::TcpListener;

use super::status::{AgentSnapshot, AgentStatus};

/// Serves the pages until the task is dropped. The `Host` header of a request must contain the
/// listener's address, loopback, or an entry of `hosts`.
///
/// # Errors
/// An error of the listener.
pub async fn serve(
    listener: TcpListener,
    hosts: Vec<Host>,
    status: Arc<AgentStatus>,
) -> io::Result<()> {
    let router = Router::new()
        .route("/status.json", get(snapshot))
        .route("/metrics", get(metrics))
        .with_state(status);
    let names = HostNames {
        section: "[agent]",
        hosts,
    };
    // A refused host name appears in the answer, but not in the log.
    ::pages::serve(listener, None, names, router, |_| false).await
}

async fn snapshot(State(status): State<Arc<AgentStatus>>) -> Json<AgentSnapshot> {
    Json(status.snapshot())
}

async fn metrics(State(status): State<Arc<AgentStatus>>) -> impl IntoResponse {
    as_metrics(status.snapshot().to_metrics())
}
