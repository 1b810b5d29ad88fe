//! Coding (compression and deduplication) that two gateways have negotiated for the data
//! connections of a session.

use std::sync::Arc;

use link::{Link, StreamKey};
use optimiser::{
    chunk::{CUTTER_ID, Cutter},
    store::Store,
};

use super::{ReferenceKey, ReferenceStore};
use crate::wire::{CodingOffer, CutParameters};

/// Coding negotiated for a session. A session without coding has `None` instead of this value.
#[derive(Debug, Clone)]
pub struct NegotiatedCoding {
    pub(crate) compresses: bool,
    /// Chunk store of this gateway for the peer. `None` disables deduplication.
    store: Option<Store>,
    /// Whether this gateway may send references to chunks.
    refers: bool,
    /// Cutter that both gateways use. `None` until the peer's parameters arrive. Without a cutter,
    /// this gateway sends no references.
    cutter: Option<Arc<Cutter>>,
}

/// Deduplication of one data connection: the chunk store and the connection to the peer.
#[derive(Debug, Clone)]
pub(crate) struct DedupContext {
    pub(crate) store: Store,
    pub(crate) cutter: Option<Arc<Cutter>>,
    pub(crate) references: Arc<ReferenceStore>,
    pub(crate) link: Link,
    /// A stream of the session. Requests for chunks reach the same process of the peer as this
    /// stream.
    pub(crate) beside: StreamKey,
    /// Identifies the direction of the data connection in which this gateway sends.
    pub(crate) key: ReferenceKey,
}

/// Coding of one stream.
#[derive(Debug, Clone)]
pub struct StreamCoding {
    pub(crate) compresses: bool,
    pub(crate) dedup: Option<DedupContext>,
}

impl StreamCoding {
    /// Creates a coding without deduplication.
    pub fn without_chunks(compresses: bool) -> Self {
        Self {
            compresses,
            dedup: None,
        }
    }
}

impl NegotiatedCoding {
    /// Creates the coding that the near gateway offers. Without a store, the offer contains no
    /// deduplication.
    pub(crate) fn offered(compresses: bool, store: Option<Store>, refers: bool) -> Self {
        Self {
            compresses,
            store,
            refers,
            cutter: None,
        }
    }

    /// Creates the coding that the far gateway accepts from an offer.
    pub(crate) fn accepted(offer: &CodingOffer, compresses: bool, store: Option<Store>) -> Self {
        let refers = offer.store.as_ref().is_some_and(|terms| terms.downloads);
        let mut coding = Self::offered(offer.compresses && compresses, store, refers);
        match &offer.store {
            Some(terms) if terms.cutting.id == CUTTER_ID => coding.set_peer_cutting(&terms.cutting),
            _ => coding.store = None,
        }
        coding
    }

    /// Returns the parameters by which this gateway cuts bytes into chunks. Returns `None` without
    /// a store.
    pub fn cutting(&self) -> Option<CutParameters> {
        self.store.as_ref().map(|store| CutParameters {
            id: CUTTER_ID,
            secret: store.secret(),
        })
    }

    /// Records the parameters by which the peer cuts bytes into chunks. Both gateways use the
    /// smaller of their two secrets.
    pub fn set_peer_cutting(&mut self, theirs: &CutParameters) {
        let ours = self.cutting().filter(|ours| ours.id == theirs.id);
        if let Some(ours) = ours.filter(|_| self.refers) {
            let secret = ours.secret.min(theirs.secret);
            self.cutter = Some(Arc::new(Cutter::new(&secret)));
        }
    }

    /// Returns the coding of one data connection, which `key` identifies.
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
