//! The receiving half of a stream that may be coded.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use link::{RecvStream, StreamError};
use optimiser::{
    check::StreamCheck,
    chunk::ChunkName,
    counts::CodingCounts,
    decoder::{DecodeError, Decoder, DecoderEvent},
    frame::{self, ChunkReference, FrameHead},
    list::{LISTED_MAX, ListBuilder},
    store::Store,
};
use tokio::task::{JoinHandle, spawn_blocking};

use super::{
    Coded, Sharing, Tally,
    borrowing::{BorrowError, Borrowing},
};

/// The receiving half of a link stream, and the decoder of its bytes.
#[derive(Debug)]
pub(crate) struct Inlet {
    recv: RecvStream,
    /// Bytes that arrived with the hello.
    first: Bytes,
    /// `None` for an uncoded stream.
    coder: Option<Box<Coder>>,
}

/// Reason why no further bytes arrive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InletError {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("the peer's coding: {0}")]
    Coding(#[from] DecodeError),
    #[error("link: {0}")]
    Chunk(#[from] BorrowError),
}

#[derive(Debug)]
struct Coder {
    decoder: Decoder,
    check: StreamCheck,
    tally: Arc<Tally>,
    counted: CodingCounts,
    /// Deduplication, with a chunk store.
    sharing: Option<Sharing>,
    /// Decoded items that were not delivered yet, in order.
    queue: VecDeque<Item>,
    queued_bytes: usize,
    loading: Option<JoinHandle<Vec<Option<Bytes>>>>,
    /// Lists of the delivered chunks.
    list_builder: ListBuilder,
    /// Requests for chunks. `Some` after the first reference.
    borrowing: Option<Borrowing>,
    /// Number below which all chunks of references are available, as last reported to the sender.
    told: u64,
}

#[derive(Debug)]
enum Item {
    Bytes(Bytes),
    Chunk {
        number: u64,
        reference: ChunkReference,
        place: Place,
    },
    /// The next chunks belong to a list.
    List {
        number: u64,
        reference: ChunkReference,
        place: Place,
    },
    /// The preceding bytes complete this chunk.
    Whole(ChunkReference),
    End(FrameHead),
}

impl Item {
    /// Returns the location of the item's chunk or list. `None` for other items.
    fn place(&self) -> Option<&Place> {
        match self {
            Self::Chunk { place, .. } | Self::List { place, .. } => Some(place),
            Self::Bytes(_) | Self::Whole(_) | Self::End(_) => None,
        }
    }
}

/// Location of a chunk.
#[derive(Debug)]
enum Place {
    /// The store, which may have the chunk.
    Store,
    /// The peer, which was asked for the chunk.
    Peer,
    Here(Bytes),
}

/// Step that is required for further bytes.
enum Next {
    Bytes(Bytes),
    Loaded,
    Filled,
    /// More bytes of the stream are needed.
    Stream,
}

impl Inlet {
    /// Creates an inlet for a stream. `first` are bytes that arrived with the hello.
    pub(crate) fn new(
        recv: RecvStream,
        first: Bytes,
        coded: Option<&Coded>,
        tally: &Arc<Tally>,
    ) -> Self {
        let coder = coded.map(|coded| {
            Box::new(Coder {
                decoder: Decoder::new(coded.sharing.is_some()),
                check: StreamCheck::default(),
                tally: tally.clone(),
                counted: CodingCounts::default(),
                sharing: coded.sharing.clone(),
                queue: VecDeque::new(),
                queued_bytes: 0,
                loading: None,
                list_builder: ListBuilder::default(),
                borrowing: None,
                told: 0,
            })
        });
        Self { recv, first, coder }
    }

    /// Returns the next bytes. `None` at their end, which is verified. Cancel safe.
    ///
    /// # Errors
    /// [`InletError`] if no more bytes arrive. The bytes before it are not complete.
    pub(crate) async fn read(&mut self) -> Result<Option<Bytes>, InletError> {
        loop {
            let Some(coder) = &mut self.coder else {
                return self.read_stream().await;
            };
            match coder.next()? {
                Next::Bytes(bytes) => return Ok(Some(bytes)),
                Next::Loaded => coder.loaded().await,
                Next::Filled => tokio::select! {
                    filled = coder.filled() => filled?,
                    // The sender has reset the stream, so its references do not matter any more.
                    error = self.recv.failed() => return Err(error.into()),
                },
                Next::Stream => match self.read_stream().await? {
                    Some(bytes) => self.push(bytes),
                    None => {
                        self.end()?;
                        return Ok(None);
                    }
                },
            }
        }
    }

    async fn read_stream(&mut self) -> Result<Option<Bytes>, InletError> {
        if !self.first.is_empty() {
            return Ok(Some(std::mem::take(&mut self.first)));
        }
        Ok(self.recv.read().await?)
    }

    fn push(&mut self, bytes: Bytes) {
        if let Some(coder) = &mut self.coder {
            coder.decoder.push(bytes);
        }
    }

    fn end(&self) -> Result<(), DecodeError> {
        let coder = self.coder.as_ref();
        coder.map_or(Ok(()), |coder| coder.decoder.end())
    }

    /// Stops reading.
    pub(crate) fn stop(&mut self, code: u32) {
        self.recv.stop(code);
    }
}

impl Coder {
    /// Returns the next bytes, or the step required before them.
    fn next(&mut self) -> Result<Next, InletError> {
        loop {
            self.look_ahead()?;
            if self.loading.is_some() {
                return Ok(Next::Loaded);
            }
            match self.queue.front().and_then(Item::place) {
                Some(Place::Store) => {
                    self.load();
                    return Ok(Next::Loaded);
                }
                // The stream is not read while a chunk is awaited: the queue contains enough
                // references to request.
                Some(Place::Peer) => return Ok(Next::Filled),
                Some(Place::Here(_)) | None => {}
            }
            match self.queue.pop_front() {
                None => return Ok(Next::Stream),
                Some(Item::Bytes(bytes)) => return Ok(Next::Bytes(self.deliver(bytes))),
                Some(Item::Chunk {
                    reference,
                    place: Place::Here(bytes),
                    ..
                }) => {
                    self.list(&reference);
                    return Ok(Next::Bytes(self.deliver(bytes)));
                }
                Some(Item::List {
                    number,
                    place: Place::Here(list),
                    ..
                }) => self.expand(number, &list)?,
                Some(Item::Whole(reference)) => self.list(&reference),
                Some(Item::End(head)) if head == self.check.end() => {
                    let list = self.list_builder.end();
                    self.keep(list.map(|list| (list.name, list.bytes)));
                }
                Some(Item::End(_)) => return Err(DecodeError::Differs.into()),
                // Chunks and lists without bytes were handled above.
                Some(Item::Chunk { .. } | Item::List { .. }) => {}
            }
        }
    }

    /// Decodes received bytes as far as the queue has room, and requests missing chunks.
    fn look_ahead(&mut self) -> Result<(), InletError> {
        while self.queued_bytes < AHEAD_BYTES {
            let Self { tally, decoder, .. } = self;
            let event = tally.processor(|| decoder.poll());
            let counts = self.decoder.counts();
            self.tally.add(&counts.since(&self.counted));
            self.counted = counts;
            let Some(event) = event? else { break };
            match event {
                DecoderEvent::Bytes(bytes) => {
                    self.queued_bytes += bytes.len();
                    self.queue.push_back(Item::Bytes(bytes));
                }
                DecoderEvent::Reference { number, reference } => {
                    self.queued_bytes += reference.bytes;
                    let place = self.find(number, reference)?;
                    self.queue.push_back(Item::Chunk {
                        number,
                        reference,
                        place,
                    });
                }
                DecoderEvent::List { number, reference } => {
                    self.queued_bytes += reference.bytes;
                    let place = self.find(number, reference)?;
                    self.queue.push_back(Item::List {
                        number,
                        reference,
                        place,
                    });
                }
                DecoderEvent::Chunk { name, bytes } => {
                    let reference = ChunkReference {
                        bytes: bytes.len(),
                        name,
                    };
                    self.keep(Some((name, bytes)));
                    self.queue.push_back(Item::Whole(reference));
                }
                DecoderEvent::End(head) => self.queue.push_back(Item::End(head)),
            }
        }
        Ok(())
    }

    fn store(&self) -> Option<&Store> {
        self.sharing.as_ref().map(|sharing| &sharing.store)
    }

    /// Finds the chunk or list of a reference, and requests it if it is missing.
    fn find(&mut self, number: u64, reference: ChunkReference) -> Result<Place, DecodeError> {
        let store = self.store().ok_or(DecodeError::Chunks)?;
        if store.has(&reference.name) {
            return Ok(Place::Store);
        }
        self.ask(number, reference)?;
        Ok(Place::Peer)
    }

    /// Replaces the list with this number by its chunks.
    fn expand(&mut self, number: u64, list: &[u8]) -> Result<(), DecodeError> {
        self.queued_bytes -= list.len();
        let listed = frame::references(list).map(|reference| reference.bytes);
        if listed.sum::<usize>() > LISTED_MAX {
            return Err(DecodeError::Chunks);
        }
        let mut items = Vec::new();
        for (number, reference) in (number + 1..).zip(frame::references(list)) {
            self.decoder.record_referenced(reference.bytes);
            self.queued_bytes += reference.bytes;
            let place = self.find(number, reference)?;
            items.push(Item::Chunk {
                number,
                reference,
                place,
            });
        }
        for item in items.into_iter().rev() {
            self.queue.push_front(item);
        }
        Ok(())
    }

    fn deliver(&mut self, bytes: Bytes) -> Bytes {
        self.queued_bytes -= bytes.len();
        let Self { tally, check, .. } = self;
        tally.processor(|| check.update(&bytes));
        bytes
    }

    /// Adds the next delivered chunk to the lists.
    fn list(&mut self, reference: &ChunkReference) {
        let list = self.list_builder.push(reference);
        self.keep(list.map(|list| (list.name, list.bytes)));
    }

    fn keep(&self, chunk: Option<(ChunkName, Bytes)>) {
        if let (Some(store), Some((name, bytes))) = (self.store(), chunk)
            && !store.has(&name)
        {
            // A chunk is a part of a larger buffer, which must not stay in memory until the disk
            // has written it.
            store.put(name, Bytes::copy_from_slice(&bytes));
        }
    }

    fn borrowing(&mut self) -> Result<&Borrowing, DecodeError> {
        let sharing = self.sharing.as_ref().ok_or(DecodeError::Chunks)?;
        let borrowing = &mut self.borrowing;
        Ok(borrowing.get_or_insert_with(|| Borrowing::new(sharing.clone(), self.tally.clone())))
    }

    fn ask(&mut self, number: u64, reference: ChunkReference) -> Result<(), DecodeError> {
        self.borrowing()?.missing(number, reference);
        Ok(())
    }

    /// Starts to read the chunks at the front of the queue from the store.
    fn load(&mut self) {
        let Some(store) = self.store().cloned() else {
            return;
        };
        let references = self.queue.iter().map_while(|item| match item {
            Item::Chunk {
                reference,
                place: Place::Store,
                ..
            }
            | Item::List {
                reference,
                place: Place::Store,
                ..
            } => Some(*reference),
            _ => None,
        });
        let references: Vec<_> = references.take(LOADED_TOGETHER).collect();
        let tally = self.tally.clone();
        self.loading = Some(spawn_blocking(move || {
            let get = |reference: &ChunkReference| store.get(&reference.name, reference.bytes);
            tally.processor(|| references.iter().map(get).collect())
        }));
    }

    async fn loaded(&mut self) {
        let Some(loading) = &mut self.loading else {
            return;
        };
        // A task that has panicked has found no chunks.
        let chunks = loading.await.unwrap_or_default();
        self.loading = None;
        let count = chunks.len().max(1);
        let mut chunks = chunks.into_iter();
        let mut missing = Vec::new();
        for item in self.queue.iter_mut().take(count) {
            if let Item::Chunk {
                number,
                reference,
                place,
            }
            | Item::List {
                number,
                reference,
                place,
            } = item
            {
                *place = match chunks.next().flatten() {
                    Some(bytes) => Place::Here(bytes),
                    None => {
                        missing.push((*number, *reference));
                        Place::Peer
                    }
                };
            }
        }
        for (number, reference) in missing {
            // The store exists, since chunks were loaded from it.
            let _ = self.ask(number, reference);
        }
        self.tell();
    }

    async fn filled(&mut self) -> Result<(), InletError> {
        let Some(borrowing) = &mut self.borrowing else {
            return Err(DecodeError::Chunks.into());
        };
        let filled = borrowing.filled().await?;
        self.keep(Some((filled.name, filled.chunk.clone())));
        let asked = self.queue.iter_mut().find_map(|item| match item {
            Item::Chunk { number, place, .. } | Item::List { number, place, .. }
                if *number == filled.number =>
            {
                Some(place)
            }
            _ => None,
        });
        if let Some(place) = asked {
            *place = Place::Here(filled.chunk);
        }
        self.tell();
        Ok(())
    }

    /// Reports to the sender which chunks it need not keep any longer.
    fn tell(&mut self) {
        let mut up_to = self.told;
        for item in &self.queue {
            match item {
                Item::Chunk {
                    number,
                    place: Place::Here(_),
                    ..
                } => up_to = up_to.max(number + 1),
                // The chunks of a list have not been looked up yet.
                Item::Chunk { .. } | Item::List { .. } => break,
                Item::Bytes(_) | Item::Whole(_) | Item::End(_) => {}
            }
        }
        if up_to > self.told
            && let Ok(borrowing) = self.borrowing()
        {
            borrowing.taken(up_to);
            self.told = up_to;
        }
    }
}

/// Most bytes that are decoded, or referred to, before their delivery. One list more may be
/// decoded. Missing chunks among these bytes are requested together.
const AHEAD_BYTES: usize = 4 * 1024 * 1024;

/// Chunks that one call reads from the store: about 1 MiB.
const LOADED_TOGETHER: usize = 64;
