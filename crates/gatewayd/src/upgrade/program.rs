//! The program that a gateway starts as its replacement at an upgrade.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::unistd::{AccessFlags, access};

/// The path of a program file, and the arguments of the program.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

/// Environment variable of a process that replaces another process. The standard input of such a
/// process is the handover channel.
pub(super) const VARIABLE: &str = "LONGHAUL_SUCCEEDS";

/// Shell command that starts a program in the background. A shell replaces the standard input of a
/// background program. The command therefore saves the input as file descriptor 3 and restores it.
const IN_BACKGROUND: &str = "exec 3<&0; \"$@\" <&3 3<&- &";

impl Program {
    /// Returns the program file of this process, with the same arguments. The caller must call this
    /// function before an upgrade replaces the file.
    ///
    /// # Errors
    /// If the kernel does not report the path of the program file.
    pub fn this() -> io::Result<Self> {
        Ok(Self {
            path: env::current_exe()?,
            arguments: env::args_os().skip(1).collect(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the program file has been replaced since the start of this process.
    pub(crate) fn is_replaced(&self) -> bool {
        let file = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino()));
        match (file(&self.path), file(Path::new("/proc/self/exe"))) {
            (Ok(now), Ok(ours)) => now != ours,
            _ => false,
        }
    }

    /// Starts the program with `channel` as its standard input.
    ///
    /// # Errors
    /// If the file is missing or not executable, or if no process can be started.
    pub(super) fn start(&self, channel: OwnedFd) -> io::Result<()> {
        // The shell would report such a file only in the log.
        access(&self.path, AccessFlags::X_OK)?;
        // The shell ends at once, so that the service manager adopts the process, and detects its
        // end.
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
            // The service manager set this variable for the old process.
            .env_remove("WATCHDOG_PID")
            .stdin(Stdio::from(channel));
        let mut child = command.spawn()?;
        std::thread::Builder::new()
            .name("longhaul-reaper".into())
            .spawn(move || child.wait())?;
        Ok(())
    }
}
