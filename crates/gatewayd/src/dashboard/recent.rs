//! Search among finished transfers.

use std::sync::Arc;

use axum::{
    extract::{ConnectInfo, Query, State},
    http::HeaderMap,
    response::Response,
};
use serde::Deserialize;

use super::{Dashboard, error::DashboardError, json};
use pages::PageClient;
use relay::status::TransferSearch;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecentQuery {
    #[serde(default)]
    words: String,
    #[serde(default)]
    failed: bool,
    before: Option<u64>,
}

pub(super) async fn recent(
    State(dashboard): State<Arc<Dashboard>>,
    ConnectInfo(client): ConnectInfo<PageClient>,
    headers: HeaderMap,
    Query(query): Query<RecentQuery>,
) -> Result<Response, DashboardError> {
    if query.words.len() > WORDS_BYTES_MAX {
        return Err(DashboardError::Value("too many words".to_owned()));
    }
    let shows_names = dashboard.shows_names(&client, &headers);
    if !shows_names && !query.words.trim().is_empty() {
        // The result of a search reveals names, too.
        return Err(DashboardError::HidesNames);
    }
    let mut found = dashboard
        .running()
        .relay
        .registry()
        .recent(&TransferSearch {
            words: query.words,
            failed: query.failed,
            before: query.before,
            count_max: PAGE,
        });
    if !shows_names {
        found.hide_names();
    }
    Ok(json(&found))
}

/// Number of transfers on one page of the table.
const PAGE: usize = 20;

const WORDS_BYTES_MAX: usize = 200;
