//! Frames of a stream, and the fields in their bodies.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use link::{RecvStream, SendStream, StreamError};
use relay::optimise::{CodingCounters, StreamCoding};
use sftp::{EncodedMessage, Rope};
use tokio::time::sleep;

use super::{
    WireError,
    coded_data::{CODED, CODED_MIN_BYTES, DETACHED, DataDecoder, DataEncoder},
};

/// Frame of a stream, or a part of a frame with data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Complete frame.
    Whole {
        /// Type of the frame.
        kind: u8,
        /// Body of the frame.
        body: Rope,
    },
    /// Bytes of a frame with data. One frame consists of one or more pieces.
    Piece {
        /// Type of the frame.
        kind: u8,
        /// Next bytes of the body.
        data: Bytes,
    },
}

/// Reader of the frames of a stream.
#[derive(Debug)]
pub(crate) struct FrameReader {
    stream: RecvStream,
    splitter: FrameSplitter,
    /// Decoder of the data. `None` if the data are not coded.
    coder: Option<Box<DataDecoder>>,
}

/// Writer of the frames of a stream.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    stream: SendStream,
    /// Parts of frames that the stream has not accepted yet. A cancelled write leaves them here.
    queue: VecDeque<Bytes>,
    /// Encoder of the data. `None` if the data are not coded.
    coder: Option<Box<DataEncoder>>,
}

impl FrameWriter {
    pub(crate) fn new(stream: SendStream) -> Self {
        Self {
            stream,
            queue: VecDeque::new(),
            coder: None,
        }
    }

    /// Codes the data of all further frames.
    pub(crate) fn set_coding(&mut self, coding: &StreamCoding, counters: &Arc<CodingCounters>) {
        self.coder = Some(Box::new(DataEncoder::new(coding, counters)));
    }

    /// Returns the stream.
    pub(crate) fn stream(&mut self) -> &mut SendStream {
        &mut self.stream
    }

    /// Ends the stream. All frames must be in the stream.
    pub(crate) fn finish(&mut self) {
        if let Some(coder) = &mut self.coder {
            coder.record_finish();
        }
        self.stream.finish();
    }

    /// Queues a complete frame. The caller flushes the queue afterwards.
    pub(crate) fn queue(&mut self, frame: Bytes) {
        match &mut self.coder {
            Some(coder) => coder.push_frame(frame, false),
            None => self.queue.push_back(frame),
        }
    }

    /// Queues a message of an SFTP session. The caller flushes the queue afterwards.
    pub(crate) fn queue_sftp(&mut self, message: EncodedMessage) {
        let EncodedMessage { kind, head, data } = &message;
        if let Some(coder) = &mut self.coder
            && data.len() >= CODED_MIN_BYTES
        {
            return coder.push_message(*kind, head, data);
        }
        let mut start = BytesMut::with_capacity(HEADER_BYTES + head.len());
        put_header(&mut start, *kind, message.body_len());
        start.extend_from_slice(head);
        if self.coder.is_some() {
            for piece in data.pieces() {
                start.extend_from_slice(piece);
            }
            return self.queue(start.freeze());
        }
        self.queue.push_back(start.freeze());
        self.queue.extend(message.data);
    }

    /// Queues bytes of type `kind`. The caller flushes the queue afterwards.
    fn queue_data(&mut self, kind: u8, data: Bytes) {
        match &mut self.coder {
            Some(coder) if data.len() >= CODED_MIN_BYTES => coder.push_stream(kind, &data),
            Some(coder) => coder.push_frame(encode(kind, &data), true),
            None => {
                self.queue.push_back(header(kind, data.len()));
                self.queue.push_back(data);
            }
        }
    }

    /// Writes all queued frames. The method is cancel safe.
    ///
    /// # Errors
    /// The error of the stream.
    pub(crate) async fn flush(&mut self) -> Result<(), StreamError> {
        self.write_queue(true).await
    }

    /// Writes the queued frames, except for data that may wait for further data. The method is
    /// cancel safe.
    ///
    /// # Errors
    /// The error of the stream.
    pub(crate) async fn advance(&mut self) -> Result<(), StreamError> {
        self.write_queue(false).await
    }

    /// Returns the time after which the caller must flush the queue if no further frame follows.
    /// Returns `None` if no frame waits.
    pub(crate) fn flush_delay(&self) -> Option<Duration> {
        self.coder.as_ref().and_then(|coder| coder.flush_delay())
    }

    async fn write_queue(&mut self, is_all: bool) -> Result<(), StreamError> {
        self.write_parts().await?;
        let Some(coder) = &mut self.coder else {
            return Ok(());
        };
        coder
            .code(is_all, &mut self.stream, &mut self.queue)
            .await?;
        self.write_parts().await
    }

    async fn write_parts(&mut self) -> Result<(), StreamError> {
        while let Some(part) = self.queue.front() {
            self.stream.write(part.clone()).await?;
            self.queue.pop_front();
        }
        if let Some(coder) = &mut self.coder {
            coder.record_sent();
        }
        Ok(())
    }

    /// Writes a complete frame.
    ///
    /// # Errors
    /// The error of the stream.
    pub(crate) async fn write(&mut self, frame: Bytes) -> Result<(), StreamError> {
        self.queue(frame);
        self.flush().await
    }

    /// Writes a frame with data of type `kind`. The data may wait for further data.
    ///
    /// # Errors
    /// The error of the stream.
    pub(crate) async fn write_data(&mut self, kind: u8, data: Bytes) -> Result<(), StreamError> {
        self.queue_data(kind, data);
        self.advance().await
    }

    /// Flushes the queue, after a short time if further data may follow. Returns only if the stream
    /// breaks. The method is cancel safe.
    pub(crate) async fn flush_when_idle(&mut self) -> StreamError {
        if let Some(delay) = self.flush_delay() {
            if !delay.is_zero() {
                sleep(delay).await;
            }
            if let Err(error) = self.flush().await {
                return error;
            }
        }
        std::future::pending().await
    }
}

/// Splitter of bytes into frames.
#[derive(Debug, Default)]
struct FrameSplitter {
    /// Bytes that do not belong to a returned frame yet.
    bytes: Rope,
    /// Type and length of the body that follows next. `None` if a header follows next.
    next: Option<(u8, usize)>,
}

impl FrameReader {
    /// Creates a reader. The bytes in `first` precede the bytes of the stream.
    pub(crate) fn new(stream: RecvStream, first: Bytes) -> Self {
        let mut splitter = FrameSplitter::default();
        splitter.bytes.push(first);
        Self {
            stream,
            splitter,
            coder: None,
        }
    }

    /// Expects coded data in all further frames.
    pub(crate) fn set_coding(&mut self, coding: &StreamCoding, counters: &Arc<CodingCounters>) {
        self.coder = Some(Box::new(DataDecoder::new(coding, counters)));
    }

    /// Returns the next frame, or `None` at the end of the stream. The method is cancel safe.
    ///
    /// # Errors
    /// [`WireError`] if the stream broke or contains an invalid frame.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, WireError> {
        loop {
            if let Some(coder) = &mut self.coder {
                if let Some(piece) = coder.next_piece() {
                    return Ok(Some(piece));
                }
                coder.decode(&mut self.stream).await?;
            }
            if let Some(frame) = self.splitter.next_frame()? {
                match self.attach(frame)? {
                    Some(frame) => return Ok(Some(frame)),
                    None => continue,
                }
            }
            match self.stream.read().await {
                Ok(Some(bytes)) => self.splitter.bytes.push(bytes),
                Ok(None) if self.is_at_boundary() => return Ok(None),
                Ok(None) => return Err(WireError::Truncated),
                Err(error) => return Err(WireError::Lost(error.to_string())),
            }
        }
    }

    /// Returns the frame with its data. Returns `None` if the frame contains only coded data.
    fn attach(&mut self, frame: Frame) -> Result<Option<Frame>, WireError> {
        let kind = frame.kind();
        match (frame, &mut self.coder) {
            (Frame::Piece { kind: CODED, data }, Some(coder)) => {
                coder.push(data);
                Ok(None)
            }
            (
                Frame::Whole {
                    kind: DETACHED,
                    body,
                },
                Some(coder),
            ) => coder.attach(body),
            _ if matches!(kind, CODED | DETACHED) => Err(WireError::UnknownType(kind)),
            (frame, _) => Ok(Some(frame)),
        }
    }

    fn is_at_boundary(&self) -> bool {
        let coder = self.coder.as_ref();
        self.splitter.is_at_boundary() && coder.is_none_or(|coder| coder.is_at_boundary())
    }

    /// Waits until the stream has failed. Returns the error.
    pub(crate) async fn failed(&mut self) -> WireError {
        WireError::Lost(self.stream.failed().await.to_string())
    }

    /// Returns the next frame, which has no data pieces. Returns `None` at the end of the stream.
    ///
    /// # Errors
    /// [`WireError`] if the stream broke, or contains an invalid frame or data.
    pub(crate) async fn next_whole(&mut self) -> Result<Option<(u8, Bytes)>, WireError> {
        match self.next().await? {
            Some(Frame::Whole { kind, body }) => Ok(Some((kind, body.into_bytes()))),
            Some(Frame::Piece { kind, .. }) => Err(WireError::UnknownType(kind)),
            None => Ok(None),
        }
    }
}

impl FrameSplitter {
    fn is_at_boundary(&self) -> bool {
        self.bytes.is_empty() && self.next.is_none()
    }

    fn next_frame(&mut self) -> Result<Option<Frame>, WireError> {
        loop {
            let Some((kind, left)) = self.next else {
                if self.bytes.len() < HEADER_BYTES {
                    return Ok(None);
                }
                let header = self.bytes.split_to_bytes(HEADER_BYTES);
                let length = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
                let kind = header[4];
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                if length > BODY_MAX {
                    return Err(WireError::TooLong(kind));
                }
                self.next = Some((kind, length));
                continue;
            };
            if !Frame::has_pieces(kind) {
                if self.bytes.len() < left {
                    return Ok(None);
                }
                self.next = None;
                let body = self.bytes.split_to(left);
                return Ok(Some(Frame::Whole { kind, body }));
            }
            if left == 0 {
                self.next = None;
                continue;
            }
            let Some(first) = self.bytes.pieces().next() else {
                return Ok(None);
            };
            let count = first.len().min(left);
            let data = self.bytes.split_to_bytes(count);
            self.next = Some((kind, left - data.len()));
            return Ok(Some(Frame::Piece { kind, data }));
        }
    }
}

impl Frame {
    fn kind(&self) -> u8 {
        match self {
            Self::Whole { kind, .. } | Self::Piece { kind, .. } => *kind,
        }
    }

    /// Whether the body of a frame of this type arrives in pieces.
    pub(super) fn has_pieces(kind: u8) -> bool {
        matches!(kind, DATA | EXTENDED | CODED)
    }
}

/// Returns the header of a frame. The body follows the header.
pub(super) fn header(kind: u8, length: usize) -> Bytes {
    let mut header = BytesMut::with_capacity(HEADER_BYTES);
    put_header(&mut header, kind, length);
    header.freeze()
}

/// Appends the header of a frame.
pub(super) fn put_header(out: &mut BytesMut, kind: u8, length: usize) {
    let length = u32::try_from(length).expect("a body is shorter than 4 GiB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&[kind]);
}

/// Returns a complete frame.
pub(super) fn encode(kind: u8, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEADER_BYTES + body.len());
    put_header(&mut frame, kind, body.len());
    frame.extend_from_slice(body);
    frame.freeze()
}

/// Fields of one body, for reading.
#[derive(Debug)]
pub(super) struct Fields {
    kind: u8,
    rest: Bytes,
}

impl Fields {
    pub(super) fn new(kind: u8, body: Bytes) -> Self {
        Self { kind, rest: body }
    }

    pub(super) fn malformed(&self) -> WireError {
        WireError::Malformed(self.kind)
    }

    pub(super) fn take(&mut self, count: usize) -> Result<Bytes, WireError> {
        match self.rest.len() >= count {
            true => Ok(self.rest.split_to(count)),
            false => Err(self.malformed()),
        }
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn flag(&mut self) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed()),
        }
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        let bytes = self.take(8)?;
        Ok(u64::from_be_bytes(
            bytes[..].try_into().expect("eight bytes"),
        ))
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, WireError> {
        let length = usize::try_from(self.u32()?).map_err(|_| self.malformed())?;
        self.take(length)
    }

    pub(super) fn text(&mut self) -> Result<String, WireError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.malformed())
    }

    /// Reads a list. `item` reads one item.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let count = self.u32()?;
        if count > LIST_MAX {
            return Err(self.malformed());
        }
        (0..count).map(|_| item(self)).collect()
    }

    pub(super) fn end<T>(self, value: T) -> Result<T, WireError> {
        match self.rest.is_empty() {
            true => Ok(value),
            false => Err(self.malformed()),
        }
    }
}

/// Appends the length of a field and the field.
pub(super) fn put_bytes(body: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("a field is shorter than 4 GiB");
    body.extend_from_slice(&length.to_be_bytes());
    body.extend_from_slice(bytes);
}

/// Appends a list. `item` appends one item.
pub(super) fn put_list<T>(body: &mut Vec<u8>, items: &[T], item: impl Fn(&mut Vec<u8>, &T)) {
    let count = u32::try_from(items.len()).expect("a list is shorter than 4 GiB");
    body.extend_from_slice(&count.to_be_bytes());
    items.iter().for_each(|it| item(body, it));
}

/// Type of frames with data.
pub(super) const DATA: u8 = 2;

/// Type of frames with data for standard error.
pub(super) const EXTENDED: u8 = 3;

const HEADER_BYTES: usize = 5;

/// Maximum length of a body in bytes. The longest body contains the longest SFTP packet or command,
/// and its fields.
const BODY_MAX: usize = 512 * 1024;

/// Maximum number of items in a list.
const LIST_MAX: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_back_from_any_cut() {
        let frames = [
            encode(1, b"first"),
            header(DATA, 6),
            Bytes::from_static(b"pieces"),
            header(EXTENDED, 0),
            encode(9, b""),
        ]
        .concat();
        for cut in 1..frames.len() {
            let mut splitter = FrameSplitter::default();
            let (mut whole, mut data) = (Vec::new(), Vec::new());
            for chunk in frames.chunks(cut) {
                splitter.bytes.push(Bytes::copy_from_slice(chunk));
                while let Some(frame) = splitter.next_frame().expect("valid") {
                    match frame {
                        Frame::Whole { kind, body } => whole.push((kind, body.into_bytes())),
                        Frame::Piece {
                            kind: DATA,
                            data: piece,
                        } => data.extend_from_slice(&piece),
                        Frame::Piece { .. } => panic!("an empty frame has no pieces"),
                    }
                }
            }
            assert!(splitter.is_at_boundary());
            assert_eq!(data, b"pieces");
            let expected = [(1, Bytes::from_static(b"first")), (9, Bytes::new())];
            assert_eq!(whole, expected, "cut every {cut} bytes");
        }
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_the_body_arrives() {
        let mut splitter = FrameSplitter::default();
        splitter.bytes.push(header(1, BODY_MAX + 1));
        assert_eq!(splitter.next_frame(), Err(WireError::TooLong(1)));
    }

    #[test]
    fn a_list_with_a_huge_count_is_malformed() {
        let mut fields = Fields::new(4, Bytes::from_static(&[255; 8]));
        let list = fields.list(|it| it.u8());
        assert_eq!(list, Err(WireError::Malformed(4)));
    }
}
