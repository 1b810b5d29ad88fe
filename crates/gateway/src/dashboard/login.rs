//! Logging in and out, and what a page may do.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Extension,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::{Dashboard, access::Wanted, controls::read, json, refused::Refused};
use crate::limits;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

/// What the page needs to know before it offers something.
#[derive(Debug, Serialize)]
struct May {
    look: bool,
    change: bool,
    invite: bool,
    /// There is a token to log in with.
    has_token: bool,
    /// Why there is no dashboard, or no invite by it.
    why_not: Option<String>,
}

pub(super) async fn login(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(client): Extension<SocketAddr>,
    body: Bytes,
) -> Result<Response, Refused> {
    let Login { token: said } = read(&body)?;
    let shared = dashboard.shared();
    let token = shared.config.admin_token.as_ref().ok_or(Refused::Off)?;
    if !token.is(said.trim()) {
        shared.registry.refused();
        if shared
            .usage
            .is_news(client.ip(), limits::Refusal::AdminToken)
        {
            warn!(%client, "a wrong token at the dashboard");
        }
        return Err(Refused::WrongToken);
    }
    info!(%client, "logged in to the dashboard");
    let cookie = dashboard.access.cookie(token);
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

pub(super) async fn logout(State(dashboard): State<Arc<Dashboard>>) -> impl IntoResponse {
    let cookie = dashboard.access.no_cookie();
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)])
}

pub(super) async fn access(
    State(dashboard): State<Arc<Dashboard>>,
    headers: HeaderMap,
) -> Response {
    let may = |wanted| dashboard.allows(wanted, &headers);
    let invite = may(Wanted::Invite);
    json(&May {
        look: may(Wanted::Look).is_ok(),
        change: may(Wanted::Change).is_ok(),
        invite: invite.is_ok(),
        has_token: dashboard.shared().config.admin_token.is_some(),
        why_not: invite.err().map(|refused| refused.to_string()),
    })
}
