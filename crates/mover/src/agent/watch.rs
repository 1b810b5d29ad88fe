//! Watches a local folder and all its subfolders for changes.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode},
};

/// A watch of a folder. The watch ends when this value is dropped.
#[derive(Debug)]
pub(super) struct FolderWatch {
    _watcher: RecommendedWatcher,
    is_lost: Arc<AtomicBool>,
}

impl FolderWatch {
    /// Calls `notice` for each change in `folder` and its subfolders.
    ///
    /// # Errors
    /// An error if the folder does not exist, or if the operating system permits no further
    /// watches.
    pub(super) fn new(
        folder: &Path,
        notice: impl Fn() + Send + 'static,
    ) -> Result<Self, notify::Error> {
        let is_lost = Arc::new(AtomicBool::new(false));
        let (lost, root) = (is_lost.clone(), folder.to_owned());
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            match &event {
                Ok(event) if is_removal(event, &root) => lost.store(true, Ordering::Relaxed),
                Ok(event) if !may_bring_files(event) => return,
                // An error counts as a change, because events may be lost.
                Ok(_) | Err(_) => {}
            }
            notice();
        })?;
        watcher.watch(folder, RecursiveMode::Recursive)?;
        Ok(Self {
            _watcher: watcher,
            is_lost,
        })
    }

    /// Returns whether the folder itself was removed or renamed. A new folder with the same name is
    /// not watched.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }
}

/// Returns whether an event may mean that files have appeared or grown. Other events are ignored,
/// because the mover itself reads and removes files.
fn may_bring_files(event: &Event) -> bool {
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) | EventKind::Remove(_) => event.need_rescan(),
        EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Other => true,
    }
}

fn is_removal(event: &Event, root: &PathBuf) -> bool {
    use notify::event::ModifyKind;
    let goes = matches!(
        event.kind,
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))
    );
    goes && event.paths.first() == Some(root)
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::mpsc, time::Duration};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);
    const SILENCE: Duration = Duration::from_millis(200);

    #[test]
    fn a_file_that_comes_is_noticed_and_one_that_is_read_or_removed_is_not() {
        let folder = tempfile::tempdir().expect("room");
        fs::create_dir(folder.path().join("below")).expect("room");
        let (noticed, notices) = mpsc::channel();
        let watch = FolderWatch::new(folder.path(), move || {
            let _ = noticed.send(());
        });
        let watch = watch.expect("watched");
        let file = folder.path().join("below/a");
        fs::write(&file, b"x").expect("room");
        notices.recv_timeout(TIMEOUT).expect("noticed");
        while notices.recv_timeout(SILENCE).is_ok() {}
        fs::read(&file).expect("there");
        fs::remove_file(&file).expect("there");
        assert!(notices.recv_timeout(SILENCE).is_err(), "nothing has come");
        assert!(!watch.is_lost());
        fs::remove_dir_all(folder.path()).expect("there");
        notices.recv_timeout(TIMEOUT).expect("noticed");
        while notices.recv_timeout(SILENCE).is_ok() {}
        assert!(watch.is_lost());
    }

    #[test]
    fn a_folder_that_is_not_there_cannot_be_watched() {
        let folder = tempfile::tempdir().expect("room");
        assert!(FolderWatch::new(&folder.path().join("missing"), || {}).is_err());
    }
}
