//! Configuration file of the user for OpenSSH: `~/.ssh/config`.

use std::path::{Path, PathBuf};

/// Settings of OpenSSH for all hosts.
#[derive(Debug, Clone, Default)]
pub struct SshConfig {}

/// Settings of OpenSSH for one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost {
    /// Host name or IP address to which to connect.
    pub host: String,
    /// User name. `None` if the settings contain none.
    pub user: Option<String>,
    /// TCP port. `None` if the settings contain none.
    pub port: Option<u16>,
    /// Files with private keys: those of the settings, or else the usual ones.
    pub identity_files: Vec<PathBuf>,
    /// Whether only the keys in `identity_files` may be offered.
    pub has_only_identity_files: bool,
    /// Socket of the agent. `None` if there is no agent.
    pub agent: Option<PathBuf>,
    /// Files of known hosts: of the user, and then of the system.
    pub known_hosts: Vec<PathBuf>,
    /// Name of the host in the files of known hosts, if it differs from `host`.
    pub host_key_alias: Option<String>,
    /// Whether keys of unknown hosts are trusted (`accept-new`).
    pub accepts_new_keys: bool,
}

impl SshConfig {
    /// Reads `~/.ssh/config` and `/etc/ssh/ssh_config`, below the home directory `home`.
    ///
    /// # Errors
    /// The error of the system if a file exists and cannot be read.
    pub fn read(_home: &Path) -> std::io::Result<Self> {
        todo!()
    }

    /// Returns the settings for a host, as the URL names it.
    pub fn resolve(&self, _host: &str, _user: Option<&str>) -> SshHost {
        todo!()
    }
}
