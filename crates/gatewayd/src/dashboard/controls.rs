//! Requests that change the gateway: rate limits, the stop of a transfer, the clearing of a chunk
//! store, and invites for peers.

use std::{sync::Arc, time::SystemTime};

use axum::{
    body::Bytes,
    extract::{ConnectInfo, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::task::spawn_blocking;
use units::BitRate;

use super::{Dashboard, access::Permission, error::DashboardError, json, lock};
use crate::{
    audit::{self, Principal},
    config::{RATE_MAX_MIN, may_be_name},
    enrolment::Invite,
    register::{OpenInvite, Register, RegisterChangeError},
    reload,
    running::RunningGateway,
};
use net::target::HostPort;
use pages::PageClient;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RateRequest {
    /// Name of the peer. `None` means the sum over all peers.
    peer: Option<String>,
    /// The limit, written as in the configuration. `None` removes the limit.
    rate_max: Option<String>,
}

/// Limits the rate of one peer, or of all peers together, until an operator orders a reload.
pub(super) async fn rate(
    State(dashboard): State<Arc<Dashboard>>,
    ConnectInfo(client): ConnectInfo<PageClient>,
    body: Bytes,
) -> Result<StatusCode, DashboardError> {
    let RateRequest { peer, rate_max } = read(&body)?;
    let rate_max: Option<BitRate> = rate_max
        .map(|text| text.parse())
        .transpose()
        .map_err(|error: units::ParseUnitError| DashboardError::Value(error.to_string()))?;
    if rate_max.is_some_and(|rate| rate < RATE_MAX_MIN) {
        let least = format!("expected a rate of at least {RATE_MAX_MIN}");
        return Err(DashboardError::Value(least));
    }
    let running = dashboard.running();
    let id = match &peer {
        None => None,
        Some(name) => {
            let mut peers = running.config.relay.peers.iter();
            let found = peers.find(|it| it.name == *name && !it.is_guest());
            Some(found.ok_or(DashboardError::Nothing("peer"))?.id)
        }
    };
    lock(&dashboard.rates).set(&running, id, rate_max);
    let rate_max = rate_max.map_or("none".to_owned(), |rate| rate.to_string());
    let peer = peer.unwrap_or_else(|| "all peers".to_owned());
    audit::log_change(
        &Principal::from_client(&client),
        "rate limit",
        &format!("{peer}: {rate_max}"),
    );
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StopRequest {
    transfer: u64,
}

/// Aborts a transfer.
pub(super) async fn stop(
    State(dashboard): State<Arc<Dashboard>>,
    ConnectInfo(client): ConnectInfo<PageClient>,
    body: Bytes,
) -> Result<StatusCode, DashboardError> {
    let StopRequest { transfer } = read(&body)?;
    match dashboard.running().relay.registry().stop(transfer) {
        true => {
            audit::log_change(
                &Principal::from_client(&client),
                "transfer stopped",
                &transfer.to_string(),
            );
            Ok(StatusCode::NO_CONTENT)
        }
        false => Err(DashboardError::Nothing("transfer")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClearRequest {
    /// Name of the store's folder.
    store: String,
}

/// Deletes all chunks of an open chunk store.
pub(super) async fn clear(
    State(dashboard): State<Arc<Dashboard>>,
    ConnectInfo(client): ConnectInfo<PageClient>,
    body: Bytes,
) -> Result<StatusCode, DashboardError> {
    let ClearRequest { store } = read(&body)?;
    let stores = dashboard.running().relay.stores().cloned();
    let name = store.clone();
    let cleared = spawn_blocking(move || stores?.clear(&name)).await;
    let cleared =
        cleared.map_err(|_| DashboardError::Failed("the store cannot be cleared".to_owned()))?;
    match cleared {
        None => Err(DashboardError::Nothing("open store")),
        Some(Ok(())) => {
            audit::log_change(
                &Principal::from_client(&client),
                "chunk store cleared",
                &store,
            );
            Ok(StatusCode::NO_CONTENT)
        }
        Some(Err(error)) => Err(DashboardError::Failed(format!("{error}: {}", error.source))),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InviteRequest {
    /// Name for the new peer. With `None`, the peer chooses its name.
    name: Option<String>,
    /// Endpoint of this gateway. `None` means the endpoint of the previous invite.
    endpoint: Option<String>,
    minutes: u64,
}

#[derive(Serialize)]
struct InviteReply {
    invite: String,
    endpoint: String,
    minutes: u64,
}

/// Creates an invite. With this invite, another gateway can become a peer.
pub(super) async fn invite(
    State(dashboard): State<Arc<Dashboard>>,
    ConnectInfo(client): ConnectInfo<PageClient>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, DashboardError> {
    dashboard.allows(Permission::Invite, &client, &headers)?;
    let request: InviteRequest = read(&body)?;
    if request
        .name
        .as_deref()
        .is_some_and(|name| !may_be_name(name))
    {
        let message = "expected a name of 1 to 64 printable characters";
        return Err(DashboardError::Value(message.to_owned()));
    }
    if !(1..=MINUTES_MAX).contains(&request.minutes) {
        let message = format!("expected 1 to {MINUTES_MAX} minutes");
        return Err(DashboardError::Value(message));
    }
    let running = dashboard.running();
    let minutes = request.minutes;
    let invite = spawn_blocking(move || create_invite(&running, request)).await;
    let invite = invite
        .map_err(|_| DashboardError::Failed("the register cannot be changed".to_owned()))??;
    dashboard.apply_register().await?;
    audit::log_change(
        &Principal::from_client(&client),
        "invite made",
        &format!("good for {minutes} min"),
    );
    Ok(json(&InviteReply {
        invite: invite.to_string(),
        endpoint: invite.endpoint,
        minutes,
    }))
}

/// Creates an invite and stores it in the register.
fn create_invite(
    running: &RunningGateway,
    request: InviteRequest,
) -> Result<Invite, DashboardError> {
    let path = Register::path(&running.config.key_file);
    let own = running.config.relay.link.identity.public_key();
    let now = unix_s();
    let changed = Register::change(&path, now, |register| {
        let endpoint = request.endpoint.as_deref().or(register.endpoint.as_deref());
        let endpoint = endpoint.and_then(HostPort::with_port).ok_or_else(|| {
            let expected = "expected where others reach this gateway, such as 203.0.113.9:4810";
            DashboardError::Value(expected.to_owned())
        })?;
        let invite = Invite::new(own, &endpoint);
        let open = OpenInvite {
            name: request.name,
            serves: Vec::new(),
            public_key: invite.identity().public_key(),
            expires_unix_s: now + request.minutes * 60,
            used_by: None,
            withdrawn: false,
        };
        register.endpoint = Some(endpoint.to_string());
        let added = register.invite(open, now);
        added.map_err(|error| DashboardError::Value(error.to_string()))?;
        Ok(invite)
    });
    changed.map_err(|error| match error {
        RegisterChangeError::Refused(refused) => refused,
        RegisterChangeError::File(error) => DashboardError::Failed(error.to_string()),
    })
}

impl Dashboard {
    /// Requests a reload of the register, and waits for its outcome.
    async fn apply_register(&self) -> Result<(), DashboardError> {
        let stopping = || DashboardError::Over;
        let (request, answered) = reload::ReloadRequest::new(reload::ReloadCause::Enrolment);
        self.reloads.send(request).await.map_err(|_| stopping())?;
        let outcome = answered.await.map_err(|_| stopping())?;
        match outcome.error {
            None => Ok(()),
            Some(error) => Err(DashboardError::Failed(format!(
                "the invite was made, and the gateway cannot apply it now: {error}"
            ))),
        }
    }
}

/// Parses the JSON body of a request.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, DashboardError> {
    serde_json::from_slice(body).map_err(|error| DashboardError::Malformed(error.to_string()))
}

fn unix_s() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// Maximum lifetime of an invite, in minutes: 30 days, as in `longhaul peer invite`.
const MINUTES_MAX: u64 = 30 * 24 * 60;
