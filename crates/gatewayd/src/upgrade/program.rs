//! The program that a gateway starts as its replacement at an upgrade.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use nix::unistd::{AccessFlags, access};
use tokio::time::timeout;

use super::UpgradeError;

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

    /// Returns the reason why the program cannot be started. If no user may execute the file, the
    /// reason contains a remedy. In all other cases, the cause may be a folder of the path or a
    /// mount option, so the reason contains no remedy.
    pub(super) fn start_error(&self, source: io::Error) -> UpgradeError {
        let program = self.path.display().to_string();
        let is_plain = fs::metadata(&self.path)
            .is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 == 0);
        match source.kind() {
            io::ErrorKind::PermissionDenied if is_plain => UpgradeError::NotExecutable { program },
            _ => UpgradeError::Start { program, source },
        }
    }

    /// Returns the error for a new process that ended before it was ready. The shell that starts
    /// the new process does not report its exit status. This function therefore runs the program
    /// once more with `--version`, which shows whether the program works at all.
    pub(super) async fn early_end(&self) -> UpgradeError {
        let mut command = tokio::process::Command::new(&self.path);
        command.arg("--version").kill_on_drop(true);
        let command = command.stdin(Stdio::null()).stderr(Stdio::null());
        let outcome = match timeout(VERSION_TIMEOUT, command.output()).await {
            Err(_) => format!("no end within {} s", VERSION_TIMEOUT.as_secs()),
            Ok(Err(error)) => error.to_string(),
            Ok(Ok(output)) if output.status.success() => {
                let text = String::from_utf8_lossy(&output.stdout);
                let line = text.lines().next().unwrap_or_default();
                let line: String = line.chars().filter(|it| !it.is_control()).collect();
                format!(
                    "{:?}",
                    line.chars().take(VERSION_CHARS_MAX).collect::<String>()
                )
            }
            Ok(Ok(output)) => output.status.to_string(),
        };
        UpgradeError::EndedEarly {
            program: self.path.display().to_string(),
            outcome,
        }
    }

    /// Starts the program with `channel` as its standard input.
    ///
    /// # Errors
    /// If the file is missing or not executable, or if no process can be started.
    pub(super) fn start(&self, channel: OwnedFd) -> io::Result<()> {
        // If the file is not executable, the shell would report the error only in the log.
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

/// Timeout of `--version`. The sum of this time and the timeouts of the handover is below the
/// timeout of the admin interface.
const VERSION_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum length of the version in an error.
const VERSION_CHARS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_without_permission_to_execute_needs_chmod() {
        let name = format!("longhaul-program-{}", std::process::id());
        let path = env::temp_dir().join(name);
        fs::write(&path, "").expect("room");
        let message = |path: &Path| {
            let program = Program {
                path: path.to_owned(),
                arguments: Vec::new(),
            };
            let denied = io::Error::from(nix::errno::Errno::EACCES);
            program.start_error(denied).to_string()
        };
        let with_mode = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its owner may");
            message(&path)
        };
        let shown = path.display();
        assert_eq!(
            with_mode(0o644),
            format!("{shown} is not executable: set its permissions to 755")
        );
        let denied = format!("{shown} cannot be started: Permission denied (os error 13)");
        assert_eq!(with_mode(0o700), denied, "another cause");
        fs::remove_file(&path).expect("it is there");
        assert_eq!(message(&path), denied, "the file is missing");
        fs::create_dir(&path).expect("room");
        assert_eq!(with_mode(0o600), denied, "it is a folder");
        fs::remove_dir(&path).expect("it is there");
    }
}
