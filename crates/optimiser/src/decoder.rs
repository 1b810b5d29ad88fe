//! Decoder that turns frames into the bytes of one direction of a stream.
//!
//! If a referenced chunk is not available yet, the frames after the reference can be decoded
//! nevertheless. The decoder therefore computes no hash of the bytes. The driver of the decoder
//! hashes the bytes in order with a [`StreamCheck`](crate::check::StreamCheck).

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes, BytesMut};

use crate::{
    chunk::{CHUNK_MAX, ChunkName, KEPT_LEAST},
    counts::CodingCounts,
    frame::{self, CUTS_MAX, ChunkReference, FrameError, FrameHead, REFERENCE_BYTES},
    list::LIST_MAX,
    zstd_block,
};

/// One event for the driver of a decoder. The events have the order of the frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecoderEvent {
    /// The next bytes of the stream.
    Bytes(Bytes),
    /// Reference to a chunk whose bytes are the next bytes of the stream.
    Reference {
        /// Number of the reference. The first reference of a stream has the number 0.
        number: u64,
        /// Name and length of the chunk.
        reference: ChunkReference,
    },
    /// Reference to a list of chunks. The bytes of these chunks are the next bytes of the stream.
    /// The numbers after `number` belong to the chunks of the list.
    List {
        /// Number of the reference. The first reference of a stream has the number 0.
        number: u64,
        /// Name and length of the list.
        reference: ChunkReference,
    },
    /// Chunk whose bytes have all arrived in this stream.
    Chunk {
        /// Name of the chunk.
        name: ChunkName,
        /// Bytes of the chunk.
        bytes: Bytes,
    },
    /// End of the stream, or of a part of it. The frame contains the count and hash that all bytes
    /// so far must have.
    End(FrameHead),
}

/// Reason why the received bytes are not a valid sequence of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The received bytes are not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A compressed block does not decompress to the length that its frame states.
    #[error("a compressed block that cannot be decompressed to its length")]
    Block,
    /// The lengths of chunks in a frame of cuts do not match the received bytes.
    #[error("chunks that do not fit the received bytes")]
    Chunks,
    /// Bytes follow the last frame.
    #[error("bytes after the end")]
    AfterEnd,
    /// The stream ended before the last frame.
    #[error("the stream ended without its last frame")]
    Truncated,
    /// The count or the hash of the bytes differs from the value in the last frame.
    #[error("count or hash of the bytes differ from those at the other gateway")]
    Differs,
}

/// Decoder of one direction of a stream.
#[derive(Debug)]
pub struct Decoder {
    input: BytesMut,
    body: Body,
    /// Lengths of chunks whose bytes have not all arrived.
    lengths: VecDeque<usize>,
    /// Received bytes of an incomplete chunk. `None` if the decoder does not report chunks.
    begun: Option<BytesMut>,
    references: u64,
    /// Whether frames may follow an end.
    has_parts: bool,
    is_ended: bool,
    counts: CodingCounts,
    events: VecDeque<DecoderEvent>,
}

/// State between two frames or within the body of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    /// The next bytes are the head of a frame.
    None,
    /// The next bytes belong to the body of a stored frame. The number is the count of remaining
    /// bytes. The decoder can process any part of the remaining bytes.
    Stored(usize),
    Whole(FrameHead),
}

impl Decoder {
    /// Creates a decoder. If `reports_chunks` is true, the decoder also reports complete chunks.
    pub fn new(reports_chunks: bool) -> Self {
        Self {
            input: BytesMut::new(),
            body: Body::None,
            lengths: VecDeque::new(),
            begun: reports_chunks.then(BytesMut::new),
            references: 0,
            has_parts: false,
            is_ended: false,
            counts: CodingCounts::default(),
            events: VecDeque::new(),
        }
    }

    /// Makes the decoder accept another part of the stream after the end of a part.
    #[must_use]
    pub fn with_parts(mut self) -> Self {
        self.has_parts = true;
        self
    }

    /// Adds received bytes of frames. Callers must call [`poll`](Self::poll) until it returns
    /// `None` before they add more bytes.
    pub fn push(&mut self, bytes: Bytes) {
        self.counts.coded_bytes += bytes.len() as u64;
        if self.input.is_empty() {
            // In most cases no other handle refers to the bytes, so no bytes are copied.
            self.input = bytes.into();
        } else {
            self.input.extend_from_slice(&bytes);
        }
    }

    /// Returns the next event. Returns `None` if more bytes must arrive first.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not frames, or contradict earlier frames.
    pub fn poll(&mut self) -> Result<Option<DecoderEvent>, DecodeError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            match self.body {
                Body::None => {
                    if self.is_ended && !self.input.is_empty() {
                        if !self.has_parts {
                            return Err(DecodeError::AfterEnd);
                        }
                        self.is_ended = false;
                    }
                    let Some((head, length)) = FrameHead::decode(&self.input)? else {
                        return Ok(None);
                    };
                    self.input.advance(length);
                    self.begin(head)?;
                }
                Body::Stored(left) => {
                    if self.input.is_empty() {
                        return Ok(None);
                    }
                    let bytes = self.input.split_to(left.min(self.input.len())).freeze();
                    self.body = match left - bytes.len() {
                        0 => Body::None,
                        left => Body::Stored(left),
                    };
                    self.bytes(bytes)?;
                }
                Body::Whole(head) => {
                    if self.input.len() < head.body_bytes() {
                        return Ok(None);
                    }
                    let body = self.input.split_to(head.body_bytes());
                    self.body = Body::None;
                    self.decode_body(head, &body)?;
                }
            }
        }
    }

    /// Returns the byte counts so far.
    pub fn counts(&self) -> CodingCounts {
        self.counts
    }

    /// Checks that the last frame of the stream has arrived.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the last frame has not arrived.
    pub fn end(&self) -> Result<(), DecodeError> {
        match self.is_ended && self.input.is_empty() {
            true => Ok(()),
            false => Err(DecodeError::Truncated),
        }
    }

    fn begin(&mut self, head: FrameHead) -> Result<(), DecodeError> {
        match head {
            FrameHead::End { .. } => {
                if !self.lengths.is_empty() {
                    return Err(DecodeError::Chunks);
                }
                self.is_ended = true;
                self.events.push_back(DecoderEvent::End(head));
            }
            FrameHead::Stored { bytes } => self.body = Body::Stored(bytes),
            head => self.body = Body::Whole(head),
        }
        Ok(())
    }

    fn decode_body(&mut self, head: FrameHead, body: &[u8]) -> Result<(), DecodeError> {
        match head {
            FrameHead::Compressed { bytes, .. } => {
                self.counts.compression_saved_bytes += (bytes - body.len()) as u64;
                let block = zstd_block::decompress(body, bytes);
                self.bytes(block.ok_or(DecodeError::Block)?)?;
            }
            FrameHead::Cuts { .. } => {
                if self.begun.is_none() {
                    return Ok(());
                }
                self.lengths.extend(frame::lengths(body));
                if self.lengths.len() > 2 * CUTS_MAX {
                    return Err(DecodeError::Chunks);
                }
                // The received bytes may already complete a chunk.
                self.collect(Bytes::new())?;
            }
            FrameHead::References { .. } => {
                self.outside_chunks()?;
                for reference in frame::references(body) {
                    self.record_referenced(reference.bytes);
                    let number = self.references;
                    self.references += 1;
                    let event = DecoderEvent::Reference { number, reference };
                    self.events.push_back(event);
                }
            }
            FrameHead::Lists { .. } => {
                self.outside_chunks()?;
                for reference in frame::references(body) {
                    let count = reference.bytes / REFERENCE_BYTES;
                    let is_list = reference.bytes % REFERENCE_BYTES == 0 && count <= LIST_MAX;
                    if !is_list {
                        return Err(DecodeError::Chunks);
                    }
                    let number = self.references;
                    self.references += 1 + count as u64;
                    self.events
                        .push_back(DecoderEvent::List { number, reference });
                }
            }
            FrameHead::End { .. } | FrameHead::Stored { .. } => {}
        }
        Ok(())
    }

    /// Adds `bytes` to the byte count, for a chunk that a reference replaced.
    pub fn record_referenced(&mut self, bytes: usize) {
        self.counts.bytes += bytes as u64;
        self.counts.references_saved_bytes += bytes.saturating_sub(REFERENCE_BYTES) as u64;
    }

    fn outside_chunks(&self) -> Result<(), DecodeError> {
        let is_within = self.begun.as_ref().is_some_and(|begun| !begun.is_empty());
        match is_within || !self.lengths.is_empty() {
            true => Err(DecodeError::Chunks),
            false => Ok(()),
        }
    }

    fn bytes(&mut self, bytes: Bytes) -> Result<(), DecodeError> {
        self.counts.bytes += bytes.len() as u64;
        self.events.push_back(DecoderEvent::Bytes(bytes.clone()));
        self.collect(bytes)
    }

    /// Splits the next bytes into chunks, and reports each chunk that becomes complete.
    fn collect(&mut self, mut rest: Bytes) -> Result<(), DecodeError> {
        let Some(begun) = &mut self.begun else {
            return Ok(());
        };
        while let Some(&length) = self.lengths.front() {
            let Some(missing) = length.checked_sub(begun.len()) else {
                return Err(DecodeError::Chunks);
            };
            if rest.len() < missing {
                break;
            }
            let end = rest.split_to(missing);
            let chunk = if begun.is_empty() {
                end
            } else {
                begun.extend_from_slice(&end);
                begun.split().freeze()
            };
            self.lengths.pop_front();
            if chunk.len() >= KEPT_LEAST {
                let name = ChunkName::of(&chunk);
                self.events
                    .push_back(DecoderEvent::Chunk { name, bytes: chunk });
            }
        }
        if begun.len() + rest.len() > CHUNK_MAX && self.lengths.is_empty() {
            // The sender does not cut chunks.
            self.begun = None;
        } else {
            begun.extend_from_slice(&rest);
        }
        Ok(())
    }
}
