//! The files of background emulators: commands find a running emulator by them, and clean up after
//! a dead one.

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

/// The folder and name of one background emulator: its socket, its lock and its record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EmulatorPaths {
    name: String,
    folder: PathBuf,
}

/// Things to remove after the death of an emulator.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct CleanupRecord {
    pub(super) pid: u32,
    /// Files in `/run/netns`.
    pub(super) namespaces: Vec<PathBuf>,
}

/// The lock of a running emulator, or of a command that cleans up after one.
#[derive(Debug)]
pub(super) struct EmulatorLock {
    _file: Flock<fs::File>,
}

impl EmulatorPaths {
    /// The place of this user's emulator called `name`.
    ///
    /// # Errors
    /// [`WanError::Invalid`] for a name that is not a plain word; [`WanError::Io`] if there is no
    /// folder that belongs to this user alone.
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

    /// The socket for commands.
    pub(super) fn socket(&self) -> PathBuf {
        self.file("sock")
    }

    /// The file for the emulator's messages.
    pub fn log(&self) -> PathBuf {
        self.file("log")
    }

    /// Takes the lock; `None` if a running emulator has it.
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

    /// Records the things to remove later.
    pub(super) fn write(
        &self,
        _lock: &EmulatorLock,
        record: &CleanupRecord,
    ) -> Result<(), WanError> {
        let path = self.file("json");
        let text = serde_json::to_vec(record).expect("plain data");
        fs::write(&path, text).map_err(WanError::io(format!("writing {}", path.display())))
    }

    /// Removes the remains of an emulator. Returns whether there were any.
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

    /// Removes the files that outlive an emulator. A command that waits for the lock meanwhile
    /// reports a running emulator, and may try again.
    pub(super) fn forget(&self, lock: EmulatorLock) {
        let _ = fs::remove_file(self.log());
        let _ = fs::remove_file(self.file("lock"));
        drop(lock);
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", self.name))
    }
}

/// Removes a file, which may be gone already.
fn remove(path: &Path, remove: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), WanError> {
    match remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(WanError::io(format!("removing {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

/// The folder of this user's emulators. Some sessions have no `XDG_RUNTIME_DIR`, and some inherit
/// another user's.
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
