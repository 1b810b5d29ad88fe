//! The SFTP server at site B: sshd of OpenSSH with one account, which has a key and no password.
//!
//! sshd asks the system for accounts. It runs in a mount namespace of its own, in which files of
//! the stage replace `/etc/passwd` and `/etc/shadow`. The accounts of the machine stay as they are.

use std::{
    fs::{self, File, Permissions},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use emulator::{Site, Wan};

use super::{installed, process_tree::kill_tree};

/// A running server with its keys. Drop ends the server and its sessions.
#[derive(Debug)]
pub(crate) struct SftpServer {
    child: Child,
    /// Folder of keys and settings.
    folder: PathBuf,
    /// Address of the server at site B.
    pub(crate) address: SocketAddr,
    /// Address of the near gateway's listener at site A, which leads to the server.
    pub(crate) listener: SocketAddr,
}

/// Returns the reason why this machine cannot run the server, or `None` if it can.
pub(super) fn missing() -> Option<String> {
    let needed = ["sshd", "ssh-keygen", "unshare"];
    let absent = needed.into_iter().find(|it| installed::find(it).is_none());
    if let Some(program) = absent {
        return Some(format!("{program} is not installed"));
    }
    let ids = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    (!contains_id(&ids, ACCOUNT_ID)).then(|| {
        "sshd needs the user ids of its account, which only root of the machine has".to_owned()
    })
}

/// Returns whether a user namespace contains a user id. `map` is the content of the namespace's
/// file `uid_map` (user_namespaces(7)).
fn contains_id(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        match (first, count) {
            (Some(Ok(first)), Some(Ok(count))) => {
                id.checked_sub(first).is_some_and(|it| it < count)
            }
            _ => false,
        }
    })
}

impl SftpServer {
    /// Creates keys, host keys and settings in `folder`, starts the server at site B, and waits
    /// until it accepts connections. The home folder of the account is `files`.
    ///
    /// At `listener`, the near gateway shows the host key of the server.
    pub(super) fn start(
        wan: &Wan,
        folder: &Path,
        files: &Path,
        [listener, address]: [SocketAddr; 2],
    ) -> anyhow::Result<Self> {
        let log = folder.join("sshd.log");
        prepare(folder, files, [listener, address]).context("the SFTP server")?;
        let program = installed::find("sshd").context("sshd is not installed")?;
        let unshare = installed::find("unshare").context("unshare is not installed")?;
        let mut command = wan.command(Site::B, unshare)?;
        command.args(["--mount", "--propagation", "private"]);
        command.args(["sh", "-c", WITH_ACCOUNT, "sh"]);
        command
            .arg(folder.join("passwd"))
            .arg(folder.join("shadow"));
        command.arg(program).args(["-D", "-e", "-f"]);
        command.arg(folder.join("sshd.conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&log).context("a log")?);
        let mut server = Self {
            child: command.spawn().context("unshare")?,
            folder: folder.to_owned(),
            address,
            listener,
        };
        let deadline = Instant::now() + TIMEOUT;
        while wan.enter(Site::B, || TcpStream::connect(address))?.is_err() {
            let has_ended = !matches!(server.child.try_wait(), Ok(None));
            if has_ended || Instant::now() > deadline {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let last = said.lines().last().unwrap_or("it printed nothing");
                bail!("sshd does not answer at {address}: {last}");
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Returns the file with the private key of the account.
    pub(crate) fn key(&self) -> PathBuf {
        self.user_keys().join(ACCOUNT)
    }

    /// Returns the file with the host keys of the server and of the near gateway.
    pub(crate) fn known_hosts(&self) -> PathBuf {
        self.folder.join("known_hosts")
    }

    /// Returns the folder with a private key for each user, for the far gateway.
    fn user_keys(&self) -> PathBuf {
        self.folder.join("keys")
    }

    /// Returns the section of the near gateway's configuration that leads to the server.
    pub(super) fn near_section(&self) -> String {
        format!(
            "[[ssh]]\nlisten = \"{}\"\ntarget = \"{}\"\nclients = [\"{}/32\"]\nhost_key = {:?}\n\
             public_key = [\"key\"]\n",
            self.listener,
            self.address,
            self.listener.ip(),
            self.folder.join("host_key"),
        )
    }

    /// Returns the section of the far gateway's configuration for log-ins at the server.
    pub(super) fn far_section(&self) -> String {
        format!(
            "[far.ssh]\nknown_hosts = {:?}\nuser_keys = {:?}\n",
            self.known_hosts(),
            self.user_keys(),
        )
    }
}

impl Drop for SftpServer {
    fn drop(&mut self) {
        kill_tree(&mut self.child);
    }
}

/// Creates the files of the server and of its clients.
fn prepare(
    folder: &Path,
    files: &Path,
    [listener, address]: [SocketAddr; 2],
) -> anyhow::Result<()> {
    let keys = folder.join("keys");
    for (path, mode) in [(folder, 0o755), (keys.as_path(), 0o700)] {
        fs::create_dir(path).with_context(|| path.display().to_string())?;
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    let write = |name: &str, text: &str, mode: u32| {
        let path = folder.join(name);
        let written = fs::write(&path, text);
        let written =
            written.and_then(|()| fs::set_permissions(&path, Permissions::from_mode(mode)));
        written.with_context(|| path.display().to_string())
    };
    let host_key = public_half(&folder.join("host_key"))?;
    let user_key = public_half(&keys.join(ACCOUNT))?;
    write("authorized_keys", &user_key, 0o644)?;
    let [near, far] = [listener, address].map(|place| format!("{} {host_key}", place.ip()));
    write("known_hosts", &(near + &far), 0o644)?;
    // The server uses the first line that contains the name of the account.
    let account = format!(
        "{ACCOUNT}:x:{ACCOUNT_ID}:{ACCOUNT_ID}::{}:/bin/sh\n",
        files.display()
    );
    let others = fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
    write("passwd", &(account + &others), 0o644)?;
    // No password matches an asterisk.
    write("shadow", &format!("{ACCOUNT}:*:19000::::::\n"), 0o600)?;
    let settings = [
        format!("ListenAddress {address}"),
        format!("HostKey {}", folder.join("host_key").display()),
        format!(
            "AuthorizedKeysFile {}",
            folder.join("authorized_keys").display()
        ),
    ];
    write("sshd.conf", &(settings.join("\n") + SETTINGS), 0o600)
}

/// Creates a key without a passphrase, and returns the line of its public half.
fn public_half(path: &Path) -> anyhow::Result<String> {
    let program = installed::find("ssh-keygen").context("ssh-keygen is not installed")?;
    let mut command = Command::new(program);
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]);
    let ended = command.arg(path).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success(), "ssh-keygen: {}", said.trim());
    let line = fs::read_to_string(path.with_extension("pub"))?;
    Ok(line.trim_end().to_owned() + "\n")
}

/// Name of the account at the server.
pub(crate) const ACCOUNT: &str = "eval";
/// Port of the server, and of the listener that leads to it.
pub(super) const SSH_PORT: u16 = 22;
/// User id and group id of the account. Accounts of Debian have smaller or much larger numbers.
const ACCOUNT_ID: u32 = 23456;
/// Script that runs a program with the files `$1` and `$2` in place of the system's accounts. The
/// script makes the folder `/run/sshd` if it is missing, because sshd does not start without it.
const WITH_ACCOUNT: &str = "mount --bind \"$1\" /etc/passwd && mount --bind \"$2\" /etc/shadow || exit; \
    test -d /run/sshd || { mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd; } || exit; \
    shift 2; exec \"$@\"";
/// Settings of sshd. `StrictModes` would refuse a key below a folder to which all users can write,
/// such as `/dev/shm`. With `MaxStartups`, all connections of a mover can log in at the same time.
/// `ClientAliveInterval` ends the sessions of an interrupted evaluation after three minutes.
const SETTINGS: &str = "
PidFile none
StrictModes no
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin no
UsePAM no
UseDNS no
PrintMotd no
MaxStartups 100
ClientAliveInterval 60
Subsystem sftp internal-sftp
";
const TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_needs_its_id() {
        for (map, is_there) in [
            ("         0          0 4294967295\n", true),
            ("0 100000 65536\n", true),
            ("0 1000 1\n", false),
            ("0 1000 1\n1 100000 65536\n", true),
            ("30000 0 65536\n", false),
            ("0 0\n", false),
            ("", false),
        ] {
            assert_eq!(contains_id(map, ACCOUNT_ID), is_there, "{map:?}");
        }
    }
}
