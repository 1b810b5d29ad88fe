//! The present state of the gateway, sent to each open page as server-sent events.
//!
//! A new page first receives the complete state, and then each change. All pages share one encoded
//! text for each change. If a page falls behind by more than [`BEHIND_MAX`] changes, the gateway
//! disconnects the page. The browser then reconnects and receives the complete state again.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::{ConnectInfo, State},
    http::{HeaderMap, HeaderName, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use tokio::{
    sync::{
        OwnedSemaphorePermit, Semaphore,
        broadcast::{self, Receiver, Sender},
    },
    time::{Instant, timeout_at},
};

use super::{Dashboard, error::DashboardError, lock, view::DashboardGateway};
use crate::config::AdminToken;
use pages::PageClient;
use relay::status::TransferStatus;

/// Source of the events that all open pages receive.
pub(super) struct EventFeed {
    changes: Sender<Bytes>,
    published: Mutex<PublishedState>,
    permits: Arc<Semaphore>,
}

/// The last state that the feed has sent to its pages.
#[derive(Default)]
struct PublishedState {
    /// Whether the feed has ended. It ends when another process takes over the admin address.
    is_over: bool,
    /// The token that was configured when the present pages were admitted.
    token: Option<AdminToken>,
    client_ca: Vec<CertificateDer<'static>>,
    gateway: String,
    transfers: BTreeMap<u64, TransferStatus>,
}

/// Changes of transfers since the previous event.
#[derive(Serialize)]
struct TransferChanges<'a> {
    /// Whether `opened` contains all open transfers. If so, a page deletes all other transfers.
    is_all: bool,
    opened: Vec<&'a TransferStatus>,
    /// Progress of transfers: number, bytes up, bytes down, bits per second, limit, age in seconds,
    /// bytes on the WAN. A page that was loaded before an upgrade may ignore the last fields.
    moved: Vec<(u64, u64, u64, u64, &'a str, u64, u64)>,
    closed: Vec<u64>,
}

impl EventFeed {
    pub(super) fn new() -> Self {
        Self {
            changes: broadcast::channel(BEHIND_MAX).0,
            published: Mutex::default(),
            permits: Arc::new(Semaphore::new(PAGES_MAX)),
        }
    }

    pub(super) fn has_readers(&self) -> bool {
        self.changes.receiver_count() > 0
    }

    /// Sends the changes since the previous state to all pages.
    pub(super) fn publish(&self, gateway: &DashboardGateway, transfers: Vec<TransferStatus>) {
        let transfers: BTreeMap<_, _> = transfers.into_iter().map(|it| (it.id, it)).collect();
        let mut published = lock(&self.published);
        published.gateway = event("gateway", gateway);
        if self.has_readers() {
            let change = TransferChanges::between(&published.transfers, &transfers);
            let text = published.gateway.clone() + &event("transfers", &change);
            // The last reader may have just disconnected.
            let _ = self.changes.send(text.into());
        }
        published.transfers = transfers;
    }

    /// Disconnects all pages if the token or the root certificates have changed. The pages must
    /// then authenticate again.
    pub(super) fn check_credentials(
        &self,
        token: Option<&AdminToken>,
        client_ca: &[CertificateDer<'static>],
    ) {
        let mut published = lock(&self.published);
        if published.token.as_ref() != token || published.client_ca != client_ca {
            published.token = token.cloned();
            published.client_ca = client_ca.to_vec();
            // The call fails if no page is open. In this case, no page needs to authenticate again.
            let _ = self.changes.send(END);
        }
    }

    /// Disconnects all pages, so that the browsers connect again.
    pub(super) fn reconnect_pages(&self) {
        // The call fails if no page is open. In this case, no page needs to connect again.
        let _ = self.changes.send(END);
    }

    /// Ends the feed. The pages then connect to the process that has taken over the admin address.
    pub(super) fn end(&self) {
        lock(&self.published).is_over = true;
        // The call fails if no page is open. In this case, no page needs the event.
        let _ = self.changes.send(END);
    }

    pub(super) fn is_over(&self) -> bool {
        lock(&self.published).is_over
    }

    /// Returns the present state as an event, and the receiver of later events.
    fn join(&self) -> (Bytes, Receiver<Bytes>) {
        let published = lock(&self.published);
        let all = TransferChanges {
            is_all: true,
            opened: published.transfers.values().collect(),
            moved: Vec::new(),
            closed: Vec::new(),
        };
        let text = format!(
            "retry: {RETRY_MS}\n\n{}{}",
            published.gateway,
            event("transfers", &all)
        );
        (text.into(), self.changes.subscribe())
    }
}

impl<'a> TransferChanges<'a> {
    fn between(
        old: &BTreeMap<u64, TransferStatus>,
        new: &'a BTreeMap<u64, TransferStatus>,
    ) -> Self {
        let mut change = Self {
            is_all: false,
            opened: Vec::new(),
            moved: Vec::new(),
            closed: old
                .keys()
                .filter(|id| !new.contains_key(*id))
                .copied()
                .collect(),
        };
        for (id, transfer) in new {
            let is_same = |it: &&TransferStatus| {
                it.path == transfer.path && it.size_bytes == transfer.size_bytes
            };
            let Some(old) = old.get(id).filter(is_same) else {
                change.opened.push(transfer);
                continue;
            };
            let moved = |it: &TransferStatus| {
                let rate = it.bits_per_s;
                (it.up_bytes, it.down_bytes, rate, it.wan_bytes)
            };
            if moved(old) != moved(transfer) || old.limit != transfer.limit {
                let (up, down, rate, wan) = moved(transfer);
                let age_s = transfer.age_s as u64;
                change
                    .moved
                    .push((*id, up, down, rate, &transfer.limit, age_s, wan));
            }
        }
        change
    }
}

pub(super) async fn events(
    State(dashboard): State<Arc<Dashboard>>,
    ConnectInfo(client): ConnectInfo<PageClient>,
    headers: HeaderMap,
) -> Result<Response, DashboardError> {
    if dashboard.feed.is_over() {
        return Err(DashboardError::Over);
    }
    let feed = match dashboard.shows_names(&client, &headers) {
        true => &dashboard.feed,
        false => &dashboard.nameless_feed,
    };
    let permit = feed.permits.clone().try_acquire_owned();
    let permit = permit.map_err(|_| DashboardError::TooMany(PAGES_MAX))?;
    // While no page is open, the state is updated less often.
    if !feed.has_readers() {
        dashboard.update(false);
    }
    let (all, changes) = feed.join();
    let reader = PageStream {
        first: Some(all),
        changes,
        until: Instant::now() + STREAM_MAX,
        _permit: permit,
    };
    let body = stream::unfold(reader, |mut reader| async move {
        let text = reader.next().await?;
        Some((Ok::<_, std::convert::Infallible>(text), reader))
    });
    let head = [
        (header::CONTENT_TYPE, "text/event-stream"),
        // A proxy such as nginx would delay events.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((head, Body::from_stream(body)).into_response())
}

/// Marker in the channel after which each page's stream ends.
const END: Bytes = Bytes::new();

/// The stream of events of one open page.
struct PageStream {
    first: Option<Bytes>,
    changes: Receiver<Bytes>,
    until: Instant,
    _permit: OwnedSemaphorePermit,
}

impl PageStream {
    /// Returns the next event. Returns `None` if the page is too far behind, the feed has ended, or
    /// the page must reconnect.
    async fn next(&mut self) -> Option<Bytes> {
        match self.first.take() {
            Some(all) => Some(all),
            None => {
                let next = timeout_at(self.until, self.changes.recv()).await.ok()?;
                next.ok().filter(|text| *text != END)
            }
        }
    }
}

fn event(name: &str, data: &impl Serialize) -> String {
    // Numbers and texts can always be written as JSON.
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}

/// Time after which a page must reconnect, because its cookie or its certificate may have expired.
const STREAM_MAX: Duration = Duration::from_secs(3600);

/// Maximum number of unread events of a page. The limit corresponds to about five seconds.
const BEHIND_MAX: usize = 16;

/// Maximum number of open pages. The feed with names and the feed without names each permit this
/// number.
pub(super) const PAGES_MAX: usize = 32;

const RETRY_MS: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_and_falling_behind_end_a_page() {
        let feed = EventFeed::new();
        let join = || PageStream {
            first: Some(feed.join().0),
            changes: feed.changes.subscribe(),
            until: Instant::now() + STREAM_MAX,
            _permit: feed.permits.clone().try_acquire_owned().expect("a place"),
        };
        let (mut page, mut behind) = (join(), join());
        assert!(page.next().await.is_some_and(|text| !text.is_empty()));
        for _ in 0..=BEHIND_MAX {
            feed.changes.send("a".into()).expect("readers");
            assert!(page.next().await.is_some());
        }
        assert!(behind.next().await.is_some(), "everything so far");
        assert_eq!(behind.next().await, None, "too far behind");
        let (token, mut page) = (AdminToken::new(&"0".repeat(32)), join());
        assert!(page.next().await.is_some());
        feed.check_credentials(None, &[]);
        feed.check_credentials(token.as_ref(), &[]);
        assert_eq!(page.next().await, None, "let in without a token");
        let mut page = join();
        assert!(page.next().await.is_some());
        let ca = CertificateDer::from(vec![1]);
        feed.check_credentials(token.as_ref(), std::slice::from_ref(&ca));
        assert_eq!(page.next().await, None, "let in without a certificate");
        let mut page = join();
        assert!(page.next().await.is_some());
        feed.check_credentials(token.as_ref(), std::slice::from_ref(&ca));
        let mut old = join();
        old.until = Instant::now();
        assert!(old.next().await.is_some(), "everything so far");
        assert_eq!(old.next().await, None, "it comes again");
        feed.end();
        assert_eq!(page.next().await, None);
        assert!(feed.is_over());
    }
}
