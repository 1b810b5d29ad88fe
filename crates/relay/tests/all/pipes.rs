//! Tests of a session whose client is in the same process. The control connection and all data
//! connections are pipes.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use fake_ftp::{Behaviour, FakeServer, State};
use net::{
    pipe::{Pipe, PipeListener, PipeNetwork},
    target::AllowList,
};
use relay::{
    near::{self, FtpService},
    settings::FtpListener,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
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
    let world = World::start().await;
    let mut client = world.logged_in().await;
    let listener = client.active(&world.network).await;
    client.send("STOR a").await;
    client.expect("150").await;
    let mut data = soon(listener.accept()).await;
    soon(data.write_all(&pattern())).await.expect("read");
    drop(data);
    client.expect("226").await;
    assert_eq!(world.server.state().uploads[0].end, Some(Ok(())));
    let stored = world.server.content("a").expect("an upload");
    assert!(stored == pattern(), "the file arrived changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_the_client_resets_is_reset_at_the_server() {
    let world = World::start().await;
    let mut client = world.logged_in().await;
    let listener = client.active(&world.network).await;
    client.send("STOR a").await;
    client.expect("150").await;
    let mut data = soon(listener.accept()).await;
    soon(data.write_all(b"a part")).await.expect("read");
    let begun = |it: &State| it.uploads.first().is_some_and(|it| it.bytes > 0);
    drop(world.server.wait_for("the upload", begun));
    data.mark_abort();
    drop(data);
    let ended = |it: &State| it.uploads[0].end.is_some();
    let end = world.server.wait_for("its end", ended).uploads[0].end;
    assert_eq!(end, Some(Err(std::io::ErrorKind::ConnectionReset)));
    client.expect("4").await;
}

/// A near gateway without client sockets, a far gateway, and a server.
struct World {
    network: PipeNetwork,
    address: SocketAddr,
    server: FakeServer,
    _pair: Pair,
}

/// Control connection of the client.
struct Client(BufReader<Pipe>);

impl World {
    async fn start() -> Self {
        // The server reports success of a truncated upload. This reply must not reach the client.
        let server = FakeServer::start(Behaviour {
            upload_reply: Some("226 done"),
            ..Behaviour::default()
        });
        server.put("a", &pattern());
        server.put("short", b"short");
        let allow = server.address().to_string().parse().expect("an entry");
        let pair = common::pair(AllowList(vec![allow]), None);
        let network = PipeNetwork::new();
        let listener = network.listen().expect("a port");
        let address = listener.local_addr();
        let settings = FtpListener::within_process(address, 0, None);
        let front = Arc::new(FtpService::new(settings, address, None));
        tokio::spawn(near::serve(listener.into(), front, pair.near.clone()));
        Self {
            network,
            address,
            server,
            _pair: pair,
        }
    }

    async fn logged_in(&self) -> Client {
        let control = self.network.connect(self.address).expect("a listener");
        let mut client = Client(BufReader::new(control));
        client.expect("220").await;
        let user = format!("USER joe@{}", self.server.address());
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

    /// Requests a passive data connection. Returns the address in the reply.
    async fn passive(&mut self) -> SocketAddr {
        self.send("PASV").await;
        let reply = self.expect("227").await;
        let numbers = reply.split(['(', ')']).nth(1).expect("parentheses");
        let numbers: Vec<u8> = numbers.split(',').flat_map(str::parse).collect();
        let ip: [u8; 4] = numbers[..4].try_into().expect("four numbers");
        SocketAddr::from((ip, u16::from_be_bytes([numbers[4], numbers[5]])))
    }

    /// Listens for an active data connection, and sends the address of the listener to the session.
    async fn active(&mut self, network: &PipeNetwork) -> PipeListener {
        let listener = network.listen().expect("a port");
        let [high, low] = listener.local_addr().port().to_be_bytes();
        self.send(&format!("PORT 127,0,0,1,{high},{low}")).await;
        self.expect("200").await;
        listener
    }
}

/// Generates more bytes than all buffers on the path can hold.
fn pattern() -> Vec<u8> {
    (0..3_000_000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(TIMEOUT, future).await.expect("it takes too long")
}

/// Time limit for an expected event.
const TIMEOUT: Duration = Duration::from_secs(30);
