//! Fence: a check before each irreversible step that this process may still take it.
//!
//! Several processes may work on the same files, one after another. A suspended or disconnected
//! process may continue with work that another one has taken over. It therefore asks immediately
//! before a file gets its name, and before each removal. The answer may take as long as an outage,
//! so no thread waits for it.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Mutex;

/// An error: another process has taken the work over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another process has taken over this work")]
pub struct FencedError;

/// The answer, as soon as it is known.
pub type FenceFuture = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Guard that keeps a job from changes for which it is no longer responsible.
#[derive(Clone)]
pub struct Fence(Arc<FenceChecks>);

/// Questions of a fence, one at a time.
struct FenceChecks {
    ask: Box<dyn Fn() -> FenceFuture + Send + Sync>,
    /// Number of queries begun.
    begun: AtomicU64,
    /// The last query with an answer.
    answered: Mutex<FenceAnswer>,
}

#[derive(Default)]
struct FenceAnswer {
    number: u64,
    allows: bool,
}

impl Fence {
    /// Creates a fence that calls `ask` before each step. One query serves all steps that wait when
    /// it begins.
    pub fn new(ask: impl Fn() -> FenceFuture + Send + Sync + 'static) -> Self {
        Self(Arc::new(FenceChecks {
            ask: Box::new(ask),
            begun: AtomicU64::new(0),
            answered: Mutex::default(),
        }))
    }

    /// Whether this process may still take an irreversible step. The query begins after the call.
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

    /// Creates a fence whose answers each take a permit. Only the first answer allows the step.
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
