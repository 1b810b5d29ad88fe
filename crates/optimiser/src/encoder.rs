//! Bytes of one direction of a stream to frames.
//!
//! The bytes come in a buffer from which the encoder takes what it can. Of a stream with chunks the beginning of a chunk stays
//! in the buffer until its end has come; if that takes long, the beginning goes ahead.

use std::{collections::VecDeque, sync::Arc};

use bytes::{Bytes, BytesMut};

use crate::{
    check::Check,
    chunk::{Cutter, KEPT_LEAST, Name},
    counts::Counts,
    frame::{self, CUTS_MAX, HEAD_MAX, Head, REFERENCE_BYTES, REFERENCES_MAX, Reference},
    level::{Chooser, Level, Spent},
    zstd_block::{self, BLOCK_MAX},
};

/// What a sender knows of chunks.
pub trait Chunks {
    /// Whether to refer to this chunk. If so, the receiver may ask for its bytes later, by the number of the reference: the
    /// first one of a stream is 0.
    fn refer(&mut self, name: &Name, chunk: &Bytes) -> bool;

    /// The chunk goes with all its bytes.
    fn sent(&mut self, name: Name, chunk: Bytes);
}

/// Chunks of a sender that has no store.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoChunks;

impl Chunks for NoChunks {
    fn refer(&mut self, _name: &Name, _chunk: &Bytes) -> bool {
        false
    }

    fn sent(&mut self, _name: Name, _chunk: Bytes) {}
}

/// How much of the buffer to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// What makes whole blocks.
    Blocks,
    /// All of it: more does not come soon.
    All,
    /// All of it: nothing more comes.
    Rest,
}

/// Codes one direction of a stream.
#[derive(Debug)]
pub struct Encoder {
    check: Check,
    chooser: Option<Chooser>,
    cutter: Option<Arc<Cutter>>,
    /// Bytes at the start of the buffer that have gone: the beginning of a chunk.
    gone_bytes: usize,
    is_ended: bool,
    counts: Counts,
}

impl Encoder {
    /// An encoder that compresses or not, and cuts chunks or not.
    pub fn new(compresses: bool, cutter: Option<Arc<Cutter>>) -> Self {
        Self {
            check: Check::default(),
            chooser: compresses.then(Chooser::default),
            cutter,
            gone_bytes: 0,
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

    /// Whether bytes of `buffer` wait for more.
    pub fn holds_back(&self, buffer: &BytesMut) -> bool {
        buffer.len() > self.gone_bytes
    }

    /// Takes note of the time that what was encoded last has taken.
    pub fn spent(&mut self, spent: Spent) {
        if let Some(chooser) = &mut self.chooser {
            chooser.spent(spent);
        }
    }

    /// What became of the bytes so far.
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
        let mut references = Vec::new();
        let mut at = 0;
        for length in lengths {
            let chunk = whole.slice(at..at + length);
            let gone_bytes = std::mem::take(&mut self.gone_bytes);
            self.check.update(&chunk[gone_bytes..]);
            let name = (length >= KEPT_LEAST).then(|| Name::of(&chunk));
            let is_known = gone_bytes == 0 && name.is_some_and(|name| chunks.refer(&name, &chunk));
            match name {
                Some(name) if is_known => {
                    self.put_run(&whole, &mut run, out);
                    references.push(Reference {
                        bytes: length,
                        name,
                    });
                }
                name => {
                    self.put_references(&mut references, out);
                    if run.lengths.is_empty() {
                        run.bytes = at + gone_bytes..at;
                    }
                    run.lengths.push(length);
                    run.bytes.end = at + length;
                    if let Some(name) = name {
                        chunks.sent(name, chunk);
                    }
                }
            }
            if run.lengths.len() >= CUTS_MAX {
                self.put_run(&whole, &mut run, out);
            }
            if references.len() >= REFERENCES_MAX {
                self.put_references(&mut references, out);
            }
            at += length;
        }
        self.put_references(&mut references, out);
        self.put_run(&whole, &mut run, out);
        if take == Take::All && buffer.len() > self.gone_bytes {
            let ahead = Bytes::copy_from_slice(&buffer[self.gone_bytes..]);
            self.check.update(&ahead);
            self.gone_bytes = buffer.len();
            self.put_compressed(ahead, out);
        }
    }

    /// Bytes that go as they are: hashed here.
    fn put_block(&mut self, block: Bytes, out: &mut VecDeque<Bytes>) {
        self.check.update(&block);
        self.put_compressed(block, out);
    }

    fn put_compressed(&mut self, block: Bytes, out: &mut VecDeque<Bytes>) {
        self.counts.bytes += block.len() as u64;
        if let Some(chooser) = &mut self.chooser {
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

    /// Chunks that go with their bytes.
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
            self.counts.bytes += reference.bytes as u64;
            self.counts.references_saved_bytes +=
                reference.bytes.saturating_sub(REFERENCE_BYTES) as u64;
        }
        self.put(frame.freeze(), out);
    }

    fn put(&mut self, bytes: Bytes, out: &mut VecDeque<Bytes>) {
        self.counts.coded_bytes += bytes.len() as u64;
        out.push_back(bytes);
    }

    /// The level by which the last block went.
    pub fn level(&self) -> Level {
        self.chooser.as_ref().map_or(Level::Off, Chooser::level)
    }
}

/// Chunks in a row that go with their bytes.
#[derive(Default)]
struct Run {
    /// Their bytes that have not gone yet.
    bytes: std::ops::Range<usize>,
    lengths: Vec<usize>,
}
