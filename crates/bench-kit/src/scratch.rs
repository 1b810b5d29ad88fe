//! Temporary folders for measurements.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::Context;

/// Creates a new folder in a memory file system. If the system has no such file system, creates the
/// new folder in the system's folder for temporary files.
///
/// The caller must remove the folder. This function first removes the folders that interrupted
/// processes left in memory.
pub fn folder_in_memory(purpose: &str) -> anyhow::Result<PathBuf> {
    let memory = Path::new("/dev/shm");
    let found = fs::metadata(memory).is_ok_and(|found| found.is_dir());
    if found {
        sweep(memory);
    }
    if found && let Ok(folder) = folder_in(memory, purpose) {
        return Ok(folder);
    }
    folder(purpose)
}

/// Creates a new folder in the system's folder for temporary files. The caller must remove the new
/// folder.
pub fn folder(purpose: &str) -> anyhow::Result<PathBuf> {
    folder_in(&std::env::temp_dir(), purpose)
}

/// Removes the folders of processes that have ended. Folders of other users stay, since the system
/// forbids their removal.
fn sweep(place: &Path) {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| {
            let (process, _) = name.strip_prefix("longhaul-")?.split_once('-')?;
            process.parse::<u32>().ok()
        });
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn folder_in(place: &Path, purpose: &str) -> anyhow::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("longhaul-{}-{purpose}-{count}", std::process::id());
    let folder = place.join(name);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_left_is_removed_and_nothing_else() {
        let place = folder("sweep").expect("a folder");
        // The largest process ID is never in use.
        let (dead, alive) = (
            "longhaul-4194304-eval-0",
            format!("longhaul-{}-eval-0", std::process::id()),
        );
        let others = [alive.as_str(), "longhaul-notes", "other-4194304-eval-0"];
        for name in [dead].iter().chain(&others) {
            fs::create_dir_all(place.join(name).join("server")).expect("a folder");
        }
        sweep(&place);
        assert!(!place.join(dead).exists());
        assert!(others.iter().all(|name| place.join(name).exists()));
        fs::remove_dir_all(&place).expect("ours");
    }
}
