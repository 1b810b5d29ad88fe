//! Default paths of a gateway's files, and their owners.

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, Write as _},
    net::SocketAddr,
    os::unix::fs::{
        DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
    },
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use gatewayd::{
    admin_socket,
    config::{Config, ConfigError},
};
use nix::{
    libc::O_NOFOLLOW,
    unistd::{User, geteuid},
};
use relay::status::GatewaySnapshot;

use crate::{
    admin::{self, AdminPlace},
    exit,
};

/// Default path of the gateway's configuration file.
pub(crate) const CONFIG: &str = "/etc/longhaul/gateway.toml";

/// Default folder of the gateway's key and state.
pub(crate) const STATE: &str = "/var/lib/longhaul";

/// Name of the user that the packaged service runs as.
const USER: &str = "longhaul";

/// Returns the path of the configuration file for a command: `given`, or the default path.
///
/// # Errors
/// If `given` is `None` and no file exists at the default path.
pub(crate) fn config(given: Option<&Path>, usage: &str) -> anyhow::Result<PathBuf> {
    let usual = Path::new(CONFIG);
    match given {
        Some(file) => Ok(file.to_owned()),
        None if usual.exists() => Ok(usual.to_owned()),
        None => Err(exit::misuse(format!(
            "--config FILE is missing, and there is no {CONFIG}; \"longhaul setup\" makes one\n\nUsage: {usage}"
        ))),
    }
}

/// Reads the configuration of a gateway for a command.
///
/// # Errors
/// If the configuration is invalid, with exit code 2.
pub(crate) fn load(file: &Path) -> anyhow::Result<Config> {
    Config::load(file).map_err(|error| exit::misuse(explain(&error)))
}

/// Returns the text of an error in a configuration. If this user lacks a permission, the text names
/// the command for root.
pub(crate) fn explain(error: &ConfigError) -> String {
    let text = error.to_string();
    match text.contains("Permission denied") && !geteuid().is_root() {
        true => format!("{text}; {}", exit::as_root()),
        false => text,
    }
}

/// A gateway on this machine, by its configuration, its admin socket or its address.
#[derive(clap::Args)]
pub(crate) struct Gateway {
    /// Use the gateway with this configuration file [default: /etc/longhaul/gateway.toml]
    #[arg(long, value_name = "FILE", conflicts_with = "admin")]
    config: Option<PathBuf>,
    /// Use the gateway with this admin socket or this admin address
    #[arg(long, value_name = "PATH|ADDRESS:PORT")]
    admin: Option<AdminPlace>,
}

impl Gateway {
    /// Returns the admin socket of the selected gateway.
    ///
    /// # Errors
    /// If the configuration is invalid, or if the given admin address leads to a socket that cannot
    /// be trusted.
    pub(crate) fn socket(&self) -> anyhow::Result<AdminPlace> {
        let file = match (&self.admin, &self.config) {
            (Some(socket @ AdminPlace::Socket { .. }), _) => return Ok(socket.clone()),
            (Some(AdminPlace::Address(address)), _) => return socket_behind(*address),
            (None, Some(file)) => file,
            (None, None) if Path::new(CONFIG).exists() => Path::new(CONFIG),
            (None, None) => {
                return Err(exit::misuse(format!(
                    "there is no {CONFIG}: give --config FILE of the gateway, or --admin with the path of its admin socket"
                )));
            }
        };
        Ok(socket_of(&load(file)?))
    }

    /// Returns the places where a command can query the gateway. The preferred place is first.
    pub(crate) fn places(&self) -> Vec<AdminPlace> {
        match (&self.admin, &self.config) {
            (Some(place @ AdminPlace::Address(address)), _) => {
                let socket = socket_behind(*address).ok();
                socket.into_iter().chain([place.clone()]).collect()
            }
            (Some(place), _) => vec![place.clone()],
            (None, file) => places_of_file(file.as_deref().unwrap_or(Path::new(CONFIG))),
        }
    }
}

/// Returns the admin socket of the gateway at an address.
///
/// Any user of this machine can listen at the address and report a false path of a socket. The
/// program at the socket must therefore belong to root, to this user, or to the service's user.
/// This program must also confirm that it is the gateway with this address.
///
/// # Errors
/// If no gateway answers, or its socket cannot be trusted.
fn socket_behind(address: SocketAddr) -> anyhow::Result<AdminPlace> {
    let read = |at: &AdminPlace| -> anyhow::Result<GatewaySnapshot> {
        let answer = admin::ask(at, "GET", "/status.json")?;
        let other = || {
            format!(
                "the program at {at} is no gateway of this version (restart the gateway, or use the \
         longhaul of its version)"
            )
        };
        serde_json::from_str(&answer.body).with_context(other)
    };
    let told = read(&AdminPlace::Address(address))?;
    anyhow::ensure!(
        !told.admin_socket.is_empty(),
        "the gateway at {address} has no admin socket: its older version accepts orders by signals alone"
    );
    let socket = AdminPlace::Socket {
        path: PathBuf::from(told.admin_socket),
        key_file: None,
    };
    let own: Option<SocketAddr> = read(&socket)?.admin_listen.parse().ok();
    let is_same = own.is_some_and(|own| {
        own == address || own.ip().is_unspecified() && own.port() == address.port()
    });
    anyhow::ensure!(
        is_same,
        "the gateway of {socket} is not the one at {address}: give --config FILE of the gateway"
    );
    Ok(socket)
}

/// Returns the admin socket of the gateway with this configuration.
pub(crate) fn socket_of(config: &Config) -> AdminPlace {
    AdminPlace::Socket {
        path: config.admin_socket.clone(),
        key_file: Some(config.key_file.clone()),
    }
}

/// Returns the places where a command can query the gateway with this configuration. The preferred
/// place is first.
pub(crate) fn places_of(config: &Config) -> Vec<AdminPlace> {
    vec![socket_of(config), AdminPlace::Address(config.admin_listen)]
}

/// Returns the places where a command can query the gateway with this configuration file. The file
/// may be invalid, and this user may lack permission to read the key file.
fn places_of_file(file: &Path) -> Vec<AdminPlace> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let socket = admin_socket::path_of_text(&text, file).map(|path| AdminPlace::Socket {
        path,
        key_file: key_file_of(&text, file),
    });
    let usual = || admin::DEFAULT.parse().expect("it is an address");
    let address = AdminPlace::Address(admin_of(&text).unwrap_or_else(usual));
    socket.into_iter().chain([address]).collect()
}

/// Returns the admin address in the text of a configuration. Reads no key file, because users
/// without access to the key may query the gateway, too.
fn admin_of(text: &str) -> Option<SocketAddr> {
    let file: toml::Table = toml::from_str(text).ok()?;
    file.get("admin")?.get("listen")?.as_str()?.parse().ok()
}

fn key_file_of(text: &str, file: &Path) -> Option<PathBuf> {
    let table: toml::Table = toml::from_str(text).ok()?;
    let named = table.get("identity")?.get("key_file")?.as_str()?;
    Some(file.parent()?.join(named))
}

/// Creates a folder and its missing parent folders. Changes nothing if the folder exists. With
/// `private`, the new folder belongs to the service's user, and other users cannot read it.
///
/// # Errors
/// The error of the file system.
pub(crate) fn make_folder(path: &Path, private: bool) -> anyhow::Result<()> {
    let make = || -> io::Result<()> {
        // The folder of a bare file name is the working directory.
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        if let Some(above) = path.parent() {
            // Other users must keep access to their own files below this parent folder.
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(above)?;
        }
        DirBuilder::new().mode(0o700).create(path)?;
        if private {
            return give(path);
        }
        // The mode is set regardless of the umask, since the service reads the files.
        fs::set_permissions(path, Permissions::from_mode(0o755))
    };
    make().with_context(|| format!("the folder {} cannot be made", path.display()))
}

/// Changes the owner of a file or folder from root to the service's user. Changes nothing if this
/// user does not exist, or if this process does not run as root.
///
/// A file with several hard links stays unchanged, and so does a file or folder with an owner other
/// than root. Perhaps the service's user has created the file or folder to gain access to another
/// file.
///
/// # Errors
/// The error of the file system.
pub(crate) fn give(path: &Path) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let Some(user) = User::from_name(USER).map_err(io::Error::from)? else {
        return Ok(());
    };
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(O_NOFOLLOW).open(path)?;
    let found = file.metadata()?;
    let is_alone = found.is_dir() || found.is_file() && found.nlink() == 1;
    match is_alone && found.uid() == 0 {
        true => fchown(&file, Some(user.uid.as_raw()), Some(user.gid.as_raw())),
        false => Ok(()),
    }
}

/// Writes a configuration file atomically. Keeps the owner and the permissions of the file that it
/// replaces.
///
/// A new file is readable for all users, because the secrets are in other files.
///
/// # Errors
/// The error of the file system.
pub(crate) fn write_config(path: &Path, text: &str) -> anyhow::Result<()> {
    let written = || -> io::Result<()> {
        // If the path is a symbolic link, the link stays, and the file to which it leads is
        // replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let before = fs::metadata(&target).ok();
        let new = target.with_added_extension("new");
        // An earlier process may have left this file, if it was killed during the write.
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
        let mode = before
            .as_ref()
            .map_or(0o644, |it| it.permissions().mode() & 0o777);
        file.set_permissions(Permissions::from_mode(mode))?;
        if let (true, Some(before)) = (geteuid().is_root(), &before) {
            fchown(&file, Some(before.uid()), Some(before.gid()))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &target)
    };
    written().with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_admin_address_is_that_of_the_file() {
        let told = |text| admin_of(text).map(|it| it.to_string());
        let named = "[admin]\nlisten = \"127.0.0.1:9999\"\n[identity]\nkey_file = \"x\"\n";
        assert_eq!(told(named).as_deref(), Some("127.0.0.1:9999"));
        assert_eq!(told("[admin]\n"), None);
        assert_eq!(told("no"), None);
    }

    #[test]
    fn a_configuration_keeps_its_permissions() {
        let folder = tempfile::tempdir().expect("room");
        let path = folder.path().join("gateway.toml");
        for (before, mode) in [(None, 0o644), (Some(0o600), 0o600)] {
            if let Some(before) = before {
                let permissions = Permissions::from_mode(before);
                fs::set_permissions(&path, permissions).expect("it is ours");
            }
            write_config(&path, "text").expect("room");
            let written = fs::metadata(&path).expect("there").permissions().mode();
            assert_eq!(written & 0o777, mode);
        }
        let entries = fs::read_dir(folder.path()).expect("there").count();
        assert_eq!(entries, 1);
    }
}
