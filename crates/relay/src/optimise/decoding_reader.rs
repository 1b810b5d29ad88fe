//! Reader of a link stream whose bytes may be coded (compressed or deduplicated).

use std::sync::Arc;

use bytes::Bytes;
use link::RecvStream;

use super::{CodedReadError, CodingCounters, StreamCoding, StreamDecoder};

/// Reader of a link stream, and the decoder of its bytes.
#[derive(Debug)]
pub(crate) struct DecodingReader {
    recv: RecvStream,
    /// Bytes that arrived together with the hello, the first message of the stream.
    first: Bytes,
    /// Decoder of the stream. `None` if the stream is not coded.
    coder: Option<Box<StreamDecoder>>,
}

impl DecodingReader {
    /// Creates a reader of a stream. `first` are bytes that arrived together with the hello.
    pub(crate) fn new(
        recv: RecvStream,
        first: Bytes,
        coding: Option<&StreamCoding>,
        counters: &Arc<CodingCounters>,
    ) -> Self {
        let coder = coding.map(|coding| Box::new(StreamDecoder::new(coding, counters)));
        Self { recv, first, coder }
    }

    /// Returns the next decoded bytes. Returns `None` at the end of the stream, after the check of
    /// all bytes has succeeded. Cancel safe.
    ///
    /// # Errors
    /// [`CodedReadError`] if no further bytes arrive. The bytes returned so far are then
    /// incomplete.
    pub(crate) async fn read(&mut self) -> Result<Option<Bytes>, CodedReadError> {
        loop {
            let Some(coder) = &mut self.coder else {
                return self.read_stream().await;
            };
            if let Some(bytes) = coder.read(&mut self.recv).await? {
                return Ok(Some(bytes));
            }
            match self.read_stream().await? {
                Some(bytes) => self.push(bytes),
                None => {
                    self.end()?;
                    return Ok(None);
                }
            }
        }
    }

    async fn read_stream(&mut self) -> Result<Option<Bytes>, CodedReadError> {
        if !self.first.is_empty() {
            return Ok(Some(std::mem::take(&mut self.first)));
        }
        Ok(self.recv.read().await?)
    }

    fn push(&mut self, bytes: Bytes) {
        if let Some(coder) = &mut self.coder {
            coder.push(bytes);
        }
    }

    fn end(&self) -> Result<(), CodedReadError> {
        let coder = self.coder.as_ref();
        coder.map_or(Ok(()), |coder| coder.end())
    }

    /// Stops reading the stream, and sends this code to the sender.
    pub(crate) fn stop(&mut self, code: u32) {
        self.recv.stop(code);
    }
}
