//! The sending half of a stream that may be coded.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use link::{SendStream, StreamError};
use optimiser::{
    counts::Counts,
    encoder::{Chunks, Encoder, NoChunks, Saving, Take},
    level::Spent,
};

use super::{
    Coded, Tally,
    lending::Lender,
    pace::{Bounds, Pace},
};
use crate::wire::Delivered;

/// The sending half of a link stream, and what codes its bytes.
#[derive(Debug)]
pub(crate) struct Outlet {
    send: SendStream,
    /// Taken, and not in the stream yet.
    unwritten: Option<Bytes>,
    /// `None`: bytes go as they are.
    coder: Option<Box<Coder>>,
}

#[derive(Debug)]
struct Coder {
    encoder: Encoder,
    /// With a chunk store.
    lender: Option<Lender>,
    tally: Arc<Tally>,
    counted: Counts,
    /// Not in the stream yet.
    frames: VecDeque<Bytes>,
    /// Bytes for which these stand, and the time that they took.
    coding: Spent,
    /// For the next ones: how long the link was waited for, and the application.
    link: Duration,
    source: Duration,
    /// Since when the application is waited for.
    idle_since: Instant,
    /// Of late: bytes, and those of their frames.
    recent: (f64, f64),
    /// What the peer had delivered when this was looked at last, and how fast its receiver takes it.
    delivered: Delivered,
    delivery: Pace,
}

/// How long the application may pause before what it has brought goes without more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Not at all: somebody may wait for an answer.
    Dialogue,
    /// For a moment: files come without a pause.
    File,
}

impl Hold {
    fn time(self, is_among_known: bool) -> Duration {
        match self {
            Self::Dialogue => Duration::ZERO,
            // The rest of a chunk, or of a list, is worth a longer wait than a better compression is.
            Self::File if is_among_known => Duration::from_millis(100),
            Self::File => Duration::from_millis(5),
        }
    }
}

impl Outlet {
    pub(crate) fn new(send: SendStream, coded: Option<&Coded>, tally: &Arc<Tally>) -> Self {
        let coder = coded.map(|coded| {
            let sharing = coded.sharing.as_ref();
            let cutter = sharing.and_then(|sharing| sharing.cutter.clone());
            let lender = sharing.filter(|sharing| sharing.cutter.is_some());
            Box::new(Coder {
                encoder: Encoder::new(coded.compresses, cutter),
                lender: lender.map(|sharing| Lender::new(sharing, tally.clone())),
                tally: tally.clone(),
                counted: Counts::default(),
                frames: VecDeque::new(),
                coding: Spent::default(),
                link: Duration::ZERO,
                source: Duration::ZERO,
                idle_since: Instant::now(),
                recent: (0.0, 0.0),
                delivered: Delivered::default(),
                delivery: Pace::new(DELIVERY),
            })
        });
        Self {
            send,
            unwritten: None,
            coder,
        }
    }

    /// The link stream.
    pub(crate) fn stream(&mut self) -> &mut SendStream {
        &mut self.send
    }

    /// Puts bytes of `buffer` into the stream; how many of them went is what `moved` hears. Cancelled, it loses none.
    ///
    /// # Errors
    /// Those of the stream.
    pub(crate) async fn write(
        &mut self,
        buffer: &mut BytesMut,
        take: Take,
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
            if let Some(lender) = &coder.lender {
                tokio::select! {
                    () = lender.keeps_pace() => {}
                    Err(error) = self.send.closed() => return Err(error),
                }
            }
            let saving = coder.saving(self.send.queue_bound());
            coder.encoder.set_saving(saving);
            coder.link += wait.elapsed();
            coder.encode(buffer, take);
            self.send.count_ahead(coder.saved_bytes());
        }
        let wait = Instant::now();
        while let Some(frame) = coder.frames.front() {
            self.send.write(frame.clone()).await?;
            coder.frames.pop_front();
        }
        moved(coder.went(wait));
        Ok(())
    }

    /// How many bytes to take from the application next; waits until it is worth it. Cancel safe.
    pub(crate) async fn room(&mut self) -> usize {
        let wait = Instant::now();
        let room = self.send.room().await;
        let Some(coder) = &mut self.coder else {
            return room;
        };
        let waited = wait.elapsed();
        coder.link += waited;
        coder.idle_since += waited;
        (room as f64 * coder.ratio()) as usize
    }

    /// Bytes of the application that may wait in one place on this side, where the time to drain is limited.
    pub(crate) fn queue_bound(&self) -> Option<usize> {
        let bound = self.send.queue_bound()?;
        let ratio = self.coder.as_ref().map_or(1.0, |coder| coder.ratio());
        Some((bound as f64 * ratio) as usize)
    }

    /// Whether the receiver is slow, or not known yet: a block would be a large part of what may wait for it.
    pub(crate) fn is_slow(&self) -> bool {
        self.coder
            .as_ref()
            .is_some_and(|coder| coder.is_slow(self.send.queue_bound()))
    }

    /// How long bytes of `buffer` may wait for more; `None` if none wait.
    pub(crate) fn hold(&self, buffer: &BytesMut, hold: Hold) -> Option<Duration> {
        let encoder = &self.coder.as_ref()?.encoder;
        let is_held = encoder.holds_back(buffer);
        is_held.then(|| hold.time(encoder.is_among_known()))
    }

    /// Ends the stream behind `rest`.
    pub(crate) fn finish(&mut self, rest: &mut BytesMut) {
        let Some(coder) = &mut self.coder else {
            return self.send.finish();
        };
        coder.encode(rest, Take::Rest);
        let mut last = BytesMut::new();
        for frame in coder.frames.drain(..) {
            last.extend_from_slice(&frame);
        }
        if let Some(lender) = &mut coder.lender {
            lender.finished();
        }
        self.send.finish_with(last.freeze());
    }
}

impl Coder {
    /// How many bytes one of the link has stood for of late.
    fn ratio(&self) -> f64 {
        let (bytes, coded) = self.recent;
        if coded > 0.0 {
            (bytes / coded).max(1.0)
        } else {
            1.0
        }
    }

    /// What may be saved, if somebody slow may be behind the link: few bytes there can stand for many that wait for the receiver.
    fn saving(&mut self, queue_bound: Option<usize>) -> Saving {
        let sent = self.encoder.counts().bytes;
        let delivered = self.tally.delivered_by_peer();
        let bytes = delivered.bytes.min(sent);
        if bytes > self.delivered.bytes {
            let taking_us = delivered.taking_us.saturating_sub(self.delivered.taking_us);
            let fresh = bytes - self.delivered.bytes;
            self.delivery
                .taken(Instant::now(), fresh, Duration::from_micros(taking_us));
            self.delivered = Delivered { bytes, ..delivered };
        }
        let is_behind = self.delivery.is_exceeded(sent - self.delivered.bytes);
        match (self.is_slow(queue_bound), is_behind) {
            (true, _) => Saving::None,
            (false, true) if queue_bound.is_some() => Saving::References,
            (false, _) => Saving::All,
        }
    }

    /// Whether the receiver is slow. Until it is known, that is what the link takes it for, in which a slow line counts, too.
    fn is_slow(&self, queue_bound: Option<usize>) -> bool {
        match self.delivery.bytes_per_s() {
            Some(pace) => pace < SLOW_BYTES_PER_S,
            None if self.encoder.counts().bytes < UNKNOWN_SERVER_BYTES as u64 => false,
            None => queue_bound.is_some_and(|bound| bound < SLOW_BOUND_BYTES),
        }
    }

    /// Of what was encoded last.
    fn saved_bytes(&self) -> usize {
        let frames: usize = self.frames.iter().map(Bytes::len).sum();
        self.coding.bytes.saturating_sub(frames)
    }

    fn encode(&mut self, buffer: &mut BytesMut, take: Take) {
        let begin = Instant::now();
        let Self {
            encoder,
            frames,
            lender,
            tally,
            ..
        } = self;
        let chunks: &mut dyn Chunks = match lender {
            Some(lender) => lender,
            None => &mut NoChunks,
        };
        tally.processor(|| encoder.encode(buffer, take, chunks, frames));
        let counts = self.encoder.counts();
        let fresh = counts.since(&self.counted);
        self.counted = counts;
        self.tally.add(&fresh);
        // What has come is mostly held back where reads are small.
        if fresh.coded_bytes > 0 {
            let (bytes, coded) = &mut self.recent;
            *bytes = *bytes * RECENT + fresh.bytes as f64;
            *coded = *coded * RECENT + fresh.coded_bytes as f64;
        }
        self.coding = Spent {
            bytes: fresh.bytes as usize,
            coding: begin.elapsed(),
            link: std::mem::take(&mut self.link),
            source: std::mem::take(&mut self.source),
        };
    }

    /// The frames are in the stream since `wait`. Returns for how many bytes they stand.
    fn went(&mut self, wait: Instant) -> usize {
        self.idle_since = Instant::now();
        let spent = std::mem::take(&mut self.coding);
        self.encoder.spent(Spent {
            link: spent.link + (self.idle_since - wait),
            ..spent
        });
        spent.bytes
    }
}

/// What was encoded before the last block counts so much of it.
const RECENT: f64 = 0.9;

/// What may be on its way to a server: three of the five seconds in which an upload has to drain. What is on a long line counts, too.
/// The link bounds what does not shrink.
const DELIVERY: Bounds = Bounds {
    ahead_s: 3.0,
    most_bytes: usize::MAX,
};

/// To a slower receiver bytes go as they are.
const SLOW_BYTES_PER_S: f64 = 1e6;

/// Such a queue is that of a reader of 1 MB/s: the sixteenth part of what the reader takes in two seconds.
const SLOW_BOUND_BYTES: usize = 128 * 1024;

/// What an upload sends, coded or not, before the far side tells how fast the server takes it: as much as a server of
/// 1 Mbit/s takes in 2 s, and all of a small file.
pub(crate) const UNKNOWN_SERVER_BYTES: usize = 256 * 1024;
