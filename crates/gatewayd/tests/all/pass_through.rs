//! Tests of TLS that the gateways pass through unread. They relay every byte of control and data
//! connections unchanged.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
};

use socket2::{Domain, Socket, Type};

use crate::common::{self, Gateway, accept, folder, pattern, read_all};

/// Two gateways with a pass-through listener, and a server's control and data listeners.
struct Passed {
    near: Gateway,
    _far: Gateway,
    control: TcpListener,
    data: TcpListener,
    listener: SocketAddr,
}

/// Address of the server. The next constant is the IP address of the listener. Both use the same
/// data port, so each needs its own IP address.
const SERVER: &str = "127.0.0.77:0";
const LISTENER_ADDRESS: &str = "127.0.0.78";

impl Passed {
    fn start() -> Self {
        Self::start_with("", "")
    }

    /// Starts the gateways. `keys` are further keys of the listener. `sections` are further
    /// sections of the file.
    fn start_with(keys: &str, sections: &str) -> Self {
        let (folder, key_a, key_b) = folder();
        let control = TcpListener::bind(SERVER).expect("a port");
        let data = TcpListener::bind(SERVER).expect("a port");
        let at = |l: &TcpListener| l.local_addr().expect("a bound socket");
        let (target, port) = (at(&control), at(&data).port());
        let host = target.ip();
        let far = Gateway::start(
            &folder,
            "b.key",
            &format!(
                "[[peer]]\nname = \"site-a\"\npublic_key = \"{key_a}\"\n\
                 [far]\nallow = [\"{target}\", \"{host}:{port}-{port}\"]\n"
            ),
        );
        let near = Gateway::start(
            &folder,
            "a.key",
            &format!(
                "[[peer]]\nname = \"site-b\"\npublic_key = \"{key_b}\"\nendpoint = \"{}\"\n\
                 [[ftp]]\nlisten = \"{LISTENER_ADDRESS}:0\"\ntarget = \"{target}\"\n\
                 tls = {{ mode = \"pass-through\" }}\npassive_ports = \"{port}-{port}\"\n{keys}\n{sections}\n",
                far.link
            ),
        );
        let listener = near.pass_through[0];
        Self {
            near,
            _far: far,
            control,
            data,
            listener,
        }
    }

    /// Opens a data connection of a client with the source address `from`.
    fn connect_data(&self, from: &str) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let at = |host: &str, port| SocketAddr::new(host.parse().expect("an address"), port).into();
        socket.bind(&at(from, 0)).expect("a port");
        let port = self.data.local_addr().expect("a bound socket").port();
        socket
            .connect(&at(LISTENER_ADDRESS, port))
            .expect("the gateway listens");
        let stream = TcpStream::from(socket);
        stream
            .set_read_timeout(Some(common::TIMEOUT))
            .expect("a socket option");
        stream
    }
}

#[test]
fn what_client_and_server_say_passes_unread() {
    let passed = Passed::start();
    let mut client = TcpStream::connect(passed.listener).expect("the gateway listens");
    let mut server = accept(&passed.control);
    // The bytes are not FTP, and the gateway does not parse them.
    let spoken = pattern(5000);
    client.write_all(&spoken).expect("a connection");
    let mut heard = vec![0; spoken.len()];
    server.read_exact(&mut heard).expect("it arrives");
    assert_eq!(heard, spoken);
    server.write_all(&[0xff; 300]).expect("a connection");
    client.read_exact(&mut heard[..300]).expect("it arrives");

    let client_data = passed.connect_data("127.0.0.1");
    let mut server_data = accept(&passed.data);
    let file = pattern(1_000_000);
    std::thread::scope(|scope| {
        let file = &file;
        scope.spawn(move || {
            server_data.write_all(file).expect("the gateway reads");
            drop(server_data);
        });
        assert!(read_all(&client_data) == *file, "another file came");
    });
    assert_eq!(passed.near.snapshot().sessions_open, 1);
    drop(client);
    assert_eq!(server.read(&mut heard).expect("an orderly end"), 0);
}

#[test]
fn nobody_without_a_control_connection_gets_at_the_data_ports() {
    let passed = Passed::start();
    let stranger = passed.connect_data("127.0.0.1");
    common::expect_reset(&stranger);

    let client = TcpStream::connect(passed.listener).expect("the gateway listens");
    let server = accept(&passed.control);
    let other = passed.connect_data("127.0.0.9");
    common::expect_reset(&other);
    let mut data = passed.connect_data("127.0.0.1");
    data.write_all(b"x").expect("a connection");
    accept(&passed.data)
        .read_exact(&mut [0])
        .expect("it arrives");

    drop((client, server, data));
    passed
        .near
        .wait_for("the end of the session", |s| s.sessions_open == 0);
    common::expect_reset(&passed.connect_data("127.0.0.1"));
}

#[test]
fn one_client_has_few_data_connections_for_each_control_connection() {
    let passed = Passed::start();
    let _client = TcpStream::connect(passed.listener).expect("the gateway listens");
    let _server = accept(&passed.control);
    let open: Vec<_> = (0..4)
        .map(|_| (passed.connect_data("127.0.0.1"), accept(&passed.data)))
        .collect();
    common::expect_reset(&passed.connect_data("127.0.0.1"));
    drop(open);
    passed
        .near
        .wait_for("their end", |s| s.transfers.len() == 1);
    let _data = passed.connect_data("127.0.0.1");
    accept(&passed.data);
}

#[test]
fn limits_hold_by_a_reset() {
    let reset = |passed: &Passed| {
        common::expect_reset(&TcpStream::connect(passed.listener).expect("the gateway listens"));
    };
    reset(&Passed::start_with("clients = [\"10.0.0.0/8\"]", ""));

    let passed = Passed::start_with("", "[limits]\nsessions_per_client_max = 1");
    let _client = TcpStream::connect(passed.listener).expect("the gateway listens");
    let _server = accept(&passed.control);
    reset(&passed);

    let passed = Passed::start_with(
        "",
        "[limits]\nidle_timeout = \"1 s\"\nstall_timeout = \"1 s\"",
    );
    let client = TcpStream::connect(passed.listener).expect("the gateway listens");
    let _server = accept(&passed.control);
    let data = passed.connect_data("127.0.0.1");
    let _server_data = accept(&passed.data);
    common::expect_reset(&data);
    common::expect_reset(&client);
}
