//! Limit of the files and sockets that a process may have open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// Raises the limit to at most `most`, as far as the system permits. Most systems begin with 1024.
/// Commands that the process runs inherit the limit.
pub(crate) fn raise_limit(most: u64) {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        let raised = hard.min(most).max(soft);
        setrlimit(Resource::RLIMIT_NOFILE, raised, hard)
    });
    if let Err(error) = raised {
        warn!(%error, "the limit on open files stays as it is");
    }
}

/// Limit for a mover, in which each running small file has a port of its own. Commands for files
/// may iterate over all possible descriptors, so the limit is no higher.
pub(crate) const MOVERS_MAX: u64 = 16_384;
