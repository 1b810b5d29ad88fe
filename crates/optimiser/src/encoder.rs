//! Encoder: bytes of one direction of a stream to frames.
//!
//! The encoder takes bytes from a buffer. In a stream with chunks, the start of a chunk stays in
//! the buffer until the chunk's end has arrived. After a long time the start is sent ahead.

use std::{collections::VecDeque, sync::Arc};

use bytes::{Bytes, BytesMut};

use crate::{
    check::Check,
    chunk::{Cutter, KEPT_LEAST, Name},
    counts::Counts,
    frame::{self, CUTS_MAX, HEAD_MAX, Head, REFERENCE_BYTES, REFERENCES_MAX, Reference},
    level::{Chooser, Spent},
    list::{List, Lister},
    zstd_block::{self, BLOCK_MAX},
};

/// Knowledge of a sender about chunks and lists of chunks.
pub trait Chunks {
    /// Whether the receiver may have the chunk.
    fn knows(&mut self, name: &Name) -> bool;

    /// Keeps chunks for references, the first one by the next number: the receiver may request
    /// their bytes. Returns false if they cannot be kept. They are then not referred to.
    fn lend(&mut self, chunks: &[Bytes]) -> bool;

    /// Records a chunk whose bytes the receiver gets, or can derive from earlier bytes.
    fn sent(&mut self, name: Name, chunk: Bytes);
}

/// Chunks of a sender without a store.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoChunks;

impl Chunks for NoChunks {
    fn knows(&mut self, _name: &Name) -> bool {
        false
    }

    fn lend(&mut self, _chunks: &[Bytes]) -> bool {
        false
    }

    fn sent(&mut self, _name: Name, _chunk: Bytes) {}
}

/// Part of the buffer to encode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// Only complete blocks.
    Blocks,
    /// All bytes, since further bytes will not arrive soon.
    All,
    /// All bytes, since the stream ends after them.
    Rest,
}

/// Encoder of one direction of a stream.
#[derive(Debug)]
pub struct Encoder {
    check: Check,
    chooser: Option<Chooser>,
    cutter: Option<Arc<Cutter>>,
    /// Bytes at the start of the buffer that were sent already: the start of a chunk.
    gone_bytes: usize,
    lister: Lister,
    /// Chunks of the present list that the receiver may have.
    known: Vec<(Reference, Bytes)>,
    /// Whether the receiver may have the last chunk.
    is_among_known: bool,
    is_ended: bool,
    counts: Counts,
}

impl Encoder {
    /// Creates an encoder that compresses or not, and cuts chunks or not.
    pub fn new(compresses: bool, cutter: Option<Arc<Cutter>>) -> Self {
        Self {
            check: Check::default(),
            chooser: compresses.then(Chooser::default),
            cutter,
            gone_bytes: 0,
            lister: Lister::default(),
            known: Vec::new(),
            is_among_known: false,
            is_ended: false,
            counts: Counts::default(),
        }
    }

    /// Takes bytes from `buffer`, and appends frames to `out`.
    pub fn encode(
        &mut self,
        buffer: &mut BytesMut,
        take: Take,
        chunks: &mut dyn Chunks,
        out: &mut VecDeque<Bytes>,
    ) {
        match self.cutter.take() {
            Some(cutter) => {
                self.take_chunks(&cutter, buffer, take, chunks, out);
                self.cutter = Some(cutter);
            }
            None => {
                while buffer.len() >= BLOCK_MAX || take != Take::Blocks && !buffer.is_empty() {
                    let block = buffer.split_to(buffer.len().min(BLOCK_MAX)).freeze();
                    self.put_block(block, out);
                }
            }
        }
        if take == Take::Rest && !self.is_ended {
            self.is_ended = true;
            self.put(frame::bare(self.check.end()), out);
        }
    }

    /// Whether bytes of `buffer` wait for further ones.
    pub fn holds_back(&self, buffer: &BytesMut) -> bool {
        buffer.len() > self.gone_bytes || !self.known.is_empty()
    }

    /// Whether the receiver probably has the next chunks, too. Waiting for their ends then saves
    /// their bytes.
    pub fn is_among_known(&self) -> bool {
        self.is_among_known
    }

    /// Records the time spent on the last encoded bytes.
    pub fn spent(&mut self, spent: Spent) {
        if let Some(chooser) = &mut self.chooser {
            chooser.spent(spent);
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn take_chunks(
        &mut self,
        cutter: &Cutter,
        buffer: &mut BytesMut,
        take: Take,
        chunks: &mut dyn Chunks,
        out: &mut VecDeque<Bytes>,
    ) {
        let mut lengths = Vec::new();
        let mut cut_bytes = 0;
        while let Some(length) = cutter.cut(&buffer[cut_bytes..], take == Take::Rest) {
            lengths.push(length);
            cut_bytes += length;
        }
        let whole = buffer.split_to(cut_bytes).freeze();
        let mut run = Run::default();
        let mut at = 0;
        for length in lengths {
            let chunk = whole.slice(at..at + length);
            let gone_bytes = std::mem::take(&mut self.gone_bytes);
            self.check.update(&chunk[gone_bytes..]);
            let reference = (length >= KEPT_LEAST).then(|| Reference {
                bytes: length,
                name: Name::of(&chunk),
            });
            let list = reference.and_then(|reference| self.lister.push(&reference));
            match reference {
                Some(reference) if gone_bytes == 0 && chunks.knows(&reference.name) => {
                    self.put_run(&whole, &mut run, out);
                    self.is_among_known = true;
                    self.known.push((reference, chunk));
                }
                reference => {
                    self.is_among_known = false;
                    self.put_known(chunks, out);
                    if run.lengths.is_empty() {
                        run.bytes = at + gone_bytes..at;
                    }
                    run.lengths.push(length);
                    run.bytes.end = at + length;
                    if let Some(reference) = reference {
                        chunks.sent(reference.name, chunk);
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
        match take {
            Take::Blocks => {}
            Take::All => {
                self.put_known(chunks, out);
                if buffer.len() > self.gone_bytes {
                    let ahead = Bytes::copy_from_slice(&buffer[self.gone_bytes..]);
                    self.check.update(&ahead);
                    self.gone_bytes = buffer.len();
                    self.put_compressed(ahead, out);
                }
            }
            Take::Rest => {
                if let Some(list) = self.lister.end() {
                    self.put_list(list, chunks, out);
                }
                self.put_known(chunks, out);
            }
        }
    }

    /// Handles a complete list. If its chunks have not been sent yet, its name may replace them.
    fn put_list(&mut self, list: List, chunks: &mut dyn Chunks, out: &mut VecDeque<Bytes>) {
        let is_whole = self.known.len() * REFERENCE_BYTES == list.bytes.len();
        if is_whole && chunks.knows(&list.name) {
            let lent = [&list.bytes].into_iter();
            let lent = lent.chain(self.known.iter().map(|(_, chunk)| chunk));
            let lent: Vec<_> = lent.cloned().collect();
            if chunks.lend(&lent) {
                let mut frame = BytesMut::with_capacity(HEAD_MAX + REFERENCE_BYTES);
                Head::Lists { count: 1 }.encode(&mut frame);
                let reference = Reference {
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
        chunks.sent(list.name, list.bytes);
    }

    /// Sends the known chunks by their own names.
    fn put_known(&mut self, chunks: &mut dyn Chunks, out: &mut VecDeque<Bytes>) {
        let mut references = Vec::new();
        for (reference, chunk) in std::mem::take(&mut self.known) {
            if chunks.lend(std::slice::from_ref(&chunk)) {
                references.push(reference);
                if references.len() >= REFERENCES_MAX {
                    self.put_references(&mut references, out);
                }
            } else {
                self.put_references(&mut references, out);
                let mut run = Run {
                    bytes: 0..chunk.len(),
                    lengths: vec![chunk.len()],
                };
                self.put_run(&chunk, &mut run, out);
            }
        }
        self.put_references(&mut references, out);
    }

    /// Sends and hashes unchanged bytes.
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
                chooser.compressed(block.len(), coded_bytes);
                if let Some(coded) = coded {
                    self.counts.compression_saved_bytes += (block.len() - coded.len()) as u64;
                    let head = Head::Compressed {
                        bytes: block.len(),
                        coded_bytes: coded.len(),
                    };
                    self.put(frame::bare(head), out);
                    return self.put(coded, out);
                }
            }
        }
        let bytes = block.len();
        self.put(frame::bare(Head::Stored { bytes }), out);
        self.put(block, out);
    }

    /// Sends chunks with their bytes.
    fn put_run(&mut self, whole: &Bytes, run: &mut Run, out: &mut VecDeque<Bytes>) {
        let Run { bytes, lengths } = std::mem::take(run);
        if lengths.is_empty() {
            return;
        }
        let count = lengths.len();
        let mut frame = BytesMut::with_capacity(HEAD_MAX + 2 * count);
        Head::Cuts { count }.encode(&mut frame);
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

    fn put_references(&mut self, references: &mut Vec<Reference>, out: &mut VecDeque<Bytes>) {
        if references.is_empty() {
            return;
        }
        let count = references.len();
        let mut frame = BytesMut::with_capacity(HEAD_MAX + count * REFERENCE_BYTES);
        Head::References { count }.encode(&mut frame);
        for reference in references.drain(..) {
            frame::put_reference(&mut frame, &reference);
            self.count_reference(&reference);
        }
        self.put(frame.freeze(), out);
    }

    fn count_reference(&mut self, reference: &Reference) {
        self.counts.bytes += reference.bytes as u64;
        self.counts.references_saved_bytes +=
            reference.bytes.saturating_sub(REFERENCE_BYTES) as u64;
    }

    fn put(&mut self, bytes: Bytes, out: &mut VecDeque<Bytes>) {
        self.counts.coded_bytes += bytes.len() as u64;
        out.push_back(bytes);
    }
}

/// Consecutive chunks to send with their bytes.
#[derive(Default)]
struct Run {
    /// Range of their unsent bytes.
    bytes: std::ops::Range<usize>,
    lengths: Vec<usize>,
}
