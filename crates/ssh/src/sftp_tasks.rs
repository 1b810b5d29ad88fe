//! State that the tasks of one half of an SFTP session share. There is one task for each direction
//! of the SSH channel, and one for each direction of the stream between the gateways. The near half
//! has further tasks for the time, and for the end of the client's requests.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

/// Task of one half of an SFTP session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SftpTask {
    /// Reads from the channel of the client or of the server.
    ChannelReader,
    /// Reads from the stream between the gateways.
    StreamReader,
    /// Writes to the channel of the client or of the server.
    ChannelWriter,
    /// Writes to the stream between the gateways.
    StreamWriter,
    /// Passes the current time to the session. The far half has no such task.
    Clock,
    /// Waits for the end of the client's requests. The far half has no such task.
    End,
}

/// State that the tasks of one half share. Each change of the state wakes the tasks.
#[derive(Debug)]
pub(crate) struct TaskState<S> {
    state: Mutex<S>,
    /// Notification of each task, in the order of [`SftpTask`].
    changes: [Notify; 6],
}

impl<S> TaskState<S> {
    pub(crate) fn new(state: S) -> Self {
        Self {
            state: Mutex::new(state),
            changes: [(); 6].map(|()| Notify::new()),
        }
    }

    /// Locks the state. The value is valid even if a thread has panicked.
    pub(crate) fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a condition holds. Only the task `task` may call the function.
    pub(crate) async fn wait_until(&self, task: SftpTask, holds: impl Fn(&S) -> bool) {
        while !holds(&self.lock()) {
            self.wait(task).await;
        }
    }

    /// Waits for the next change of the state. Only the task `task` may call the function.
    pub(crate) async fn wait(&self, task: SftpTask) {
        self.changes[task as usize].notified().await;
    }

    /// Wakes some tasks.
    pub(crate) fn wake(&self, tasks: &[SftpTask]) {
        for task in tasks {
            self.changes[*task as usize].notify_one();
        }
    }

    /// Changes the state, and wakes all tasks.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut S) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changes.iter().for_each(Notify::notify_one);
        changed
    }
}

/// Returns the bytes of one SSH packet from the pieces that `next` returns. The function joins
/// small pieces, because otherwise each piece would be a packet of its own.
pub(crate) fn join_pieces(mut next: impl FnMut() -> Option<Bytes>) -> Option<Bytes> {
    let first = next()?;
    if first.len() >= PACKET_BYTES {
        return Some(first);
    }
    let mut joined = BytesMut::with_capacity(2 * PACKET_BYTES);
    joined.extend_from_slice(&first);
    while joined.len() < PACKET_BYTES
        && let Some(piece) = next()
    {
        joined.extend_from_slice(&piece);
    }
    Some(joined.freeze())
}

/// Number of bytes in an SSH packet. OpenSSH accepts no larger packets.
const PACKET_BYTES: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[test]
    fn small_pieces_are_joined_and_large_ones_are_not_copied() {
        let large = Bytes::from(vec![7; PACKET_BYTES]);
        let mut pieces = vec![large.clone(), Bytes::from("b"), Bytes::from("a")];
        let joined = join_pieces(|| pieces.pop()).expect("bytes");
        assert_eq!(&joined[..3], [b'a', b'b', 7]);
        assert_eq!(joined.len(), PACKET_BYTES + 2);
        let mut pieces = vec![Bytes::from("a"), large.clone()];
        let first = join_pieces(|| pieces.pop()).expect("bytes");
        assert_eq!(first.as_ptr(), large.as_ptr());
        assert_eq!(join_pieces(|| pieces.pop()), Some(Bytes::from("a")));
        assert_eq!(join_pieces(|| pieces.pop()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_before_the_wait_is_not_missed() {
        let state = TaskState::new(0);
        state.change(|it| *it = 1);
        let limit = Duration::from_secs(1);
        let seen = state.wait_until(SftpTask::StreamReader, |it| *it == 1);
        timeout(limit, seen).await.expect("the state holds");
        timeout(limit, state.wait(SftpTask::StreamWriter))
            .await
            .expect("woken");
        let woken = timeout(limit, state.wait(SftpTask::StreamWriter)).await;
        assert!(woken.is_err(), "no further change");
        state.wake(&[SftpTask::StreamWriter]);
        timeout(limit, state.wait(SftpTask::StreamWriter))
            .await
            .expect("woken");
    }
}
