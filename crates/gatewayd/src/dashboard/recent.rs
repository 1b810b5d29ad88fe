//! Finished transfers, by words to search for.

use std::sync::Arc;

use axum::{
    extract::{ConnectInfo, Query, State},
    http::HeaderMap,
    response::Response,
};
use serde::Deserialize;

use super::{Dashboard, json, refused::Refused};
use pages::PageClient;
use relay::status::TransferSearch;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
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
    Query(asked): Query<Asked>,
) -> Result<Response, Refused> {
    if asked.words.len() > WORDS_BYTES_MAX {
        return Err(Refused::Value("too many words".to_owned()));
    }
    let shows_names = dashboard.shows_names(&client, &headers);
    if !shows_names && !asked.words.trim().is_empty() {
        // The result of a search reveals names, too.
        return Err(Refused::HidesNames);
    }
    let mut found = dashboard
        .running()
        .relay
        .registry()
        .recent(&TransferSearch {
            words: asked.words,
            failed: asked.failed,
            before: asked.before,
            count_max: PAGE,
        });
    if !shows_names {
        found.hide_names();
    }
    Ok(json(&found))
}

/// Transfers on a page of a table.
const PAGE: usize = 20;

const WORDS_BYTES_MAX: usize = 200;
