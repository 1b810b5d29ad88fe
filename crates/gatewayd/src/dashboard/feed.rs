//! The present state, as a stream of events for each open page (server-sent events).
//!
//! A page first gets the whole state, and then the changes. All pages share one text for each
//! change. A page that falls behind by more than a few changes is disconnected. Its browser
//! connects again, and gets the whole state again.

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

use super::{Dashboard, lock, refused::Refused, view::Gateway};
use crate::config::AdminToken;
use pages::PageClient;
use relay::status::TransferStatus;

/// Stream of events for pages.
pub(super) struct Feed {
    changes: Sender<Bytes>,
    told: Mutex<Told>,
    places: Arc<Semaphore>,
}

/// State that all pages have received.
#[derive(Default)]
struct Told {
    /// Whether the feed has ended: another process has the admin address.
    is_over: bool,
    /// Credentials by which pages were admitted.
    token: Option<AdminToken>,
    client_ca: Vec<CertificateDer<'static>>,
    gateway: String,
    transfers: BTreeMap<u64, TransferStatus>,
}

/// Changes of transfers.
#[derive(Serialize)]
struct Transfers<'a> {
    /// Whether all other transfers are over.
    is_all: bool,
    opened: Vec<&'a TransferStatus>,
    /// Number, bytes up, bytes down, bits per second, limit, age in seconds, bytes on the WAN. A
    /// page that was loaded before an upgrade reads only the first fields.
    moved: Vec<(u64, u64, u64, u64, &'a str, u64, u64)>,
    closed: Vec<u64>,
}

impl Feed {
    pub(super) fn new() -> Self {
        Self {
            changes: broadcast::channel(BEHIND_MAX).0,
            told: Mutex::default(),
            places: Arc::new(Semaphore::new(PAGES_MAX)),
        }
    }

    pub(super) fn has_readers(&self) -> bool {
        self.changes.receiver_count() > 0
    }

    /// Sends the present state to all pages.
    pub(super) fn publish(&self, gateway: &Gateway, transfers: Vec<TransferStatus>) {
        let transfers: BTreeMap<_, _> = transfers.into_iter().map(|it| (it.id, it)).collect();
        let mut told = lock(&self.told);
        told.gateway = event("gateway", gateway);
        if self.has_readers() {
            let change = Transfers::between(&told.transfers, &transfers);
            let text = told.gateway.clone() + &event("transfers", &change);
            // The last reader may have just disconnected.
            let _ = self.changes.send(text.into());
        }
        told.transfers = transfers;
    }

    /// Makes pages connect again if the token or the roots of certificates have changed.
    pub(super) fn guard(&self, token: Option<&AdminToken>, client_ca: &[CertificateDer<'static>]) {
        let mut told = lock(&self.told);
        if told.token.as_ref() != token || told.client_ca != client_ca {
            told.token = token.cloned();
            told.client_ca = client_ca.to_vec();
            // Without a reader, no page was admitted.
            let _ = self.changes.send(END);
        }
    }

    /// Makes all pages connect again.
    pub(super) fn come_again(&self) {
        // Without a reader, no page needs to connect again.
        let _ = self.changes.send(END);
    }

    /// Ends the feed, so that pages connect to the process that now has the admin address.
    pub(super) fn end(&self) {
        lock(&self.told).is_over = true;
        // Without a reader, no page needs the event.
        let _ = self.changes.send(END);
    }

    pub(super) fn is_over(&self) -> bool {
        lock(&self.told).is_over
    }

    /// Returns the present state, and the receiver of later changes.
    fn join(&self) -> (Bytes, Receiver<Bytes>) {
        let told = lock(&self.told);
        let all = Transfers {
            is_all: true,
            opened: told.transfers.values().collect(),
            moved: Vec::new(),
            closed: Vec::new(),
        };
        let text = format!(
            "retry: {RETRY_MS}\n\n{}{}",
            told.gateway,
            event("transfers", &all)
        );
        (text.into(), self.changes.subscribe())
    }
}

impl<'a> Transfers<'a> {
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
) -> Result<Response, Refused> {
    if dashboard.feed.is_over() {
        return Err(Refused::Over);
    }
    let feed = match dashboard.shows_names(&client, &headers) {
        true => &dashboard.feed,
        false => &dashboard.nameless_feed,
    };
    let place = feed.places.clone().try_acquire_owned();
    let place = place.map_err(|_| Refused::TooMany(PAGES_MAX))?;
    // Without a reader the state is updated less often.
    if !feed.has_readers() {
        dashboard.look(false);
    }
    let (all, changes) = feed.join();
    let reader = Reader {
        first: Some(all),
        changes,
        until: Instant::now() + STREAM_MAX,
        _place: place,
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

/// The last event of a page.
const END: Bytes = Bytes::new();

/// An open page.
struct Reader {
    first: Option<Bytes>,
    changes: Receiver<Bytes>,
    until: Instant,
    _place: OwnedSemaphorePermit,
}

impl Reader {
    /// Returns the next event. `None` if the page is too far behind, at the end of the feed, or at
    /// the time to connect again.
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

/// Time after which a page connects again: its log-in, or its certificate, may have expired.
const STREAM_MAX: Duration = Duration::from_secs(3600);

/// Changes by which a page may fall behind: five seconds.
const BEHIND_MAX: usize = 16;

/// Most pages at a time. Pages without names have the same number of places.
pub(super) const PAGES_MAX: usize = 32;

const RETRY_MS: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_and_falling_behind_end_a_page() {
        let feed = Feed::new();
        let join = || Reader {
            first: Some(feed.join().0),
            changes: feed.changes.subscribe(),
            until: Instant::now() + STREAM_MAX,
            _place: feed.places.clone().try_acquire_owned().expect("a place"),
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
        feed.guard(None, &[]);
        feed.guard(token.as_ref(), &[]);
        assert_eq!(page.next().await, None, "let in without a token");
        let mut page = join();
        assert!(page.next().await.is_some());
        let ca = CertificateDer::from(vec![1]);
        feed.guard(token.as_ref(), std::slice::from_ref(&ca));
        assert_eq!(page.next().await, None, "let in without a certificate");
        let mut page = join();
        assert!(page.next().await.is_some());
        feed.guard(token.as_ref(), std::slice::from_ref(&ca));
        let mut old = join();
        old.until = Instant::now();
        assert!(old.next().await.is_some(), "everything so far");
        assert_eq!(old.next().await, None, "it comes again");
        feed.end();
        assert_eq!(page.next().await, None);
        assert!(feed.is_over());
    }
}
