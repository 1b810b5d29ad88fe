//! Writer of a link stream whose bytes may be coded (compressed or deduplicated).

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use link::{SendStream, StreamError};
use optimiser::{
    counts::CodingCounts,
    encoder::{EncodeScope, Encoder, NoChunks, SenderChunks},
    level::BlockTimes,
};

use super::{CodingCounters, StreamCoding, reference_store::ReferenceTracker};

/// Writer of a link stream, and the encoder of its bytes.
#[derive(Debug)]
pub(crate) struct EncodingWriter {
    send: SendStream,
    /// Uncoded bytes that were removed from the caller's buffer and are not in the stream yet.
    unwritten: Option<Bytes>,
    /// Encoder of the stream. `None` if the stream is not coded.
    coder: Option<Box<StreamEncoder>>,
}

#[derive(Debug)]
struct StreamEncoder {
    encoder: Encoder,
    /// Tracker of the references to chunks. `None` if the writer sends no references.
    tracker: Option<ReferenceTracker>,
    counters: Arc<CodingCounters>,
    counted: CodingCounts,
    /// Encoded frames that are not in the stream yet.
    frames: VecDeque<Bytes>,
    /// Number of application bytes in `frames`, and the time spent on coding them.
    coding: BlockTimes,
    /// Time spent on waiting for the link, since the latest frames were encoded.
    link: Duration,
    source: Duration,
    /// Start of the present wait for bytes of the application.
    idle_since: Instant,
}

/// Time for which the writer waits for further bytes of the application before it sends an
/// incomplete block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushDelay {
    /// No wait, because the application may be waiting for an answer to these bytes.
    Dialogue,
    /// A short wait. The bytes of a file arrive without longer pauses.
    File,
}

impl FlushDelay {
    fn time(self, is_among_known: bool) -> Duration {
        match self {
            Self::Dialogue => Duration::ZERO,
            // A complete chunk or list saves more bytes than better compression, so the wait for
            // its rest is longer.
            Self::File if is_among_known => Duration::from_millis(100),
            Self::File => Duration::from_millis(5),
        }
    }
}

impl EncodingWriter {
    pub(crate) fn new(
        send: SendStream,
        stream_coding: Option<&StreamCoding>,
        counters: &Arc<CodingCounters>,
    ) -> Self {
        let coder = stream_coding.map(|stream_coding| {
            let dedup = stream_coding.dedup.as_ref();
            let cutter = dedup.and_then(|dedup| dedup.cutter.clone());
            let tracker = dedup.filter(|dedup| dedup.cutter.is_some());
            Box::new(StreamEncoder {
                encoder: Encoder::new(stream_coding.compresses, cutter),
                tracker: tracker.map(|dedup| ReferenceTracker::new(dedup, counters.clone())),
                counters: counters.clone(),
                counted: CodingCounts::default(),
                frames: VecDeque::new(),
                coding: BlockTimes::default(),
                link: Duration::ZERO,
                source: Duration::ZERO,
                idle_since: Instant::now(),
            })
        });
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
        if coder.frames.is_empty() {
            coder.source = coder.idle_since.elapsed();
            let wait = Instant::now();
            if let Some(tracker) = &coder.tracker {
                tokio::select! {
                    () = tracker.has_room() => {}
                    Err(error) = self.send.closed() => return Err(error),
                }
            }
            coder.link += wait.elapsed();
            coder.encode(buffer, scope);
        }
        let wait = Instant::now();
        while let Some(frame) = coder.frames.front() {
            self.send.write(frame.clone()).await?;
            coder.frames.pop_front();
        }
        moved(coder.record_sent(wait));
        Ok(())
    }

    /// Adds the time for which the application's bytes waited for a grant. The time counts as
    /// waiting for the link.
    pub(crate) fn add_grant_wait(&mut self, time: Duration) {
        if let Some(coder) = &mut self.coder {
            coder.link += time;
            coder.idle_since += time;
        }
    }

    /// Returns the time for which the bytes in `buffer` may wait for further bytes. Returns `None`
    /// if no bytes wait.
    pub(crate) fn flush_delay(&self, buffer: &BytesMut, delay: FlushDelay) -> Option<Duration> {
        let encoder = &self.coder.as_ref()?.encoder;
        let is_held = encoder.holds_back(buffer);
        is_held.then(|| delay.time(encoder.is_among_known()))
    }

    /// Sends the bytes in `rest`, and then ends the stream.
    pub(crate) fn finish(&mut self, rest: &mut BytesMut) {
        let Some(coder) = &mut self.coder else {
            return self.send.finish();
        };
        coder.encode(rest, EncodeScope::Rest);
        let mut last = BytesMut::new();
        for frame in coder.frames.drain(..) {
            last.extend_from_slice(&frame);
        }
        if let Some(tracker) = &mut coder.tracker {
            tracker.record_finish();
        }
        self.send.finish_with(last.freeze());
    }
}

impl StreamEncoder {
    fn encode(&mut self, buffer: &mut BytesMut, scope: EncodeScope) {
        let begin = Instant::now();
        let Self {
            encoder,
            frames,
            tracker,
            counters,
            ..
        } = self;
        let chunks: &mut dyn SenderChunks = match tracker {
            Some(tracker) => tracker,
            None => &mut NoChunks,
        };
        counters.measure(|| encoder.encode(buffer, scope, chunks, frames));
        let counts = self.encoder.counts();
        let added = counts.since(&self.counted);
        self.counted = counts;
        self.counters.add(&added);
        self.coding = BlockTimes {
            bytes: added.bytes as usize,
            coded_bytes: added.coded_bytes as usize,
            coding: begin.elapsed(),
            link: std::mem::take(&mut self.link),
            source: std::mem::take(&mut self.source),
        };
    }

    /// Records that all frames are in the stream. `wait` is the time at which the first frame was
    /// ready. Returns the number of application bytes in the frames.
    fn record_sent(&mut self, wait: Instant) -> usize {
        self.idle_since = Instant::now();
        let times = std::mem::take(&mut self.coding);
        self.encoder.record_times(BlockTimes {
            link: times.link + (self.idle_since - wait),
            ..times
        });
        times.bytes
    }
}
