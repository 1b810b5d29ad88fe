//! Two gateways on the loopback interface, an OpenSSH server behind the far gateway, and OpenSSH
//! clients.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener as StdListener, UdpSocket},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use link::{Identity, Link, PeerConfig, PublicKey};
use net::target::AllowList;
use relay::{
    Relay, Sessions, far, near,
    optimise::StoresSettings,
    service::FarService,
    settings::{ListenerCoding, MEMORY_MAX, RelaySettings},
};
use ssh::{ChannelKind, EarlyReplies, FarSsh, HostKey, PublicKeyWay, SshListener, SshNear};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::watch};
use units::ByteCount;

/// Two gateways with an OpenSSH server behind the far gateway.
pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) user: String,
    pub(crate) server: Option<OpenSshServer>,
    /// Address of the near gateway's listener.
    pub(crate) listener: SocketAddr,
    pub(crate) near: Relay,
    pub(crate) far: Relay,
    _sessions: [Sessions; 2],
}

/// An OpenSSH server of this user. Dropping the value ends the server.
pub(crate) struct OpenSshServer {
    process: Child,
    pub(crate) address: SocketAddr,
}

/// Settings of a world.
pub(crate) struct WorldSettings {
    pub(crate) listener: SshListener,
    pub(crate) far: FarSsh,
    /// Servers to which the far gateway may connect. `None` stands for the OpenSSH server.
    pub(crate) allow: Option<String>,
    /// Further lines of the server's configuration.
    pub(crate) server_options: String,
    /// Whether both gateways have chunk stores.
    pub(crate) has_stores: bool,
    /// Memory of each gateway's link.
    pub(crate) link_memory_max: ByteCount,
}

impl World {
    /// Starts gateways and a server. The far gateway has a key for each user,
    /// and logs in by these keys.
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts gateways and a server with other settings.
    pub(crate) async fn with(change: impl FnOnce(&mut WorldSettings)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let user = run(Command::new("id").arg("-un"));
        let user = String::from_utf8(user.stdout).expect("a name");
        let user = user.trim().to_owned();
        for name in ["id", "host_key", "gateway_key", "stranger"] {
            let path = path(name);
            let mut keygen = Command::new("ssh-keygen");
            keygen
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path);
            assert!(run(&mut keygen).status.success());
        }
        std::fs::create_dir(path("keys")).expect("a folder");
        write_private(&path("keys").join(&user), &read(&path("gateway_key")));
        let authorized = [read(&path("id.pub")), read(&path("gateway_key.pub"))].concat();
        std::fs::write(path("authorized_keys"), authorized).expect("written");
        let mut settings = WorldSettings {
            listener: SshListener {
                listen: "127.0.0.1:0".parse().expect("an address"),
                target: None,
                clients: None,
                via: Some(0),
                host_key_file: path("near_host_key"),
                early: EarlyReplies::Held,
                public_key: vec![PublicKeyWay::Key],
                channels: vec![ChannelKind::Sftp, ChannelKind::Exec, ChannelKind::Shell],
                coding: ListenerCoding::default(),
            },
            far: FarSsh {
                known_hosts: Some(path("known_hosts")),
                host_key: None,
                user_keys: Some(path("keys")),
                user_ca: None,
                user_ca_force_command: None,
                trust_on_first_use: false,
            },
            allow: None,
            server_options: String::new(),
            has_stores: false,
            link_memory_max: MEMORY_MAX,
        };
        let address = free_address();
        settings.listener.target = Some(address.to_string().parse().expect("a server"));
        let key = String::from_utf8(read(&path("host_key.pub"))).expect("a key");
        let known = format!("[{}]:{} {key}", address.ip(), address.port());
        std::fs::write(path("known_hosts"), known).expect("written");
        change(&mut settings);
        let server = OpenSshServer::start(folder.path(), address, &settings.server_options);
        let allow = settings.allow.unwrap_or_else(|| address.to_string());
        let allow = AllowList(vec![allow.parse().expect("an entry")]);
        let host_key = HostKey::load_or_create(&settings.listener.host_key_file);
        let host_key = host_key.expect("a host key");
        let stores = settings.has_stores.then_some(folder.path());
        let services = ssh::far_services(settings.far);
        let (near, far, sessions) = pair(allow, services, stores, settings.link_memory_max);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("bound");
        let service = SshNear::new(Arc::new(settings.listener), host_key);
        let listener = Arc::new(listener).into();
        tokio::spawn(near::serve(listener, Arc::new(service), near.clone()));
        Self {
            folder,
            user,
            server: Some(server),
            listener: at,
            near,
            far,
            _sessions: sessions,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns options for OpenSSH's clients.
    pub(crate) fn options(&self) -> Vec<String> {
        let known_hosts = self.path("client_known_hosts");
        let mut options = vec!["-F".to_owned(), "none".to_owned()];
        for option in [
            format!("UserKnownHostsFile={}", known_hosts.display()),
            "GlobalKnownHostsFile=/dev/null".to_owned(),
            "StrictHostKeyChecking=accept-new".to_owned(),
            "IdentitiesOnly=yes".to_owned(),
            format!("IdentityFile={}", self.path("id").display()),
            "BatchMode=yes".to_owned(),
            "ConnectTimeout=30".to_owned(),
            "LogLevel=INFO".to_owned(),
        ] {
            options.extend(["-o".to_owned(), option]);
        }
        options
    }

    /// Returns `user@host` of the near gateway.
    pub(crate) fn destination(&self) -> String {
        format!("{}@{}", self.user, self.listener.ip())
    }

    /// Returns a command that runs `ssh` through the gateways.
    pub(crate) fn ssh(&self, arguments: &[&str]) -> Command {
        self.ssh_as(&self.user, arguments)
    }

    /// Returns a command that runs `ssh` through the gateways with another user name.
    pub(crate) fn ssh_as(&self, user: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ssh");
        command.args(self.options());
        command.args(["-p", &self.listener.port().to_string(), "-l", user]);
        command.arg(self.listener.ip().to_string()).args(arguments);
        command.env_remove("SSH_AUTH_SOCK");
        command
    }

    /// Returns the `ssh` command for programs that start `ssh` themselves.
    pub(crate) fn remote_shell(&self) -> String {
        let options = self.options().join(" ");
        format!("ssh {options} -p {}", self.listener.port())
    }
}

impl OpenSshServer {
    fn start(folder: &Path, address: SocketAddr, options: &str) -> Self {
        // The server refuses to start as root without this folder.
        let _ = std::fs::create_dir_all("/run/sshd");
        let file = |name: &str| folder.join(name).display().to_string();
        let config = format!(
            "{options}\nListenAddress {address}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPermitRootLogin yes\nAcceptEnv LC_* GREETING\n\
             Subsystem sftp internal-sftp\nLogLevel VERBOSE\nMaxStartups 100\n\
             PrintMotd no\n",
            file("host_key"),
            file("authorized_keys"),
        );
        std::fs::write(folder.join("sshd_config"), config).expect("written");
        let log = std::fs::File::create(folder.join("sshd.log")).expect("a file");
        let mut process = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(folder.join("sshd_config"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("sshd is installed");
        let deadline = Instant::now() + TIMEOUT;
        while std::net::TcpStream::connect(address).is_err() {
            if let Some(status) = process.try_wait().expect("a child") {
                let log = std::fs::read_to_string(folder.join("sshd.log"));
                panic!("sshd ended: {status}: {}", log.unwrap_or_default());
            }
            assert!(Instant::now() < deadline, "sshd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { process, address }
    }
}

impl Drop for OpenSshServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts two relays that are peers. The far relay offers `services`. The chunk stores of both
/// gateways are in the folder `stores`.
fn pair(
    allow: AllowList,
    services: Vec<Arc<dyn FarService>>,
    stores: Option<&Path>,
    memory_max: ByteCount,
) -> (Relay, Relay, [Sessions; 2]) {
    let store = |name: &str| {
        stores.map(|folder| StoresSettings {
            folder: folder.join(name),
            size_max: ByteCount::gibibytes(1),
        })
    };
    let [near, far] = [(); 2].map(|()| Identity::generate());
    let keys = (near.public_key(), far.public_key());
    let far_store = store("far_store");
    let (far, far_sessions) = relay(far, (keys.0, None), allow, services, far_store, memory_max);
    let endpoint = Some(far.link().local_addr());
    let (allow, services) = (AllowList::default(), Vec::new());
    let store = store("near_store");
    let (near, near_sessions) = relay(near, (keys.1, endpoint), allow, services, store, memory_max);
    (near, far, [near_sessions, far_sessions])
}

fn relay(
    identity: Identity,
    (peer, endpoint): (PublicKey, Option<SocketAddr>),
    allow: AllowList,
    services: Vec<Arc<dyn FarService>>,
    stores: Option<StoresSettings>,
    memory_max: ByteCount,
) -> (Relay, Sessions) {
    let of_link = PeerConfig {
        name: "other".to_owned(),
        public_keys: vec![peer],
        endpoint: endpoint.map(|it| it.to_string()),
        rate_max: None,
        is_guest: false,
    };
    let mut settings = RelaySettings::new(identity, vec![of_link]);
    settings.peers[0].allow = allow;
    settings.link.memory_max = memory_max;
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let link = Link::start(socket, settings.link.clone()).expect("a link");
    let (relay, sessions) = Relay::builder(link, settings).stores(stores).build();
    let (_, current) = watch::channel(relay.clone());
    tokio::spawn(far::serve(current, None, services));
    (relay, sessions)
}

/// Starts another near gateway, whose peer does not run. Returns the address of its listener.
pub(crate) async fn listener_without_a_peer(world: &World) -> SocketAddr {
    let [own, other] = [(); 2].map(|()| Identity::generate());
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let endpoint = silent.local_addr().expect("bound");
    let peer = (other.public_key(), Some(endpoint));
    let allow = AllowList::default();
    let (near, sessions) = relay(own, peer, allow, Vec::new(), None, MEMORY_MAX);
    // The relay ends with the runtime of the test.
    std::mem::forget((silent, sessions));
    let host_key = HostKey::load_or_create(&world.path("near_host_key")).expect("a key");
    let settings = SshListener {
        listen: "127.0.0.1:0".parse().expect("an address"),
        target: Some("127.0.0.1:22".parse().expect("a server")),
        clients: None,
        via: Some(0),
        host_key_file: world.path("near_host_key"),
        early: EarlyReplies::Held,
        public_key: vec![PublicKeyWay::Key],
        channels: vec![ChannelKind::Exec],
        coding: ListenerCoding::default(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("bound");
    let service = Arc::new(SshNear::new(Arc::new(settings), host_key));
    tokio::spawn(near::serve(Arc::new(listener).into(), service, near));
    at
}

/// Returns a free address of the loopback interface.
pub(crate) fn free_address() -> SocketAddr {
    let listener = StdListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound")
}

/// Runs a command to its end. Fails the test if the command takes too long.
pub(crate) fn run(command: &mut Command) -> Output {
    run_with(command, &[])
}

/// Runs a command with these bytes as standard input.
pub(crate) fn run_with(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program is installed");
    let mut stdin = child.stdin.take().expect("piped");
    let mut stdout = child.stdout.take().expect("piped");
    let mut stderr = child.stderr.take().expect("piped");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The program may end before it has read its input.
            let _: io::Result<()> = stdin.write_all(input);
        });
        let out = scope.spawn(move || {
            let mut bytes = Vec::new();
            let _ = stdout.read_to_end(&mut bytes);
            bytes
        });
        let err = scope.spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            bytes
        });
        let deadline = Instant::now() + TIMEOUT;
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break status;
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                panic!("the command takes too long: {command:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Output {
            status,
            stdout: out.join().expect("no panic"),
            stderr: err.join().expect("no panic"),
        }
    })
}

/// Runs a command in a thread of its own, while the gateways run in this runtime.
pub(crate) async fn run_async(command: Command) -> Output {
    run_async_with(command, Vec::new()).await
}

/// Runs a command with these bytes as standard input, in a thread of its own.
pub(crate) async fn run_async_with(mut command: Command, input: Vec<u8>) -> Output {
    let run = tokio::task::spawn_blocking(move || run_with(&mut command, &input));
    run.await.expect("no panic")
}

/// Runs `sftp` with a batch of commands.
pub(crate) async fn sftp(world: &World, batch: &str) -> Output {
    let mut command = Command::new("sftp");
    command.args(world.options()).args(["-b", "-"]);
    command.args(["-P", &world.listener.port().to_string()]);
    command.arg(world.destination()).env_remove("SSH_AUTH_SOCK");
    run_async_with(command, batch.as_bytes().to_vec()).await
}

/// Returns standard error as text.
pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fails the test unless the command has succeeded.
pub(crate) fn assert_success(output: &Output) {
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        errors(output)
    );
}

/// Returns pseudorandom bytes without repeated sequences.
pub(crate) fn content(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    // This generator is fast in unoptimised tests, too.
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

/// Returns bytes of a text. Its words recur, but its lines do not.
pub(crate) fn text(length: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + 80);
    let mut number = 0_u64;
    while text.len() < length {
        number += 1;
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        writeln!(text, "line {number}: the value {hash:x} of the table").expect("memory");
    }
    text.truncate(length);
    text
}

pub(crate) fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}

fn write_private(path: &Path, bytes: &[u8]) {
    let mut options = std::fs::OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path).expect("a new file");
    file.write_all(bytes).expect("written");
    let mode = file.metadata().expect("a file").permissions().mode();
    assert_eq!(mode & 0o077, 0);
}

/// Time limit for a step of a test. Every step is shorter, even on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);
