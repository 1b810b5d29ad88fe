//! A question before each step that cannot be undone: whether this process may still take the step.
//!
//! Several processes may work on the same files, one after another. A process that was suspended, or cut off from the
//! others, may go on with work that another one has taken over. It asks immediately before a file gets its name, and before
//! anything is removed.

use std::{fmt, io, pin::Pin, sync::Arc};

use tokio::runtime::Handle;

/// Another process has taken the work over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another process has taken this work over")]
pub struct Fenced;

/// The answer, as soon as it is known.
pub type Answer = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Keeps a job from changes that it may no longer make.
#[derive(Clone)]
pub struct Fence(Arc<dyn Fn() -> Answer + Send + Sync>);

impl Fence {
    /// A fence that calls `ask` before each step. Each call asks anew.
    pub fn new(ask: impl Fn() -> Answer + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    /// Whether the next step may be taken.
    pub(crate) async fn allows(&self) -> bool {
        (self.0)().await
    }

    /// The same on a thread that may block.
    pub(crate) fn pass_blocking(&self) -> io::Result<()> {
        match Handle::current().block_on(self.allows()) {
            true => Ok(()),
            false => Err(io::Error::other(Fenced)),
        }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").finish_non_exhaustive()
    }
}
