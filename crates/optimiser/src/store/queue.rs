//! Chunks between `put` and the thread that writes them. They can be read from here.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use super::lock;
use crate::chunk::Name;

/// A queue with a bound in bytes.
pub(super) struct Queue {
    size_max_bytes: usize,
    state: Mutex<State>,
    /// There is something for the writer.
    work: Condvar,
    /// The writer rests, or has ended.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    content: HashMap<Name, Bytes>,
    /// Those that the writer has not taken.
    order: VecDeque<Name>,
    size_bytes: usize,
    /// Nothing more is taken in.
    is_closed: bool,
    /// How many wait for the writer to rest.
    holds: usize,
    /// What the writer told last: it has something else to do.
    is_busy: bool,
    /// The writer waits, and has nothing in hand.
    is_resting: bool,
    has_ended: bool,
}

/// What the writer is to do.
pub(super) enum Work {
    Write(Vec<(Name, Bytes)>),
    /// Nothing waits: go on with what else there is.
    Other,
    /// Everything is written, and nothing more will come.
    End,
}

impl Queue {
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

    /// Takes a chunk in; false if there is no room for it.
    pub(super) fn push(&self, name: Name, content: Bytes) -> bool {
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

    pub(super) fn contains(&self, name: &Name) -> bool {
        lock(&self.state).content.contains_key(name)
    }

    pub(super) fn get(&self, name: &Name) -> Option<Bytes> {
        lock(&self.state).content.get(name).cloned()
    }

    pub(super) fn size_bytes(&self) -> usize {
        lock(&self.state).size_bytes
    }

    /// Whether the writer had something else to do when it came last.
    pub(super) fn is_busy(&self) -> bool {
        lock(&self.state).is_busy
    }

    /// Takes a chunk out; the writer may just write it all the same.
    pub(super) fn remove(&self, name: &Name) {
        let mut state = lock(&self.state);
        if state.take(name) {
            state.order.retain(|other| other != name);
        }
    }

    /// Empties the queue, and returns how many chunks were in it that the writer has not taken.
    pub(super) fn clear(&self) -> usize {
        let mut state = lock(&self.state);
        let count = state.order.len();
        state.order.clear();
        state.content.clear();
        state.size_bytes = 0;
        count
    }

    /// The writer's next work. `is_busy` says that it has something else to do; otherwise this waits.
    pub(super) fn next(&self, is_busy: bool) -> Work {
        let mut state = lock(&self.state);
        state.is_busy = is_busy;
        loop {
            if state.holds == 0 {
                if !state.order.is_empty() {
                    return Work::Write(state.batch());
                }
                if state.is_closed {
                    return Work::End;
                }
                if is_busy {
                    return Work::Other;
                }
            }
            state.is_resting = true;
            self.idle.notify_all();
            state = wait(&self.work, state);
            state.is_resting = false;
        }
    }

    /// The writer has done with these, one way or the other.
    pub(super) fn done(&self, batch: &[(Name, Bytes)]) {
        let mut state = lock(&self.state);
        for (name, _) in batch {
            state.take(name);
        }
    }

    /// Takes nothing in from now on.
    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.work.notify_one();
    }

    /// Returns when the writer rests with nothing in hand. It does so until [`Queue::release`].
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

    /// The writer has ended.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.has_ended = true;
        state.is_busy = false;
        self.idle.notify_all();
    }

    /// Returns when everything is written and the writer has nothing else to do.
    pub(super) fn wait_until_idle(&self) {
        let mut state = lock(&self.state);
        while !(state.has_ended || state.content.is_empty() && !state.is_busy) {
            state = wait(&self.idle, state);
        }
    }
}

impl State {
    /// As much from the front as is written at once.
    fn batch(&mut self) -> Vec<(Name, Bytes)> {
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

    fn take(&mut self, name: &Name) -> bool {
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

/// Bytes that a chunk is taken for: what the tables need for it included.
fn cost_bytes(content: &Bytes) -> usize {
    content.len() + 128
}

/// Bytes of content that are written at once, one chunk more or less.
const BATCH_BYTES: usize = 1024 * 1024;
