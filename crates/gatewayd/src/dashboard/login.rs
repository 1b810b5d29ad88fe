//! Log-in and log-out, and the request with which a page reads its permissions.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{ConnectInfo, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::{
    Dashboard,
    access::{self, Permission, no_cookie},
    controls::read,
    error::DashboardError,
    json,
};
use pages::PageClient;
use relay::limits;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginRequest {
    token: String,
}

/// Permissions of the requesting page. The page shows only the controls that it may use.
#[derive(Debug, Serialize)]
struct PagePermissions {
    look: bool,
    change: bool,
    invite: bool,
    /// Whether a log-in with a token is useful: a token is configured, and the client has no valid
    /// certificate.
    has_token: bool,
    /// Reason why the dashboard, or the creation of invites, is not available.
    why_not: Option<String>,
}

pub(super) async fn login(
    State(dashboard): State<Arc<Dashboard>>,
    ConnectInfo(client): ConnectInfo<PageClient>,
    body: Bytes,
) -> Result<Response, DashboardError> {
    let LoginRequest { token: shown } = read(&body)?;
    let running = dashboard.running();
    let token = running.config.admin_token.as_ref();
    let token = token.ok_or_else(|| DashboardError::without_token(&client))?;
    let address = client.address;
    if !token.is(shown.trim()) {
        running.relay.registry().count_refusal();
        if running
            .relay
            .usage()
            .should_log(address.ip(), limits::RefusalKind::AdminToken)
        {
            warn!(target: "audit", client = %address, "a wrong token at the dashboard");
        }
        return Err(DashboardError::WrongToken);
    }
    info!(target: "audit", client = %address, "logged in to the dashboard");
    // The browser's pages see names from now on.
    dashboard.nameless_feed.reconnect_pages();
    let cookie = dashboard.access.cookie(token, &client);
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

pub(super) async fn logout(ConnectInfo(client): ConnectInfo<PageClient>) -> impl IntoResponse {
    (
        StatusCode::NO_CONTENT,
        [(header::SET_COOKIE, no_cookie(&client))],
    )
}

pub(super) async fn access(
    State(dashboard): State<Arc<Dashboard>>,
    ConnectInfo(client): ConnectInfo<PageClient>,
    headers: HeaderMap,
) -> Response {
    let may = |permission| dashboard.allows(permission, &client, &headers);
    let invite = may(Permission::Invite);
    let running = dashboard.running();
    json(&PagePermissions {
        look: may(Permission::Read).is_ok(),
        change: may(Permission::Change).is_ok(),
        invite: invite.is_ok(),
        has_token: running.config.admin_token.is_some()
            && !access::is_known(&client, &running.config),
        why_not: invite.err().map(|refused| refused.to_string()),
    })
}
