//! The errors of an emulated WAN.

use std::{fs, io, path::PathBuf};

/// Reason why an emulated WAN could not be created, changed or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WanError {
    /// The system does not permit this user to create namespaces. The administrator can change the
    /// setting.
    #[error("this system forbids network namespaces to this user: {setting}")]
    Forbidden {
        /// Name of the setting that forbids namespaces, if it could be determined.
        setting: String,
        /// Error of the refused system call.
        #[source]
        source: io::Error,
    },
    /// A namespace with this name already exists. Choose another name, or remove the namespace.
    #[error("a network namespace called {name} exists already ({})", path.display())]
    NameTaken {
        /// Name of the namespace.
        name: String,
        /// Path of the namespace's file.
        path: PathBuf,
    },
    /// A setting is invalid or out of range.
    #[error("{0}")]
    Invalid(String),
    /// No emulator with this name is running.
    #[error("no emulated WAN called {name} is up")]
    NotRunning {
        /// Name of the emulator.
        name: String,
    },
    /// An emulator with this name is already running.
    #[error("an emulated WAN called {name} is already up")]
    AlreadyRunning {
        /// Name of the emulator.
        name: String,
    },
    /// The running emulator refused a command, or the command failed.
    #[error("{0}")]
    Refused(String),
    /// A system call failed.
    #[error("{action}")]
    Io {
        /// Purpose of the system call.
        action: String,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
}

impl WanError {
    /// Returns a function for `map_err` that adds the purpose of the failed system call.
    pub(super) fn io<E: Into<io::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::Io {
            action,
            source: source.into(),
        }
    }

    /// Returns a function for `map_err` on calls that create namespaces. The function finds out
    /// which setting forbids namespaces, and names it in the error.
    pub(super) fn namespace<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| {
            let source = source.into();
            match source.raw_os_error() {
                Some(libc::EPERM | libc::ENOSPC | libc::EACCES | libc::EUSERS) => Self::Forbidden {
                    setting: forbidding_setting(),
                    source,
                },
                _ => Self::Io {
                    action: action.to_owned(),
                    source,
                },
            }
        }
    }
}

/// Returns the setting that forbids namespaces, with its value. If no known setting forbids
/// namespaces, returns a text with other possible reasons.
fn forbidding_setting() -> String {
    let settings: [(&str, &str, &str); 4] = [
        (
            "user/max_user_namespaces",
            "0",
            "user.max_user_namespaces is 0",
        ),
        (
            "user/max_net_namespaces",
            "0",
            "user.max_net_namespaces is 0",
        ),
        (
            "kernel/unprivileged_userns_clone",
            "0",
            "kernel.unprivileged_userns_clone is 0",
        ),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns is 1 (AppArmor; allow this program a \
             profile with userns, or set it to 0)",
        ),
    ];
    for (path, forbidding, text) in settings {
        let value = fs::read_to_string(format!("/proc/sys/{path}")).unwrap_or_default();
        if value.trim() == forbidding {
            return text.to_owned();
        }
    }
    "no known sysctl does; a container's seccomp profile or a full limit of namespaces may \
     (user.max_user_namespaces, user.max_net_namespaces)"
        .to_owned()
}
