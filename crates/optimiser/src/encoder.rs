//! Encoder that turns the bytes of one direction of a stream into frames.
//!
//! The encoder takes bytes from a buffer. If the encoder cuts chunks, the start of a chunk stays in
//! the buffer until the end of the chunk has arrived. If the end does not arrive soon, the encoder
//! sends the start alone.

use std::{collections::VecDeque, sync::Arc};

use bytes::{Bytes, BytesMut};

use crate::{
    check::StreamCheck,
    chunk::{ChunkName, Cutter, KEPT_LEAST},
    counts::CodingCounts,
    frame::{self, CUTS_MAX, ChunkReference, FrameHead, HEAD_MAX, REFERENCE_BYTES, REFERENCES_MAX},
    level::{BlockTimes, LevelChooser},
    list::{ChunkList, ListBuilder},
    zstd_block::{self, BLOCK_MAX},
};

/// Access of an encoder to the sender's store of chunks and lists of chunks.
pub trait SenderChunks {
    /// Returns whether the receiver may have the chunk.
    fn receiver_may_have(&mut self, name: &ChunkName) -> bool;

    /// Keeps chunks in memory for references, since the receiver may request their bytes. The first
    /// chunk gets the next reference number. Returns false if the chunks cannot be kept. The
    /// encoder then sends their bytes instead of references.
    fn keep_outstanding(&mut self, chunks: &[Bytes]) -> bool;

    /// Records that the receiver gets the bytes of a chunk, or can derive them from earlier bytes.
    fn record_sent(&mut self, name: ChunkName, chunk: Bytes);
}

/// Stand-in for a store, for a sender that has no store.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoChunks;

impl SenderChunks for NoChunks {
    fn receiver_may_have(&mut self, _name: &ChunkName) -> bool {
        false
    }

    fn keep_outstanding(&mut self, _chunks: &[Bytes]) -> bool {
        false
    }

    fn record_sent(&mut self, _name: ChunkName, _chunk: Bytes) {}
}

/// Selection of buffered bytes. A call must encode the selected bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodeScope {
    /// Only complete blocks.
    Blocks,
    /// All bytes, because no more bytes will arrive soon.
    All,
    /// All bytes, because later bytes have other content. A chunk and a list end here. The count
    /// and the hash of all bytes so far follow.
    Part,
    /// All bytes, because the stream ends after them.
    Rest,
}

/// Encoder of one direction of a stream.
#[derive(Debug)]
pub struct Encoder {
    check: StreamCheck,
    chooser: Option<LevelChooser>,
    cutter: Option<Arc<Cutter>>,
    /// Number of already sent bytes at the start of the buffer. These bytes are the start of an
    /// incomplete chunk.
    sent_ahead_bytes: usize,
    list_builder: ListBuilder,
    /// Chunks that the receiver may have and that are in the current list. These chunks are not
    /// sent yet.
    known: Vec<(ChunkReference, Bytes)>,
    /// Whether the receiver may have the chunk that was cut last.
    is_among_known: bool,
    is_ended: bool,
    counts: CodingCounts,
}

impl Encoder {
    /// Creates an encoder. If `compresses` is true, it compresses blocks. With a `cutter`, it cuts
    /// chunks.
    pub fn new(compresses: bool, cutter: Option<Arc<Cutter>>) -> Self {
        Self {
            check: StreamCheck::default(),
            chooser: compresses.then(LevelChooser::default),
            cutter,
            sent_ahead_bytes: 0,
            list_builder: ListBuilder::default(),
            known: Vec::new(),
            is_among_known: false,
            is_ended: false,
            counts: CodingCounts::default(),
        }
    }

    /// Removes bytes from `buffer`, encodes the bytes, and appends the frames to `out`.
    pub fn encode(
        &mut self,
        buffer: &mut BytesMut,
        scope: EncodeScope,
        chunks: &mut dyn SenderChunks,
        out: &mut VecDeque<Bytes>,
    ) {
        match self.cutter.take() {
            Some(cutter) => {
                while scope == EncodeScope::Blocks && buffer.len() >= BLOCK_MAX {
                    self.take_chunks(&cutter, buffer, scope, chunks, out);
                }
                if scope != EncodeScope::Blocks {
                    self.take_chunks(&cutter, buffer, scope, chunks, out);
                }
                self.cutter = Some(cutter);
            }
            None => {
                while buffer.len() >= BLOCK_MAX
                    || scope != EncodeScope::Blocks && !buffer.is_empty()
                {
                    let block = buffer.split_to(buffer.len().min(BLOCK_MAX)).freeze();
                    self.put_block(block, out);
                }
            }
        }
        let is_last = scope == EncodeScope::Rest && !self.is_ended;
        if is_last || scope == EncodeScope::Part {
            self.is_ended = is_last;
            self.put(frame::encode_head(self.check.end()), out);
        }
    }

    /// Returns whether the encoder holds back some bytes until the end of a block, chunk or list.
    pub fn holds_back(&self, buffer: &BytesMut) -> bool {
        self.held_bytes(buffer) > 0
    }

    /// Returns the number of bytes that are not sent yet: bytes of `buffer`, and chunks that wait
    /// for the end of their list.
    pub fn held_bytes(&self, buffer: &BytesMut) -> usize {
        let known: usize = self
            .known
            .iter()
            .map(|(reference, _)| reference.bytes)
            .sum();
        buffer.len() - self.sent_ahead_bytes + known
    }

    /// Returns whether the receiver may have the previous chunk. The receiver then probably has the
    /// next chunks, too. If the encoder waits for the ends of these chunks, it can send references
    /// instead of their bytes.
    pub fn is_among_known(&self) -> bool {
        self.is_among_known
    }

    /// Records the time spent on the last encoded bytes.
    pub fn record_times(&mut self, times: BlockTimes) {
        if let Some(chooser) = &mut self.chooser {
            chooser.record_times(times);
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> CodingCounts {
        self.counts
    }

    fn take_chunks(
        &mut self,
        cutter: &Cutter,
        buffer: &mut BytesMut,
        scope: EncodeScope,
        chunks: &mut dyn SenderChunks,
        out: &mut VecDeque<Bytes>,
    ) {
        let ends_chunk = matches!(scope, EncodeScope::Part | EncodeScope::Rest);
        let mut lengths = Vec::new();
        let mut cut_bytes = 0;
        while let Some(length) = cutter.cut(&buffer[cut_bytes..], ends_chunk) {
            // Chunks in one block compress better than separate chunks. The next call takes the
            // remaining chunks.
            if scope == EncodeScope::Blocks && cut_bytes + length > BLOCK_MAX {
                break;
            }
            lengths.push(length);
            cut_bytes += length;
        }
        let whole = buffer.split_to(cut_bytes).freeze();
        let mut run = UnsentRun::default();
        let mut at = 0;
        for length in lengths {
            let chunk = whole.slice(at..at + length);
            let sent_ahead_bytes = std::mem::take(&mut self.sent_ahead_bytes);
            self.check.update(&chunk[sent_ahead_bytes..]);
            let reference = (length >= KEPT_LEAST).then(|| ChunkReference {
                bytes: length,
                name: ChunkName::of(&chunk),
            });
            let list = reference.and_then(|reference| self.list_builder.push(&reference));
            match reference {
                Some(reference)
                    if sent_ahead_bytes == 0 && chunks.receiver_may_have(&reference.name) =>
                {
                    self.put_run(&whole, &mut run, out);
                    self.is_among_known = true;
                    self.known.push((reference, chunk));
                }
                reference => {
                    self.is_among_known = false;
                    self.put_known(chunks, out);
                    if run.lengths.is_empty() {
                        run.bytes = at + sent_ahead_bytes..at;
                    }
                    run.lengths.push(length);
                    run.bytes.end = at + length;
                    if let Some(reference) = reference {
                        chunks.record_sent(reference.name, chunk);
                    }
                    if run.lengths.len() >= CUTS_MAX {
                        self.put_run(&whole, &mut run, out);
                    }
                }
            }
            if let Some(list) = list {
                self.put_list(list, chunks, out);
            }
            at += length;
        }
        self.put_run(&whole, &mut run, out);
        match scope {
            EncodeScope::Blocks => {}
            EncodeScope::All => {
                self.put_known(chunks, out);
                if buffer.len() > self.sent_ahead_bytes {
                    let ahead = Bytes::copy_from_slice(&buffer[self.sent_ahead_bytes..]);
                    self.check.update(&ahead);
                    self.sent_ahead_bytes = buffer.len();
                    self.put_compressed(ahead, out);
                }
            }
            EncodeScope::Part | EncodeScope::Rest => {
                if let Some(list) = self.list_builder.end() {
                    self.put_list(list, chunks, out);
                }
                self.put_known(chunks, out);
            }
        }
    }

    /// Processes a complete list of chunks. If none of its chunks was sent yet, one reference to
    /// the list may replace them.
    fn put_list(
        &mut self,
        list: ChunkList,
        chunks: &mut dyn SenderChunks,
        out: &mut VecDeque<Bytes>,
    ) {
        let is_whole = self.known.len() * REFERENCE_BYTES == list.bytes.len();
        if is_whole && chunks.receiver_may_have(&list.name) {
            let kept = [&list.bytes].into_iter();
            let kept = kept.chain(self.known.iter().map(|(_, chunk)| chunk));
            let kept: Vec<_> = kept.cloned().collect();
            if chunks.keep_outstanding(&kept) {
                let mut frame = BytesMut::with_capacity(HEAD_MAX + REFERENCE_BYTES);
                FrameHead::Lists { count: 1 }.encode(&mut frame);
                let reference = ChunkReference {
                    bytes: list.bytes.len(),
                    name: list.name,
                };
                frame::put_reference(&mut frame, &reference);
                for (reference, _) in std::mem::take(&mut self.known) {
                    self.count_reference(&reference);
                }
                return self.put(frame.freeze(), out);
            }
        }
        self.put_known(chunks, out);
        chunks.record_sent(list.name, list.bytes);
    }

    /// Sends one reference for each chunk that the receiver may have. If a chunk cannot be kept for
    /// requests of the receiver, sends the bytes of this chunk instead.
    fn put_known(&mut self, chunks: &mut dyn SenderChunks, out: &mut VecDeque<Bytes>) {
        let mut references = Vec::new();
        for (reference, chunk) in std::mem::take(&mut self.known) {
            if chunks.keep_outstanding(std::slice::from_ref(&chunk)) {
                references.push(reference);
                if references.len() >= REFERENCES_MAX {
                    self.put_references(&mut references, out);
                }
            } else {
                self.put_references(&mut references, out);
                let mut run = UnsentRun {
                    bytes: 0..chunk.len(),
                    lengths: vec![chunk.len()],
                };
                self.put_run(&chunk, &mut run, out);
            }
        }
        self.put_references(&mut references, out);
    }

    /// Hashes and sends the next block of a stream that is not cut into chunks.
    fn put_block(&mut self, block: Bytes, out: &mut VecDeque<Bytes>) {
        self.check.update(&block);
        self.put_compressed(block, out);
    }

    fn put_compressed(&mut self, block: Bytes, out: &mut VecDeque<Bytes>) {
        self.counts.bytes += block.len() as u64;
        if let Some(chooser) = self.chooser.as_mut() {
            let level = chooser.choose(&block);
            if let Some(zstd_level) = level.zstd() {
                let coded = zstd_block::compress(&block, zstd_level);
                let coded_bytes = coded.as_ref().map_or(block.len(), Bytes::len);
                chooser.record_sizes(block.len(), coded_bytes);
                if let Some(coded) = coded {
                    self.counts.compression_saved_bytes += (block.len() - coded.len()) as u64;
                    let head = FrameHead::Compressed {
                        bytes: block.len(),
                        coded_bytes: coded.len(),
                    };
                    self.put(frame::encode_head(head), out);
                    return self.put(coded, out);
                }
            }
        }
        let bytes = block.len();
        self.put(frame::encode_head(FrameHead::Stored { bytes }), out);
        self.put(block, out);
    }

    /// Sends the bytes of consecutive chunks, with their lengths.
    fn put_run(&mut self, whole: &Bytes, run: &mut UnsentRun, out: &mut VecDeque<Bytes>) {
        let UnsentRun { bytes, lengths } = std::mem::take(run);
        if lengths.is_empty() {
            return;
        }
        let count = lengths.len();
        let mut frame = BytesMut::with_capacity(HEAD_MAX + 2 * count);
        FrameHead::Cuts { count }.encode(&mut frame);
        for length in lengths {
            frame::put_length(&mut frame, length);
        }
        self.put(frame.freeze(), out);
        let mut rest = whole.slice(bytes);
        while !rest.is_empty() {
            let block = rest.split_to(rest.len().min(BLOCK_MAX));
            self.put_compressed(block, out);
        }
    }

    fn put_references(&mut self, references: &mut Vec<ChunkReference>, out: &mut VecDeque<Bytes>) {
        if references.is_empty() {
            return;
        }
        let count = references.len();
        let mut frame = BytesMut::with_capacity(HEAD_MAX + count * REFERENCE_BYTES);
        FrameHead::References { count }.encode(&mut frame);
        for reference in references.drain(..) {
            frame::put_reference(&mut frame, &reference);
            self.count_reference(&reference);
        }
        self.put(frame.freeze(), out);
    }

    fn count_reference(&mut self, reference: &ChunkReference) {
        self.counts.bytes += reference.bytes as u64;
        self.counts.references_saved_bytes +=
            reference.bytes.saturating_sub(REFERENCE_BYTES) as u64;
    }

    fn put(&mut self, bytes: Bytes, out: &mut VecDeque<Bytes>) {
        self.counts.coded_bytes += bytes.len() as u64;
        out.push_back(bytes);
    }
}

/// Consecutive chunks whose bytes must be sent.
#[derive(Default)]
struct UnsentRun {
    /// Range of the chunks' bytes that are not sent yet.
    bytes: std::ops::Range<usize>,
    lengths: Vec<usize>,
}
