//! The program that a gateway starts to take its place.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A program and its arguments.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

/// Set for a process that is to take another one's place. The way there is its standard input.
pub(super) const VARIABLE: &str = "LONGHAUL_SUCCEEDS";

/// A shell lets what it starts in the background read nothing, unless it is told otherwise by another number.
const IN_BACKGROUND: &str = "exec 3<&0; \"$@\" <&3 3<&- &";

impl Program {
    /// The program of this process, with the same arguments. To be called before anything replaces its file.
    ///
    /// # Errors
    /// If the kernel does not tell the path of the file.
    pub fn this() -> io::Result<Self> {
        Ok(Self {
            path: env::current_exe()?,
            arguments: env::args_os().skip(1).collect(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is another one than this process was started from.
    pub(crate) fn is_replaced(&self) -> bool {
        let file = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino()));
        match (file(&self.path), file(Path::new("/proc/self/exe"))) {
            (Ok(now), Ok(ours)) => now != ours,
            _ => false,
        }
    }

    /// Starts it with `channel` as its standard input.
    pub(super) fn start(&self, channel: OwnedFd) -> io::Result<()> {
        // Behind a shell that ends at once it is nobody's child: the service manager adopts it, and hears of its end.
        let shell = Path::new("/bin/sh");
        let mut command = match shell.exists() {
            true => {
                let mut command = Command::new(shell);
                command.args(["-c", IN_BACKGROUND, "sh"]).arg(&self.path);
                command
            }
            false => Command::new(&self.path),
        };
        command
            .args(&self.arguments)
            .env(VARIABLE, "1")
            // The new process is another one than the service manager meant.
            .env_remove("WATCHDOG_PID")
            .stdin(Stdio::from(channel));
        let mut child = command.spawn()?;
        std::thread::Builder::new()
            .name("longhaul-reaper".into())
            .spawn(move || child.wait())?;
        Ok(())
    }
}
