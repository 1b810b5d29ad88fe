//! One direction of a pipe. It is a bounded buffer between a writer and a reader.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use tokio::{io::ReadBuf, sync::Notify};

/// One direction of a pipe.
#[derive(Debug, Default)]
pub(super) struct PipeDirection {
    state: Mutex<State>,
    /// Notification after each of four changes: the end of the data, a reset, the close of the
    /// reading end, and an empty buffer.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Written bytes that have not been read.
    unread: VecDeque<u8>,
    /// Whether the writer has ended the direction.
    is_finished: bool,
    /// Whether the reader has read the end of the data.
    is_end_read: bool,
    /// Whether the reading end is closed.
    is_reader_closed: bool,
    /// Whether the reader or the writer has reset the connection.
    is_reset: bool,
    /// Whether unread bytes were lost when the connection was closed or reset.
    is_lossy: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl PipeDirection {
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.lock();
        if state.is_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if state.unread.is_empty() {
            if !state.is_finished {
                remember(&mut state.reader, cx);
                return Poll::Pending;
            }
            state.is_end_read = true;
            drop(state);
            self.changed.notify_waiters();
            return Poll::Ready(Ok(()));
        }
        let count = buf.remaining().min(state.unread.len());
        let (first, second) = state.unread.as_slices();
        let of_first = count.min(first.len());
        buf.put_slice(&first[..of_first]);
        buf.put_slice(&second[..count - of_first]);
        state.unread.drain(..count);
        let is_empty = state.unread.is_empty();
        let writer = state.writer.take();
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
        if is_empty {
            self.changed.notify_waiters();
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_peek(
        &self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        if state.is_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if state.unread.is_empty() && !state.is_finished {
            remember(&mut state.reader, cx);
            return Poll::Pending;
        }
        let count = bytes.len().min(state.unread.len());
        for (to, from) in bytes.iter_mut().zip(&state.unread) {
            *to = *from;
        }
        Poll::Ready(Ok(count))
    }

    pub(super) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        if state.is_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if state.is_finished || state.is_reader_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if parts.iter().all(|part| part.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let mut room = CAPACITY_BYTES - state.unread.len();
        if room == 0 {
            remember(&mut state.writer, cx);
            return Poll::Pending;
        }
        let before = state.unread.len();
        for part in parts {
            let count = room.min(part.len());
            state.push(&part[..count]);
            room -= count;
        }
        let count = state.unread.len() - before;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        Poll::Ready(Ok(count))
    }

    /// Ends the direction. The reader can still read the bytes that were written before.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionReset`] after a reset.
    pub(super) fn finish(&self) -> io::Result<()> {
        let mut state = self.lock();
        if state.is_reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        state.is_finished = true;
        self.wake_all(state);
        Ok(())
    }

    /// Closes the reading end.
    pub(super) fn close_reader(&self) {
        let mut state = self.lock();
        state.is_reader_closed = true;
        state.discard();
        self.wake_all(state);
    }

    /// Resets the direction. Unread bytes are lost.
    pub(super) fn abort(&self) {
        let mut state = self.lock();
        state.is_reset = true;
        state.discard();
        self.wake_all(state);
    }

    pub(super) fn has_unread(&self) -> bool {
        let state = self.lock();
        !state.is_reset && (!state.unread.is_empty() || state.is_finished)
    }

    pub(super) fn unread_bytes(&self) -> usize {
        self.lock().unread.len()
    }

    #[cfg(test)]
    pub(super) fn capacity_bytes(&self) -> usize {
        self.lock().unread.capacity()
    }

    /// Waits until the writer has ended the direction.
    pub(super) async fn wait_for_end(&self) -> io::Result<()> {
        self.wait_for(|state| match state {
            State { is_reset: true, .. } => Some(Err(io::ErrorKind::ConnectionReset.into())),
            state => state.is_finished.then_some(Ok(())),
        })
        .await
    }

    /// Waits until the connection is reset.
    pub(super) async fn wait_for_reset(&self) -> io::Error {
        let is_reset = |state: &State| state.is_reset.then_some(io::ErrorKind::ConnectionReset);
        self.wait_for(is_reset).await.into()
    }

    /// Waits until the reader has read all written bytes. If the writer has ended the direction,
    /// also waits until the end is read.
    pub(super) async fn wait_for_acknowledgement(&self) -> io::Result<()> {
        self.wait_for(|state| {
            if state.is_lossy {
                return Some(Err(match state.is_reset {
                    true => io::ErrorKind::ConnectionReset.into(),
                    false => io::ErrorKind::BrokenPipe.into(),
                }));
            }
            let is_gone = state.is_reset || state.is_reader_closed;
            let has_end = !state.is_finished || state.is_end_read || is_gone;
            (state.unread.is_empty() && has_end).then_some(Ok(()))
        })
        .await
    }

    /// Waits until `find` returns a value.
    async fn wait_for<T>(&self, find: impl Fn(&State) -> Option<T>) -> T {
        loop {
            // The subscription exists before the check, so it also covers changes during the check.
            let changed = self.changed.notified();
            if let Some(found) = find(&self.lock()) {
                return found;
            }
            changed.await;
        }
    }

    fn wake_all(&self, mut state: MutexGuard<'_, State>) {
        let wakers = [state.reader.take(), state.writer.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change keeps the state consistent, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Appends bytes to the buffer. The caller has checked that the bytes fit.
    fn push(&mut self, bytes: &[u8]) {
        let needed = self.unread.len() + bytes.len();
        if needed > self.unread.capacity() {
            // The buffer grows with the unread bytes up to the capacity, and keeps its size.
            let capacity = needed.next_power_of_two().min(CAPACITY_BYTES);
            self.unread.reserve_exact(capacity - self.unread.len());
        }
        self.unread.extend(bytes);
    }

    /// Discards the unread bytes, because nothing will read them.
    fn discard(&mut self) {
        self.is_lossy |= !self.unread.is_empty();
        self.unread = VecDeque::new();
    }
}

fn remember(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}

/// Maximum number of unread bytes of one direction. It equals the size of one read from a data
/// connection.
pub const CAPACITY_BYTES: usize = 256 * 1024;
