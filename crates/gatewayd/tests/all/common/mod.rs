//! Two gateways in one process with a link over loopback. The test itself acts as client and server
//! with blocking sockets. The system chooses every port.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test file uses its part"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use gatewayd::{
    config::Config,
    daemon::{self, AbortedConnections, BoundSockets, ReloadChannels, RunError, ServiceManager},
    reload::ReloadOutcome,
};
use link::Identity;
use relay::status::GatewaySnapshot;
use socket2::SockRef;
use tokio::{
    runtime::Runtime,
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// Maximum time to wait for an expected event.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// A running gateway with a separate Tokio runtime.
pub struct Gateway {
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<Result<AbortedConnections, RunError>>>,
    orders: mpsc::Sender<()>,
    /// Configuration with which the gateway started.
    pub text: String,
    /// Configuration that the gateway reads at its next reload.
    file: Arc<Mutex<String>>,
    pub link: SocketAddr,
    pub ftp: Vec<SocketAddr>,
    pub pass_through: Vec<SocketAddr>,
    pub ssh: Vec<SocketAddr>,
    pub forwards: Vec<SocketAddr>,
    pub admin: SocketAddr,
    pub https: Option<SocketAddr>,
    /// Path of the admin socket.
    pub socket: PathBuf,
}

impl Gateway {
    /// Starts a gateway. `rest` is the end of the configuration file, and may begin with keys of
    /// `[link]`. At a shutdown, sessions have at most a second to finish.
    pub fn start(folder: &Path, key_file: &str, rest: &str) -> Self {
        let token = match folder.join("admin.token").exists() {
            true => "token_file = \"admin.token\"\n",
            false => "",
        };
        let admin = format!("listen = \"127.0.0.1:0\"\n{token}");
        Self::start_with_admin(folder, key_file, &admin, rest)
    }

    /// Starts a gateway. `admin` contains the keys of `[admin]`.
    pub fn start_with_admin(folder: &Path, key_file: &str, admin: &str, rest: &str) -> Self {
        let text = format!(
            "[identity]\nkey_file = \"{key_file}\"\n[admin]\n{admin}\
             [link]\nlisten = \"127.0.0.1:0\"\ndrain_max = \"1 s\"\n{rest}"
        );
        let config = Config::parse(&text, &folder.join("test.toml"))
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        let bound = BoundSockets::bind(&config).expect("free ports");
        let socket = config.admin_socket.clone();
        let local = |l: &TcpListener| l.local_addr().expect("a bound socket");
        let link = bound.link.local_addr().expect("a bound socket");
        let ftp = bound.ftp.iter().map(local).collect();
        let pass_through = bound.pass_through.iter().map(|(control, _)| local(control));
        let pass_through = pass_through.collect();
        let ssh = bound.ssh.iter().map(local).collect();
        let forwards = bound.forwards.iter().map(local).collect();
        let admin = local(bound.admin.as_ref().expect("an admin address"));
        let https = bound.admin_https.as_ref().map(local);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let (stop, stopped) = oneshot::channel::<()>();
        let (orders, received) = mpsc::channel(1);
        let file = Arc::new(Mutex::new(text.clone()));
        let (read, path) = (file.clone(), folder.join("test.toml"));
        let reloads = ReloadChannels {
            orders: received,
            load: Arc::new(move || Config::parse(&read.lock().expect("a text"), &path)),
            on_applied: Box::new(|_| {}),
            set_log: None,
            program: None,
        };
        let task = runtime.spawn(async move {
            let shutdown = async { drop(stopped.await) };
            daemon::run(config, bound, reloads, ServiceManager::none(), shutdown).await
        });
        Self {
            runtime: Some(runtime),
            stop: Some(stop),
            task: Some(task),
            orders,
            text,
            file,
            link,
            ftp,
            pass_through,
            ssh,
            forwards,
            admin,
            https,
            socket,
        }
    }

    /// Changes the configuration that the gateway reads at its next reload.
    pub fn set_file(&self, change: impl FnOnce(&str) -> String) {
        *self.file.lock().expect("a text") = change(&self.text);
    }

    /// Orders a reload. The new configuration is `change` applied to the configuration of the
    /// start.
    pub fn reload(&self, change: impl FnOnce(&str) -> String) {
        *self.file.lock().expect("a text") = change(&self.text);
        self.orders.blocking_send(()).expect("the gateway runs");
    }

    /// Orders a reload through the admin socket. Returns the outcome.
    pub fn reload_and_tell(&self, change: impl FnOnce(&str) -> String) -> ReloadOutcome {
        *self.file.lock().expect("a text") = change(&self.text);
        serde_json::from_str(&self.ask("POST", "/reload", "").1).expect("an outcome")
    }

    /// Requests an orderly shutdown, and waits until the gateway has ended.
    pub fn shut_down(&mut self) -> AbortedConnections {
        drop(self.stop.take());
        let task = self.task.take().expect("shut down once");
        let runtime = self.runtime.take().expect("shut down once");
        let ended = runtime.block_on(task).expect("the gateway does not panic");
        ended.expect("the gateway runs")
    }

    /// Ends all tasks immediately, as if the kernel had killed the process.
    pub fn kill(&mut self) {
        assert!(self.runtime.is_some(), "killed once");
        self.end();
    }

    /// Ends all tasks. Panics if the gateway has already ended with an error.
    ///
    /// The shutdown of the runtime can cause another error, which does not count. During the
    /// shutdown, the runtime accepts no new task. A gateway that is still starting on another
    /// thread therefore notices the end of its accepting task.
    fn end(&mut self) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        let ended = self.task.take().filter(JoinHandle::is_finished);
        let ended = ended.map(|task| runtime.block_on(task));
        runtime.shutdown_background();
        match ended {
            None | Some(Ok(Ok(_))) => {}
            // A second panic would abort all tests.
            Some(failed) if std::thread::panicking() => eprintln!("the gateway ended: {failed:?}"),
            Some(failed) => panic!("the gateway ended: {failed:?}"),
        }
    }

    /// Whether the gateway has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub fn snapshot(&self) -> GatewaySnapshot {
        let body = self.http("/status.json");
        serde_json::from_str(&body).expect("a snapshot")
    }

    /// Reads the gateway's status repeatedly until `condition` holds. Returns the last status.
    pub fn wait_for(
        &self,
        what: &str,
        condition: impl Fn(&GatewaySnapshot) -> bool,
    ) -> GatewaySnapshot {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let snapshot = self.snapshot();
            if condition(&snapshot) {
                return snapshot;
            }
            assert!(
                Instant::now() < deadline,
                "{what} did not come about: {snapshot:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn http(&self, path: &str) -> String {
        self.ask("GET", path, "").1
    }

    /// Sends a request to the admin socket. Returns the status code and the body of the response.
    pub fn ask(&self, method: &str, path: &str, headers: &str) -> (u16, String) {
        let mut stream = UnixStream::connect(&self.socket).expect("the admin socket");
        write!(stream, "{method} {path} HTTP/1.0\r\n{headers}\r\n").expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("HTTP");
        let code = head.split(' ').nth(1).expect("a status line");
        (code.parse().expect("a status code"), body.to_owned())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.end();
    }
}

/// Control connections of client and server, and data connections of client and server.
pub type Prepared = (Control, Control, TcpStream, TcpStream);

/// A near gateway, a far gateway and a scripted server.
pub struct World {
    pub near: Gateway,
    pub far: Gateway,
    pub server: TcpListener,
    pub folder: PathBuf,
}

static WORLDS: AtomicU32 = AtomicU32::new(0);

/// Creates a folder with two identities. Returns its path and both public keys.
pub fn folder() -> (PathBuf, String, String) {
    let number = WORLDS.fetch_add(1, Ordering::Relaxed);
    let name = format!("longhaul-test-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let key = |name: &str| {
        let identity = Identity::generate();
        identity
            .write_new(&folder.join(name))
            .expect("a new key file");
        identity.public_key().to_string()
    };
    let (a, b) = (key("a.key"), key("b.key"));
    (folder, a, b)
}

impl World {
    /// Starts a world. The first FTP listener has the scripted server as its target. The second FTP
    /// listener lets the client choose the server. The forward also leads to the scripted server.
    pub fn start() -> Self {
        Self::start_with("", "")
    }

    pub fn start_with(link: &str, listener: &str) -> Self {
        Self::start_in(folder(), link, listener)
    }

    /// Starts a world in a folder with two identities. If the folder contains `admin.token`, the
    /// gateways use the token in this file.
    pub fn start_in(
        (folder, key_a, key_b): (PathBuf, String, String),
        link: &str,
        listener: &str,
    ) -> Self {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = server.local_addr().expect("a bound socket");
        let far = format!(
            "{link}\n[[peer]]\nname = \"site-a\"\npublic_key = \"{key_a}\"\n\
             [far]\nallow = [\"{target}\", \"127.0.0.9:1\"]\n"
        );
        let far = Gateway::start(&folder, "b.key", &far);
        let near = format!(
            "{link}\n[[peer]]\nname = \"site-b\"\npublic_key = \"{key_b}\"\nendpoint = \"{}\"\n\
             [[ftp]]\nlisten = \"127.0.0.1:0\"\ntarget = \"{target}\"\n{listener}\n\
             [[ftp]]\nlisten = \"127.0.0.1:0\"\nclients = [\"127.0.0.0/8\"]\n\
             [[forward]]\nlisten = \"127.0.0.1:0\"\ntarget = \"{target}\"\n\
             [[forward]]\nlisten = \"127.0.0.1:0\"\ntarget = \"127.0.0.9:1\"\n",
            far.link
        );
        let near = Gateway::start(&folder, "a.key", &near);
        Self {
            near,
            far,
            server,
            folder,
        }
    }

    /// Returns the control connections of a client and the server, after the server's greeting.
    pub fn session(&self) -> (Control, Control) {
        let mut client = Control::connect(self.near.ftp[0]);
        let mut server = self.accept();
        server.send("220 ready");
        client.expect("220 ready");
        (client, server)
    }

    /// Returns the control connections of a client and the server, after the log-in.
    pub fn logged_in(&self) -> (Control, Control) {
        let (mut client, mut server) = self.session();
        for (command, reply) in [("USER joe", "331 password"), ("PASS x", "230 in")] {
            client.send(command);
            server.expect(command);
            server.send(reply);
            client.expect(reply);
        }
        (client, server)
    }

    /// Returns the connections of a client and the server, after `PASV` and the opening of the data
    /// connections.
    pub fn prepared(&self) -> Prepared {
        let (mut client, mut server) = self.session();
        let (client_data, server_data) = passive(&mut client, &mut server);
        (client, server, client_data, server_data)
    }

    /// Returns the connections of an upload, after the server's preliminary reply (150).
    pub fn uploading(&self) -> Prepared {
        self.transferring("STOR a")
    }

    /// Returns the connections of a download, after the server's preliminary reply (150).
    pub fn downloading(&self) -> Prepared {
        self.transferring("RETR a")
    }

    fn transferring(&self, command: &str) -> Prepared {
        let (mut client, mut server, client_data, server_data) = self.prepared();
        client.send(command);
        server.expect(command);
        server.send("150 go");
        client.expect("150 go");
        (client, server, client_data, server_data)
    }

    /// Returns the connections of an upload. The client has sent 100 000 bytes, and the near
    /// gateway has read some of these bytes.
    pub fn mid_upload(&self) -> Prepared {
        let (client, server, mut client_data, server_data) = self.uploading();
        client_data
            .write_all(&pattern(100_000))
            .expect("the gateway reads");
        self.wait_for_upload();
        (client, server, client_data, server_data)
    }

    /// Returns the connections of a download, after the client has read all bytes that the server
    /// has sent.
    pub fn mid_download(&self) -> Prepared {
        let (client, server, mut client_data, mut server_data) = self.downloading();
        server_data.write_all(b"half").expect("the gateway reads");
        client_data.read_exact(&mut [0; 4]).expect("it arrives");
        (client, server, client_data, server_data)
    }

    pub fn wait_for_upload(&self) {
        self.near
            .wait_for("the upload", |s| s.transfers.iter().any(|t| t.up_bytes > 0));
    }

    /// Connects to the forward with this index.
    pub fn forward(&self, number: usize) -> TcpStream {
        let stream = TcpStream::connect(self.near.forwards[number]).expect("the gateway listens");
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("a socket option");
        stream
    }

    pub fn accept(&self) -> Control {
        Control::new(accept(&self.server))
    }

    pub fn kill_far(&mut self) {
        self.far.kill();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Opens data connections with `PASV` for the client and the server.
pub fn passive(client: &mut Control, server: &mut Control) -> (TcpStream, TcpStream) {
    client.send("PASV");
    let listener = server.open_data_port();
    let reply = client.line();
    assert!(
        reply.starts_with("227 Entering Passive Mode (127,0,0,1,"),
        "{reply}"
    );
    let server_data = accept(&listener);
    (connect(passive_port(&reply)), server_data)
}

/// Returns the port number in a 227 reply.
pub fn passive_port(reply: &str) -> u16 {
    let inner = reply.split(['(', ')']).nth(1).expect("parentheses");
    let numbers: Vec<u16> = inner
        .split(',')
        .map(|n| n.parse().expect("a number"))
        .collect();
    numbers[4] * 256 + numbers[5]
}

pub fn connect(port: u16) -> TcpStream {
    connect_from(Ipv4Addr::LOCALHOST.into(), port).expect("a data connection")
}

/// Connects to `port` on loopback, with `from` as the source address.
pub fn connect_from(from: IpAddr, port: u16) -> io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
    let stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

pub fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("a socket option");
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).expect("a socket option");
                stream
                    .set_read_timeout(Some(TIMEOUT))
                    .expect("a socket option");
                return stream;
            }
            Err(error) => {
                assert!(Instant::now() < deadline, "nobody connects: {error}");
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Returns `count` bytes of a pattern that repeats only after a long distance.
pub fn pattern(count: usize) -> Vec<u8> {
    (0..count as u32)
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes())
        .take(count)
        .collect()
}

/// Returns bytes that cannot be compressed. Each seed yields different bytes.
pub fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    // This generator is fast in unoptimised tests, too.
    let mut generator = blake3::Hasher::new();
    generator.update(&seed.to_le_bytes());
    generator.finalize_xof().fill(&mut bytes);
    bytes
}

/// Returns text whose lines all differ.
pub fn text(count: usize) -> Vec<u8> {
    let lines = (0..).map(|n: u64| {
        let number = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        format!(
            "2026-11-27 12:00:00 host-{} request {number} took {} ms\n",
            n % 16,
            number % 977
        )
    });
    lines.flat_map(String::into_bytes).take(count).collect()
}

/// Closes the connection with a TCP reset.
pub fn reset(stream: TcpStream) {
    SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .expect("a socket option");
}

/// Reads until the orderly end of the connection, and returns all bytes.
pub fn read_all(mut stream: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an orderly end");
    bytes
}

/// Asserts that the connection ends with a reset instead of an orderly end.
pub fn expect_reset(mut stream: &TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => panic!("an orderly end where there should be a reset"),
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
                return;
            }
        }
    }
}

/// Asserts that no byte arrives for a short time.
pub fn expect_silence(mut stream: &TcpStream) {
    stream
        .set_read_timeout(Some(Duration::from_millis(300)))
        .expect("a socket option");
    let read = stream.read(&mut [0]);
    assert!(
        matches!(&read, Err(e) if e.kind() == io::ErrorKind::WouldBlock),
        "something came: {read:?}"
    );
    stream
        .set_read_timeout(Some(TIMEOUT))
        .expect("a socket option");
}

/// A control connection that the test reads and writes line by line.
pub struct Control {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Control {
    pub fn new(stream: TcpStream) -> Self {
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("a socket option");
        stream.set_nodelay(true).expect("a socket option");
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    pub fn connect(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).expect("the gateway listens"))
    }

    pub fn send(&mut self, line: &str) {
        self.stream
            .write_all(format!("{line}\r\n").as_bytes())
            .expect("a control connection");
    }

    /// Returns the next line, or an error at the end of the connection.
    pub fn try_line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=at).collect();
                return Ok(line.strip_suffix(b"\r\n").expect("CRLF").to_vec());
            }
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.buffer.extend_from_slice(&piece[..count]),
            }
        }
    }

    pub fn line(&mut self) -> String {
        String::from_utf8_lossy(&self.try_line().expect("a line")).into_owned()
    }

    pub fn expect(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }

    pub fn expect_code(&mut self, code: &str) -> String {
        let line = self.line();
        assert!(line.starts_with(code), "expected {code}: {line}");
        line
    }

    /// Acts as a server: expects `PASV`, and replies with the port of a new listener. Returns the
    /// listener.
    pub fn open_data_port(&mut self) -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        self.announce_data_port(listener.local_addr().expect("a bound socket").port());
        listener
    }

    /// Acts as a server: expects `PASV`, and replies with this port.
    pub fn announce_data_port(&mut self, port: u16) {
        self.expect("PASV");
        // The address is wrong on purpose: the gateway must ignore it.
        self.send(&format!(
            "227 Entering Passive Mode (192,0,2,1,{},{}).",
            port >> 8,
            port & 255
        ));
    }

    pub fn expect_end(&mut self) {
        match self.try_line() {
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
                ) => {}
            other => panic!("expected the end: {other:?}"),
        }
    }

    pub fn expect_silence(&mut self) {
        assert!(
            self.buffer.is_empty(),
            "{:?}",
            String::from_utf8_lossy(&self.buffer)
        );
        expect_silence(&self.stream);
    }
}
