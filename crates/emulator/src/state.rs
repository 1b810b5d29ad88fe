//! The files of background emulators. Commands use them to find a running emulator, and to clean up
//! after an emulator that has died.

use std::{
    env, fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{Flock, FlockArg},
    unistd::geteuid,
};
use serde::{Deserialize, Serialize};

use super::{error::WanError, netns};

/// Folder and name of one background emulator. They determine the paths of the emulator's socket,
/// lock and clean-up record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EmulatorPaths {
    name: String,
    folder: PathBuf,
}

/// Record of the objects to remove if the emulator's process dies.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct CleanupRecord {
    pub(super) pid: u32,
    /// Paths of namespace files in `/run/netns`.
    pub(super) namespaces: Vec<PathBuf>,
}

/// Lock of an emulator. The holder is the running emulator, or a command that cleans up after a
/// dead emulator.
#[derive(Debug)]
pub(super) struct EmulatorLock {
    _file: Flock<fs::File>,
}

impl EmulatorPaths {
    /// Returns the paths of this user's emulator called `name`.
    ///
    /// # Errors
    /// [`WanError::Invalid`] if the name is empty, or has characters other than letters, digits,
    /// `-` and `_`, or if the folder does not belong to this user alone. [`WanError::Io`] if the
    /// folder cannot be created or read.
    pub fn of(name: &str) -> Result<Self, WanError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if name.is_empty() || !name.chars().all(plain) {
            return Err(WanError::Invalid(format!(
                "{name:?} is no name for an emulated WAN"
            )));
        }
        let folder = folder();
        if let Err(error) = fs::DirBuilder::new().mode(0o700).create(&folder)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(WanError::io(format!("making {}", folder.display()))(error));
        }
        // In /tmp another user may have made the folder first.
        let metadata = fs::symlink_metadata(&folder)
            .map_err(WanError::io(format!("reading {}", folder.display())))?;
        if !metadata.is_dir()
            || metadata.uid() != geteuid().as_raw()
            || metadata.mode() & 0o022 != 0
        {
            let text = format!("{} does not belong to this user alone", folder.display());
            return Err(WanError::Invalid(text));
        }
        Ok(Self {
            name: name.to_owned(),
            folder,
        })
    }

    /// Returns the name of the emulator.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of the socket for commands.
    pub(super) fn socket(&self) -> PathBuf {
        self.file("sock")
    }

    /// Returns the path of the file with the emulator's log messages.
    pub fn log(&self) -> PathBuf {
        self.file("log")
    }

    /// Acquires the lock. Returns `None` if a running emulator holds the lock.
    pub(super) fn lock(&self) -> Result<Option<EmulatorLock>, WanError> {
        let path = self.file("lock");
        let action = || format!("locking {}", path.display());
        let file = fs::File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(WanError::io(action()))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => Ok(Some(EmulatorLock { _file: file })),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(WanError::io(action())(error)),
        }
    }

    /// Writes the record of the objects to remove.
    pub(super) fn write(
        &self,
        _lock: &EmulatorLock,
        record: &CleanupRecord,
    ) -> Result<(), WanError> {
        let path = self.file("json");
        let text = serde_json::to_vec(record).expect("plain data");
        fs::write(&path, text).map_err(WanError::io(format!("writing {}", path.display())))
    }

    /// Removes the files and namespaces of a dead emulator. Returns whether a record of them
    /// existed.
    pub(super) fn clean(&self, _lock: &EmulatorLock) -> Result<bool, WanError> {
        let path = self.file("json");
        let Ok(text) = fs::read(&path) else {
            return Ok(false);
        };
        let record: CleanupRecord = serde_json::from_slice(&text).unwrap_or_default();
        for namespace in &record.namespaces {
            remove(namespace, netns::remove_visible)?;
        }
        for file in [self.socket(), path] {
            remove(&file, |file| fs::remove_file(file))?;
        }
        Ok(true)
    }

    /// Removes the log and lock files. A command that waits for the lock at this moment may wrongly
    /// report a running emulator. The user can then repeat the command.
    pub(super) fn forget(&self, lock: EmulatorLock) {
        let _ = fs::remove_file(self.log());
        let _ = fs::remove_file(self.file("lock"));
        drop(lock);
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", self.name))
    }
}

/// Removes a file. A file that no longer exists is no error.
fn remove(path: &Path, remove: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), WanError> {
    match remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(WanError::io(format!("removing {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Returns the folder for this user's emulators. Uses `XDG_RUNTIME_DIR` only if that folder belongs
/// to this user. Some sessions lack the variable, and some inherit the value of another user.
fn folder() -> PathBuf {
    let uid = geteuid().as_raw();
    let mine = |path: &Path| fs::metadata(path).is_ok_and(|metadata| metadata.uid() == uid);
    let runtime = env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| mine(path));
    match runtime {
        _ if uid == 0 && mine(Path::new("/run")) => PathBuf::from("/run/longhaul-wan"),
        Some(runtime) => runtime.join("longhaul-wan"),
        None => PathBuf::from(format!("/tmp/longhaul-wan-{uid}")),
    }
}
