//! Coding of the data of a channel (compression and deduplication).
//!
//! The data of all frames form one sequence of bytes. The crate `optimiser` codes this sequence,
//! without the headers and the fields of the frames. Equal files therefore have equal chunks. A
//! [`CODED`] frame contains coded bytes. A [`DETACHED`] frame contains the type and the fields of a
//! frame whose data were in earlier `CODED` frames.
//!
//! A part of the coding ends before each frame without data. Before the receiver reads such a
//! frame, it has checked the hash of all earlier data. For example, it checks a file before it
//! reads the CLOSE.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use link::{RecvStream, SendStream, StreamError};
use optimiser::{encoder::EncodeScope, zstd_block::BLOCK_MAX};
use relay::optimise::{
    CodedReadError, CodingCounters, FlushDelay, StreamCoding, StreamDecoder, StreamEncoder,
};
use sftp::Rope;

use super::{
    WireError,
    frame::{CODED, DETACHED, Frame, header, put_header},
};

/// Encoder of the data of a channel, and the frames that wait for their data.
#[derive(Debug)]
pub(super) struct DataEncoder {
    encoder: StreamEncoder,
    /// Data that are in no `CODED` frame yet.
    data: BytesMut,
    /// Number of all data bytes so far.
    data_bytes: u64,
    /// Value of `data_bytes` at the end of the latest part.
    part_end: u64,
    /// Frames that wait, each with a number of data bytes. The frame is sent after this number of
    /// bytes has been coded.
    waiting: VecDeque<(Bytes, u64)>,
    flush: Flush,
    /// Whether frames with the latest coded bytes may still be unsent.
    is_sending: bool,
}

/// Time at which the encoder codes waiting data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flush {
    /// After a short wait, because more data of the same content probably follow.
    Soon,
    /// When the queue contains no further frame.
    Idle(EncodeScope),
    /// Before further data.
    Part,
}

impl DataEncoder {
    pub(super) fn new(coding: &StreamCoding, counters: &Arc<CodingCounters>) -> Self {
        Self {
            encoder: StreamEncoder::new(coding, counters),
            data: BytesMut::new(),
            data_bytes: 0,
            part_end: 0,
            waiting: VecDeque::new(),
            flush: Flush::Soon,
            is_sending: false,
        }
    }

    /// Adds a complete frame. Unless `continues` is true, the frame ends a part of the data.
    pub(super) fn push_frame(&mut self, frame: Bytes, continues: bool) {
        if continues {
            self.flush = Flush::Idle(EncodeScope::All);
        } else if self.data_bytes > self.part_end {
            self.flush = Flush::Part;
        }
        self.waiting.push_back((frame, self.data_bytes));
    }

    /// Adds a message of an SFTP session.
    pub(super) fn push_message(&mut self, kind: u8, fields: &[u8], data: &Rope) {
        self.flush = match data.len() >= BULK_MIN_BYTES {
            true => Flush::Soon,
            false => Flush::Idle(EncodeScope::Part),
        };
        let pieces = data.pieces();
        self.push_detached(kind, fields, data.len(), pieces.map(|piece| &piece[..]));
    }

    /// Adds bytes of standard input, standard output or standard error.
    pub(super) fn push_stream(&mut self, kind: u8, data: &[u8]) {
        self.push_detached(kind, &[], data.len(), [data].into_iter());
        self.flush = match self.encoder.held_bytes(&self.data) >= BULK_MIN_BYTES {
            true => Flush::Soon,
            false => Flush::Idle(EncodeScope::All),
        };
    }

    fn push_detached<'a>(
        &mut self,
        kind: u8,
        fields: &[u8],
        length: usize,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) {
        if length >= BULK_MIN_BYTES && self.data.capacity() - self.data.len() < length {
            // More data probably follow, so the buffer gets its full size in one step.
            self.data.reserve(BLOCK_MAX + length);
        }
        for piece in pieces {
            self.data.extend_from_slice(piece);
        }
        self.data_bytes += length as u64;
        let body_bytes = DETACHED_FIELDS_BYTES + fields.len();
        let mut frame = BytesMut::with_capacity(body_bytes + DETACHED_FIELDS_BYTES);
        put_header(&mut frame, DETACHED, body_bytes);
        frame.put_u8(kind);
        frame.put_u32(u32::try_from(length).expect("a body is shorter than 4 GiB"));
        frame.extend_from_slice(fields);
        self.waiting.push_back((frame.freeze(), self.data_bytes));
    }

    /// Returns the time for which the data may wait for further data. Returns `None` if no frame
    /// waits.
    pub(super) fn flush_delay(&self) -> Option<Duration> {
        if self.waiting.is_empty() {
            return None;
        }
        let delay = match self.flush {
            Flush::Soon => self.encoder.flush_delay(&self.data, FlushDelay::Stream),
            Flush::Idle(_) | Flush::Part => None,
        };
        Some(delay.unwrap_or_default())
    }

    /// Returns the data that must be coded now. `is_all` selects all data.
    fn scope(&self, is_all: bool) -> Option<EncodeScope> {
        let is_waiting = !self.waiting.is_empty();
        // During the short wait for further data, many short frames may arrive.
        let is_all = is_all || self.waiting.len() >= WAITING_MAX;
        match self.flush {
            Flush::Part if self.data_bytes > self.part_end => Some(EncodeScope::Part),
            Flush::Idle(scope) if is_all && is_waiting => Some(scope),
            Flush::Soon | Flush::Part if is_all && is_waiting => Some(EncodeScope::All),
            _ if self.data.len() >= BLOCK_MAX => Some(EncodeScope::Blocks),
            _ => None,
        }
    }

    /// Moves coded data, and the frames whose data are coded, into `queue`. Waits until the
    /// receiver has acknowledged enough references. Cancel safe.
    ///
    /// # Errors
    /// The error of the stream.
    pub(super) async fn code(
        &mut self,
        is_all: bool,
        stream: &mut SendStream,
        queue: &mut VecDeque<Bytes>,
    ) -> Result<(), StreamError> {
        if let Some(scope) = self.scope(is_all) {
            self.encoder.start_room_wait();
            tokio::select! {
                biased;
                () = self.encoder.has_room() => {}
                Err(error) = stream.closed() => return Err(error),
            }
            self.encoder.encode(&mut self.data, scope);
            self.is_sending = true;
            while let Some(frame) = self.encoder.next_frame() {
                queue.push_back(header(CODED, frame.len()));
                queue.push_back(frame);
                self.encoder.pop_frame();
            }
            if scope == EncodeScope::Part {
                self.part_end = self.data_bytes;
            }
            if scope != EncodeScope::Blocks {
                self.flush = Flush::Soon;
                if self.data.is_empty() {
                    // An idle channel needs no buffer.
                    self.data = BytesMut::new();
                }
            }
        }
        let held_bytes = self.encoder.held_bytes(&self.data) as u64;
        let coded_bytes = self.data_bytes - held_bytes;
        while let Some((frame, _)) = self.waiting.pop_front_if(|(_, at)| *at <= coded_bytes) {
            queue.push_back(frame);
        }
        Ok(())
    }

    /// Records that all frames are in the stream.
    pub(super) fn record_sent(&mut self) {
        if std::mem::take(&mut self.is_sending) {
            self.encoder.record_sent();
        }
    }

    /// Records that the stream ends without a reset.
    pub(super) fn record_finish(&mut self) {
        self.encoder.record_finish();
    }
}

/// Decoder of the data of a channel.
#[derive(Debug)]
pub(super) struct DataDecoder {
    decoder: StreamDecoder,
    /// Whether the decoder may have further bytes.
    is_decoding: bool,
    /// Data whose frames have not arrived.
    ready: Rope,
    /// Data of a `DETACHED` frame that are returned in pieces.
    pieces: Option<(u8, Rope)>,
}

impl DataDecoder {
    pub(super) fn new(coding: &StreamCoding, counters: &Arc<CodingCounters>) -> Self {
        Self {
            decoder: StreamDecoder::new(coding, counters).with_parts(),
            is_decoding: false,
            ready: Rope::new(),
            pieces: None,
        }
    }

    /// Adds coded bytes. The caller decodes them before it adds more.
    pub(super) fn push(&mut self, bytes: Bytes) {
        self.decoder.push(bytes);
        self.is_decoding = true;
    }

    /// Decodes all bytes that have arrived. Cancel safe.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not a valid coding, if a chunk does not arrive, or if the
    /// data exceed the limit.
    pub(super) async fn decode(&mut self, stream: &mut RecvStream) -> Result<(), WireError> {
        while self.is_decoding {
            match self.decoder.read(stream).await {
                Ok(Some(bytes)) => self.ready.push(bytes),
                Ok(None) => self.is_decoding = false,
                Err(CodedReadError::Stream(error)) => {
                    return Err(WireError::Lost(error.to_string()));
                }
                Err(error) => return Err(WireError::Coding(error.to_string())),
            }
            if self.ready.len() > READY_MAX_BYTES {
                return Err(WireError::TooLong(CODED));
            }
        }
        Ok(())
    }

    /// Returns the frame that a `DETACHED` frame with this body describes, or the first piece of
    /// the described frame.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the data have not arrived.
    pub(super) fn attach(&mut self, mut body: Rope) -> Result<Option<Frame>, WireError> {
        let malformed = WireError::Malformed(DETACHED);
        if body.len() < DETACHED_FIELDS_BYTES {
            return Err(malformed);
        }
        let fields = body.split_to_bytes(DETACHED_FIELDS_BYTES);
        let kind = fields[0];
        let length = u32::from_be_bytes([fields[1], fields[2], fields[3], fields[4]]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.ready.len() || matches!(kind, CODED | DETACHED) {
            return Err(malformed);
        }
        let data = self.ready.split_to(length);
        if Frame::has_pieces(kind) {
            self.pieces = Some((kind, data));
            return Ok(self.next_piece());
        }
        body.append(data);
        Ok(Some(Frame::Whole { kind, body }))
    }

    /// Returns the next piece of a frame that is returned in pieces.
    pub(super) fn next_piece(&mut self) -> Option<Frame> {
        let (kind, data) = self.pieces.as_mut()?;
        let kind = *kind;
        let piece = data.pop();
        if piece.is_none() {
            self.pieces = None;
        }
        piece.map(|data| Frame::Piece { kind, data })
    }

    /// Whether the frames of all decoded data have arrived.
    pub(super) fn is_at_boundary(&self) -> bool {
        self.ready.is_empty()
    }
}

/// Minimum number of data bytes for coding. Fewer bytes stay in their frame.
pub(super) const CODED_MIN_BYTES: usize = 512;

/// Number of bytes of two fields in a `DETACHED` frame: the type, and the length of the data.
const DETACHED_FIELDS_BYTES: usize = 5;

/// Number of data bytes from which a frame counts as a part of a large file. More data probably
/// follow such a frame at once. Clients write and read large files in packets of 16 KiB and more.
const BULK_MIN_BYTES: usize = 16 * 1024;

/// Maximum number of frames that wait for further data.
const WAITING_MAX: usize = 1024;

/// Maximum number of decoded bytes whose frames have not arrived. Before a sender sends the frames
/// of some data, it codes at most a list of chunks (2 MiB) and a block.
const READY_MAX_BYTES: usize = 8 * 1024 * 1024;

#[cfg(test)]
#[path = "coded_data_tests.rs"]
mod tests;
