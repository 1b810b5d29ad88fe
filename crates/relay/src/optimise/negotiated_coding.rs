//! Coding that two gateways have negotiated for the data connections of a session.

use std::sync::Arc;

use link::{Link, StreamKey};
use optimiser::{
    chunk::{CUTTER_ID, Cutter},
    store::Store,
};

use super::{ReferenceKey, ReferenceStore};
use crate::wire::{CodingOffer, CutParameters};

/// Coding negotiated for a session. `None` in its place disables coding.
#[derive(Debug, Clone)]
pub(crate) struct NegotiatedCoding {
    pub(crate) compresses: bool,
    /// Store of the chunks that the peer may refer to.
    store: Option<Store>,
    /// Whether this gateway sends references to chunks.
    refers: bool,
    /// Cutter of both gateways. `None` until the peer's cutting is known: this gateway then sends
    /// no references.
    cutter: Option<Arc<Cutter>>,
}

/// Deduplication of one data connection.
#[derive(Debug, Clone)]
pub(crate) struct DedupContext {
    pub(crate) store: Store,
    pub(crate) cutter: Option<Arc<Cutter>>,
    pub(crate) references: Arc<ReferenceStore>,
    pub(crate) link: Link,
    /// A stream of the session. Requests for chunks go to its process at the peer.
    pub(crate) beside: StreamKey,
    /// Direction that this gateway sends.
    pub(crate) key: ReferenceKey,
}

/// Coding of one stream.
#[derive(Debug, Clone)]
pub(crate) struct StreamCoding {
    pub(crate) compresses: bool,
    pub(crate) dedup: Option<DedupContext>,
}

impl NegotiatedCoding {
    /// Creates the near gateway's offer, with a store or without.
    pub(crate) fn offered(compresses: bool, store: Option<Store>, refers: bool) -> Self {
        Self {
            compresses,
            store,
            refers,
            cutter: None,
        }
    }

    /// Creates the far gateway's answer to an offer: the offered part that it supports.
    pub(crate) fn accepted(offer: &CodingOffer, compresses: bool, store: Option<Store>) -> Self {
        let refers = offer.store.as_ref().is_some_and(|terms| terms.downloads);
        let mut coding = Self::offered(offer.compresses && compresses, store, refers);
        match &offer.store {
            Some(terms) if terms.cutting.id == CUTTER_ID => coding.set_peer_cutting(&terms.cutting),
            _ => coding.store = None,
        }
        coding
    }

    /// Returns this gateway's cutting, for the peer.
    pub(crate) fn cutting(&self) -> Option<CutParameters> {
        self.store.as_ref().map(|store| CutParameters {
            id: CUTTER_ID,
            secret: store.secret(),
        })
    }

    /// Records the cutting of the peer, which has a store, too. The smaller of the two secrets
    /// counts.
    pub(crate) fn set_peer_cutting(&mut self, theirs: &CutParameters) {
        let ours = self.cutting().filter(|ours| ours.id == theirs.id);
        if let Some(ours) = ours.filter(|_| self.refers) {
            let secret = ours.secret.min(theirs.secret);
            self.cutter = Some(Arc::new(Cutter::new(&secret)));
        }
    }

    /// Returns the coding of the data connection of `key`.
    pub(crate) fn stream_coding(
        &self,
        key: ReferenceKey,
        link: &Link,
        beside: StreamKey,
        references: &Arc<ReferenceStore>,
    ) -> StreamCoding {
        let dedup = self.store.as_ref().map(|store| DedupContext {
            store: store.clone(),
            cutter: self.cutter.clone(),
            references: references.clone(),
            link: link.clone(),
            beside,
            key,
        });
        StreamCoding {
            compresses: self.compresses,
            dedup,
        }
    }
}
