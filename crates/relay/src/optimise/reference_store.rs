//! Outstanding references. A reference to a chunk is outstanding if this gateway has sent it and
//! the receiver has not acknowledged the chunk.
//!
//! If the receiver does not have such a chunk, it can request the bytes. The gateway therefore
//! keeps the chunks of outstanding references in memory, up to a limit. Above the limit, the
//! gateway sends bytes instead of references.
//!
//! On each stream, the outstanding bytes must not exceed a base amount plus the bytes that the
//! receiver has acknowledged in the last two seconds. Otherwise the sender waits. Without this
//! limit, many slow receivers would fill the memory.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use ftp::session::TransferId;
use link::PeerId;
use optimiser::{chunk::ChunkName, encoder::SenderChunks, store::Store};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use super::{CodingCounters, DedupContext};
use crate::truncation::SessionKey;

/// Identifies the direction of a data connection in which this gateway sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ReferenceKey {
    pub(crate) session: SessionKey,
    pub(crate) transfer: TransferId,
}

/// Chunks of all outstanding references of this gateway.
#[derive(Debug, Default)]
pub(crate) struct ReferenceStore {
    streams: Mutex<HashMap<ReferenceKey, Arc<StreamReferences>>>,
    outstanding: Mutex<OutstandingBytes>,
}

/// Number of bytes in the chunks of outstanding references, in total and per peer.
#[derive(Debug, Default)]
struct OutstandingBytes {
    bytes: usize,
    of_peers: HashMap<PeerId, usize>,
}

/// Chunks referenced on one stream and not yet acknowledged.
#[derive(Debug, Default)]
struct StreamReferences {
    /// Coding counters of the transfer.
    counters: Option<Arc<CodingCounters>>,
    state: Mutex<State>,
    acknowledged: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Reference number of the first element of `chunks`.
    first: u64,
    chunks: VecDeque<Bytes>,
    outstanding_bytes: usize,
    recent: RecentAcknowledgements,
    /// Whether the receiver has sent no acknowledgement for too long. If so, the sender sends bytes
    /// instead of references.
    is_stalled: bool,
    missing: u64,
    /// Time of the stream's end, or of the latest acknowledgement after the end. The receiver may
    /// still request chunks after the end.
    ended: Option<Instant>,
}

/// Bytes that a receiver has acknowledged in the last two seconds.
#[derive(Debug, Default)]
struct RecentAcknowledgements {
    /// Acknowledgements, the oldest first: time, and number of acknowledged bytes.
    acknowledged: VecDeque<(Instant, usize)>,
    bytes: usize,
}

/// Tracker of the references that the sender sends on one stream.
#[derive(Debug)]
pub(super) struct ReferenceTracker {
    store: Store,
    references: Arc<ReferenceStore>,
    counters: Arc<CodingCounters>,
    key: ReferenceKey,
    /// Chunks of the stream's references. `None` before the first reference.
    stream: Option<Arc<StreamReferences>>,
    is_finished: bool,
}

impl ReferenceStore {
    /// Returns the requested chunk of an outstanding reference.
    pub(super) fn chunk(&self, key: ReferenceKey, number: u64) -> Option<Bytes> {
        let stream = lock(&self.streams).get(&key).cloned();
        stream?.chunk(number)
    }

    /// Counts a chunk that was sent because the receiver had requested it.
    pub(super) fn count_sent(&self, key: ReferenceKey, chunk_bytes: usize, frame_bytes: usize) {
        let stream = lock(&self.streams).get(&key).cloned();
        if let Some(counters) = stream.as_ref().and_then(|stream| stream.counters.as_ref()) {
            counters.count_missing(chunk_bytes, frame_bytes);
        }
    }

    fn begin(
        &self,
        key: ReferenceKey,
        counters: Option<Arc<CodingCounters>>,
    ) -> Arc<StreamReferences> {
        let mut streams = lock(&self.streams);
        let stream = Arc::new(StreamReferences {
            counters,
            ..StreamReferences::default()
        });
        // If a peer gives two streams the same number, it can no longer request chunks of the first
        // stream.
        if let Some(former) = streams.insert(key, stream.clone()) {
            self.release(key, former.drop_chunks());
        }
        stream
    }

    /// Handles the end of a stream. `is_finished` is set if the stream ended without a reset. In
    /// this case, the store keeps the chunks that the receiver may still request.
    fn end(&self, key: ReferenceKey, stream: &Arc<StreamReferences>, is_finished: bool) {
        let mut streams = lock(&self.streams);
        let is_known = streams
            .get(&key)
            .is_some_and(|known| Arc::ptr_eq(known, stream));
        if is_known && is_finished && !stream.record_end() {
            return;
        }
        if is_known {
            streams.remove(&key);
        }
        self.release(key, stream.drop_chunks());
    }

    /// Periodically drops the chunks of streams whose time limit for requests has expired.
    pub(crate) async fn sweep(&self) {
        loop {
            let now = Instant::now();
            lock(&self.streams).retain(|key, stream| {
                let is_kept = !stream.is_overdue(now);
                if !is_kept {
                    self.release(*key, stream.drop_chunks());
                }
                is_kept
            });
            sleep(SWEEP_PAUSE).await;
        }
    }

    /// Records that the receiver has acknowledged the chunks of all references below `up_to`.
    pub(super) fn acknowledge(&self, key: ReferenceKey, up_to: u64) {
        let stream = lock(&self.streams).get(&key).cloned();
        // The stream's references may have been dropped.
        if let Some(stream) = stream {
            let (bytes, is_over) = stream.acknowledge(up_to);
            self.release(key, bytes);
            if is_over {
                self.end(key, &stream, true);
            }
        }
    }

    /// Reserves memory for chunks. Returns whether the memory is available. The bytes that a peer
    /// uses must not exceed the bytes that stay free. A peer that acknowledges nothing therefore
    /// cannot use all memory.
    fn reserve(&self, key: ReferenceKey, bytes: usize) -> bool {
        let mut outstanding = lock(&self.outstanding);
        let of_peer = outstanding
            .of_peers
            .get(&key.session.peer)
            .map_or(0, |it| *it);
        let has_room = outstanding.bytes + of_peer + bytes <= OUTSTANDING_MAX_BYTES;
        if has_room {
            outstanding.bytes += bytes;
            *outstanding.of_peers.entry(key.session.peer).or_default() += bytes;
        }
        has_room
    }

    fn release(&self, key: ReferenceKey, bytes: usize) {
        let mut outstanding = lock(&self.outstanding);
        outstanding.bytes -= bytes;
        if let Some(of_peer) = outstanding.of_peers.get_mut(&key.session.peer) {
            *of_peer -= bytes;
        }
    }
}

impl StreamReferences {
    /// Returns a chunk that the receiver requests. A receiver requests each chunk at most once.
    fn chunk(&self, number: u64) -> Option<Bytes> {
        let mut state = lock(&self.state);
        if state.missing >= state.count() {
            return None;
        }
        state.missing += 1;
        let at = number.checked_sub(state.first)?;
        state.chunks.get(at as usize).cloned()
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        let state = lock(&self.state);
        let are_mostly_missing =
            state.missing >= MISSING_LEAST && 2 * state.missing > state.count();
        state.outstanding_bytes + bytes <= OUTSTANDING_OF_STREAM_MAX_BYTES
            && !state.is_stalled
            && !are_mostly_missing
    }

    /// Waits until the stream may send references, or until the timeout for acknowledgements has
    /// expired. Cancel safe.
    async fn has_room(&self) {
        loop {
            {
                let mut state = lock(&self.state);
                if state.is_stalled || state.outstanding_bytes <= state.recent.bound(Instant::now())
                {
                    return;
                }
            }
            if timeout(ACKNOWLEDGEMENT_TIMEOUT, self.acknowledged.notified())
                .await
                .is_err()
            {
                lock(&self.state).is_stalled = true;
            }
        }
    }

    fn push(&self, chunks: &[Bytes], bytes: usize) {
        let mut state = lock(&self.state);
        state.outstanding_bytes += bytes;
        // Each chunk is part of a larger buffer. Without the copy, the complete buffer would stay
        // in memory.
        let copies = chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk));
        state.chunks.extend(copies);
    }

    /// Handles an acknowledgement. Returns the number of bytes that become free, and whether the
    /// stream has ended and all its chunks are acknowledged.
    fn acknowledge(&self, up_to: u64) -> (usize, bool) {
        let mut state = lock(&self.state);
        let mut bytes = 0;
        let now = Instant::now();
        while state.first < up_to
            && let Some(chunk) = state.chunks.pop_front()
        {
            bytes += chunk.len();
            state.first += 1;
        }
        state.outstanding_bytes -= bytes;
        state.recent.add(now, bytes);
        state.is_stalled &= bytes == 0;
        if state.ended.is_some() && bytes > 0 {
            state.ended = Some(now);
        }
        self.acknowledged.notify_one();
        (bytes, state.chunks.is_empty() && state.ended.is_some())
    }

    /// Records the end of the stream. Returns whether all chunks have been acknowledged.
    fn record_end(&self) -> bool {
        let mut state = lock(&self.state);
        state.ended = Some(Instant::now());
        state.chunks.is_empty()
    }

    fn is_overdue(&self, now: Instant) -> bool {
        let ended = lock(&self.state).ended;
        ended.is_some_and(|ended| now.saturating_duration_since(ended) > REQUEST_TIMEOUT)
    }

    fn drop_chunks(&self) -> usize {
        let mut state = lock(&self.state);
        state.first += state.chunks.len() as u64;
        state.chunks.clear();
        std::mem::take(&mut state.outstanding_bytes)
    }
}

impl RecentAcknowledgements {
    fn add(&mut self, now: Instant, bytes: usize) {
        self.bytes += bytes;
        match self.acknowledged.back_mut() {
            Some((at, sum)) if now.saturating_duration_since(*at) < RECENT_STEP => *sum += bytes,
            _ => self.acknowledged.push_back((now, bytes)),
        }
    }

    /// Returns the maximum number of outstanding bytes. The limit doubles in each round trip while
    /// the receiver acknowledges all bytes.
    fn bound(&mut self, now: Instant) -> usize {
        let is_old =
            |(at, _): &mut (Instant, usize)| now.saturating_duration_since(*at) > RECENT_TIME;
        while let Some((_, bytes)) = self.acknowledged.pop_front_if(is_old) {
            self.bytes -= bytes;
        }
        (BOUND_MIN_BYTES + self.bytes).min(BOUND_MAX_BYTES)
    }
}

impl State {
    /// Returns the number of references sent so far.
    fn count(&self) -> u64 {
        self.first + self.chunks.len() as u64
    }
}

impl ReferenceTracker {
    pub(super) fn new(dedup: &DedupContext, counters: Arc<CodingCounters>) -> Self {
        let DedupContext {
            store,
            references,
            key,
            ..
        } = dedup.clone();
        Self {
            store,
            references,
            counters,
            key,
            stream: None,
            is_finished: false,
        }
    }

    /// Waits until the stream may send further references. Cancel safe.
    pub(super) async fn has_room(&self) {
        if let Some(stream) = &self.stream {
            stream.has_room().await;
        }
    }

    /// Records that the stream ended without a reset. The receiver may still request chunks.
    pub(super) fn record_finish(&mut self) {
        self.is_finished = true;
    }
}

impl SenderChunks for ReferenceTracker {
    fn receiver_may_have(&mut self, name: &ChunkName) -> bool {
        self.store.has(name)
    }

    fn keep_outstanding(&mut self, chunks: &[Bytes]) -> bool {
        let Self {
            references,
            counters,
            key,
            stream,
            ..
        } = self;
        let bytes = chunks.iter().map(Bytes::len).sum();
        let stream = stream.get_or_insert_with(|| references.begin(*key, Some(counters.clone())));
        let has_room = stream.has_room_for(bytes) && references.reserve(*key, bytes);
        if has_room {
            stream.push(chunks, bytes);
        }
        has_room
    }

    fn record_sent(&mut self, name: ChunkName, chunk: Bytes) {
        if !self.store.has(&name) {
            // The chunk is part of a larger buffer. Without the copy, that buffer would stay in
            // memory until the chunk is on the disk.
            self.store.put(name, Bytes::copy_from_slice(&chunk));
        }
    }
}

impl Drop for ReferenceTracker {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            self.references.end(self.key, stream, self.is_finished);
        }
    }
}

/// Locks the mutex. The value is valid even if a thread has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maximum number of bytes in the chunks of all outstanding references. One peer can use half of
/// these bytes, a second peer a quarter.
const OUTSTANDING_MAX_BYTES: usize = 256 * 1024 * 1024;

/// Maximum number of outstanding bytes of one stream. At 2 Gbit/s, these bytes take a quarter of a
/// second.
const OUTSTANDING_OF_STREAM_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Minimum number of missing chunks before the sender can stop sending references. The sender stops
/// if more than half of all referenced chunks were missing. The receiver then has a different
/// store, and each reference costs a round trip.
const MISSING_LEAST: u64 = 256;

/// Maximum number of outstanding bytes before the receiver's first acknowledgement. 4 MiB
/// correspond to about three lists.
const BOUND_MIN_BYTES: usize = 4 * 1024 * 1024;

/// Limit for the outstanding bytes of a stream. Above this limit, the stream waits. One further
/// list may exceed the limit, but the sum stays below [`OUTSTANDING_OF_STREAM_MAX_BYTES`].
const BOUND_MAX_BYTES: usize = 48 * 1024 * 1024;

/// Period for which [`RecentAcknowledgements`] counts acknowledged bytes. The period is longer than
/// a round trip over a satellite.
const RECENT_TIME: Duration = Duration::from_secs(2);
const RECENT_STEP: Duration = Duration::from_millis(50);

/// Time limit for the receiver to acknowledge any outstanding chunk.
const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(5);

const SWEEP_PAUSE: Duration = Duration::from_secs(60);

/// Time limit for requests after the end of a stream. The link abandons a silent peer after the
/// same time.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn key(peer: usize, session: u64) -> ReferenceKey {
        let session = SessionKey {
            peer: PeerId(peer),
            is_near: false,
            session,
        };
        let transfer = TransferId(1);
        ReferenceKey { session, transfer }
    }

    fn add_reference(
        references: &ReferenceStore,
        key: ReferenceKey,
        stream: &StreamReferences,
        chunk: &Bytes,
    ) -> bool {
        let has_room = stream.has_room_for(chunk.len()) && references.reserve(key, chunk.len());
        if has_room {
            stream.push(std::slice::from_ref(chunk), chunk.len());
        }
        has_room
    }

    fn outstanding_bytes(references: &ReferenceStore) -> usize {
        lock(&references.outstanding).bytes
    }

    #[test]
    fn streams_that_a_peer_numbers_alike_leave_nothing_behind() {
        let (references, key) = (ReferenceStore::default(), key(0, 7));
        let chunk = Bytes::from(vec![1; 5_000]);
        let one = references.begin(key, None);
        assert!(add_reference(&references, key, &one, &chunk));
        let other = references.begin(key, None);
        assert!(add_reference(&references, key, &one, &chunk));
        assert!(add_reference(&references, key, &other, &chunk));
        // The first stream ends in order, and the peer acknowledges all chunks of the second one.
        references.end(key, &one, true);
        references.acknowledge(key, u64::MAX);
        assert!(add_reference(&references, key, &other, &chunk));
        references.end(key, &other, true);
        assert_eq!(
            outstanding_bytes(&references),
            5_000,
            "it may still be asked for"
        );
        assert_eq!(references.chunk(key, 1), Some(chunk));
        references.acknowledge(key, 2);
        assert_eq!(outstanding_bytes(&references), 0);
        assert!(lock(&references.streams).is_empty());
    }

    #[test]
    fn a_stream_answers_at_most_one_request_for_each_chunk() {
        let (references, key) = (ReferenceStore::default(), key(0, 7));
        let stream = references.begin(key, None);
        for _ in 0..3 {
            add_reference(&references, key, &stream, &Bytes::from(vec![1; 5_000]));
        }
        let sent = (0..100)
            .filter(|_| references.chunk(key, 1).is_some())
            .count();
        assert_eq!(sent, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn chunks_that_nobody_requests_are_dropped() {
        let (references, key) = (Arc::new(ReferenceStore::default()), key(0, 7));
        let stream = references.begin(key, None);
        assert!(add_reference(
            &references,
            key,
            &stream,
            &Bytes::from(vec![1; 5_000])
        ));
        references.end(key, &stream, true);
        tokio::spawn({
            let references = references.clone();
            async move { references.sweep().await }
        });
        sleep(REQUEST_TIMEOUT).await;
        assert_eq!(
            outstanding_bytes(&references),
            5_000,
            "it may still be asked for"
        );
        sleep(2 * SWEEP_PAUSE).await;
        assert_eq!(outstanding_bytes(&references), 0);
        assert!(lock(&references.streams).is_empty());
    }

    #[test]
    fn recent_acknowledgements_bound_the_outstanding_bytes() {
        let (mut recent, now) = (RecentAcknowledgements::default(), Instant::now());
        assert_eq!(recent.bound(now), BOUND_MIN_BYTES);
        for step in 0..40 {
            recent.add(now + step * Duration::from_millis(10), 100_000);
        }
        let later = now + Duration::from_secs(1);
        assert_eq!(recent.bound(later), BOUND_MIN_BYTES + 4_000_000);
        assert!(
            recent.acknowledged.len() <= 9,
            "{}",
            recent.acknowledged.len()
        );
        recent.add(later, 1 << 30);
        assert_eq!(recent.bound(later), BOUND_MAX_BYTES);
        assert_eq!(recent.bound(later + 2 * RECENT_TIME), BOUND_MIN_BYTES);
    }

    #[test]
    fn a_small_part_of_a_buffer_does_not_keep_the_buffer() {
        let (references, key) = (ReferenceStore::default(), key(0, 7));
        let stream = references.begin(key, None);
        let buffer = Bytes::from(vec![1; 256 * 1024]);
        assert!(add_reference(
            &references,
            key,
            &stream,
            &buffer.slice(..2_000)
        ));
        assert!(buffer.is_unique(), "nobody else has it");
    }

    #[test]
    fn a_peer_that_acknowledges_nothing_leaves_room_for_others() {
        let references = ReferenceStore::default();
        let chunk = Bytes::from(vec![1; 64 * 1024]);
        let fill = |peer: usize| {
            let mut bytes = 0;
            for session in 0..8 {
                let key = key(peer, session);
                let stream = references.begin(key, None);
                while add_reference(&references, key, &stream, &chunk) {
                    bytes += chunk.len();
                }
                references.end(key, &stream, true);
            }
            bytes
        };
        assert_eq!(fill(0), OUTSTANDING_MAX_BYTES / 2);
        assert_eq!(fill(1), OUTSTANDING_MAX_BYTES / 4);
        assert_eq!(fill(2), OUTSTANDING_MAX_BYTES / 8);
        assert!(outstanding_bytes(&references) < OUTSTANDING_MAX_BYTES);
    }
}
