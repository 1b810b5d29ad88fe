//! Batched syncs of folders. After the sync of a folder, the names of its files survive a power
//! cut.
//!
//! The sync of a file is complete once its folder and all new folders above it are synced. One sync
//! run handles all folders that are waiting. Files that arrive later wait for the next sync run.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, ErrorKind},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::oneshot,
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

/// Function that syncs a folder.
pub(super) type SyncFolder = dyn Fn(&[u8]) -> io::Result<()> + Send + Sync;

/// The folders and files that wait for a sync.
#[derive(Debug, Default)]
pub(super) struct SyncQueue(Mutex<PendingSyncs>);

#[derive(Debug, Default)]
struct PendingSyncs {
    folders: BTreeSet<Vec<u8>>,
    files: Vec<(Vec<u8>, oneshot::Sender<io::Result<()>>)>,
    is_running: bool,
}

impl SyncQueue {
    /// Records that an entry of a folder has changed, so that the folder needs a sync.
    pub(super) fn changed(&self, folder: &[u8]) {
        let mut waiting = self.0.lock().expect("nobody panics with it");
        waiting.folders.insert(folder.to_vec());
    }

    /// Waits until a folder and all folders that changed earlier are synced.
    ///
    /// # Errors
    /// An error of this folder, or of a folder that changed earlier.
    pub(super) async fn done(
        self: &Arc<Self>,
        folder: &[u8],
        sync: impl Fn(&[u8]) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<()> {
        let (answer, answered) = oneshot::channel();
        let is_first = {
            let mut waiting = self.0.lock().expect("nobody panics with it");
            waiting.folders.insert(folder.to_vec());
            waiting.files.push((folder.to_vec(), answer));
            !std::mem::replace(&mut waiting.is_running, true)
        };
        if is_first {
            tokio::spawn(self.clone().run(Arc::new(sync)));
        }
        answered
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the run has ended")))
    }

    async fn run(self: Arc<Self>, sync: Arc<SyncFolder>) {
        loop {
            #[allow(clippy::disallowed_methods, reason = "drives disks")]
            let begun = Instant::now();
            let (folders, files) = {
                let mut waiting = self.0.lock().expect("nobody panics with it");
                if waiting.files.is_empty() {
                    // If no file waits, changed folders stay in the queue until the next file
                    // requests a sync.
                    waiting.is_running = false;
                    return;
                }
                (
                    std::mem::take(&mut waiting.folders),
                    std::mem::take(&mut waiting.files),
                )
            };
            let sync = sync.clone();
            let synced = spawn_blocking(move || {
                let results = folders.into_iter().map(|it| {
                    let result = sync(&it);
                    (it, result)
                });
                results.collect::<BTreeMap<_, _>>()
            });
            let synced = synced.await.expect("disk work does not panic");
            let is_of_disk = |error: &&io::Error| {
                let is_gone =
                    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
                error.raw_os_error().is_some() && !is_gone
            };
            let failed = synced.iter().filter_map(|(folder, it)| {
                let error = it.as_ref().err().filter(is_of_disk)?;
                Some((folder, error))
            });
            let other = failed.clone().next().map(|it| it.1);
            for (folder, _) in failed {
                // This folder still needs a sync, and so do the folders below it.
                self.changed(folder);
            }
            for (folder, answer) in files {
                let result = match (&synced[&folder], other) {
                    (Err(error), _) | (Ok(()), Some(error)) => {
                        Err(io::Error::new(error.kind(), error.to_string()))
                    }
                    (Ok(()), None) => Ok(()),
                };
                // If the run was interrupted, the receiver was dropped.
                let _ = answer.send(result);
            }
            sleep_until(begun + INTERVAL).await;
        }
    }
}

/// Shortest time between two syncs. One sync serves many files, because the sync of a folder takes
/// some milliseconds.
const INTERVAL: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 20 });

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn many_files_share_a_sync_and_a_failed_folder_fails_them() {
        let syncs = Arc::new(SyncQueue::default());
        let count = Arc::new(AtomicUsize::new(0));
        let sync = |count: &Arc<AtomicUsize>| {
            let count = count.clone();
            move |folder: &[u8]| {
                count.fetch_add(1, Ordering::Relaxed);
                match folder {
                    b"bad" => Err(io::Error::from_raw_os_error(5)),
                    b"gone" => Err(ErrorKind::NotFound.into()),
                    _ => Ok(()),
                }
            }
        };
        let all = (0..1_000).map(|_| {
            let (syncs, sync) = (syncs.clone(), sync(&count));
            tokio::spawn(async move { syncs.done(b"good", sync).await })
        });
        for done in all.collect::<Vec<_>>() {
            done.await.expect("no panic").expect("synced");
        }
        assert!(count.load(Ordering::Relaxed) <= 100, "{count:?}");
        syncs.changed(b"gone");
        assert!(syncs.done(b"good", sync(&count)).await.is_ok());
        assert!(syncs.done(b"gone", sync(&count)).await.is_err());
        syncs.changed(b"bad");
        for _ in 0..2 {
            assert!(syncs.done(b"good", sync(&count)).await.is_err());
        }
        let mended = |_: &[u8]| Ok(());
        tokio::time::sleep(INTERVAL * 20).await;
        assert!(syncs.done(b"good", mended).await.is_ok());
    }
}
