//! What can go wrong with an emulated WAN.

use std::{fs, io, path::PathBuf};

/// Why an emulated WAN could not be made, changed or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WanError {
    /// The system does not let this user make namespaces. The administrator can change it.
    #[error("this system forbids network namespaces to this user: {setting}")]
    Forbidden {
        /// The setting that forbids it, as far as it can be told.
        setting: String,
        /// The refused call.
        #[source]
        source: io::Error,
    },
    /// A name is taken. Choose another, or remove what has it.
    #[error("a network namespace called {name} exists already ({})", path.display())]
    NameTaken {
        /// The site's name.
        name: String,
        /// Where the namespace is visible.
        path: PathBuf,
    },
    /// A setting makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// No emulator runs under this name.
    #[error("no emulated WAN called {name} is up")]
    NotRunning {
        /// The name of the WAN.
        name: String,
    },
    /// One runs already under this name.
    #[error("an emulated WAN called {name} is already up")]
    AlreadyRunning {
        /// The name of the WAN.
        name: String,
    },
    /// The running emulator refused or failed.
    #[error("{0}")]
    Refused(String),
    /// A system call failed.
    #[error("{action}")]
    Io {
        /// What was being done.
        action: String,
        /// The failure.
        #[source]
        source: io::Error,
    },
}

impl WanError {
    /// For `map_err`: says what was being done when a system call failed.
    pub(super) fn io<E: Into<io::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::Io {
            action,
            source: source.into(),
        }
    }

    /// For `map_err` where namespaces are made: names the setting that forbids it.
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

/// Looks for the setting that forbids namespaces.
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
