//! Reader and writer of the frames of a stream.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use link::{RecvStream, SendStream, StreamError};
use relay::optimise::{CodingCounters, StreamCoding};
use sftp::{EncodedMessage, Rope};
use tokio::time::{Instant, sleep_until};

use super::{
    WireError,
    coded_data::{CODED_MIN_BYTES, DataDecoder, DataEncoder},
    frame::{CODED, DETACHED, Frame, HEADER_BYTES, encode, header, put_header},
};

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
    /// Time of the next flush. `None` if no frame waits.
    flush_at: Option<Instant>,
}

impl FrameWriter {
    pub(crate) fn new(stream: SendStream) -> Self {
        Self {
            stream,
            queue: VecDeque::new(),
            coder: None,
            flush_at: None,
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
        if is_all {
            self.flush_at = None;
        }
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

    /// Flushes the queue. If further data may follow, the function first waits a short time.
    /// Returns only if the stream breaks. The method is cancel safe.
    pub(crate) async fn flush_when_idle(&mut self) -> StreamError {
        match self.flush_delay() {
            None => self.flush_at = None,
            Some(delay) => {
                // A caller may cancel this wait and start it again. The restart must not prolong
                // the wait.
                let at = *self.flush_at.get_or_insert_with(|| Instant::now() + delay);
                if !delay.is_zero() {
                    sleep_until(at).await;
                }
                if let Err(error) = self.flush().await {
                    return error;
                }
            }
        }
        std::future::pending().await
    }
}

/// Splitter of bytes into frames.
#[derive(Debug, Default)]
pub(crate) struct FrameSplitter {
    /// Bytes that do not belong to a returned frame yet.
    bytes: Rope,
    /// Type and length of the body that follows next. `None` if a header follows next.
    next: Option<(u8, usize)>,
}

impl FrameReader {
    /// Creates a reader. The bytes in `first` precede the bytes of the stream.
    pub(crate) fn new(stream: RecvStream, first: Bytes) -> Self {
        let mut splitter = FrameSplitter::default();
        splitter.push(first);
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
                Ok(Some(bytes)) => self.splitter.push(bytes),
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
    /// Appends bytes of the stream.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.bytes.push(bytes);
    }

    /// Whether the bytes so far end with a complete frame.
    pub(crate) fn is_at_boundary(&self) -> bool {
        self.bytes.is_empty() && self.next.is_none()
    }

    /// Returns the next frame, or the next piece of a frame with data. Returns `None` if bytes are
    /// missing.
    ///
    /// # Errors
    /// [`WireError::TooLong`] if a body is longer than the limit.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, WireError> {
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

/// Maximum length of a body in bytes. The longest body contains the longest SFTP packet or command,
/// and its fields.
const BODY_MAX: usize = 512 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::{DATA, EXTENDED, Fields};

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
                splitter.push(Bytes::copy_from_slice(chunk));
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
        splitter.push(header(1, BODY_MAX + 1));
        assert_eq!(splitter.next_frame(), Err(WireError::TooLong(1)));
    }

    #[test]
    fn a_list_with_a_huge_count_is_malformed() {
        let mut fields = Fields::new(4, Bytes::from_static(&[255; 8]));
        let list = fields.list(|it| it.u8());
        assert_eq!(list, Err(WireError::Malformed(4)));
    }
}
