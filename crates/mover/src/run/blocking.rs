//! Blocking work for lanes. The work runs on other threads, so that lanes continue meanwhile.

use tokio::task::spawn_blocking;

use super::failure::TaskError;

/// Runs blocking disk work on a separate thread, and waits for the result.
pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    what: String,
) -> Result<T, TaskError> {
    let done = spawn_blocking(work)
        .await
        .expect("disk work does not panic");
    done.map_err(TaskError::disk(what))
}
