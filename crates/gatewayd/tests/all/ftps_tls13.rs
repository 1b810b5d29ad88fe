//! Tests with servers that support only TLS 1.3. The gateway offers TLS 1.2 first, and must detect
//! that such a server needs TLS 1.3.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use net::tls::ConnectionKind;
use rustls::{
    HandshakeKind, ProtocolVersion,
    version::{TLS12, TLS13},
};
use tokio::{runtime::Runtime, time::timeout};
use tokio_rustls::server::TlsStream;

use crate::{
    common::{self, Control, World},
    ftps_common::{Secured, runtime, secure, secured_server_by, transferring, world_with_tls},
    tls_common::{self, Authority, TlsServer},
};

type Tls = TlsStream<tokio::net::TcpStream>;

fn tls13_server() -> TlsServer {
    TlsServer::new(&Authority::new().issue(), &[&TLS13])
}

/// Acts as a server that rejects the TLS handshake of the gateway.
fn refuse_tls(runtime: &Runtime, tcp: TcpStream, tls: &TlsServer) {
    tcp.set_nonblocking(true).expect("a socket option");
    runtime.block_on(async {
        let tcp = tokio::net::TcpStream::from_std(tcp).expect("a connection");
        let refused = timeout(common::TIMEOUT, tls.accept(tcp, ConnectionKind::Control)).await;
        refused
            .expect("in time")
            .expect_err("TLS 1.2 only is offered");
    });
}

/// Returns a session after two connections to its server and one greeting to its client.
fn session_with<'a>(
    world: &World,
    runtime: &'a Runtime,
    tls: &TlsServer,
) -> (Control, Secured<'a, Tls>) {
    let mut client = Control::connect(world.near.ftp[0]);
    let mut first = world.accept();
    first.send("220-ready");
    first.send("220 the first time");
    first.expect("AUTH TLS");
    first.send("234 go");
    refuse_tls(runtime, first.stream, tls);
    let server = secured_server_by(world.accept(), runtime, |tcp| {
        tls.accept(tcp, ConnectionKind::Control)
    });
    client.expect("220-ready");
    client.expect("220 the first time");
    (client, server)
}

/// Performs an upload without bytes. Returns whether its data connection resumed a TLS session.
fn upload(
    runtime: &Runtime,
    client: &mut Control,
    server: &mut Secured<'_, Tls>,
    tls: &TlsServer,
) -> bool {
    let (client_data, server_data) = transferring(client, server, "STOR a");
    drop(client_data);
    let mut server_data = secure(runtime, server_data, |tcp| {
        tls.accept(tcp, ConnectionKind::Data)
    });
    let kind = server_data.get_ref().1.handshake_kind();
    runtime.block_on(tls_common::receive(&mut server_data));
    drop(server_data);
    server.send("226 done");
    client.expect("226 done");
    kind == Some(HandshakeKind::Resumed)
}

#[test]
fn a_server_that_takes_tls_1_3_only_is_connected_again_and_the_client_sees_one_session() {
    let (world, runtime, tls) = (world_with_tls("verify = false"), runtime(), tls13_server());
    let (mut client, mut server) = session_with(&world, &runtime, &tls);
    client.send("USER joe");
    server.expect("USER joe");
    server.send("331 password");
    client.expect("331 password");
    for _ in 0..5 {
        assert!(upload(&runtime, &mut client, &mut server, &tls));
    }
    // The gateway remembers that this server supports only TLS 1.3.
    let mut client = Control::connect(world.near.ftp[0]);
    secured_server_by(world.accept(), &runtime, |tcp| {
        tls.accept(tcp, ConnectionKind::Control)
    });
    client.expect("220 ready");
}

#[test]
fn where_tickets_run_out_data_connections_make_full_handshakes() {
    let (world, runtime) = (world_with_tls("verify = false"), runtime());
    let tls = tls13_server().without_data_tickets();
    let (mut client, mut server) = session_with(&world, &runtime, &tls);
    let resumed: Vec<_> = (0..4)
        .map(|_| upload(&runtime, &mut client, &mut server, &tls))
        .collect();
    assert_eq!(resumed, [true, true, false, false]);
}

#[test]
fn a_server_with_implicit_tls_1_3_only_is_connected_again_too() {
    let runtime = runtime();
    let world = World::start_with("", "server_tls = { mode = \"implicit\", verify = false }");
    let tls = tls13_server();
    let mut client = Control::connect(world.near.ftp[0]);
    refuse_tls(&runtime, world.accept().stream, &tls);
    let leg = secure(&runtime, world.accept().stream, |tcp| {
        tls.accept(tcp, ConnectionKind::Control)
    });
    let mut server = Secured {
        runtime: &runtime,
        leg,
        read: Vec::new(),
    };
    server.send("220 ready");
    server.settle();
    client.expect("220 ready");
    assert!(upload(&runtime, &mut client, &mut server, &tls));
}

/// Acts as a server that receives a client hello for TLS 1.2 only. The server sends `answer` and
/// closes the connection.
fn answer_and_close(mut tcp: TcpStream, answer: &[u8]) {
    assert!(tcp.read(&mut [0; 4096]).expect("a first message") > 0);
    tcp.write_all(answer).expect("the gateway reads");
}

#[test]
fn a_server_that_lacks_suites_or_just_closes_is_connected_again_too() {
    const INSUFFICIENT_SECURITY: &[u8] = &[21, 3, 3, 0, 2, 2, 71];
    let (runtime, tls) = (runtime(), tls13_server());
    for answer in [INSUFFICIENT_SECURITY, b""] {
        let world = world_with_tls("verify = false");
        let mut client = Control::connect(world.near.ftp[0]);
        let mut first = world.accept();
        first.send("220 ready");
        first.expect("AUTH TLS");
        first.send("234 go");
        answer_and_close(first.stream, answer);
        let mut server = secured_server_by(world.accept(), &runtime, |tcp| {
            tls.accept(tcp, ConnectionKind::Control)
        });
        client.expect("220 ready");
        assert!(upload(&runtime, &mut client, &mut server, &tls));
    }
}

#[test]
fn a_server_that_takes_tls_1_2_the_second_time_is_offered_that_first_again() {
    let (world, runtime) = (world_with_tls("verify = false"), runtime());
    let tls = TlsServer::new(&Authority::new().issue(), &[&TLS12]);
    let mut client = Control::connect(world.near.ftp[0]);
    let mut first = world.accept();
    first.send("220 ready");
    first.expect("AUTH TLS");
    first.send("234 go");
    answer_and_close(first.stream, b"");
    let _server = secured_server_by(world.accept(), &runtime, |tcp| {
        tls.accept(tcp, ConnectionKind::Control)
    });
    client.expect("220 ready");
    let both = TlsServer::new(&Authority::new().issue(), &[&TLS13, &TLS12]);
    let mut client = Control::connect(world.near.ftp[0]);
    let server = secured_server_by(world.accept(), &runtime, |tcp| {
        both.accept(tcp, ConnectionKind::Control)
    });
    client.expect("220 ready");
    let version = server.leg.get_ref().1.protocol_version();
    assert_eq!(version, Some(ProtocolVersion::TLSv1_2));
}

#[test]
fn a_server_that_refuses_a_second_connection_is_reported() {
    let (world, runtime, tls) = (world_with_tls("verify = false"), runtime(), tls13_server());
    let mut client = Control::connect(world.near.ftp[0]);
    let mut first = world.accept();
    first.send("220 ready");
    first.expect("AUTH TLS");
    first.send("234 go");
    refuse_tls(&runtime, first.stream, &tls);
    world.accept().send("421 too many");
    client.expect("220 ready");
    client.send("USER joe");
    let reply = client.expect_code("421 gateway: the server, which does not accept TLS 1.2");
    assert!(reply.contains("421 too many"), "{reply}");
    client.expect_end();
}
