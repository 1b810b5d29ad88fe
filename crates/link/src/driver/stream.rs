//! Halves of a stream as an application holds them, and the state that they share with the driver.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use units::ByteCount;

use super::Doorbell;
use crate::{LostReason, StreamKey, stream::byte_queue::ByteQueue};

/// Sending half of a stream.
///
/// A half that is dropped without [`finish`](Self::finish) resets the stream with code 0.
#[derive(Debug)]
pub struct SendStream {
    shared: Arc<SendShared>,
}

/// Receiving half of a stream.
///
/// A half that is dropped before the end stops the peer's sending, with code 0.
#[derive(Debug)]
pub struct RecvStream {
    shared: Arc<RecvShared>,
}

/// Reason why a stream failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The peer abandoned the stream.
    #[error("the peer reset the stream (code {code})")]
    Reset {
        /// The peer's reason.
        code: u32,
    },
    /// The peer no longer reads the stream.
    #[error("the peer stopped reading (code {code})")]
    Stopped {
        /// The peer's reason.
        code: u32,
    },
    /// The peer runs as a new instance without this stream.
    #[error("the peer restarted")]
    PeerRestarted,
    /// No packet came from the peer for the idle timeout.
    #[error("the peer has been silent for {} s", silent_for.as_secs())]
    LinkLost {
        /// Time since the last datagram of the peer.
        silent_for: Duration,
    },
    /// The end of the stream does not match the bytes that arrived.
    #[error("byte count or hash at the end of the stream do not match the received bytes")]
    Corrupt,
    /// The connection was closed.
    #[error("the link was closed")]
    Closed,
}

impl From<LostReason> for StreamError {
    fn from(reason: LostReason) -> Self {
        match reason {
            LostReason::PeerRestarted => Self::PeerRestarted,
            LostReason::Silence(silent_for) => Self::LinkLost { silent_for },
            LostReason::Closed => Self::Closed,
        }
    }
}

/// Bytes that an application may have queued in one stream before a write waits. They take at most
/// about twice the memory, however small the writes are.
const SEND_QUEUE_MAX: usize = 512 * 1024;
/// Bytes that wait for the application in one stream before the driver stops reading for it. They
/// take at most about twice the memory, however small the arriving slots are.
const RECV_QUEUE_MAX: usize = 1024 * 1024;

/// Maximum number of bytes of a read of joined pieces, and minimum number of bytes for which a
/// reader is woken. For each read the reader writes to a socket.
const READ_BYTES: usize = 64 * 1024;

/// Bytes that one stream may have in its queue. All streams together have a fraction of the link's
/// memory, in each direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueShare {
    bytes: usize,
}

impl QueueShare {
    /// Returns the share of each of `streams` streams of a link with `memory_max`.
    pub(super) fn new(memory_max: ByteCount, streams: usize) -> Self {
        let all = usize::try_from(memory_max.bytes() / QUEUES_SHARE).unwrap_or(usize::MAX);
        Self {
            bytes: (all / streams.max(1)).max(QUEUE_SHARE_MIN),
        }
    }

    fn of(self, bound: usize) -> usize {
        bound.min(self.bytes)
    }
}

impl Default for QueueShare {
    fn default() -> Self {
        Self { bytes: usize::MAX }
    }
}

/// Divisor of the link's memory that gives the part for the queues between applications and the
/// link, in each direction.
const QUEUES_SHARE: u64 = 16;
/// Least share, since each transfer between queue and link costs a lock and a wake-up.
const QUEUE_SHARE_MIN: usize = 16 * 1024;

impl SendStream {
    /// Returns the name of the stream.
    pub fn key(&self) -> StreamKey {
        self.shared.key
    }

    pub(super) fn new(shared: Arc<SendShared>) -> Self {
        Self { shared }
    }

    /// Queues `data`, and waits while the queue of this stream is full. Cancel safe: after a
    /// cancellation no bytes were queued.
    ///
    /// Small writes are copied together where they wait for each other. A large write keeps its
    /// buffer, even if it is a part of it.
    ///
    /// # Errors
    /// If the stream has failed; no bytes of `data` will arrive.
    pub async fn write(&mut self, data: Bytes) -> Result<(), StreamError> {
        let mut data = Some(data);
        poll_fn(|context| {
            let mut state = self.shared.lock();
            if let Some(error) = &state.error {
                return Poll::Ready(Err(error.clone()));
            }
            if state.finish || state.reset.is_some() {
                return Poll::Ready(Err(StreamError::Closed));
            }
            if state.queued_bytes >= state.queue_max() {
                state.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            let data = data
                .take()
                .expect("a future is not polled after it is ready");
            state.queued_bytes += data.len();
            state.queue.push(data);
            drop(state);
            self.shared.ring();
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Ends the stream: the peer reads `None` after the last byte, once count and hash agree.
    pub fn finish(&mut self) {
        self.shared.lock().finish = true;
        self.shared.ring();
    }

    /// Ends the stream after `last`, which is queued even if the queue is full.
    pub fn finish_with(&mut self, last: Bytes) {
        {
            let mut state = self.shared.lock();
            if state.error.is_none() && !state.finish && state.reset.is_none() {
                state.queued_bytes += last.len();
                state.queue.push(last);
            }
        }
        self.finish();
    }

    /// Abandons undelivered bytes. The peer reads [`StreamError::Reset`] before any queued bytes.
    pub fn reset(&mut self, code: u32) {
        let mut state = self.shared.lock();
        state.reset.get_or_insert(code);
        state.queue.clear();
        state.queued_bytes = 0;
        drop(state);
        self.shared.ring();
    }

    /// Waits until the peer's application has read everything including the end. Before
    /// [`finish`](Self::finish) it returns only if the stream fails. Cancel safe.
    ///
    /// # Errors
    /// Any other end of the stream, such as [`StreamError::Stopped`].
    pub async fn closed(&mut self) -> Result<(), StreamError> {
        poll_fn(|context| {
            let mut state = self.shared.lock();
            if state.is_done {
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = &state.error {
                return Poll::Ready(Err(error.clone()));
            }
            state.closed_waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if !state.finish {
            state.reset.get_or_insert(0);
        }
        drop(state);
        self.shared.ring();
    }
}

impl RecvStream {
    pub(super) fn new(shared: Arc<RecvShared>) -> Self {
        Self { shared }
    }

    /// Returns the next bytes in order. `None` at the end, which is verified. Cancel safe.
    ///
    /// # Errors
    /// Any other end of the stream. The bytes before it are not complete.
    pub async fn read(&mut self) -> Result<Option<Bytes>, StreamError> {
        poll_fn(|context| {
            let mut state = self.shared.lock();
            if let Some(data) = state.queue.pop_joined(READ_BYTES) {
                state.queued_bytes -= data.len();
                let is_hungry = state.is_held_back && state.queued_bytes <= state.queue_max() / 2;
                drop(state);
                if is_hungry {
                    self.shared.ring();
                }
                return Poll::Ready(Ok(Some(data)));
            }
            match &state.end {
                Some(Ok(())) => Poll::Ready(Ok(None)),
                Some(Err(error)) => Poll::Ready(Err(error.clone())),
                None => {
                    state.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Resolves once the stream has failed, so that no more bytes can be read. Cancel safe.
    pub async fn failed(&mut self) -> StreamError {
        poll_fn(|context| {
            let mut state = self.shared.lock();
            if let Some(Err(error)) = &state.end {
                return Poll::Ready(error.clone());
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Stops the peer's sending. Its writes fail with [`StreamError::Stopped`].
    pub fn stop(&mut self, code: u32) {
        let mut state = self.shared.lock();
        if state.end.is_none() {
            state.stop.get_or_insert(code);
        }
        drop(state);
        self.shared.ring();
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        self.stop(0);
        self.shared.lock().is_dropped = true;
        self.shared.ring();
    }
}

/// State that a sending half and the driver share.
#[derive(Debug)]
pub(super) struct SendShared {
    pub(super) key: StreamKey,
    state: Mutex<SendHandleState>,
    bell: Arc<Doorbell>,
}

#[derive(Debug, Default)]
pub(super) struct SendHandleState {
    pub(super) queue: ByteQueue,
    pub(super) queued_bytes: usize,
    /// Share of the stream in the memory for such queues.
    pub(super) queue_share: QueueShare,
    pub(super) finish: bool,
    pub(super) reset: Option<u32>,
    pub(super) is_done: bool,
    pub(super) error: Option<StreamError>,
    waker: Option<Waker>,
    closed_waker: Option<Waker>,
}

impl SendShared {
    pub(super) fn new(key: StreamKey, bell: Arc<Doorbell>) -> Arc<Self> {
        Arc::new(Self {
            key,
            state: Mutex::default(),
            bell,
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SendHandleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        self.bell.ring(self.key);
    }
}

impl SendHandleState {
    /// Takes the waker of a waiting write that may continue.
    ///
    /// The caller must release the lock before it wakes the write, which takes the lock at once.
    /// The write waits until half of the queue is free, so one wake-up serves many blocks.
    pub(super) fn take_writer(&mut self) -> Option<Waker> {
        let low = self.queue_max() / 2;
        self.waker.take_if(|_| self.queued_bytes <= low)
    }

    fn queue_max(&self) -> usize {
        self.queue_share.of(SEND_QUEUE_MAX)
    }

    pub(super) fn end(&mut self, result: Result<(), StreamError>) {
        match result {
            Ok(()) => self.is_done = true,
            Err(error) => {
                if !self.is_done {
                    self.error.get_or_insert(error);
                }
            }
        }
        self.queue.clear();
        self.queued_bytes = 0;
        self.waker.take().into_iter().for_each(Waker::wake);
        self.closed_waker.take().into_iter().for_each(Waker::wake);
    }
}

/// State that a receiving half and the driver share.
#[derive(Debug)]
pub(super) struct RecvShared {
    pub(super) key: StreamKey,
    state: Mutex<RecvHandleState>,
    bell: Arc<Doorbell>,
}

#[derive(Debug, Default)]
pub(super) struct RecvHandleState {
    pub(super) queue: ByteQueue,
    pub(super) queued_bytes: usize,
    /// Share of the stream in the memory for such queues.
    pub(super) queue_share: QueueShare,
    pub(super) end: Option<Result<(), StreamError>>,
    pub(super) stop: Option<u32>,
    /// Whether the application has dropped its handle.
    pub(super) is_dropped: bool,
    /// Whether the driver stopped reading because the queue is full.
    pub(super) is_held_back: bool,
    pub(super) waker: Option<Waker>,
    /// Time at which a read was last woken.
    woken: Option<Instant>,
    /// Whether the driver has more bytes to read than the reader was woken for.
    pub(super) is_joining: bool,
}

impl RecvShared {
    pub(super) fn new(key: StreamKey, bell: Arc<Doorbell>) -> Arc<Self> {
        Arc::new(Self {
            key,
            state: Mutex::default(),
            bell,
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RecvHandleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        self.bell.ring(self.key);
    }
}

impl RecvHandleState {
    pub(super) fn queue_max(&self) -> usize {
        self.queue_share.of(RECV_QUEUE_MAX)
    }

    pub(super) fn push(&mut self, data: Bytes) {
        self.queued_bytes += data.len();
        self.queue.push(data);
    }

    /// Takes the waker of a waiting read that may continue. The caller must release the lock before
    /// it wakes the read, which takes the lock at once.
    pub(super) fn take_reader(&mut self, now: Instant) -> Option<Waker> {
        let waker = self.waker.take_if(|_| !self.queue.is_empty())?;
        self.woken = Some(now);
        Some(waker)
    }

    /// Returns the time until which a read should wait for more bytes. It was woken within `pause`,
    /// and has few bytes.
    pub(super) fn joins_until(&self, pause: Duration, now: Instant) -> Option<Instant> {
        let is_much = self.queued_bytes >= READ_BYTES.min(self.queue_max() / 2);
        let until = self.woken? + pause;
        (!is_much && self.waker.is_some() && now < until).then_some(until)
    }

    /// Ends the stream: no more bytes arrive. An error overtakes queued bytes, which are incomplete
    /// anyway.
    pub(super) fn end(&mut self, result: Result<(), StreamError>) {
        if self.end.is_none() {
            if result.is_err() {
                self.queue.clear();
                self.queued_bytes = 0;
            }
            self.end = Some(result);
        }
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a sending half whose driver never runs.
    fn undriven() -> (SendStream, Arc<SendShared>) {
        let bell = Arc::new(Doorbell {
            commands: Mutex::new(std::sync::mpsc::channel().0),
            is_asleep: false.into(),
            event: nix::sys::eventfd::EventFd::new().expect("the system has an eventfd"),
        });
        let key = StreamKey {
            connection: Default::default(),
            stream: 0,
        };
        let shared = SendShared::new(key, bell);
        (SendStream::new(shared.clone()), shared)
    }

    #[tokio::test]
    async fn single_bytes_that_wait_to_be_sent_are_few_pieces() {
        let (mut send, shared) = undriven();
        for _ in 0..SEND_QUEUE_MAX {
            send.write(Bytes::from_static(b"x")).await.expect("open");
        }
        let mut state = shared.lock();
        let mut pieces = 0;
        let mut bytes = 0;
        while let Some(piece) = state.queue.pop_front() {
            pieces += 1;
            bytes += piece.len();
        }
        drop(state);
        assert_eq!(bytes, SEND_QUEUE_MAX, "nothing is lost");
        assert!(pieces <= SEND_QUEUE_MAX / 2048, "{pieces} pieces");
    }

    #[tokio::test]
    async fn empty_writes_leave_nothing() {
        let (mut send, shared) = undriven();
        for _ in 0..1000 {
            send.write(Bytes::new()).await.expect("open");
        }
        let is_empty = shared.lock().queue.is_empty();
        assert!(is_empty);
    }

    #[test]
    fn single_bytes_that_nobody_reads_are_few_pieces() {
        let mut state = RecvHandleState::default();
        for _ in 0..RECV_QUEUE_MAX {
            state.push(Bytes::copy_from_slice(b"x"));
        }
        assert_eq!(state.queued_bytes, RECV_QUEUE_MAX);
        let mut pieces = 0;
        while state.queue.pop_front().is_some() {
            pieces += 1;
        }
        assert!(pieces <= RECV_QUEUE_MAX / 2048, "{pieces} pieces");
    }

    #[test]
    fn a_reader_is_woken_at_once_after_a_pause_and_then_for_much() {
        const PAUSE: Duration = Duration::from_millis(4);
        #[expect(clippy::disallowed_methods, reason = "any origin does")]
        let start = Instant::now();
        let mut state = RecvHandleState::default();
        let waits = |state: &mut RecvHandleState| state.waker = Some(Waker::noop().clone());
        waits(&mut state);
        state.push(Bytes::from_static(b"first"));
        assert_eq!(state.joins_until(PAUSE, start), None);
        assert!(state.take_reader(start).is_some());
        waits(&mut state);
        let soon = start + PAUSE / 2;
        assert_eq!(state.joins_until(PAUSE, soon), Some(start + PAUSE));
        assert_eq!(state.joins_until(PAUSE, start + PAUSE), None);
        state.push(vec![0; READ_BYTES].into());
        assert_eq!(state.joins_until(PAUSE, soon), None);
    }
}
