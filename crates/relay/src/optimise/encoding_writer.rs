//! The sending half of a stream that may be coded.

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

/// The sending half of a link stream, and the encoder of its bytes.
#[derive(Debug)]
pub(crate) struct EncodingWriter {
    send: SendStream,
    /// Bytes that were taken, and are not in the stream yet.
    unwritten: Option<Bytes>,
    /// `None` for an uncoded stream.
    coder: Option<Box<StreamEncoder>>,
}

#[derive(Debug)]
struct StreamEncoder {
    encoder: Encoder,
    /// References, with a chunk store.
    tracker: Option<ReferenceTracker>,
    counters: Arc<CodingCounters>,
    counted: CodingCounts,
    /// Frames that are not in the stream yet.
    frames: VecDeque<Bytes>,
    /// Application bytes in these frames, and the time spent on coding them.
    coding: BlockTimes,
    /// Time spent on waiting for the link and for the application, for the next frames.
    link: Duration,
    source: Duration,
    /// Start of the present wait for the application.
    idle_since: Instant,
}

/// Time for which the application may pause before its bytes are sent without further ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushDelay {
    /// No pause, since the application may wait for an answer.
    Dialogue,
    /// A short pause: bytes of files arrive without pauses.
    File,
}

impl FlushDelay {
    fn time(self, is_among_known: bool) -> Duration {
        match self {
            Self::Dialogue => Duration::ZERO,
            // The rest of a chunk, or of a list, is worth a longer wait than better compression.
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

    /// Moves bytes of `buffer` into the stream, and reports their number to `moved`. Cancel safe.
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

    /// Counts time for which the application's bytes waited for a grant as time of the link.
    pub(crate) fn add_grant_wait(&mut self, time: Duration) {
        if let Some(coder) = &mut self.coder {
            coder.link += time;
            coder.idle_since += time;
        }
    }

    /// Returns the time for which bytes of `buffer` may wait for further ones. `None` if none wait.
    pub(crate) fn flush_delay(&self, buffer: &BytesMut, delay: FlushDelay) -> Option<Duration> {
        let encoder = &self.coder.as_ref()?.encoder;
        let is_held = encoder.holds_back(buffer);
        is_held.then(|| delay.time(encoder.is_among_known()))
    }

    /// Ends the stream after `rest`.
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
            coding: begin.elapsed(),
            link: std::mem::take(&mut self.link),
            source: std::mem::take(&mut self.source),
        };
    }

    /// Records that the frames are in the stream. They have waited since `wait`. Returns the number
    /// of their application bytes.
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
