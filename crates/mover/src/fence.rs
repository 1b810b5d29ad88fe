//! Fence: a check whether this process may still take an irreversible step.
//!
//! Several processes may work on the same files, one after another. A process that was suspended or
//! disconnected may continue with work that another process has taken over. Therefore the process
//! queries the fence before it gives a file its final name, and before each removal. An answer may
//! take as long as a network outage, so the query is asynchronous.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Mutex;

/// An error: another process has taken over the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another process has taken over this work")]
pub struct FencedError;

/// Future that resolves to the answer of one query.
pub type FenceFuture = Pin<Box<dyn Future<Output = bool> + Send>>;

/// A fence: a check that stops a job's changes once another process has taken over the job.
#[derive(Clone)]
pub struct Fence(Arc<FenceChecks>);

/// Queries of a fence. At most one query is in progress at any time.
struct FenceChecks {
    ask: Box<dyn Fn() -> FenceFuture + Send + Sync>,
    /// Number of queries that have begun.
    begun: AtomicU64,
    /// The last query that has been answered.
    answered: Mutex<FenceAnswer>,
}

#[derive(Default)]
struct FenceAnswer {
    number: u64,
    allows: bool,
}

impl Fence {
    /// Creates a fence that calls `ask` before each step. One query serves all steps that were
    /// waiting when the query began.
    pub fn new(ask: impl Fn() -> FenceFuture + Send + Sync + 'static) -> Self {
        Self(Arc::new(FenceChecks {
            ask: Box::new(ask),
            begun: AtomicU64::new(0),
            answered: Mutex::default(),
        }))
    }

    /// Returns whether this process may still take an irreversible step. The answer comes from a
    /// query that begins after this call.
    pub(crate) async fn allows(&self) -> bool {
        let FenceChecks {
            ask,
            begun,
            answered,
        } = &*self.0;
        let before = begun.load(Ordering::SeqCst);
        let mut answered = answered.lock().await;
        if answered.number <= before {
            let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
            let allows = ask().await;
            *answered = FenceAnswer { number, allows };
        }
        answered.allows
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use tokio::sync::Semaphore;

    use super::*;

    /// Polls a future once.
    fn poll(step: &mut Pin<Box<impl Future<Output = bool>>>) -> Poll<bool> {
        step.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Creates a fence. Each answer waits for a permit of the semaphore. Only the first answer
    /// allows the step.
    fn slow_fence() -> (Fence, Arc<Semaphore>, Arc<AtomicU64>) {
        let (permits, asked) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU64::new(0)));
        let (take, count) = (permits.clone(), asked.clone());
        let fence = Fence::new(move || {
            let (take, number) = (take.clone(), count.fetch_add(1, Ordering::Relaxed));
            Box::pin(async move {
                take.acquire().await.expect("it stays open").forget();
                number == 0
            })
        });
        (fence, permits, asked)
    }

    #[test]
    fn one_question_serves_all_steps_that_wait_and_none_that_comes_later() {
        let (fence, permits, asked) = slow_fence();
        let mut first = Box::pin(fence.allows());
        assert!(poll(&mut first).is_pending());
        let mut later: Vec<_> = (0..1_000).map(|_| Box::pin(fence.allows())).collect();
        assert!(later.iter_mut().all(|it| poll(it).is_pending()));
        permits.add_permits(1);
        assert_eq!(poll(&mut first), Poll::Ready(true));
        assert!(poll(&mut later[0]).is_pending());
        permits.add_permits(1);
        for step in &mut later {
            assert_eq!(poll(step), Poll::Ready(false));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_question_that_is_broken_off_answers_no_step() {
        let (fence, permits, asked) = slow_fence();
        let mut first = Box::pin(fence.allows());
        assert!(poll(&mut first).is_pending());
        let mut second = Box::pin(fence.allows());
        assert!(poll(&mut second).is_pending());
        drop(first);
        permits.add_permits(1);
        assert_eq!(poll(&mut second), Poll::Ready(false));
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
