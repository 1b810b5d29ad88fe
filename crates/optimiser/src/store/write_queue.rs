//! Queue of chunks between `put` and the thread that writes the chunks (the writer). Chunks in the
//! queue can be read.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use super::lock;
use crate::chunk::ChunkName;

/// A queue of chunks with a limit in bytes.
pub(super) struct WriteQueue {
    size_max_bytes: usize,
    state: Mutex<State>,
    /// Condition that wakes the writer when it has work.
    work: Condvar,
    /// Condition that wakes waiting threads when the writer is idle, or has ended.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    content: HashMap<ChunkName, Bytes>,
    /// Names of the chunks that the writer has not taken yet, in the order of their arrival.
    order: VecDeque<ChunkName>,
    size_bytes: usize,
    /// Whether the queue accepts no more chunks.
    is_closed: bool,
    /// Number of threads that keep the writer idle, or wait for it to become idle.
    holds: usize,
    /// Whether the writer had other work at its last call of `next`.
    is_busy: bool,
    /// Whether the writer waits in `next`. The writer then has no batch left to write.
    is_resting: bool,
    has_ended: bool,
}

/// Next task of the writer.
pub(super) enum WriterTask {
    Write(Vec<(ChunkName, Bytes)>),
    /// No chunk is queued. The writer continues with its other work.
    Other,
    /// All chunks are written, and no further chunk will follow.
    End,
}

impl WriteQueue {
    pub(super) fn new(size_max_bytes: usize) -> Self {
        Self {
            size_max_bytes,
            state: Mutex::new(State {
                is_busy: true,
                ..State::default()
            }),
            work: Condvar::new(),
            idle: Condvar::new(),
        }
    }

    /// Adds a chunk. Returns false if the queue is closed or has no room for the chunk.
    pub(super) fn push(&self, name: ChunkName, content: Bytes) -> bool {
        let mut state = lock(&self.state);
        if state.content.contains_key(&name) {
            return true;
        }
        let size_bytes = state.size_bytes + cost_bytes(&content);
        if state.is_closed || size_bytes > self.size_max_bytes {
            return false;
        }
        state.size_bytes = size_bytes;
        state.order.push_back(name);
        state.content.insert(name, content);
        drop(state);
        self.work.notify_one();
        true
    }

    pub(super) fn contains(&self, name: &ChunkName) -> bool {
        lock(&self.state).content.contains_key(name)
    }

    pub(super) fn get(&self, name: &ChunkName) -> Option<Bytes> {
        lock(&self.state).content.get(name).cloned()
    }

    pub(super) fn size_bytes(&self) -> usize {
        lock(&self.state).size_bytes
    }

    /// Returns whether the writer had other work at its last call of `next`.
    pub(super) fn is_busy(&self) -> bool {
        lock(&self.state).is_busy
    }

    /// Removes a chunk from the queue. If the writer has already taken the chunk, it is written
    /// nevertheless.
    pub(super) fn remove(&self, name: &ChunkName) {
        let mut state = lock(&self.state);
        if state.take(name) {
            state.order.retain(|other| other != name);
        }
    }

    /// Empties the queue. Returns the number of removed chunks that the writer had not taken.
    pub(super) fn clear(&self) -> usize {
        let mut state = lock(&self.state);
        let count = state.order.len();
        state.order.clear();
        state.content.clear();
        state.size_bytes = 0;
        count
    }

    /// Returns the writer's next task. `is_busy` states whether the writer has other work. If the
    /// queue is empty and `is_busy` is false, the function waits for a chunk.
    ///
    /// While a thread keeps the writer idle with [`WriteQueue::hold`], the function only waits.
    pub(super) fn next(&self, is_busy: bool) -> WriterTask {
        let mut state = lock(&self.state);
        state.is_busy = is_busy;
        loop {
            if state.holds == 0 {
                if !state.order.is_empty() {
                    return WriterTask::Write(state.batch());
                }
                if state.is_closed {
                    return WriterTask::End;
                }
                if is_busy {
                    return WriterTask::Other;
                }
            }
            state.is_resting = true;
            self.idle.notify_all();
            state = wait(&self.work, state);
            state.is_resting = false;
        }
    }

    /// Removes the chunks of a batch that the writer has written or dropped.
    pub(super) fn done(&self, batch: &[(ChunkName, Bytes)]) {
        let mut state = lock(&self.state);
        for (name, _) in batch {
            state.take(name);
        }
    }

    /// Closes the queue, so that it accepts no more chunks.
    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.work.notify_one();
    }

    /// Waits until the writer has finished its current batch, and is idle. The writer then stays
    /// idle until [`WriteQueue::release`], even if the queue contains chunks.
    pub(super) fn hold(&self) {
        let mut state = lock(&self.state);
        state.holds += 1;
        while !(state.is_resting || state.has_ended) {
            state = wait(&self.idle, state);
        }
    }

    pub(super) fn release(&self) {
        lock(&self.state).holds -= 1;
        self.work.notify_one();
    }

    /// Records that the writer has ended.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.has_ended = true;
        state.is_busy = false;
        self.idle.notify_all();
    }

    /// Waits until all chunks are written and the writer has no other work.
    pub(super) fn wait_until_idle(&self) {
        let mut state = lock(&self.state);
        while !(state.has_ended || state.content.is_empty() && !state.is_busy) {
            state = wait(&self.idle, state);
        }
    }
}

impl State {
    /// Removes a batch of chunks from the front of the queue.
    fn batch(&mut self) -> Vec<(ChunkName, Bytes)> {
        let (mut batch, mut size_bytes) = (Vec::new(), 0);
        while size_bytes < BATCH_BYTES
            && let Some(name) = self.order.pop_front()
        {
            if let Some(content) = self.content.get(&name) {
                size_bytes += content.len();
                batch.push((name, content.clone()));
            }
        }
        batch
    }

    fn take(&mut self, name: &ChunkName) -> bool {
        let content = self.content.remove(name);
        self.size_bytes -= content.as_ref().map_or(0, cost_bytes);
        content.is_some()
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition
        .wait(state)
        .unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of bytes that a chunk takes in the queue, including its table entries.
fn cost_bytes(content: &Bytes) -> usize {
    content.len() + 128
}

/// Number of content bytes at which a batch is complete. The last chunk of a batch may exceed this
/// number.
const BATCH_BYTES: usize = 1024 * 1024;
