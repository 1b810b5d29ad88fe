//! Chunks that this gateway has referred to: the receiver may not have them, and asks for their bytes until it has taken
//! them. They are kept in memory meanwhile, within bounds; without room a chunk goes with its bytes.
//!
//! What one stream has lent is also what is on its way to a slow reader, although it is few bytes on the link: it is bounded
//! by what the receiver takes in a short time, and the sender waits.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use ftp::session::TransferId;
use optimiser::{chunk::Name, encoder::Chunks, store::Store};
use tokio::sync::Notify;

use super::pace::Pace;
use crate::truncation::SessionKey;

/// One direction of a data connection: what this gateway sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) session: SessionKey,
    pub(crate) transfer: TransferId,
}

/// All chunks that this gateway has referred to.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    loans: Mutex<HashMap<Key, Arc<Loan>>>,
    kept_bytes: AtomicUsize,
}

/// Those of one stream.
#[derive(Debug, Default)]
struct Loan {
    state: Mutex<State>,
    taken: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the first one of `chunks`.
    first: u64,
    chunks: VecDeque<Bytes>,
    kept_bytes: usize,
    pace: Pace,
    missing: u64,
    /// The stream has ended, and the receiver may still ask: when it did last.
    ended: Option<Instant>,
}

/// The sender's side of a stream.
#[derive(Debug)]
pub(super) struct Lender {
    store: Store,
    lending: Arc<Lending>,
    key: Key,
    /// Once there has been a reference.
    loan: Option<Arc<Loan>>,
    is_finished: bool,
}

impl Lending {
    /// The chunk of a reference that has not been taken.
    pub(super) fn chunk(&self, key: Key, number: u64) -> Option<Bytes> {
        let loan = lock(&self.loans).get(&key).cloned();
        loan?.chunk(number)
    }

    fn begin(&self, key: Key) -> Arc<Loan> {
        let now = Instant::now();
        let mut loans = lock(&self.loans);
        loans.retain(|_, loan| {
            let is_kept = !loan.is_overdue(now);
            if !is_kept {
                self.release(loan.give_up());
            }
            is_kept
        });
        loans.entry(key).or_default().clone()
    }

    fn end(&self, key: Key, loan: &Loan) {
        lock(&self.loans).remove(&key);
        self.release(loan.give_up());
    }

    /// The receiver has taken all up to this number.
    pub(super) fn taken(&self, key: Key, up_to: u64) {
        let loan = lock(&self.loans).get(&key).cloned();
        // One that has been given up is none.
        if let Some(loan) = loan {
            let (bytes, is_over) = loan.taken(up_to);
            self.release(bytes);
            if is_over {
                lock(&self.loans).remove(&key);
            }
        }
    }

    fn take(&self, bytes: usize) -> bool {
        let before = self.kept_bytes.fetch_add(bytes, Relaxed);
        let has_room = before + bytes <= KEPT_MAX_BYTES;
        if !has_room {
            self.release(bytes);
        }
        has_room
    }

    fn release(&self, bytes: usize) {
        self.kept_bytes.fetch_sub(bytes, Relaxed);
    }
}

impl Loan {
    fn chunk(&self, number: u64) -> Option<Bytes> {
        let mut state = lock(&self.state);
        state.missing += 1;
        let at = number.checked_sub(state.first)?;
        state.chunks.get(at as usize).cloned()
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        let state = lock(&self.state);
        let referred = state.first + state.chunks.len() as u64;
        let is_lost_on_them = state.missing >= MISSING_LEAST && 2 * state.missing > referred;
        state.kept_bytes + bytes <= KEPT_OF_STREAM_MAX_BYTES && !is_lost_on_them
    }

    /// Resolves while the receiver takes what is lent in a short time. Cancel safe.
    async fn keeps_pace(&self) {
        loop {
            {
                let state = lock(&self.state);
                if state.kept_bytes <= state.pace.bound_bytes() {
                    return;
                }
            }
            self.taken.notified().await;
        }
    }

    fn push(&self, chunks: &[Bytes], bytes: usize) {
        let mut state = lock(&self.state);
        state.kept_bytes += bytes;
        state.chunks.extend(chunks.iter().cloned());
    }

    /// Returns how many bytes are free now, and whether nothing can follow.
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
        state.pace.taken(now, bytes);
        if state.ended.is_some() {
            state.ended = Some(now);
        }
        self.taken.notify_one();
        (bytes, state.chunks.is_empty() && state.ended.is_some())
    }

    /// The stream has ended. Returns whether all has been taken.
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

impl Lender {
    pub(super) fn new(store: Store, lending: Arc<Lending>, key: Key) -> Self {
        Self {
            store,
            lending,
            key,
            loan: None,
            is_finished: false,
        }
    }

    /// Resolves while more may be lent. Cancel safe.
    pub(super) async fn keeps_pace(&self) {
        if let Some(loan) = &self.loan {
            loan.keeps_pace().await;
        }
    }

    /// The stream ends in order: the receiver may ask on.
    pub(super) fn finished(&mut self) {
        self.is_finished = true;
    }
}

impl Chunks for Lender {
    fn knows(&mut self, name: &Name) -> bool {
        self.store.has(name)
    }

    fn lend(&mut self, chunks: &[Bytes]) -> bool {
        let Self {
            lending, key, loan, ..
        } = self;
        let bytes = chunks.iter().map(Bytes::len).sum();
        let loan = loan.get_or_insert_with(|| lending.begin(*key));
        let has_room = loan.has_room_for(bytes) && lending.take(bytes);
        if has_room {
            loan.push(chunks, bytes);
        }
        has_room
    }

    fn sent(&mut self, name: Name, chunk: Bytes) {
        if !self.store.has(&name) {
            // The chunk is a part of a larger buffer, which must not wait for the disk.
            self.store.put(name, Bytes::copy_from_slice(&chunk));
        }
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        if let Some(loan) = &self.loan
            && (!self.is_finished || loan.ended())
        {
            self.lending.end(self.key, loan);
        }
    }
}

/// A poisoned loan is still one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Most bytes of all chunks that are lent.
const KEPT_MAX_BYTES: usize = 256 * 1024 * 1024;

/// Of one stream: what goes in a quarter of a second at 2 Gbit/s, twenty times the rate of a line of 100 Mbit/s.
const KEPT_OF_STREAM_MAX_BYTES: usize = 64 * 1024 * 1024;

/// When so many were missing, and most of all: the receiver's store is another one, and each reference costs a round trip.
const MISSING_LEAST: u64 = 256;

/// Time to ask after the end of the stream: as long as a peer may be silent.
const ASK_PATIENCE: Duration = Duration::from_secs(600);
