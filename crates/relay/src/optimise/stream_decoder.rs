//! Decoder of the bytes of one direction of a stream, with the chunk store and the requests for
//! missing chunks.

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
    CodingCounters, DedupContext, StreamCoding,
    chunk_fetcher::{ChunkFetcher, FetchError},
};

/// Reason why no further bytes arrive.
#[derive(Debug, thiserror::Error)]
pub enum CodedReadError {
    /// The stream broke.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The bytes are not a valid coding.
    #[error("the peer's coding: {0}")]
    Coding(#[from] DecodeError),
    /// A chunk does not arrive.
    #[error("link: {0}")]
    Chunk(#[from] FetchError),
}

/// Decoder of the bytes of one direction of a stream.
#[derive(Debug)]
pub struct StreamDecoder {
    decoder: Decoder,
    check: StreamCheck,
    counters: Arc<CodingCounters>,
    counted: CodingCounts,
    /// Deduplication with a chunk store. `None` if the stream is not deduplicated.
    dedup: Option<DedupContext>,
    /// Decoded items that the reader has not returned yet, in order.
    queue: VecDeque<DecodedItem>,
    queued_bytes: usize,
    loading: Option<JoinHandle<Vec<Option<Bytes>>>>,
    /// Builder of lists of references. The builder adds a reference for each chunk that the reader
    /// returns.
    list_builder: ListBuilder,
    /// Requests for missing chunks. `None` before the first request or acknowledgement.
    fetcher: Option<ChunkFetcher>,
    /// Reference number in the latest acknowledgement to the sender. The chunks of all references
    /// below this number are available.
    reported: u64,
}

#[derive(Debug)]
enum DecodedItem {
    Bytes(Bytes),
    Chunk {
        number: u64,
        reference: ChunkReference,
        source: ChunkSource,
    },
    /// A list of references to chunks. The chunks follow in order.
    List {
        number: u64,
        reference: ChunkReference,
        source: ChunkSource,
    },
    /// The end of a chunk whose bytes were sent without a reference.
    Whole(ChunkReference),
    End(FrameHead),
}

impl DecodedItem {
    /// Returns the location of the chunk or list of this item. Returns `None` for other items.
    fn source(&self) -> Option<&ChunkSource> {
        match self {
            Self::Chunk { source, .. } | Self::List { source, .. } => Some(source),
            Self::Bytes(_) | Self::Whole(_) | Self::End(_) => None,
        }
    }
}

/// Location of the bytes of a chunk.
#[derive(Debug)]
enum ChunkSource {
    /// The store probably contains the chunk.
    Store,
    /// The chunk was requested from the peer.
    Peer,
    /// The chunk is in memory: it was loaded from the store, or received from the peer.
    Memory(Bytes),
}

/// Step that the reader must perform next.
enum NextStep {
    Bytes(Bytes),
    Load,
    Fetch,
    /// Read more bytes from the stream.
    Stream,
}

impl StreamDecoder {
    /// Creates the decoder of a stream with this coding.
    pub fn new(coding: &StreamCoding, counters: &Arc<CodingCounters>) -> Self {
        Self {
            decoder: Decoder::new(coding.dedup.is_some()),
            check: StreamCheck::default(),
            counters: counters.clone(),
            counted: CodingCounts::default(),
            dedup: coding.dedup.clone(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            loading: None,
            list_builder: ListBuilder::default(),
            fetcher: None,
            reported: 0,
        }
    }

    /// Makes the decoder accept further parts of the stream after the end of a part.
    #[must_use]
    pub fn with_parts(mut self) -> Self {
        self.decoder = self.decoder.with_parts();
        self
    }

    /// Adds received bytes. Callers must call [`read`](Self::read) until it returns `None` before
    /// they add more bytes.
    pub fn push(&mut self, bytes: Bytes) {
        self.decoder.push(bytes);
    }

    /// Returns the next decoded bytes. Returns `None` if more bytes of `recv` must arrive first.
    /// Cancel safe.
    ///
    /// # Errors
    /// [`CodedReadError`] if no further bytes can be decoded.
    pub async fn read(&mut self, recv: &mut RecvStream) -> Result<Option<Bytes>, CodedReadError> {
        loop {
            match self.next()? {
                NextStep::Bytes(bytes) => return Ok(Some(bytes)),
                NextStep::Load => self.finish_load().await,
                NextStep::Fetch => tokio::select! {
                    fetched = self.receive_chunk() => fetched?,
                    // The sender has reset the stream, so its references do not matter any more.
                    error = recv.failed() => return Err(error.into()),
                },
                NextStep::Stream => return Ok(None),
            }
        }
    }

    /// Checks that the end of the stream has arrived.
    ///
    /// # Errors
    /// [`CodedReadError::Coding`] if the end has not arrived.
    pub fn end(&self) -> Result<(), CodedReadError> {
        Ok(self.decoder.end()?)
    }

    /// Returns the next decoded bytes, or the step that the reader must perform first.
    fn next(&mut self) -> Result<NextStep, CodedReadError> {
        loop {
            self.look_ahead()?;
            if self.loading.is_some() {
                return Ok(NextStep::Load);
            }
            match self.queue.front().and_then(DecodedItem::source) {
                Some(ChunkSource::Store) => {
                    self.load();
                    return Ok(NextStep::Load);
                }
                // The stream is not read while a chunk is awaited: the queue contains enough
                // references to request.
                Some(ChunkSource::Peer) => return Ok(NextStep::Fetch),
                Some(ChunkSource::Memory(_)) | None => {}
            }
            match self.queue.pop_front() {
                None => return Ok(NextStep::Stream),
                Some(DecodedItem::Bytes(bytes)) => return Ok(NextStep::Bytes(self.deliver(bytes))),
                Some(DecodedItem::Chunk {
                    reference,
                    source: ChunkSource::Memory(bytes),
                    ..
                }) => {
                    self.add_to_list(&reference);
                    return Ok(NextStep::Bytes(self.deliver(bytes)));
                }
                Some(DecodedItem::List {
                    number,
                    source: ChunkSource::Memory(list),
                    ..
                }) => self.expand(number, &list)?,
                Some(DecodedItem::Whole(reference)) => self.add_to_list(&reference),
                Some(DecodedItem::End(head)) if head == self.check.end() => {
                    let list = self.list_builder.end();
                    self.keep(list.map(|list| (list.name, list.bytes)));
                }
                Some(DecodedItem::End(_)) => return Err(DecodeError::Differs.into()),
                // Chunks and lists without bytes were handled above.
                Some(DecodedItem::Chunk { .. } | DecodedItem::List { .. }) => {}
            }
        }
    }

    /// Decodes received bytes until the queue is full, and requests missing chunks.
    fn look_ahead(&mut self) -> Result<(), CodedReadError> {
        while self.queued_bytes < AHEAD_BYTES {
            let Self {
                counters, decoder, ..
            } = self;
            let event = counters.measure(|| decoder.poll());
            let counts = self.decoder.counts();
            self.counters.add(&counts.since(&self.counted));
            self.counted = counts;
            let Some(event) = event? else { break };
            match event {
                DecoderEvent::Bytes(bytes) => {
                    self.queued_bytes += bytes.len();
                    self.queue.push_back(DecodedItem::Bytes(bytes));
                }
                DecoderEvent::Reference { number, reference } => {
                    self.queued_bytes += reference.bytes;
                    let source = self.find(number, reference)?;
                    self.queue.push_back(DecodedItem::Chunk {
                        number,
                        reference,
                        source,
                    });
                }
                DecoderEvent::List { number, reference } => {
                    self.queued_bytes += reference.bytes;
                    let source = self.find(number, reference)?;
                    self.queue.push_back(DecodedItem::List {
                        number,
                        reference,
                        source,
                    });
                }
                DecoderEvent::Chunk { name, bytes } => {
                    let reference = ChunkReference {
                        bytes: bytes.len(),
                        name,
                    };
                    self.keep(Some((name, bytes)));
                    self.queue.push_back(DecodedItem::Whole(reference));
                }
                DecoderEvent::End(head) => self.queue.push_back(DecodedItem::End(head)),
            }
        }
        Ok(())
    }

    fn store(&self) -> Option<&Store> {
        self.dedup.as_ref().map(|dedup| &dedup.store)
    }

    /// Looks up the chunk or list of a reference in the store. If the store does not contain the
    /// chunk or list, requests it from the peer.
    fn find(&mut self, number: u64, reference: ChunkReference) -> Result<ChunkSource, DecodeError> {
        let store = self.store().ok_or(DecodeError::Chunks)?;
        if store.has(&reference.name) {
            return Ok(ChunkSource::Store);
        }
        self.request(number, reference)?;
        Ok(ChunkSource::Peer)
    }

    /// Replaces a list by its chunks in the queue. `number` is the number of the reference to the
    /// list.
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
            let source = self.find(number, reference)?;
            items.push(DecodedItem::Chunk {
                number,
                reference,
                source,
            });
        }
        for item in items.into_iter().rev() {
            self.queue.push_front(item);
        }
        Ok(())
    }

    fn deliver(&mut self, bytes: Bytes) -> Bytes {
        self.queued_bytes -= bytes.len();
        let Self {
            counters, check, ..
        } = self;
        counters.measure(|| check.update(&bytes));
        bytes
    }

    /// Adds a returned chunk to the builder of lists, and stores each completed list.
    fn add_to_list(&mut self, reference: &ChunkReference) {
        let list = self.list_builder.push(reference);
        self.keep(list.map(|list| (list.name, list.bytes)));
    }

    fn keep(&self, chunk: Option<(ChunkName, Bytes)>) {
        if let (Some(store), Some((name, bytes))) = (self.store(), chunk)
            && !store.has(&name)
        {
            // A chunk is a part of a larger buffer. Without the copy, that buffer would stay in
            // memory until the chunk is on the disk.
            store.put(name, Bytes::copy_from_slice(&bytes));
        }
    }

    fn fetcher(&mut self) -> Result<&ChunkFetcher, DecodeError> {
        let dedup = self.dedup.as_ref().ok_or(DecodeError::Chunks)?;
        let fetcher = &mut self.fetcher;
        Ok(fetcher.get_or_insert_with(|| ChunkFetcher::new(dedup.clone(), self.counters.clone())))
    }

    fn request(&mut self, number: u64, reference: ChunkReference) -> Result<(), DecodeError> {
        self.fetcher()?.request(number, reference);
        Ok(())
    }

    /// Starts to load chunks from the store: the chunks at the front of the queue.
    fn load(&mut self) {
        let Some(store) = self.store().cloned() else {
            return;
        };
        let references = self.queue.iter().map_while(|item| match item {
            DecodedItem::Chunk {
                reference,
                source: ChunkSource::Store,
                ..
            }
            | DecodedItem::List {
                reference,
                source: ChunkSource::Store,
                ..
            } => Some(*reference),
            _ => None,
        });
        let references: Vec<_> = references.take(LOADED_TOGETHER).collect();
        let counters = self.counters.clone();
        self.loading = Some(spawn_blocking(move || {
            let get = |reference: &ChunkReference| store.get(&reference.name, reference.bytes);
            counters.measure(|| references.iter().map(get).collect())
        }));
    }

    async fn finish_load(&mut self) {
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
            if let DecodedItem::Chunk {
                number,
                reference,
                source,
            }
            | DecodedItem::List {
                number,
                reference,
                source,
            } = item
            {
                *source = match chunks.next().flatten() {
                    Some(bytes) => ChunkSource::Memory(bytes),
                    None => {
                        missing.push((*number, *reference));
                        ChunkSource::Peer
                    }
                };
            }
        }
        for (number, reference) in missing {
            // The store exists, since chunks were loaded from it.
            let _ = self.request(number, reference);
        }
        self.report_acknowledged();
    }

    async fn receive_chunk(&mut self) -> Result<(), CodedReadError> {
        let Some(fetcher) = &mut self.fetcher else {
            return Err(DecodeError::Chunks.into());
        };
        let fetched = fetcher.next_chunk().await?;
        self.keep(Some((fetched.name, fetched.chunk.clone())));
        let awaited = self.queue.iter_mut().find_map(|item| match item {
            DecodedItem::Chunk { number, source, .. }
            | DecodedItem::List { number, source, .. }
                if *number == fetched.number =>
            {
                Some(source)
            }
            _ => None,
        });
        if let Some(source) = awaited {
            *source = ChunkSource::Memory(fetched.chunk);
        }
        self.report_acknowledged();
        Ok(())
    }

    /// Acknowledges available chunks to the sender, so that the sender can drop them.
    fn report_acknowledged(&mut self) {
        let mut up_to = self.reported;
        for item in &self.queue {
            match item {
                DecodedItem::Chunk {
                    number,
                    source: ChunkSource::Memory(_),
                    ..
                } => up_to = up_to.max(number + 1),
                // The chunks of a list have not been looked up yet.
                DecodedItem::Chunk { .. } | DecodedItem::List { .. } => break,
                DecodedItem::Bytes(_) | DecodedItem::Whole(_) | DecodedItem::End(_) => {}
            }
        }
        if up_to > self.reported
            && let Ok(fetcher) = self.fetcher()
        {
            fetcher.acknowledge(up_to);
            self.reported = up_to;
        }
    }
}

/// Maximum number of bytes, decoded or referenced, that wait in the queue. The queue may exceed
/// this limit by one list. The reader requests all missing chunks in the queue together.
const AHEAD_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of chunks that one call loads from the store. 64 chunks contain about 1 MiB.
const LOADED_TOGETHER: usize = 64;
