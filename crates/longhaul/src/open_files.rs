//! How many files and sockets a process may have open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// Takes up to `most` file descriptors, as far as the system grants them: most systems begin with 1024. Commands that the process
/// runs inherit the limit.
pub(crate) fn raise_limit(most: u64) {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        let raised = hard.min(most).max(soft);
        setrlimit(Resource::RLIMIT_NOFILE, raised, hard)
    });
    if let Err(error) = raised {
        warn!(%error, "the limit on open files stays as it is");
    }
}

/// Enough for who moves files: each small file that is under way has a port of its own. Commands for files may go through all
/// descriptors that they could have, so it is no more.
pub(crate) const MOVERS_MAX: u64 = 16_384;
