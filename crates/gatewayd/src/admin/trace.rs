//! `GET /trace?peer=NAME`: a stream of events of the link to one peer, in the format qlog. The
//! stream ends when the client disconnects.

use axum::{
    body::Body,
    extract::{ConnectInfo, Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use link::{ConnectionTrace, PeerId, TraceError, TraceEvent};
use serde::Deserialize;
use tracing::info;

use super::{CurrentGateway, check_program, qlog};
use pages::PageClient;

#[derive(Debug, Deserialize)]
pub(super) struct TraceQuery {
    peer: String,
}

pub(super) async fn trace(
    State(current): State<CurrentGateway>,
    ConnectInfo(from): ConnectInfo<PageClient>,
    headers: HeaderMap,
    Query(wanted): Query<TraceQuery>,
) -> Result<Response, (StatusCode, String)> {
    check_program(&from, &headers).map_err(|(code, text)| (code, text.to_owned()))?;
    let link = current.borrow().relay.link().clone();
    let peers = link.snapshot().peers;
    let peers = peers.iter().enumerate();
    let peers = peers.filter(|(_, peer)| !peer.is_removed && !peer.is_guest);
    let peers: Vec<_> = peers.map(|(number, peer)| (number, &*peer.name)).collect();
    let Some((number, name)) = peers.iter().find(|(_, name)| *name == wanted.peer) else {
        let names: Vec<_> = peers.iter().map(|(_, name)| format!("{name:?}")).collect();
        let text = match names.is_empty() {
            true => "this gateway has no peers\n".to_owned(),
            false => format!(
                "there is no peer {:?}; there is {}\n",
                wanted.peer,
                names.join(", ")
            ),
        };
        return Err((StatusCode::NOT_FOUND, text));
    };
    let trace = link.trace(PeerId(*number)).await.map_err(refused)?;
    info!(peer = name, "a trace begins");
    let first = qlog::header(name, trace.begun);
    Ok((
        [(header::CONTENT_TYPE, qlog::CONTENT_TYPE)],
        body(first, trace),
    )
        .into_response())
}

fn refused(error: TraceError) -> (StatusCode, String) {
    let code = match error {
        TraceError::NoPeer => StatusCode::NOT_FOUND,
        TraceError::TooMany => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, format!("{error}\n"))
}

/// Returns a response body that streams the records as they arrive. If the client reads slowly,
/// events wait in the link's queue, whose length is limited.
fn body(first: String, trace: ConnectionTrace) -> Body {
    let events: Vec<TraceEvent> = Vec::with_capacity(EVENTS_AT_ONCE);
    let begun = (Some(first), trace, events);
    let records = stream::unfold(begun, |(first, mut trace, mut events)| async move {
        if let Some(first) = first {
            return Some((Ok::<_, std::io::Error>(first), (None, trace, events)));
        }
        if !trace.next(&mut events, EVENTS_AT_ONCE).await {
            return None;
        }
        let text = events
            .drain(..)
            .map(|event| qlog::records(&event))
            .collect();
        Some((Ok(text), (None, trace, events)))
    });
    Body::from_stream(records)
}

/// Maximum number of events converted to text in one step. Each event yields about 600 bytes.
const EVENTS_AT_ONCE: usize = 32;
