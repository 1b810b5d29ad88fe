//! Limit on the number of files and sockets that a process may have open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// Raises the limit to `most`, or to the highest value that the system permits. The usual initial
/// limit is 1024. Commands that this process runs inherit the limit.
pub(crate) fn raise_limit(most: u64) {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        let raised = hard.min(most).max(soft);
        setrlimit(Resource::RLIMIT_NOFILE, raised, hard)
    });
    if let Err(error) = raised {
        warn!(%error, "the limit on open files stays as it is");
    }
}

/// Limit on open files for a process that copies files. Each small file uses a socket while it is
/// transferred. A higher limit would slow down user commands that iterate over all possible file
/// descriptors.
pub(crate) const MOVERS_MAX: u64 = 16_384;
