//! Transfer of bytes between stream handles and the endpoint.

use std::{task::Waker, time::Instant};

use super::{
    IncomingStream, deferred_wakes,
    run::{Driver, StreamEntry},
    stream::{QueueShare, RecvShared, RecvStream, SendShared, SendStream, StreamError},
};
use crate::{PeerId, StreamClass, StreamKey, StreamRead};

/// Maximum number of bytes in one read from the endpoint to a handle.
const READ_BYTES: usize = 256 * 1024;

impl Driver {
    pub(super) fn accept(&mut self, key: StreamKey, peer: PeerId, class: StreamClass) {
        let (send, recv) = self.add_stream(key, class);
        // If the queue refuses the stream, its handles are dropped, and the drop resets the stream.
        if let Err(error) = self.incoming.try_send(IncomingStream {
            peer,
            class,
            send,
            recv,
        }) {
            tracing::debug!(%error, "incoming stream refused");
        }
    }

    pub(super) fn add_stream(
        &mut self,
        key: StreamKey,
        class: StreamClass,
    ) -> (SendStream, RecvStream) {
        let send = SendShared::new(key, self.bell.clone());
        let recv = RecvShared::new(key, self.bell.clone());
        let share = QueueShare::new(self.config.memory_max, self.streams.len() + 1);
        send.lock().queue_share = share;
        recv.lock().queue_share = share;
        let entry = StreamEntry {
            class,
            send: send.clone(),
            recv: recv.clone(),
            send_over: false,
            recv_over: false,
        };
        self.streams.insert(key, entry);
        (SendStream::new(send), RecvStream::new(recv))
    }

    /// Executes the requests in the state that a handle shares with the driver.
    pub(super) fn look(&mut self, key: StreamKey, now: Instant) {
        self.write(key);
        let Some(entry) = self.streams.get_mut(&key) else {
            return;
        };
        let mut recv = entry.recv.lock();
        let stop = recv.stop.take();
        let resume = recv.is_held_back && recv.queued_bytes <= recv.queue_max() / 2;
        let is_dropped = recv.is_dropped;
        drop(recv);
        if is_dropped {
            entry.recv_over = true;
        }
        if let Some(code) = stop {
            entry.recv_over = true;
            self.endpoint.stop(key, code);
        } else if resume {
            self.read(key, now);
        }
        self.forget_if_over(key);
    }

    /// Returns the maximum number of bytes that the queue of one stream may hold now.
    fn queue_share(&self) -> QueueShare {
        QueueShare::new(self.config.memory_max, self.streams.len())
    }

    /// Moves bytes from a handle to the endpoint, as far as the endpoint accepts them.
    fn write(&mut self, key: StreamKey) {
        let share = self.queue_share();
        let Some(entry) = self.streams.get_mut(&key).filter(|entry| !entry.send_over) else {
            return;
        };
        let mut state = entry.send.lock();
        state.queue_share = share;
        if let Some(code) = state.reset {
            drop(state);
            entry.send_over = true;
            self.blocked.remove(&key);
            self.endpoint.reset(key, code);
            self.forget_if_over(key);
            return;
        }
        while !state.queue.is_empty() && self.endpoint.writable(key) > 0 {
            let data = state.queue.pop_front().expect("the queue is not empty");
            state.queued_bytes -= data.len();
            self.endpoint.write(key, data);
        }
        let writer = state.take_writer();
        let (is_blocked, is_finished) = (!state.queue.is_empty(), state.finish);
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
        if is_blocked {
            self.blocked.insert(key);
            return;
        }
        self.blocked.remove(&key);
        if is_finished {
            self.endpoint.finish(key);
        }
    }

    /// Moves bytes of each blocked stream if the endpoint has free space for that stream again. The
    /// method does not lock the state of other streams, because their writers need the same locks.
    pub(super) fn write_blocked(&mut self) {
        let blocked = self.blocked.iter().copied();
        let roomy: Vec<_> = blocked
            .filter(|key| self.endpoint.writable(*key) > 0)
            .collect();
        for key in roomy {
            self.write(key);
        }
    }

    /// Moves bytes from the endpoint to a handle, as far as the handle's queue has free space.
    pub(super) fn read(&mut self, key: StreamKey, now: Instant) {
        let share = self.queue_share();
        let Some(entry) = self.streams.get_mut(&key).filter(|entry| !entry.recv_over) else {
            return;
        };
        let mut state = entry.recv.lock();
        state.queue_share = share;
        let result = loop {
            state.is_held_back = state.queued_bytes >= state.queue_max();
            if state.is_held_back {
                break None;
            }
            let room = state.queue_max() - state.queued_bytes;
            let len_max = READ_BYTES.min(room);
            match self.endpoint.read(key, len_max, now) {
                StreamRead::Data(data) => state.push(data),
                StreamRead::Blocked => break None,
                StreamRead::End => break Some(Ok(())),
                StreamRead::Corrupt => break Some(Err(StreamError::Corrupt)),
                StreamRead::Reset(code) => break Some(Err(StreamError::Reset { code })),
                StreamRead::Gone => break Some(Err(StreamError::Closed)),
            }
        };
        let pause = deferred_wakes::pause(entry.class, self.endpoint.turn(now));
        if let Some(until) = pause.and_then(|pause| state.joins_until(pause, now)) {
            let is_held = std::mem::replace(&mut state.is_joining, true);
            drop(state);
            if !is_held {
                self.deferred_wakes.hold(key, until);
            }
        } else {
            let reader = state.take_reader(now);
            drop(state);
            reader.into_iter().for_each(Waker::wake);
        }
        if let Some(result) = result {
            self.end_recv(key, result);
        }
    }

    /// Wakes all readers whose wake-up was delayed, if the first of them is due.
    pub(super) fn wake_readers(&mut self, now: Instant) {
        for key in self.deferred_wakes.take_due(now) {
            if let Some(entry) = self.streams.get(&key) {
                let mut state = entry.recv.lock();
                state.is_joining = false;
                let reader = state.take_reader(now);
                drop(state);
                reader.into_iter().for_each(Waker::wake);
            }
        }
    }

    pub(super) fn end_send(&mut self, key: StreamKey, result: Result<(), StreamError>) {
        if let Some(entry) = self.streams.get_mut(&key) {
            entry.send_over = true;
            self.blocked.remove(&key);
            entry.send.lock().end(result);
            self.forget_if_over(key);
        }
    }

    pub(super) fn end_recv(&mut self, key: StreamKey, result: Result<(), StreamError>) {
        if let Some(entry) = self.streams.get_mut(&key) {
            entry.recv_over = true;
            entry.recv.lock().end(result);
            self.forget_if_over(key);
        }
    }

    fn forget_if_over(&mut self, key: StreamKey) {
        if self
            .streams
            .get(&key)
            .is_some_and(|entry| entry.send_over && entry.recv_over)
        {
            self.streams.remove(&key);
            self.blocked.remove(&key);
        }
    }
}
