//! The errors of an emulated WAN.

use std::{fs, io, path::PathBuf};

/// Why an emulated WAN could not be made, changed or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WanError {
    /// The system does not let this user make namespaces. The administrator can change that.
    #[error("this system forbids network namespaces to this user: {setting}")]
    Forbidden {
        /// The responsible setting, as far as it can be found.
        setting: String,
        /// The refused call.
        #[source]
        source: io::Error,
    },
    /// A namespace of this name exists. Choose another name, or remove the namespace.
    #[error("a network namespace called {name} exists already ({})", path.display())]
    NameTaken {
        /// Name of the namespace.
        name: String,
        /// The namespace's file.
        path: PathBuf,
    },
    /// A setting is out of bounds.
    #[error("{0}")]
    Invalid(String),
    /// No emulator of this name runs.
    #[error("no emulated WAN called {name} is up")]
    NotRunning {
        /// Name of the emulator.
        name: String,
    },
    /// An emulator of this name runs already.
    #[error("an emulated WAN called {name} is already up")]
    AlreadyRunning {
        /// Name of the emulator.
        name: String,
    },
    /// The running emulator refused or failed.
    #[error("{0}")]
    Refused(String),
    /// A system call failed.
    #[error("{action}")]
    Io {
        /// The purpose of the call.
        action: String,
        /// Error of the call.
        #[source]
        source: io::Error,
    },
}

impl WanError {
    /// For `map_err`: states the purpose of a failed system call.
    pub(super) fn io<E: Into<io::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::Io {
            action,
            source: source.into(),
        }
    }

    /// For `map_err` on calls that make namespaces: names the setting that forbids them.
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

/// Finds the setting that forbids namespaces.
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
