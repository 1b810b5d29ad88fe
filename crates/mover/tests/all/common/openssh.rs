//! An OpenSSH server of this user on the loopback interface, with keys.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use mover::{
    job::{Job, JobSite, RootTarget},
    location::{Scheme, Server},
    sftp::{HostKeyRule, KnownHosts, SftpDial, SshIdentity, SshRoute},
};
use tempfile::TempDir;

use super::job;

/// An OpenSSH server. Dropping the value ends the server.
pub(crate) struct OpenSshServer {
    pub(crate) folder: TempDir,
    process: Child,
    address: SocketAddr,
}

impl OpenSshServer {
    /// Starts a server that accepts the key `id`. `options` are further lines of its configuration.
    pub(crate) fn start(options: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["id", "host_key", "stranger"] {
            keygen(&path(name), "");
        }
        keygen(&path("locked"), "passphrase");
        std::fs::create_dir(path("files")).expect("a folder");
        let keys = ["id.pub", "locked.pub"].map(|it| std::fs::read(path(it)).expect("a key"));
        std::fs::write(path("authorized_keys"), keys.concat()).expect("written");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        drop(listener);
        // The server refuses to start as root without this folder.
        let _ = std::fs::create_dir_all("/run/sshd");
        let file = |name: &str| path(name).display().to_string();
        let config = format!(
            "{options}\nListenAddress {address}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n\
             MaxStartups 100\n",
            file("host_key"),
            file("authorized_keys"),
        );
        std::fs::write(path("sshd_config"), config).expect("written");
        let log = std::fs::File::create(path("sshd.log")).expect("a file");
        let mut process = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(path("sshd_config"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("sshd is installed");
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(address).is_err() {
            if let Some(status) = process.try_wait().expect("a child") {
                let log = std::fs::read_to_string(path("sshd.log"));
                panic!("sshd ended: {status}: {}", log.unwrap_or_default());
            }
            assert!(Instant::now() < deadline, "sshd does not listen");
            sleep(Duration::from_millis(20));
        }
        let server = Self {
            folder,
            process,
            address,
        };
        server.trust("host_key.pub");
        server
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path of a file in the server's folder of files.
    pub(crate) fn at_server(&self, name: &str) -> PathBuf {
        self.path("files").join(name)
    }

    /// Returns the path of a file in the server's folder of files, as clients name it.
    pub(crate) fn place(&self, name: &str) -> Vec<u8> {
        self.at_server(name).as_os_str().as_bytes().to_vec()
    }

    pub(crate) fn site(&self) -> JobSite {
        JobSite::Sftp(Box::new(self.dial()))
    }

    /// Creates a job that copies the local path `from` to `to` in the server's folder of files.
    pub(crate) fn upload(&self, from: &Path, to: &str) -> Job {
        let name = from.file_name().unwrap_or_default().as_bytes().to_vec();
        let source = from.as_os_str().as_bytes().to_vec();
        let target = RootTarget::new(self.place(to), name);
        job(JobSite::Local, self.site(), (source, target))
    }

    /// Creates a job that copies `from` in the server's folder of files to the local path `to`.
    pub(crate) fn download(&self, from: &str, to: &Path) -> Job {
        let name = Path::new(from).file_name().unwrap_or_default().as_bytes();
        let target = RootTarget::new(to.as_os_str().as_bytes().to_vec(), name.to_vec());
        job(self.site(), JobSite::Local, (self.place(from), target))
    }

    /// Writes an entry to `known_hosts` that states this public key as the server's key.
    pub(crate) fn trust(&self, public_key: &str) {
        let key = std::fs::read_to_string(self.path(public_key)).expect("a key");
        let line = format!("[{}]:{} {key}", self.address.ip(), self.address.port());
        std::fs::write(self.path("known_hosts"), line).expect("written");
    }

    /// Returns the parameters for logging in to the server with the key `id`.
    pub(crate) fn dial(&self) -> SftpDial {
        SftpDial {
            server: Server {
                scheme: Scheme::Sftp,
                user: None,
                host: self.address.ip().to_string(),
                port: self.address.port(),
            },
            user: user_name(),
            password: None,
            route: SshRoute::Direct,
            identity: SshIdentity {
                key_files: vec![self.path("id")],
                agent: None,
                has_only_key_files: false,
            },
            host_keys: HostKeyRule::Known(KnownHosts {
                files: vec![self.path("known_hosts")],
                alias: None,
                accepts_new: false,
                confirmed: None,
            }),
            reply_timeout: Duration::from_secs(30),
            stall_max: Duration::from_secs(30),
        }
    }
}

impl Drop for OpenSshServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn user_name() -> String {
    let output = Command::new("id").arg("-un").output().expect("id runs");
    let name = String::from_utf8(output.stdout).expect("a name");
    name.trim().to_owned()
}

fn keygen(path: &Path, passphrase: &str) {
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", passphrase, "-f"])
        .arg(path)
        .status();
    assert!(status.expect("ssh-keygen is installed").success());
}
