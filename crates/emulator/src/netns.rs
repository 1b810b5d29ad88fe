//! Network namespaces, referenced by file descriptors. Optionally `ip netns` shows them.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    thread,
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
};

use super::error::WanError;

/// A network namespace. The namespace exists as long as anything refers to it: this value, a
/// process or a socket inside it, or its file in `/run/netns`. Drop removes the file.
#[derive(Debug)]
pub(super) struct Netns {
    fd: OwnedFd,
    file: Option<PathBuf>,
}

impl Netns {
    /// Creates a namespace without a name.
    pub(super) fn anonymous() -> Result<Self, WanError> {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            fs::File::open("/proc/thread-self/ns/net")
        });
        let file = made.join().expect("the thread does not panic");
        let file = file.map_err(WanError::namespace("making a network namespace"))?;
        Ok(Self {
            fd: file.into(),
            file: None,
        })
    }

    /// Creates a namespace that `ip netns` shows as `name`.
    pub(super) fn visible(name: &str) -> Result<Self, WanError> {
        let mut namespace = Self::anonymous()?;
        let path = visible_path(name);
        fs::create_dir_all(VISIBLE).map_err(WanError::io(format!("making {VISIBLE}")))?;
        if let Err(error) = fs::File::create_new(&path) {
            return Err(match error.kind() {
                io::ErrorKind::AlreadyExists => WanError::NameTaken {
                    name: name.to_owned(),
                    path,
                },
                _ => WanError::io(format!("making {}", path.display()))(error),
            });
        }
        let source = format!("/proc/self/fd/{}", namespace.fd.as_raw_fd());
        let none: Option<&str> = None;
        if let Err(error) = mount(Some(source.as_str()), &path, none, MsFlags::MS_BIND, none) {
            let _ = fs::remove_file(&path);
            return Err(WanError::io(format!("mounting {}", path.display()))(error));
        }
        namespace.file = Some(path);
        Ok(namespace)
    }

    /// Runs `work` on a new thread in this namespace, and waits until it returns.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, WanError> {
        let inside = || self.enter().map(|()| work());
        let result = thread::scope(|scope| scope.spawn(inside).join());
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Moves the calling thread into this namespace.
    pub(super) fn enter(&self) -> Result<(), WanError> {
        setns(self.fd.as_fd(), CloneFlags::CLONE_NEWNET)
            .map_err(WanError::io("entering a network namespace"))
    }

    /// Returns a duplicate of the namespace's file descriptor.
    pub(super) fn clone_fd(&self) -> Result<OwnedFd, WanError> {
        self.fd
            .try_clone()
            .map_err(WanError::io("duplicating a descriptor"))
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        if let Some(path) = &self.file {
            let _ = remove_visible(path);
        }
    }
}

/// Removes the file of a namespace from `/run/netns`, even if another process created it.
pub(super) fn remove_visible(path: &Path) -> io::Result<()> {
    // Perhaps the file is no longer mounted.
    let _ = umount2(path, MntFlags::MNT_DETACH);
    fs::remove_file(path)
}

/// Returns the path of the file for a visible namespace called `name`.
pub(super) fn visible_path(name: &str) -> PathBuf {
    Path::new(VISIBLE).join(name)
}

/// Folder in which `ip netns` looks for namespaces.
const VISIBLE: &str = "/run/netns";
