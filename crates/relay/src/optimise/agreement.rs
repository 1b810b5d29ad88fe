//! What two gateways have agreed on for the data connections of a session.

use std::sync::Arc;

use link::{Link, StreamKey};
use optimiser::{
    chunk::{CUTTER_ID, Cutter},
    store::Store,
};

use super::{Key, Lending};
use crate::wire::{Coding, Cutting};

/// Of a session; `None` in its place means that bytes go as they are.
#[derive(Debug, Clone)]
pub(crate) struct Agreement {
    pub(crate) compresses: bool,
    /// Where chunks are that the other gateway may refer to.
    store: Option<Store>,
    /// What this gateway sends may refer to chunks.
    refers: bool,
    /// Where both cut; `None` until it is known of the other gateway: then nothing is referred to.
    cutter: Option<Arc<Cutter>>,
}

/// The same for one data connection.
#[derive(Debug, Clone)]
pub(crate) struct Sharing {
    pub(crate) store: Store,
    pub(crate) cutter: Option<Arc<Cutter>>,
    pub(crate) lending: Arc<Lending>,
    pub(crate) link: Link,
    /// A stream of the session: its process at the peer is asked.
    pub(crate) beside: StreamKey,
    /// What this gateway sends.
    pub(crate) key: Key,
}

/// What becomes of the bytes of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Coded {
    pub(crate) compresses: bool,
    pub(crate) sharing: Option<Sharing>,
}

impl Agreement {
    /// What the near gateway offers, with a store or without.
    pub(crate) fn offered(compresses: bool, store: Option<Store>, refers: bool) -> Self {
        Self {
            compresses,
            store,
            refers,
            cutter: None,
        }
    }

    /// What the far gateway makes of an offer: its own part of what is offered.
    pub(crate) fn accepted(offer: &Coding, compresses: bool, store: Option<Store>) -> Self {
        let refers = offer.store.as_ref().is_some_and(|terms| terms.downloads);
        let mut agreement = Self::offered(offer.compresses && compresses, store, refers);
        match &offer.store {
            Some(terms) if terms.cutting.id == CUTTER_ID => agreement.cut_with(&terms.cutting),
            _ => agreement.store = None,
        }
        agreement
    }

    /// Where this gateway cuts, for the other one.
    pub(crate) fn cutting(&self) -> Option<Cutting> {
        self.store.as_ref().map(|store| Cutting {
            id: CUTTER_ID,
            secret: store.secret(),
        })
    }

    /// The other gateway has a store, too, and would cut so. Of the two secrets the smaller one is taken.
    pub(crate) fn cut_with(&mut self, theirs: &Cutting) {
        let ours = self.cutting().filter(|ours| ours.id == theirs.id);
        if let Some(ours) = ours.filter(|_| self.refers) {
            let secret = ours.secret.min(theirs.secret);
            self.cutter = Some(Arc::new(Cutter::new(&secret)));
        }
    }

    /// For the data connection of `key`.
    pub(crate) fn of_stream(
        &self,
        key: Key,
        link: &Link,
        beside: StreamKey,
        lending: &Arc<Lending>,
    ) -> Coded {
        let sharing = self.store.as_ref().map(|store| Sharing {
            store: store.clone(),
            cutter: self.cutter.clone(),
            lending: lending.clone(),
            link: link.clone(),
            beside,
            key,
        });
        Coded {
            compresses: self.compresses,
            sharing,
        }
    }
}
