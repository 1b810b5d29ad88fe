//! Blocking work, which runs concurrently with the lanes.

use tokio::task::spawn_blocking;

use super::failure::TaskError;

/// Runs blocking work on a thread of its own.
pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    what: String,
) -> Result<T, TaskError> {
    let done = spawn_blocking(work)
        .await
        .expect("disk work does not panic");
    done.map_err(TaskError::disk(what))
}
