//! What happens, as a stream of events for each page that is open (server-sent events).
//!
//! A page gets everything once, then what has changed. All pages share one text for each change. A page that falls behind by
//! more than a few changes is let go; its browser comes again and gets everything anew.

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
use pages::Client;
use relay::status::TransferStatus;

/// What pages are told.
pub(super) struct Feed {
    changes: Sender<Bytes>,
    told: Mutex<Told>,
    places: Arc<Semaphore>,
}

/// What pages know that have heard everything.
#[derive(Default)]
struct Told {
    /// Nothing will be told any more: another process has the admin address.
    is_over: bool,
    /// By which pages were let in.
    token: Option<AdminToken>,
    client_ca: Vec<CertificateDer<'static>>,
    gateway: String,
    transfers: BTreeMap<u64, TransferStatus>,
}

/// Changes of transfers.
#[derive(Serialize)]
struct Transfers<'a> {
    /// All others are over.
    is_all: bool,
    opened: Vec<&'a TransferStatus>,
    /// Number, bytes up, bytes down, bits per second, limit, age in seconds, bytes on the WAN. A page from before an upgrade
    /// knows the first ones.
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

    /// Tells how things are now.
    pub(super) fn publish(&self, gateway: &Gateway, transfers: Vec<TransferStatus>) {
        let transfers: BTreeMap<_, _> = transfers.into_iter().map(|it| (it.id, it)).collect();
        let mut told = lock(&self.told);
        told.gateway = event("gateway", gateway);
        if self.has_readers() {
            let change = Transfers::between(&told.transfers, &transfers);
            let text = told.gateway.clone() + &event("transfers", &change);
            // The last reader may just have gone.
            let _ = self.changes.send(text.into());
        }
        told.transfers = transfers;
    }

    /// Has pages come again if they were let in by another token, or for a certificate of another CA.
    pub(super) fn guard(&self, token: Option<&AdminToken>, client_ca: &[CertificateDer<'static>]) {
        let mut told = lock(&self.told);
        if told.token.as_ref() != token || told.client_ca != client_ca {
            told.token = token.cloned();
            told.client_ca = client_ca.to_vec();
            // Without a reader nobody was let in.
            let _ = self.changes.send(END);
        }
    }

    /// Has all pages come again.
    pub(super) fn come_again(&self) {
        // Without a reader nobody needs to.
        let _ = self.changes.send(END);
    }

    /// Has pages come again, to who has the admin address now.
    pub(super) fn end(&self) {
        lock(&self.told).is_over = true;
        // Without a reader nobody needs to know.
        let _ = self.changes.send(END);
    }

    pub(super) fn is_over(&self) -> bool {
        lock(&self.told).is_over
    }

    /// Everything so far, and what changes from now on.
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
    ConnectInfo(client): ConnectInfo<Client>,
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
    // Without a reader news are taken less often.
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
        // A proxy such as nginx would keep events back.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((head, Body::from_stream(body)).into_response())
}

/// The last text of a page.
const END: Bytes = Bytes::new();

/// A page that listens.
struct Reader {
    first: Option<Bytes>,
    changes: Receiver<Bytes>,
    until: Instant,
    _place: OwnedSemaphorePermit,
}

impl Reader {
    /// `None` once it is too far behind, or at the end, or when it is time to come again.
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
    // Numbers and texts are always JSON.
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}

/// After this time a page comes again: its log-in, or its certificate, may have expired.
const STREAM_MAX: Duration = Duration::from_secs(3600);

/// Changes that a page may be behind: five seconds.
const BEHIND_MAX: usize = 16;

/// Pages at a time, and as many that see no names.
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
