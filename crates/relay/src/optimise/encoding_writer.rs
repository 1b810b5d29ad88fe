//! Writer of a link stream whose bytes may be coded (compressed or deduplicated).

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use link::{SendStream, StreamError};
use optimiser::encoder::EncodeScope;

use super::{CodingCounters, FlushDelay, StreamCoding, StreamEncoder};

/// Writer of a link stream, and the encoder of its bytes.
#[derive(Debug)]
pub(crate) struct EncodingWriter {
    send: SendStream,
    /// Uncoded bytes that were removed from the caller's buffer and are not in the stream yet.
    unwritten: Option<Bytes>,
    /// Encoder of the stream. `None` if the stream is not coded.
    coder: Option<Box<StreamEncoder>>,
}

impl EncodingWriter {
    pub(crate) fn new(
        send: SendStream,
        stream_coding: Option<&StreamCoding>,
        counters: &Arc<CodingCounters>,
    ) -> Self {
        let coder = stream_coding.map(|coding| Box::new(StreamEncoder::new(coding, counters)));
        Self {
            send,
            unwritten: None,
            coder,
        }
    }

    /// Returns the link stream.
    pub(crate) fn stream(&mut self) -> &mut SendStream {
        &mut self.send
    }

    /// Moves bytes of `buffer` into the stream, and passes the number of moved bytes to `moved`.
    /// Cancel safe.
    ///
    /// # Errors
    /// The errors of the stream.
    pub(crate) async fn write(
        &mut self,
        buffer: &mut BytesMut,
        scope: EncodeScope,
        moved: impl Fn(usize),
    ) -> Result<(), StreamError> {
        let Some(coder) = &mut self.coder else {
            if self.unwritten.is_none() && !buffer.is_empty() {
                self.unwritten = Some(buffer.split().freeze());
            }
            if let Some(bytes) = self.unwritten.clone() {
                let count = bytes.len();
                self.send.write(bytes).await?;
                self.unwritten = None;
                moved(count);
            }
            return Ok(());
        };
        if coder.is_sent() {
            coder.start_room_wait();
            tokio::select! {
                biased;
                () = coder.has_room() => {}
                Err(error) = self.send.closed() => return Err(error),
            }
            coder.encode(buffer, scope);
        }
        while let Some(frame) = coder.next_frame() {
            self.send.write(frame).await?;
            coder.pop_frame();
        }
        moved(coder.record_sent());
        Ok(())
    }

    /// Adds the time for which the application's bytes waited for a grant. The time counts as
    /// waiting for the link.
    pub(crate) fn add_grant_wait(&mut self, time: Duration) {
        if let Some(coder) = &mut self.coder {
            coder.add_link_wait(time);
        }
    }

    /// Returns the time for which the bytes in `buffer` may wait for further bytes. Returns `None`
    /// if no bytes wait.
    pub(crate) fn flush_delay(&self, buffer: &BytesMut, delay: FlushDelay) -> Option<Duration> {
        self.coder.as_ref()?.flush_delay(buffer, delay)
    }

    /// Sends the bytes in `rest`, and then ends the stream.
    pub(crate) fn finish(&mut self, rest: &mut BytesMut) {
        let Some(coder) = &mut self.coder else {
            return self.send.finish();
        };
        coder.encode(rest, EncodeScope::Rest);
        let mut last = BytesMut::new();
        while let Some(frame) = coder.next_frame() {
            last.extend_from_slice(&frame);
            coder.pop_frame();
        }
        coder.record_finish();
        self.send.finish_with(last.freeze());
    }
}
