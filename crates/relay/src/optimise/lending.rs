//! Outstanding references: chunks that this gateway has referred to, and that the receiver has not
//! acknowledged.
//!
//! The receiver may not have such a chunk, and can request its bytes. The gateway therefore keeps
//! outstanding chunks in memory, within bounds. Without room it sends a chunk's bytes in place of a
//! reference.
//!
//! A stream to a slow reader has no more outstanding bytes than the reader has taken in the last
//! two seconds, and the sender waits. Many slow readers would otherwise fill the memory.

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

use super::{Sharing, Tally};
use crate::truncation::SessionKey;

/// One direction of a data connection: the direction that this gateway sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) session: SessionKey,
    pub(crate) transfer: TransferId,
}

/// All chunks that this gateway has referred to.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    loans: Mutex<HashMap<Key, Arc<Loan>>>,
    kept: Mutex<Kept>,
}

/// Bytes of outstanding chunks.
#[derive(Debug, Default)]
struct Kept {
    bytes: usize,
    of_peers: HashMap<PeerId, usize>,
}

/// Chunks referenced on one stream and not yet acknowledged.
#[derive(Debug, Default)]
struct Loan {
    /// Counters of the transfer.
    tally: Option<Arc<Tally>>,
    state: Mutex<State>,
    taken: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the first of `chunks`.
    first: u64,
    chunks: VecDeque<Bytes>,
    kept_bytes: usize,
    recent: Recent,
    /// Whether the receiver has taken nothing for too long. The stream then carries bytes in place
    /// of references.
    is_mute: bool,
    missing: u64,
    /// Time at which the stream ended, or the receiver last took a chunk after that. The receiver
    /// may still request chunks.
    ended: Option<Instant>,
}

/// Bytes that a receiver has taken in the last two seconds.
#[derive(Debug, Default)]
struct Recent {
    /// Oldest first.
    taken: VecDeque<(Instant, usize)>,
    bytes: usize,
}

/// The sender's references on one stream.
#[derive(Debug)]
pub(super) struct Lender {
    store: Store,
    lending: Arc<Lending>,
    tally: Arc<Tally>,
    key: Key,
    /// `Some` after the first reference.
    loan: Option<Arc<Loan>>,
    is_finished: bool,
}

impl Lending {
    /// Returns the chunk of an outstanding reference.
    pub(super) fn chunk(&self, key: Key, number: u64) -> Option<Bytes> {
        let loan = lock(&self.loans).get(&key).cloned();
        loan?.chunk(number)
    }

    /// Counts a missing chunk that was sent.
    pub(super) fn answered(&self, key: Key, chunk_bytes: usize, frame_bytes: usize) {
        let loan = lock(&self.loans).get(&key).cloned();
        if let Some(tally) = loan.as_ref().and_then(|loan| loan.tally.as_ref()) {
            tally.missed(chunk_bytes, frame_bytes);
        }
    }

    fn begin(&self, key: Key, tally: Option<Arc<Tally>>) -> Arc<Loan> {
        let mut loans = lock(&self.loans);
        let loan = Arc::new(Loan {
            tally,
            ..Loan::default()
        });
        // A peer that gives two streams the same number can no longer request the chunks of the
        // first.
        if let Some(former) = loans.insert(key, loan.clone()) {
            self.release(key, former.give_up());
        }
        loan
    }

    /// Handles the end of a stream, in order or not. Chunks that may still be requested are kept.
    fn end(&self, key: Key, loan: &Arc<Loan>, is_finished: bool) {
        let mut loans = lock(&self.loans);
        let is_known = loans
            .get(&key)
            .is_some_and(|known| Arc::ptr_eq(known, loan));
        if is_known && is_finished && !loan.ended() {
            return;
        }
        if is_known {
            loans.remove(&key);
        }
        self.release(key, loan.give_up());
    }

    /// Periodically drops the chunks that no receiver has requested in time.
    pub(crate) async fn sweep(&self) {
        loop {
            let now = Instant::now();
            lock(&self.loans).retain(|key, loan| {
                let is_kept = !loan.is_overdue(now);
                if !is_kept {
                    self.release(*key, loan.give_up());
                }
                is_kept
            });
            sleep(SWEEP_PAUSE).await;
        }
    }

    /// Records that the receiver has taken all chunks below this number.
    pub(super) fn taken(&self, key: Key, up_to: u64) {
        let loan = lock(&self.loans).get(&key).cloned();
        // The stream's references may have been dropped.
        if let Some(loan) = loan {
            let (bytes, is_over) = loan.taken(up_to);
            self.release(key, bytes);
            if is_over {
                self.end(key, &loan, true);
            }
        }
    }

    /// Reserves memory for chunks. Each peer may use as much as is still free, so that a peer that
    /// takes nothing leaves room for the others.
    fn take(&self, key: Key, bytes: usize) -> bool {
        let mut kept = lock(&self.kept);
        let of_peer = kept.of_peers.get(&key.session.peer).map_or(0, |it| *it);
        let has_room = kept.bytes + of_peer + bytes <= KEPT_MAX_BYTES;
        if has_room {
            kept.bytes += bytes;
            *kept.of_peers.entry(key.session.peer).or_default() += bytes;
        }
        has_room
    }

    fn release(&self, key: Key, bytes: usize) {
        let mut kept = lock(&self.kept);
        kept.bytes -= bytes;
        if let Some(of_peer) = kept.of_peers.get_mut(&key.session.peer) {
            *of_peer -= bytes;
        }
    }
}

impl Loan {
    /// Returns a missing chunk. A receiver requests each chunk once.
    fn chunk(&self, number: u64) -> Option<Bytes> {
        let mut state = lock(&self.state);
        if state.missing >= state.referred() {
            return None;
        }
        state.missing += 1;
        let at = number.checked_sub(state.first)?;
        state.chunks.get(at as usize).cloned()
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        let state = lock(&self.state);
        let is_lost_on_them =
            state.missing >= MISSING_LEAST && 2 * state.missing > state.referred();
        state.kept_bytes + bytes <= KEPT_OF_STREAM_MAX_BYTES && !state.is_mute && !is_lost_on_them
    }

    /// Resolves while the stream may send references, or once the receiver takes nothing at all.
    /// Cancel safe.
    async fn has_room(&self) {
        loop {
            {
                let mut state = lock(&self.state);
                if state.is_mute || state.kept_bytes <= state.recent.bound(Instant::now()) {
                    return;
                }
            }
            if timeout(TAKE_PATIENCE, self.taken.notified()).await.is_err() {
                lock(&self.state).is_mute = true;
            }
        }
    }

    fn push(&self, chunks: &[Bytes], bytes: usize) {
        let mut state = lock(&self.state);
        state.kept_bytes += bytes;
        // Each chunk is a part of a larger buffer, most of which may be bytes without references.
        let copies = chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk));
        state.chunks.extend(copies);
    }

    /// Returns the bytes that become free, and whether no request can follow.
    fn taken(&self, up_to: u64) -> (usize, bool) {
        let mut state = lock(&self.state);
        let mut bytes = 0;
        let now = Instant::now();
        while state.first < up_to
            && let Some(chunk) = state.chunks.pop_front()
        {
            bytes += chunk.len();
            state.first += 1;
        }
        state.kept_bytes -= bytes;
        state.recent.add(now, bytes);
        state.is_mute &= bytes == 0;
        if state.ended.is_some() && bytes > 0 {
            state.ended = Some(now);
        }
        self.taken.notify_one();
        (bytes, state.chunks.is_empty() && state.ended.is_some())
    }

    /// Records the end of the stream. Returns whether all chunks have been taken.
    fn ended(&self) -> bool {
        let mut state = lock(&self.state);
        state.ended = Some(Instant::now());
        state.chunks.is_empty()
    }

    fn is_overdue(&self, now: Instant) -> bool {
        let ended = lock(&self.state).ended;
        ended.is_some_and(|ended| now.saturating_duration_since(ended) > ASK_PATIENCE)
    }

    fn give_up(&self) -> usize {
        let mut state = lock(&self.state);
        state.first += state.chunks.len() as u64;
        state.chunks.clear();
        std::mem::take(&mut state.kept_bytes)
    }
}

impl Recent {
    fn add(&mut self, now: Instant, bytes: usize) {
        self.bytes += bytes;
        match self.taken.back_mut() {
            Some((at, sum)) if now.saturating_duration_since(*at) < RECENT_STEP => *sum += bytes,
            _ => self.taken.push_back((now, bytes)),
        }
    }

    /// Returns the most bytes that may be outstanding. They double in each round trip while the
    /// receiver takes all of them.
    fn bound(&mut self, now: Instant) -> usize {
        let is_old =
            |(at, _): &mut (Instant, usize)| now.saturating_duration_since(*at) > RECENT_TIME;
        while let Some((_, bytes)) = self.taken.pop_front_if(is_old) {
            self.bytes -= bytes;
        }
        (LENT_MIN_BYTES + self.bytes).min(LENT_MAX_BYTES)
    }
}

impl State {
    /// Returns the number of references so far.
    fn referred(&self) -> u64 {
        self.first + self.chunks.len() as u64
    }
}

impl Lender {
    pub(super) fn new(sharing: &Sharing, tally: Arc<Tally>) -> Self {
        let Sharing {
            store,
            lending,
            key,
            ..
        } = sharing.clone();
        Self {
            store,
            lending,
            tally,
            key,
            loan: None,
            is_finished: false,
        }
    }

    /// Resolves while further references are permitted. Cancel safe.
    pub(super) async fn has_room(&self) {
        if let Some(loan) = &self.loan {
            loan.has_room().await;
        }
    }

    /// Records an orderly end of the stream: the receiver may still request chunks.
    pub(super) fn finished(&mut self) {
        self.is_finished = true;
    }
}

impl SenderChunks for Lender {
    fn receiver_may_have(&mut self, name: &ChunkName) -> bool {
        self.store.has(name)
    }

    fn keep_outstanding(&mut self, chunks: &[Bytes]) -> bool {
        let Self {
            lending,
            tally,
            key,
            loan,
            ..
        } = self;
        let bytes = chunks.iter().map(Bytes::len).sum();
        let loan = loan.get_or_insert_with(|| lending.begin(*key, Some(tally.clone())));
        let has_room = loan.has_room_for(bytes) && lending.take(*key, bytes);
        if has_room {
            loan.push(chunks, bytes);
        }
        has_room
    }

    fn record_sent(&mut self, name: ChunkName, chunk: Bytes) {
        if !self.store.has(&name) {
            // A chunk is a part of a larger buffer, which must not stay in memory until the disk
            // has written it.
            self.store.put(name, Bytes::copy_from_slice(&chunk));
        }
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        if let Some(loan) = &self.loan {
            self.lending.end(self.key, loan, self.is_finished);
        }
    }
}

/// Locks the mutex. Its value remains valid if a thread panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Most bytes of all outstanding chunks. One peer can use half of them, the next one a quarter.
const KEPT_MAX_BYTES: usize = 256 * 1024 * 1024;

/// Most outstanding bytes of one stream: a quarter of a second at 2 Gbit/s.
const KEPT_OF_STREAM_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Number of missing chunks from which their share counts. If most chunks are missing, the receiver
/// has another store, and each reference costs a round trip.
const MISSING_LEAST: u64 = 256;

/// Outstanding bytes permitted before the receiver has taken anything: about three lists.
const LENT_MIN_BYTES: usize = 4 * 1024 * 1024;

/// Outstanding bytes at which a stream waits. One more list may follow, and fits the stream's
/// bound.
const LENT_MAX_BYTES: usize = 48 * 1024 * 1024;

/// Period over which taken bytes count: more than a round trip over a satellite.
const RECENT_TIME: Duration = Duration::from_secs(2);
const RECENT_STEP: Duration = Duration::from_millis(50);

/// Time for the receiver to take any outstanding chunk.
const TAKE_PATIENCE: Duration = Duration::from_secs(5);

const SWEEP_PAUSE: Duration = Duration::from_secs(60);

/// Time for requests after the end of the stream: the longest silence of a peer.
const ASK_PATIENCE: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn key(peer: usize, session: u64) -> Key {
        let session = SessionKey {
            peer: PeerId(peer),
            is_near: false,
            session,
        };
        let transfer = TransferId(1);
        Key { session, transfer }
    }

    fn lend(lending: &Lending, key: Key, loan: &Loan, chunk: &Bytes) -> bool {
        let has_room = loan.has_room_for(chunk.len()) && lending.take(key, chunk.len());
        if has_room {
            loan.push(std::slice::from_ref(chunk), chunk.len());
        }
        has_room
    }

    fn kept_bytes(lending: &Lending) -> usize {
        lock(&lending.kept).bytes
    }

    #[test]
    fn streams_that_a_peer_numbers_alike_leave_nothing_behind() {
        let (lending, key) = (Lending::default(), key(0, 7));
        let chunk = Bytes::from(vec![1; 5_000]);
        let one = lending.begin(key, None);
        assert!(lend(&lending, key, &one, &chunk));
        let other = lending.begin(key, None);
        assert!(lend(&lending, key, &one, &chunk));
        assert!(lend(&lending, key, &other, &chunk));
        // The first stream ends in order, and the peer acknowledges all chunks of the second one.
        lending.end(key, &one, true);
        lending.taken(key, u64::MAX);
        assert!(lend(&lending, key, &other, &chunk));
        lending.end(key, &other, true);
        assert_eq!(kept_bytes(&lending), 5_000, "it may still be asked for");
        assert_eq!(lending.chunk(key, 1), Some(chunk));
        lending.taken(key, 2);
        assert_eq!(kept_bytes(&lending), 0);
        assert!(lock(&lending.loans).is_empty());
    }

    #[test]
    fn a_chunk_is_told_no_more_often_than_there_are_chunks() {
        let (lending, key) = (Lending::default(), key(0, 7));
        let loan = lending.begin(key, None);
        for _ in 0..3 {
            lend(&lending, key, &loan, &Bytes::from(vec![1; 5_000]));
        }
        let told = (0..100).filter(|_| lending.chunk(key, 1).is_some()).count();
        assert_eq!(told, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_asks_for_is_given_up() {
        let (lending, key) = (Arc::new(Lending::default()), key(0, 7));
        let loan = lending.begin(key, None);
        assert!(lend(&lending, key, &loan, &Bytes::from(vec![1; 5_000])));
        lending.end(key, &loan, true);
        tokio::spawn({
            let lending = lending.clone();
            async move { lending.sweep().await }
        });
        sleep(ASK_PATIENCE).await;
        assert_eq!(kept_bytes(&lending), 5_000, "it may still be asked for");
        sleep(2 * SWEEP_PAUSE).await;
        assert_eq!(kept_bytes(&lending), 0);
        assert!(lock(&lending.loans).is_empty());
    }

    #[test]
    fn a_stream_lends_what_its_reader_has_taken_of_late() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        assert_eq!(recent.bound(now), LENT_MIN_BYTES);
        for step in 0..40 {
            recent.add(now + step * Duration::from_millis(10), 100_000);
        }
        let later = now + Duration::from_secs(1);
        assert_eq!(recent.bound(later), LENT_MIN_BYTES + 4_000_000);
        assert!(recent.taken.len() <= 9, "{}", recent.taken.len());
        recent.add(later, 1 << 30);
        assert_eq!(recent.bound(later), LENT_MAX_BYTES);
        assert_eq!(recent.bound(later + 2 * RECENT_TIME), LENT_MIN_BYTES);
    }

    #[test]
    fn a_small_part_of_a_buffer_does_not_keep_the_buffer() {
        let (lending, key) = (Lending::default(), key(0, 7));
        let loan = lending.begin(key, None);
        let buffer = Bytes::from(vec![1; 256 * 1024]);
        assert!(lend(&lending, key, &loan, &buffer.slice(..2_000)));
        assert!(buffer.is_unique(), "nobody else has it");
    }

    #[test]
    fn a_peer_that_takes_nothing_leaves_room_for_others() {
        let lending = Lending::default();
        let chunk = Bytes::from(vec![1; 64 * 1024]);
        let fill = |peer: usize| {
            let mut bytes = 0;
            for session in 0..8 {
                let key = key(peer, session);
                let loan = lending.begin(key, None);
                while lend(&lending, key, &loan, &chunk) {
                    bytes += chunk.len();
                }
                lending.end(key, &loan, true);
            }
            bytes
        };
        assert_eq!(fill(0), KEPT_MAX_BYTES / 2);
        assert_eq!(fill(1), KEPT_MAX_BYTES / 4);
        assert_eq!(fill(2), KEPT_MAX_BYTES / 8);
        assert!(kept_bytes(&lending) < KEPT_MAX_BYTES);
    }
}
