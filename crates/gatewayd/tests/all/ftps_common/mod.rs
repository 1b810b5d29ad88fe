//! Control connections with TLS for the scripted clients and servers of the tests.
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

use std::net::{TcpListener, TcpStream};

use net::tls::{Acceptor, CertificateCheck, ConnectionKind, Connector, Leg};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    runtime::Runtime,
    time::timeout,
};

use crate::{
    common::{self, Control, World, accept, connect, passive_port},
    tls_common::{Authority, Folder, NAME, acceptor, server_tls},
};

/// A control connection with TLS, used by a scripted client or server.
pub struct Secured<'a, S = Leg> {
    pub runtime: &'a Runtime,
    pub leg: S,
    pub read: Vec<u8>,
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Runs a TLS handshake on a connection that had no TLS so far.
pub fn secure<S, F>(
    runtime: &Runtime,
    tcp: TcpStream,
    handshake: impl FnOnce(tokio::net::TcpStream) -> F,
) -> S
where
    F: Future<Output = std::io::Result<S>>,
{
    tcp.set_nonblocking(true).expect("a socket option");
    runtime.block_on(async {
        let tcp = tokio::net::TcpStream::from_std(tcp).expect("a connection");
        let leg = timeout(common::TIMEOUT, handshake(tcp)).await;
        leg.expect("in time").expect("TLS")
    })
}

impl<S: AsyncRead + AsyncWrite + Unpin> Secured<'_, S> {
    pub fn send(&mut self, line: &str) {
        self.runtime.block_on(async {
            let line = format!("{line}\r\n");
            self.leg.write_all(line.as_bytes()).await.expect("TLS");
            self.leg.flush().await.expect("TLS");
        });
    }

    pub fn line(&mut self) -> String {
        loop {
            if let Some(at) = self.read.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.read.drain(..=at).collect();
                return String::from_utf8_lossy(&line).trim_end().to_owned();
            }
            let mut piece = [0; 4096];
            let read = self.leg.read(&mut piece);
            let read = self
                .runtime
                .block_on(async { timeout(common::TIMEOUT, read).await });
            let count = read.expect("in time").expect("TLS");
            assert_ne!(count, 0, "a line and not the end");
            self.read.extend_from_slice(&piece[..count]);
        }
    }

    pub fn expect(&mut self, start: &str) -> String {
        let line = self.line();
        assert!(line.starts_with(start), "expected {start}: {line}");
        line
    }

    /// Acts as a server: accepts the commands for TLS on data connections.
    pub fn settle(&mut self) {
        self.expect("PBSZ 0");
        self.send("200 ok");
        self.expect("PROT P");
        self.send("200 ok");
    }
}

pub fn trusting() -> Connector {
    Connector::new(&server_tls(CertificateCheck::Off)).expect("no roots are needed")
}

/// Returns a client and a server. The client uses TLS with the gateway, and the server uses no TLS.
pub fn secured_client<'a>(
    world: &World,
    runtime: &'a Runtime,
    connector: &Connector,
) -> (Secured<'a>, Control) {
    let (client, server) = world.session();
    (protected(client, runtime, connector), server)
}

/// Starts TLS between the gateway and a client that has received its greeting.
pub fn protected<'a>(
    mut client: Control,
    runtime: &'a Runtime,
    connector: &Connector,
) -> Secured<'a> {
    client.send("AUTH TLS");
    client.expect_code("234 ");
    let leg = secure(runtime, client.stream, |tcp| {
        connector.connect(tcp, NAME, ConnectionKind::Control)
    });
    let mut client = Secured {
        runtime,
        leg,
        read: Vec::new(),
    };
    client.send("PBSZ 0");
    client.expect("200 ");
    client.send("PROT P");
    client.expect("200 ");
    client
}

pub const EXPLICIT: &str = "tls = { mode = \"explicit\" }";

/// Creates the TLS acceptor of the scripted server.
pub fn server_end(folder: &Folder, authority: &Authority) -> Acceptor {
    let source = authority
        .issue()
        .write(&folder.path("server.pem"), &folder.path("server.key"));
    acceptor(source).expect("a certificate")
}

/// Starts a world whose server uses TLS. `verify` contains the keys of `server_tls` that control
/// the check of the server's certificate.
pub fn world_with_tls(verify: &str) -> World {
    let tls = format!("server_tls = {{ mode = \"explicit\", {verify} }}");
    World::start_with("", &tls)
}

/// Acts as a server that accepts TLS. The gateway starts TLS before it sends any command of the
/// client.
pub fn secured_server<'a>(
    server: Control,
    runtime: &'a Runtime,
    acceptor: &Acceptor,
) -> Secured<'a> {
    secured_server_by(server, runtime, |tcp| {
        acceptor.accept(tcp, ConnectionKind::Control)
    })
}

/// Acts as a server that accepts TLS with the given handshake function.
pub fn secured_server_by<S, F>(
    mut server: Control,
    runtime: &Runtime,
    handshake: impl FnOnce(tokio::net::TcpStream) -> F,
) -> Secured<'_, S>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = std::io::Result<S>>,
{
    server.send("220 ready");
    server.expect("AUTH TLS");
    server.send("234 go");
    let leg = secure(runtime, server.stream, handshake);
    let mut server = Secured {
        runtime,
        leg,
        read: Vec::new(),
    };
    server.settle();
    server
}

/// A control connection with or without TLS.
pub trait Talk {
    fn say(&mut self, line: &str);
    fn hear(&mut self) -> String;
}

impl Talk for Control {
    fn say(&mut self, line: &str) {
        self.send(line);
    }

    fn hear(&mut self) -> String {
        self.line()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Talk for Secured<'_, S> {
    fn say(&mut self, line: &str) {
        self.send(line);
    }

    fn hear(&mut self) -> String {
        self.line()
    }
}

/// Opens data connections with `PASV`, and starts a transfer with `command`.
pub fn transferring(
    client: &mut impl Talk,
    server: &mut impl Talk,
    command: &str,
) -> (TcpStream, TcpStream) {
    client.say("PASV");
    assert_eq!(server.hear(), "PASV");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a bound socket").port();
    server.say(&format!("227 ok (127,0,0,1,{},{})", port >> 8, port & 255));
    let client_data = connect(passive_port(&client.hear()));
    let server_data = accept(&listener);
    client.say(command);
    assert_eq!(server.hear(), command);
    server.say("150 go");
    assert_eq!(client.hear(), "150 go");
    (client_data, server_data)
}
