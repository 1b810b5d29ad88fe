//! Scratch folders.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::Context;

/// Makes a new folder in memory where the system has such a place, else among the temporary files. Whoever
/// asks removes it.
pub(crate) fn folder_in_memory(purpose: &str) -> anyhow::Result<PathBuf> {
    let memory = Path::new("/dev/shm");
    let found = fs::metadata(memory).is_ok_and(|found| found.is_dir());
    if found && let Ok(folder) = folder_in(memory, purpose) {
        return Ok(folder);
    }
    folder(purpose)
}

/// Makes a new folder under the system's folder for temporary files. Whoever asks removes it.
pub(crate) fn folder(purpose: &str) -> anyhow::Result<PathBuf> {
    folder_in(&std::env::temp_dir(), purpose)
}

fn folder_in(place: &Path, purpose: &str) -> anyhow::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("longhaul-{}-{purpose}-{count}", std::process::id());
    let folder = place.join(name);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}
