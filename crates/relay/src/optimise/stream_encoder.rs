//! Encoder of the bytes of one direction of a stream, with its measurements.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use optimiser::{
    counts::CodingCounts,
    encoder::{EncodeScope, Encoder, NoChunks, SenderChunks},
    level::BlockTimes,
};

use super::{CodingCounters, StreamCoding, reference_store::ReferenceTracker};

/// Encoder of the bytes of one direction of a stream. It measures the times of coding and of
/// waiting. These times determine the compression level.
#[derive(Debug)]
pub struct StreamEncoder {
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
    /// Start of the present wait for the receiver's acknowledgements.
    room_wait_since: Option<Instant>,
    /// Time at which the latest frames were ready.
    ready_since: Instant,
    /// Start of the present wait for bytes of the application.
    idle_since: Instant,
}

/// Time for which the writer waits for further bytes of the application before it sends an
/// incomplete block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushDelay {
    /// No wait, because the application may be waiting for an answer to these bytes.
    Dialogue,
    /// A short wait. The bytes of a file arrive without longer pauses.
    File,
    /// A short wait, at most as long as for a file. Requests of a client may follow the bytes of a
    /// file.
    Stream,
}

impl FlushDelay {
    fn time(self, is_among_known: bool) -> Duration {
        match self {
            Self::Dialogue => Duration::ZERO,
            // Among known chunks, the writer waits longer, because a complete chunk or list saves
            // more bytes than better compression.
            Self::File if is_among_known => Duration::from_millis(100),
            Self::Stream if is_among_known => Duration::from_millis(20),
            Self::File | Self::Stream => Duration::from_millis(5),
        }
    }
}

impl StreamEncoder {
    /// Creates the encoder of a stream with this coding.
    pub fn new(coding: &StreamCoding, counters: &Arc<CodingCounters>) -> Self {
        let dedup = coding.dedup.as_ref();
        let cutter = dedup.and_then(|dedup| dedup.cutter.clone());
        let tracker = dedup.filter(|dedup| dedup.cutter.is_some());
        let now = Instant::now();
        Self {
            encoder: Encoder::new(coding.compresses, cutter),
            tracker: tracker.map(|dedup| ReferenceTracker::new(dedup, counters.clone())),
            counters: counters.clone(),
            counted: CodingCounts::default(),
            frames: VecDeque::new(),
            coding: BlockTimes::default(),
            link: Duration::ZERO,
            source: Duration::ZERO,
            room_wait_since: None,
            ready_since: now,
            idle_since: now,
        }
    }

    /// Whether all frames are in the stream.
    pub fn is_sent(&self) -> bool {
        self.frames.is_empty()
    }

    /// Records that bytes of the application are available, and that the caller waits only for
    /// [`has_room`](Self::has_room).
    pub fn start_room_wait(&mut self) {
        if self.room_wait_since.is_none() {
            self.source = self.idle_since.elapsed();
            self.room_wait_since = Some(Instant::now());
        }
    }

    /// Waits until the encoder may send further references. Cancel safe.
    pub async fn has_room(&self) {
        if let Some(tracker) = &self.tracker {
            tracker.has_room().await;
        }
    }

    /// Removes bytes from `buffer`, and encodes them. All earlier frames must be in the stream.
    pub fn encode(&mut self, buffer: &mut BytesMut, scope: EncodeScope) {
        if let Some(since) = self.room_wait_since.take() {
            self.link += since.elapsed();
        }
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
        self.ready_since = Instant::now();
    }

    /// Returns the first frame that is not in the stream yet.
    pub fn next_frame(&self) -> Option<Bytes> {
        self.frames.front().cloned()
    }

    /// Records that the first frame is in the stream.
    pub fn pop_frame(&mut self) {
        self.frames.pop_front();
    }

    /// Records that all frames are in the stream. Returns the number of application bytes in the
    /// frames.
    pub fn record_sent(&mut self) -> usize {
        self.idle_since = Instant::now();
        let times = std::mem::take(&mut self.coding);
        self.encoder.record_times(BlockTimes {
            link: times.link + (self.idle_since - self.ready_since),
            ..times
        });
        times.bytes
    }

    /// Adds time for which the application's bytes waited for the link.
    pub(super) fn add_link_wait(&mut self, time: Duration) {
        self.link += time;
        self.idle_since += time;
    }

    /// Returns the time for which the bytes in `buffer` may wait for further bytes. Returns `None`
    /// if no bytes wait.
    pub fn flush_delay(&self, buffer: &BytesMut, delay: FlushDelay) -> Option<Duration> {
        let is_held = self.encoder.holds_back(buffer);
        is_held.then(|| delay.time(self.encoder.is_among_known()))
    }

    /// Returns the number of bytes that are in no frame yet.
    pub fn held_bytes(&self, buffer: &BytesMut) -> usize {
        self.encoder.held_bytes(buffer)
    }

    /// Records that the stream ends without a reset. The receiver may still request chunks.
    pub fn record_finish(&mut self) {
        if let Some(tracker) = &mut self.tracker {
            tracker.record_finish();
        }
    }
}
