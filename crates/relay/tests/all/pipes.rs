//! A session whose client is in this process: the control connection and all data connections are pipes. The server is a
//! scripted one.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the server behind two relays, and waits for it"
)]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use net::{
    pipe::{Pipe, PipeListener, PipeNetwork},
    target::AllowList,
};
use relay::{
    near::{self, FtpFrontDoor},
    settings::FtpDoor,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

use crate::common::{self, Pair};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_over_a_passive_pipe_arrives_whole() {
    let world = World::start().await;
    let mut client = world.logged_in().await;
    let at = client.passive().await;
    let mut data = world.network.connect(at).expect("the session listens");
    client.send("RETR a").await;
    client.expect("150").await;
    let mut bytes = Vec::new();
    soon(data.read_to_end(&mut bytes)).await.expect("orderly");
    assert!(bytes == pattern(), "the file arrived changed");
    client.expect("226").await;
    client.send("QUIT").await;
    client.expect("221").await;
    let mut rest = Vec::new();
    let end = soon(client.0.read_to_end(&mut rest)).await;
    assert_eq!(end.expect("orderly"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_226_of_a_download_waits_until_the_client_has_read_the_end() {
    let world = World::start().await;
    let mut client = world.logged_in().await;
    let at = client.passive().await;
    let mut data = world.network.connect(at).expect("the session listens");
    client.send("RETR short").await;
    client.expect("150").await;
    let mut bytes = [0; 5];
    soon(data.read_exact(&mut bytes)).await.expect("open");
    let early = timeout(Duration::from_millis(300), client.line()).await;
    assert!(early.is_err(), "{early:?}");
    assert_eq!(soon(data.read(&mut bytes)).await.expect("orderly"), 0);
    client.expect("226").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_to_a_port_of_the_client_arrives_whole() {
    let mut world = World::start().await;
    let mut client = world.logged_in().await;
    let listener = client.active(&world.network).await;
    client.send("STOR a").await;
    client.expect("150").await;
    let mut data = soon(listener.accept()).await;
    soon(data.write_all(&pattern())).await.expect("read");
    drop(data);
    let first = soon(world.stored.recv()).await.expect("an upload");
    let rest = soon(world.stored.recv()).await.expect("an upload");
    let stored = [first.expect("a byte"), rest.expect("orderly")].concat();
    assert!(stored == pattern(), "the file arrived changed");
    client.expect("226").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_the_client_resets_is_reset_at_the_server() {
    let mut world = World::start().await;
    let mut client = world.logged_in().await;
    let listener = client.active(&world.network).await;
    client.send("STOR a").await;
    client.expect("150").await;
    let mut data = soon(listener.accept()).await;
    soon(data.write_all(b"a part")).await.expect("read");
    let begun = soon(world.stored.recv()).await.expect("an upload");
    assert_eq!(begun.expect("a byte"), b"a");
    data.mark_abort();
    drop(data);
    let stored = soon(world.stored.recv()).await.expect("an upload");
    let error = stored.expect_err("a part is not the whole");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    client.expect("4").await;
}

/// A near gateway without sockets for clients, a far one, and a server.
struct World {
    network: PipeNetwork,
    door: SocketAddr,
    /// The first byte of each upload that the server receives, and then the others.
    stored: mpsc::UnboundedReceiver<std::io::Result<Vec<u8>>>,
    server: SocketAddr,
    _pair: Pair,
}

/// The client's control connection.
struct Client(BufReader<Pipe>);

impl World {
    async fn start() -> Self {
        let (server, stored) = serve_files().await;
        let allow = server.to_string().parse().expect("an entry");
        let pair = common::pair(AllowList(vec![allow]), None);
        let network = PipeNetwork::new();
        let listener = network.listen().expect("a port");
        let door = listener.local_addr();
        let settings = FtpDoor::within_process(door, 0, None);
        let front = Arc::new(FtpFrontDoor::new(settings, door, None));
        tokio::spawn(near::serve(listener.into(), front, pair.near.clone()));
        Self {
            network,
            door,
            stored,
            server,
            _pair: pair,
        }
    }

    async fn logged_in(&self) -> Client {
        let control = self.network.connect(self.door).expect("a door");
        let mut client = Client(BufReader::new(control));
        client.expect("220").await;
        let user = format!("USER joe@{}", self.server);
        for (command, reply) in [(&*user, "331"), ("PASS x", "230"), ("TYPE I", "200")] {
            client.send(command).await;
            client.expect(reply).await;
        }
        client
    }
}

impl Client {
    async fn send(&mut self, command: &str) {
        let line = format!("{command}\r\n");
        let written = soon(self.0.write_all(line.as_bytes())).await;
        written.expect("the session reads");
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.expect("a line");
        line
    }

    async fn expect(&mut self, code: &str) -> String {
        let line = soon(self.line()).await;
        assert!(line.starts_with(code), "{line:?} instead of {code}");
        line
    }

    /// Asks for a port of the session's.
    async fn passive(&mut self) -> SocketAddr {
        self.send("PASV").await;
        let reply = self.expect("227").await;
        let numbers = reply.split(['(', ')']).nth(1).expect("parentheses");
        let numbers: Vec<u8> = numbers.split(',').flat_map(str::parse).collect();
        let ip: [u8; 4] = numbers[..4].try_into().expect("four numbers");
        SocketAddr::from((ip, u16::from_be_bytes([numbers[4], numbers[5]])))
    }

    /// Gives the session a port of the client's.
    async fn active(&mut self, network: &PipeNetwork) -> PipeListener {
        let listener = network.listen().expect("a port");
        let [high, low] = listener.local_addr().port().to_be_bytes();
        self.send(&format!("PORT 127,0,0,1,{high},{low}")).await;
        self.expect("200").await;
        listener
    }
}

/// An FTP server that sends and takes files. Returns its address, and what it takes.
async fn serve_files() -> (
    SocketAddr,
    mpsc::UnboundedReceiver<std::io::Result<Vec<u8>>>,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("bound");
    let (store, stored) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((control, _)) = listener.accept().await {
            tokio::spawn(serve_session(control, store.clone()));
        }
    });
    (at, stored)
}

async fn serve_session(
    control: TcpStream,
    store: mpsc::UnboundedSender<std::io::Result<Vec<u8>>>,
) -> std::io::Result<()> {
    let mut control = BufReader::new(control);
    control.write_all(b"220 ready\r\n").await?;
    let mut port = None;
    loop {
        let mut line = String::new();
        if control.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let reply = match line.trim_end() {
            "USER joe" => "331 password".to_owned(),
            "PASS x" => "230 in".to_owned(),
            "QUIT" => return control.write_all(b"221 bye\r\n").await,
            "PASV" => {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let [high, low] = listener.local_addr()?.port().to_be_bytes();
                port = Some(listener);
                format!("227 Entering Passive Mode (127,0,0,1,{high},{low}).")
            }
            line if line.starts_with("TYPE") => "200 as you wish".to_owned(),
            line if line.starts_with("RETR") || line.starts_with("STOR") => {
                let listener = port.take().ok_or(std::io::ErrorKind::NotConnected)?;
                control.write_all(b"150 go\r\n").await?;
                let (mut data, _) = listener.accept().await?;
                match line {
                    "RETR short" => data.write_all(b"short").await?,
                    "RETR a" => data.write_all(&pattern()).await?,
                    _ => {
                        let first = data.read_u8().await;
                        let _ = store.send(first.map(|first| vec![first]));
                        let mut bytes = Vec::new();
                        let read = data.read_to_end(&mut bytes).await;
                        let _ = store.send(read.map(|_| bytes));
                    }
                }
                "226 done".to_owned()
            }
            _ => "502 unknown".to_owned(),
        };
        control.write_all(format!("{reply}\r\n").as_bytes()).await?;
    }
}

/// More than the buffers on the way hold together.
fn pattern() -> Vec<u8> {
    (0..3_000_000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it takes too long")
}

/// Longest wait for anything that should come.
const PATIENCE: Duration = Duration::from_secs(30);
