//! Handles with which an application uses a stream, and the state that they share with the driver.

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
/// If the handle is dropped without [`finish`](Self::finish), the stream is reset with code 0.
#[derive(Debug)]
pub struct SendStream {
    shared: Arc<SendShared>,
}

/// Receiving half of a stream.
///
/// If the handle is dropped before the end of the stream, the peer receives a request with code 0
/// to stop sending.
#[derive(Debug)]
pub struct RecvStream {
    shared: Arc<RecvShared>,
}

/// Reason why a stream failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The peer reset the stream.
    #[error("the peer reset the stream (code {code})")]
    Reset {
        /// Reason code from the peer.
        code: u32,
    },
    /// The peer no longer reads the stream.
    #[error("the peer stopped reading (code {code})")]
    Stopped {
        /// Reason code from the peer.
        code: u32,
    },
    /// The peer has restarted, so the stream no longer exists at the peer.
    #[error("the peer restarted")]
    PeerRestarted,
    /// No packet arrived from the peer within the idle timeout.
    #[error("the peer has been silent for {} s", silent_for.as_secs())]
    LinkLost {
        /// Time since the last datagram of the peer.
        silent_for: Duration,
    },
    /// The end record of the stream does not match the bytes that arrived.
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

/// Maximum number of queued bytes of one stream. At this number, a further write by the application
/// waits. Even with very small writes, the queue uses at most about twice this number of bytes of
/// memory.
const SEND_QUEUE_MAX: usize = 512 * 1024;
/// Maximum number of unread bytes of one stream. At this number, the driver reads no more bytes of
/// the stream. Even with very small slots, the queue uses at most about twice this number of bytes
/// of memory.
const RECV_QUEUE_MAX: usize = 1024 * 1024;

/// Maximum number of bytes that one read merges from several pieces. A reader that was woken
/// recently is woken again at once only if this number of bytes is available. Large reads are
/// useful because the reader writes to a socket after each read.
const READ_BYTES: usize = 64 * 1024;

/// Maximum number of bytes in the queue of one stream. The queues of all streams together may use a
/// fixed fraction of the link's memory in each direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueShare {
    bytes: usize,
}

impl QueueShare {
    /// Returns the share of one stream if the link has `streams` streams and `memory_max` bytes of
    /// memory.
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

/// Divisor of the link's memory. In each direction, the queues between applications and the link
/// may together use the quotient.
const QUEUES_SHARE: u64 = 16;
/// Minimum share of one stream in bytes. A smaller share would cause too many transfers between
/// queue and link, each of which costs a lock and a wake-up.
const QUEUE_SHARE_MIN: usize = 16 * 1024;

impl SendStream {
    /// Returns the key of the stream.
    pub fn key(&self) -> StreamKey {
        self.shared.key
    }

    pub(super) fn new(shared: Arc<SendShared>) -> Self {
        Self { shared }
    }

    /// Queues `data`, and waits while the queue of this stream is full. The method is cancel safe:
    /// after a cancellation, no bytes have been queued.
    ///
    /// Small writes that wait together in the queue are merged by copying. A large write keeps its
    /// buffer alive, even if `data` is only a part of the buffer.
    ///
    /// # Errors
    /// Returns an error if the stream has failed. In that case no byte of `data` will arrive.
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

    /// Ends the stream after the bytes written so far. The peer's read returns `None` after the
    /// last byte, if byte count and hash match.
    pub fn finish(&mut self) {
        self.shared.lock().finish = true;
        self.shared.ring();
    }

    /// Writes `last` and ends the stream. The bytes are queued even if the queue is full.
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

    /// Drops all bytes that have not arrived. The peer's next read returns [`StreamError::Reset`],
    /// even if the peer has unread bytes in its queue.
    pub fn reset(&mut self, code: u32) {
        let mut state = self.shared.lock();
        state.reset.get_or_insert(code);
        state.queue.clear();
        state.queued_bytes = 0;
        drop(state);
        self.shared.ring();
    }

    /// Waits until the peer's application has read the stream to its end. Without a call of
    /// [`finish`](Self::finish), the method returns only if the stream fails. It is cancel safe.
    ///
    /// # Errors
    /// Returns an error if the stream ends in another way, such as [`StreamError::Stopped`].
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

    /// Returns the next bytes in order, or `None` at the end of the stream. `None` also means that
    /// the byte count and the hash of the stream were verified. The method is cancel safe.
    ///
    /// # Errors
    /// Returns an error if the stream ends in another way. The bytes read so far are then
    /// incomplete.
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

    /// Waits until the stream has failed, and returns the error. No more bytes can then be read.
    /// The method is cancel safe.
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

    /// Requests that the peer stops sending. The peer's writes then fail with
    /// [`StreamError::Stopped`].
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

/// State that a sending handle and the driver share.
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
    /// Share of this stream in the memory for queues.
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
    /// Takes the waker of a waiting write if the write may continue.
    ///
    /// The woken write takes the lock at once, so the caller must release the lock before it wakes
    /// the write. A write waits until half of the queue is free, so that one wake-up permits
    /// several writes.
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

/// State that a receiving handle and the driver share.
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
    /// Share of this stream in the memory for queues.
    pub(super) queue_share: QueueShare,
    pub(super) end: Option<Result<(), StreamError>>,
    pub(super) stop: Option<u32>,
    /// Whether the application has dropped its handle.
    pub(super) is_dropped: bool,
    /// Whether the driver stopped reading because the queue is full.
    pub(super) is_held_back: bool,
    pub(super) waker: Option<Waker>,
    /// Time at which a waiting read was last woken.
    woken: Option<Instant>,
    /// Whether the wake-up of a waiting read is delayed, so that more bytes can arrive.
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

    /// Takes the waker of a waiting read if bytes are available. The woken read takes the lock at
    /// once, so the caller must release the lock before it wakes the read.
    pub(super) fn take_reader(&mut self, now: Instant) -> Option<Waker> {
        let waker = self.waker.take_if(|_| !self.queue.is_empty())?;
        self.woken = Some(now);
        Some(waker)
    }

    /// Returns the time until which a waiting read should wait for more bytes. Returns `None` if
    /// the read must be woken now. A read waits only if its last wake-up was less than `pause` ago
    /// and few bytes are available.
    pub(super) fn joins_until(&self, pause: Duration, now: Instant) -> Option<Instant> {
        let is_much = self.queued_bytes >= READ_BYTES.min(self.queue_max() / 2);
        let until = self.woken? + pause;
        (!is_much && self.waker.is_some() && now < until).then_some(until)
    }

    /// Ends the stream, so no more bytes arrive. An error drops the queued bytes, which are
    /// incomplete anyway.
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

    /// Returns a sending handle without a running driver.
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
