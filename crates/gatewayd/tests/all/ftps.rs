//! Tests of FTPS through two gateways: TLS with the client only, with the server only, and with
//! both. Other tests check the replies if TLS is not possible.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{io::Write, net::TcpListener};

use net::tls::ConnectionKind;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::{
    common::{self, Control, World, accept, connect, passive_port, pattern, read_all},
    ftps_common::{
        EXPLICIT, runtime, secure, secured_client, secured_server, server_end, transferring,
        trusting, world_with_tls,
    },
    tls_common::{self, Authority, Folder, NAME},
};

#[test]
fn a_client_with_tls_reaches_a_server_without() {
    let (world, runtime) = (World::start_with("", EXPLICIT), runtime());
    let connector = trusting();
    let (mut client, mut server) = secured_client(&world, &runtime, &connector);
    client.send("PASV");
    let listener = server.open_data_port();
    let data = connect(passive_port(&client.line()));
    client.send("RETR a");
    server.expect("RETR a");
    server.send("150 go");
    client.expect("150 go");
    let mut server_data = accept(&listener);
    server_data
        .write_all(&pattern(200_000))
        .expect("the gateway reads");
    drop(server_data);
    server.send("226 done");
    let mut data = secure(&runtime, data, |tcp| {
        connector.connect(tcp, NAME, ConnectionKind::Data)
    });
    assert!(data.is_resumed(), "the control connection's session");
    let mut bytes = Vec::new();
    let read = runtime.block_on(data.read_to_end(&mut bytes));
    read.expect("an orderly end");
    assert_eq!(bytes, pattern(200_000));
    assert!(!data.closed_without_notify());
    client.expect("226 done");
}

#[test]
fn an_upload_under_tls_arrives_whole() {
    let (world, runtime) = (World::start_with("", EXPLICIT), runtime());
    let connector = trusting();
    let (mut client, mut server) = secured_client(&world, &runtime, &connector);
    client.send("PASV");
    let listener = server.open_data_port();
    let data = connect(passive_port(&client.line()));
    let server_data = accept(&listener);
    client.send("STOR a");
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
    let mut data = secure(&runtime, data, |tcp| {
        connector.connect(tcp, NAME, ConnectionKind::Data)
    });
    runtime.block_on(async {
        data.write_all(&pattern(200_000)).await.expect("TLS");
        data.shutdown().await.expect("TLS");
    });
    drop(data);
    assert_eq!(read_all(&server_data), pattern(200_000));
    drop(server_data);
    server.send("226 done");
    client.expect("226 done");
}

#[test]
fn what_comes_in_clear_behind_auth_is_never_a_command() {
    let world = World::start_with("", EXPLICIT);
    let (mut client, mut server) = world.session();
    client
        .stream
        .write_all(b"AUTH TLS\r\nDELE secret\r\n")
        .expect("a control connection");
    client.expect_code("234 ");
    client.expect_end();
    server.expect_end();
}

#[test]
fn a_server_with_tls_need_not_await_the_clients_end_of_a_download() {
    let (folder, authority, runtime) = (Folder::new("download"), Authority::new(), runtime());
    let world = world_with_tls("verify = false");
    let acceptor = server_end(&folder, &authority);
    let mut client = Control::connect(world.near.ftp[0]);
    let mut server = secured_server(world.accept(), &runtime, &acceptor);
    client.expect("220 ready");
    let (client_data, server_data) = transferring(&mut client, &mut server, "RETR a");
    let mut server_data = secure(&runtime, server_data, |tcp| {
        acceptor.accept(tcp, ConnectionKind::Data)
    });
    runtime
        .block_on(async {
            server_data.write_all(b"all").await?;
            server_data.shutdown().await?;
            server_data.read_to_end(&mut Vec::new()).await
        })
        .expect("an orderly end");
    assert!(!server_data.closed_without_notify());
    server.send("226 done");
    assert_eq!(read_all(&client_data), b"all");
    client.expect("226 done");
}

#[test]
fn a_server_that_sends_no_further_tickets_sees_all_data_connections_resumed() {
    let (folder, authority, runtime) = (Folder::new("resumed"), Authority::new(), runtime());
    let world = world_with_tls("verify = false");
    // The server acts as ProFTPD: it sends no tickets on data connections.
    let acceptor = server_end(&folder, &authority);
    let mut client = Control::connect(world.near.ftp[0]);
    let mut server = secured_server(world.accept(), &runtime, &acceptor);
    client.expect("220 ready");
    for _ in 0..5 {
        let (client_data, server_data) = transferring(&mut client, &mut server, "STOR a");
        drop(client_data);
        let mut server_data = secure(&runtime, server_data, |tcp| {
            acceptor.accept(tcp, ConnectionKind::Data)
        });
        assert!(server_data.is_resumed());
        runtime.block_on(tls_common::receive(&mut server_data));
        drop(server_data);
        server.send("226 done");
        client.expect("226 done");
    }
}

#[test]
fn a_client_without_tls_reaches_a_server_that_demands_it() {
    let (folder, authority, runtime) = (Folder::new("server"), Authority::new(), runtime());
    std::fs::write(folder.path("roots.pem"), authority.pem()).expect("a file");
    let roots = folder.path("roots.pem");
    let world = world_with_tls(&format!("roots_file = \"{}\"", roots.display()));
    let acceptor = server_end(&folder, &authority);
    let mut client = Control::connect(world.near.ftp[0]);
    let mut server = secured_server(world.accept(), &runtime, &acceptor);
    client.expect("220 ready");
    let (mut client_data, server_data) = transferring(&mut client, &mut server, "STOR a");
    client_data
        .write_all(&pattern(200_000))
        .expect("the gateway reads");
    drop(client_data);
    let mut server_data = secure(&runtime, server_data, |tcp| {
        acceptor.accept(tcp, ConnectionKind::Data)
    });
    assert!(server_data.is_resumed(), "servers refuse others");
    let mut bytes = Vec::new();
    let read = runtime.block_on(server_data.read_to_end(&mut bytes));
    read.expect("an orderly end");
    assert_eq!(bytes, pattern(200_000));
    assert!(!server_data.closed_without_notify());
    runtime
        .block_on(server_data.shutdown())
        .expect("an orderly end");
    drop(server_data);
    server.send("226 done");
    client.expect("226 done");
}

#[test]
fn transfers_that_a_server_with_tls_refuses_leave_nothing() {
    let (folder, authority, runtime) = (Folder::new("refused"), Authority::new(), runtime());
    let world = world_with_tls("verify = false");
    let acceptor = server_end(&folder, &authority);
    let mut client = Control::connect(world.near.ftp[0]);
    let mut server = secured_server(world.accept(), &runtime, &acceptor);
    client.expect("220 ready");
    for _ in 0..5 {
        client.send("PASV");
        server.expect("PASV");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("a bound socket").port();
        server.send(&format!("227 ok (127,0,0,1,{},{})", port >> 8, port & 255));
        let _data = connect(passive_port(&client.line()));
        let _server_data = accept(&listener);
        client.send("RETR none");
        server.expect("RETR none");
        server.send("550 none");
        client.expect("550 none");
    }
    let nothing = |s: &relay::status::GatewaySnapshot| s.transfers.is_empty();
    world.near.wait_for("the end of all transfers", nothing);
    world.far.wait_for("the end of all transfers", nothing);
}

#[test]
fn a_server_that_is_not_trusted_gets_no_account() {
    let (folder, runtime) = (Folder::new("distrust"), runtime());
    std::fs::write(folder.path("roots.pem"), Authority::new().pem()).expect("a file");
    let roots = folder.path("roots.pem");
    let world = world_with_tls(&format!("roots_file = \"{}\"", roots.display()));
    let acceptor = server_end(&folder, &Authority::new());
    let mut client = Control::connect(world.near.ftp[0]);
    let mut server = world.accept();
    server.send("220 ready");
    server.expect("AUTH TLS");
    server.send("234 go");
    client.expect("220 ready");
    client.send("USER joe");
    server
        .stream
        .set_nonblocking(true)
        .expect("a socket option");
    runtime.block_on(async {
        let tcp = tokio::net::TcpStream::from_std(server.stream).expect("a connection");
        let refused = timeout(
            common::TIMEOUT,
            acceptor.accept(tcp, ConnectionKind::Control),
        )
        .await;
        refused
            .expect("in time")
            .expect_err("the gateway does not go on");
    });
    let reply = client.expect_code("530 gateway: no TLS with the server");
    assert!(reply.contains("not trusted"), "{reply}");
    client.expect_end();
}

#[test]
fn a_server_without_tls_gets_no_account() {
    let world = world_with_tls("verify = false");
    let mut client = Control::connect(world.near.ftp[0]);
    let mut server = world.accept();
    server.send("220 ready");
    client.expect("220 ready");
    client.send("USER joe");
    server.expect("AUTH TLS");
    server.send("502 what?");
    let reply = client.expect_code("530 gateway: the server offers no TLS");
    assert!(reply.contains("502 what?"), "{reply}");
    server.expect_end();
}

#[test]
fn a_server_that_says_more_than_its_answer_before_tls_is_left() {
    let world = world_with_tls("verify = false");
    let mut client = Control::connect(world.near.ftp[0]);
    let mut server = world.accept();
    server.send("220 ready");
    client.expect("220 ready");
    server.expect("AUTH TLS");
    server
        .stream
        .write_all(b"234 go\r\n200 ok\r\n200 ok\r\n")
        .expect("a control connection");
    client.expect_code("530 gateway: no TLS with the server");
    server.expect_end();
}
