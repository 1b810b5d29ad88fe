//! Permission to create network namespaces. Root has this permission. Other users get it in a user
//! namespace.

use std::fs;

use nix::{
    sched::{CloneFlags, unshare},
    unistd::{getegid, geteuid},
};

use super::error::WanError;

/// Way in which this process got the permission to create network namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// The process is root of the machine. `ip netns` can show the namespaces.
    Root,
    /// The process is root of a user namespace. Only this process and its children can use the
    /// namespaces.
    UserNamespace,
}

/// Acquires the permission to create network namespaces. A process without the capabilities enters
/// a new user namespace, in which it appears as root. The change affects the whole process, and
/// cannot be undone.
///
/// # Errors
/// [`WanError::Forbidden`] names the setting that forbids user namespaces. A process with several
/// threads cannot enter a user namespace (`EINVAL`), so call this function first in `main`.
pub fn acquire() -> Result<Privilege, WanError> {
    if !has_capabilities() {
        let (uid, gid) = (geteuid(), getegid());
        unshare(CloneFlags::CLONE_NEWUSER).map_err(WanError::namespace(
            "making a user namespace (before any thread starts)",
        ))?;
        // An unprivileged process may map its own group only after it has disabled `setgroups`.
        for (file, text) in [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("0 {uid} 1")),
            ("gid_map", format!("0 {gid} 1")),
        ] {
            fs::write(format!("/proc/self/{file}"), text).map_err(WanError::namespace(
                "mapping the user into a user namespace",
            ))?;
        }
    }
    Ok(if in_first_user_namespace() {
        Privilege::Root
    } else {
        Privilege::UserNamespace
    })
}

/// Returns whether this process has the capabilities for network namespaces, their devices and raw
/// sockets.
fn has_capabilities() -> bool {
    const NEEDED: u64 = 1 << 12 | 1 << 13 | 1 << 21; // NET_ADMIN, NET_RAW, SYS_ADMIN
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|capabilities| capabilities & NEEDED == NEEDED)
}

/// Returns whether this process is in the machine's initial user namespace. Only this namespace
/// maps every user id to itself.
fn in_first_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}
