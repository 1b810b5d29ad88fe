//! The admin socket: a Unix socket of mode 0600. Commands query the gateway and send orders over
//! this socket.
//!
//! The kernel reports the user of the peer process to both processes. The gateway accepts orders
//! only from root and from its own user. A command connects only if the gateway's user is root, the
//! command's user, the service's user, or the owner of the gateway's key. Other users can therefore
//! neither send orders nor receive them.
#![allow(
    clippy::disallowed_methods,
    reason = "makes and reaches a socket of the file system"
)]

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt as _,
            fs::{
                DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
                PermissionsExt as _,
            },
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use nix::{
    libc::{O_DIRECTORY, O_PATH},
    unistd::{User, geteuid},
};
use pages::peer_process;

/// Returns the path of a gateway's admin socket. `text` is the content of the gateway's
/// configuration file. Returns `None` if the text is not TOML, or names neither the socket nor the
/// key file. Other keys of the file may have invalid values.
pub fn path_of_text(text: &str, file: &Path) -> Option<PathBuf> {
    let table: toml::Table = toml::from_str(text).ok()?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let text_at = |section: &str, key: &str| {
        let value = table.get(section)?.get(key)?.as_str()?;
        Some(folder.join(value))
    };
    let named = text_at("admin", "socket");
    named.or_else(|| Some(usual_path(&text_at("identity", "key_file")?, file)))
}

/// Returns the default path of the admin socket. The service's socket is in `/run`. Any other
/// gateway has its socket in the folder of its key.
pub(crate) fn usual_path(key_file: &Path, file: &Path) -> PathBuf {
    match file == Path::new(SERVICE_FILE) {
        true => PathBuf::from(SERVICE_SOCKET),
        false => key_file.with_added_extension("admin.sock"),
    }
}

/// Binds the socket. Replaces a socket file that a killed process has left.
///
/// # Errors
/// The error of the file system. `AddrInUse` if another program listens on this path.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent()
        && path == Path::new(SERVICE_SOCKET)
        && !folder.exists()
    {
        // Usually, systemd has created the folder. Without systemd, the gateway creates it as root.
        DirBuilder::new().mode(0o755).create(folder)?;
    }
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match connect_to(path) {
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?;
            }
            Err(error) => return Err(error),
        },
        Ok(_) => {
            let message = "there is another file, and no socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = with_short(path, |short| UnixListener::bind(short))?;
    // A client may connect before the mode is set. The gateway checks the user of that client, too.
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Connects a command to the gateway whose admin socket is at `path`. `key_file` is the gateway's
/// key file, if known.
///
/// # Errors
/// The error of the system. `PermissionDenied` if the listening program belongs to another user.
pub fn connect(path: &Path, key_file: Option<&Path>) -> io::Result<UnixStream> {
    let stream = connect_to(path)?;
    let process = peer_process(&stream)?;
    let owner = || Some(fs::metadata(key_file?).ok()?.uid());
    let service = || Some(User::from_name(SERVICE_USER).ok()??.uid.as_raw());
    let is_trusted = [0, geteuid().as_raw()].contains(&process.uid)
        || [owner(), service()].contains(&Some(process.uid));
    match is_trusted {
        true => Ok(stream),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "the program that listens there belongs to the user {}, and not to root or the gateway's user",
                process.uid
            ),
        )),
    }
}

fn connect_to(path: &Path) -> io::Result<UnixStream> {
    with_short(path, |short| UnixStream::connect(short))
}

/// Calls `act` with the path. If the path is too long for a socket address, the function opens the
/// path's folder and passes a short path in `/proc/self/fd`.
fn with_short<T>(path: &Path, act: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().as_bytes().len() <= ADDRESS_BYTES_MAX {
        return act(path);
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(O_PATH | O_DIRECTORY);
    let folder: File = options.open(folder)?;
    act(&Path::new("/proc/self/fd")
        .join(folder.as_raw_fd().to_string())
        .join(name))
}

/// Name of the user that the packaged service runs as.
const SERVICE_USER: &str = "longhaul";

/// Configuration file of the packaged service.
const SERVICE_FILE: &str = "/etc/longhaul/gateway.toml";

/// Path of the packaged service's admin socket.
const SERVICE_SOCKET: &str = "/run/longhaul/admin.sock";

/// Maximum length of a Unix socket address: 108 bytes with the terminating zero.
const ADDRESS_BYTES_MAX: usize = 107;

#[cfg(test)]
mod tests {
    use pages::may_give_orders;

    use super::*;

    #[test]
    fn the_socket_is_private_and_takes_the_place_of_one_that_was_left() {
        let name = format!("longhaul-socket-{}-{}", std::process::id(), "x".repeat(60));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("room");
        // The second path is longer than the longest socket address.
        for name in ["admin.sock", &format!("{}.sock", "y".repeat(80))] {
            let path = folder.join(name);
            let listener = bind(&path).expect("nobody has it");
            let mode = fs::metadata(&path).expect("it is there").mode() & 0o777;
            assert_eq!(mode, 0o600);
            let taken = bind(&path).expect_err("a program listens");
            assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
            let stream = connect(&path, None).expect("it is ours");
            let (served, _) = listener.accept().expect("it connects");
            let process = peer_process(&served).expect("the kernel knows");
            assert_eq!(process.pid as u32, std::process::id());
            assert!(may_give_orders(process));
            drop((listener, stream, served));
            drop(bind(&path).expect("the old one is of no use"));
            fs::remove_file(&path).expect("it is there");
            fs::write(&path, "precious").expect("room");
            bind(&path).expect_err("no socket");
            assert_eq!(fs::read(&path).expect("it is there"), b"precious");
        }
        fs::remove_dir_all(&folder).expect("it is there");
    }

    #[test]
    fn each_configuration_has_a_socket_of_its_own() {
        let file = Path::new("/srv/a/gateway.toml");
        let key = "[identity]\nkey_file = \"a.key\"\n";
        let told = |text: &str, file| path_of_text(text, file);
        let of_key = told(key, file).expect("a key");
        assert_eq!(of_key, Path::new("/srv/a/a.key.admin.sock"));
        let named = told("[admin]\nsocket = \"a.sock\"\n[nonsense]\n", file);
        assert_eq!(named.as_deref(), Some(Path::new("/srv/a/a.sock")));
        let service = told(key, Path::new(SERVICE_FILE));
        assert_eq!(service.as_deref(), Some(Path::new(SERVICE_SOCKET)));
        assert_eq!(told("", file), None);
        assert_eq!(told("[[", file), None);
    }
}
