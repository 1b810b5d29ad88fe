//! Tests of control connections through two gateways: relayed lines, texts of refusals, forwards,
//! and the status page.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use crate::common::{self, Control, Gateway, World, accept, expect_reset, read_all};

#[test]
fn unknown_commands_and_odd_replies_are_relayed_byte_for_byte() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    client.send("XYZZY  two  spaces \u{e9}");
    server.expect("XYZZY  two  spaces \u{e9}");
    server
        .stream
        .write_all(b"211-begin\r\n 226 not yet\r\n\r\n229 (|||1|)\r\nnul\0\xff\r\n211 end\r\n")
        .expect("a control connection");
    for line in [
        &b"211-begin"[..],
        b" 226 not yet",
        b"",
        b"229 (|||1|)",
        b"nul\0\xff",
        b"211 end",
    ] {
        assert_eq!(client.try_line().expect("a line"), line);
    }
    client.send("MDTM a");
    server.expect("MDTM a");
    server.send(&format!("213 {}", "x".repeat(17_000)));
    assert_eq!(client.line().len(), 17_004);
}

#[test]
fn pipelined_commands_keep_their_order() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    client
        .stream
        .write_all(b"CWD a\r\nPORT 1,2,3,4,5,6\nPWD\r\nAUTH TLS\r\nNOOP\r\n")
        .expect("a control connection");
    server.expect("CWD a");
    server.send("250 ok");
    server.expect("PWD");
    server.send("257 /a");
    server.expect("NOOP");
    server.send("200 ok");
    for code in ["250", "501", "257", "502", "200"] {
        client.expect_code(code);
    }
}

#[test]
fn the_rest_of_an_over_long_command_is_not_executed() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    let long = format!("RETR {}\r\nNOOP", "DELE x ".repeat(10_000));
    client.send(&long);
    server.expect("NOOP");
    server.send("200 ok");
    client.expect("500 Command line too long");
    client.expect("200 ok");
}

#[test]
fn a_client_that_is_not_read_and_resets_is_noticed() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    // The client sends more commands than the number that may wait for replies.
    for _ in 0..100 {
        client.send("NOOP");
    }
    server.expect("NOOP");
    std::thread::sleep(Duration::from_millis(300));
    common::reset(client.stream);
    world
        .near
        .wait_for("the end of the session", |s| s.sessions_open == 0);
}

#[test]
fn goodbye_closes_both_sides() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    client.send("QUIT");
    server.expect("QUIT");
    server.send("221 bye");
    drop(server);
    client.expect("221 bye");
    client.expect_end();
}

#[test]
fn a_client_may_choose_its_server() {
    let world = World::start();
    let target = world.server.local_addr().expect("a bound socket");
    let mut client = Control::connect(world.near.ftp[1]);
    client.expect_code("220 ");
    client.send(&format!("USER joe@example.com@{target}"));
    let mut server = world.accept();
    server.send("220-hello");
    server.send("220 ready");
    server.expect("USER joe@example.com");
    server.send("331 password");
    client.expect("331 password");
    client.send("PASS x");
    server.expect("PASS x");
    server.send("530 wrong");
    client.expect("530 wrong");
    // The same control connection logs on once more.
    client.send(&format!("USER joe@{target}"));
    server.expect_end();
    let mut server = world.accept();
    server.send("220 ready");
    server.expect("USER joe");
    server.send("230 in");
    client.expect("230 in");
    for (question, answer) in [("SYST", "215 UNIX"), ("FEAT", "502 no"), ("PWD", "257 /")] {
        server.expect(question);
        server.send(answer);
    }
    client.send("NOOP");
    server.expect("NOOP");
}

#[test]
fn a_target_that_is_not_allowed_is_refused_with_5yz_and_says_so() {
    let world = World::start();
    let port = world.server.local_addr().expect("a bound socket").port();
    let mut client = Control::connect(world.near.ftp[1]);
    client.expect_code("220 ");
    for host in [
        "10.1.2.3",
        "127.0.0.2",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "169.254.1.1",
        "0.0.0.0",
        "0x7f.1",
        "2130706433",
        "127.1",
        "0177.0.0.1",
        "127.0.0.1.",
    ] {
        client.send(&format!("USER joe@{host}:{port}"));
        let reply = client.expect_code("530 gateway: ");
        assert!(reply.contains("not allowed"), "{host}: {reply}");
    }
    client.send("QUIT");
    client.expect_code("221");
}

#[test]
fn clients_of_a_listener_can_name_only_allowed_servers() {
    let listener = "[[ftp]]\nlisten = \"127.0.0.1:0\"\nclients = [\"127.0.0.0/8\"]\n\
                allow = [\"127.0.0.1:1-65535\", \"ftp.example.com\"]";
    let world = World::start_with("", listener);
    let target = world.server.local_addr().expect("a bound socket");
    let mut client = Control::connect(world.near.ftp[1]);
    client.expect_code("220 ");
    // The far gateway would permit the first of these hosts.
    for host in ["127.0.0.9:1", "www.example.com", "ftp.example.com:22"] {
        client.send(&format!("USER joe@{host}"));
        let reply = client.expect_code("530 gateway: ");
        assert!(reply.contains("not allowed at this listener"), "{reply}");
    }
    assert_eq!(world.near.snapshot().refused_total, 3);
    assert_eq!(
        world.near.snapshot().peers[0].sent_payload_bytes,
        0,
        "nothing was asked"
    );
    client.send(&format!("USER joe@{target}"));
    world.accept().send("220 ready");
    // The other listener has no such limit.
    let mut client = Control::connect(world.near.ftp[2]);
    client.expect_code("220 ");
    client.send("USER joe@127.0.0.9:1");
    client.expect_code("421 gateway: ");
}

#[test]
fn a_server_that_is_down_is_answered_421() {
    let world = World::start();
    let mut client = Control::connect(world.near.ftp[1]);
    client.expect_code("220 ");
    client.send("USER joe@127.0.0.9:1");
    let reply = client.expect_code("421 gateway: ");
    assert!(reply.contains("longhaul doctor at the far"), "{reply}");
    assert!(reply.contains("127.0.0.9:1"), "{reply}");
    client.expect_end();
}

#[test]
fn peers_fail_over_in_file_order() {
    let world = World::start();
    let target = world.server.local_addr().expect("a bound socket");
    let (folder, key_c, key_absent) = common::folder();
    let far = Gateway::start(
        &folder,
        "b.key",
        &format!("[[peer]]\nname = \"c\"\npublic_key = \"{key_c}\"\nallow = [\"{target}\"]\n"),
    );
    let other = link::Identity::generate().public_key();
    let near = Gateway::start(
        &folder,
        "a.key",
        &format!(
            "[[peer]]\nname = \"dead\"\npublic_key = \"{other}\"\nendpoint = \"127.0.0.1:9\"\n\
             [[peer]]\nname = \"alive\"\npublic_key = \"{key_absent}\"\nendpoint = \"{}\"\n\
             [[ftp]]\nlisten = \"127.0.0.1:0\"\ntarget = \"{target}\"\n",
            far.link
        ),
    );
    let mut client = Control::connect(near.ftp[0]);
    let mut server = world.accept();
    server.send("220 ready");
    client.expect("220 ready");
}

#[test]
fn a_forward_relays_both_ways_and_passes_half_closes_on() {
    let world = World::start();
    let mut client = world.forward(0);
    client.write_all(b"request").expect("the gateway reads");
    client.shutdown(Shutdown::Write).expect("a half close");
    let mut server = accept(&world.server);
    assert_eq!(read_all(&server), b"request");
    server
        .write_all(b"a late answer")
        .expect("the gateway reads");
    drop(server);
    assert_eq!(read_all(&client), b"a late answer");
    world
        .near
        .wait_for("a completed forward", |s| s.transfers_completed_total == 1);
}

#[test]
fn a_forward_to_a_server_that_is_down_is_reset() {
    let world = World::start();
    expect_reset(&world.forward(1));
}

#[test]
fn a_reset_of_one_end_of_a_forward_resets_the_other() {
    let world = World::start();
    let mut client = world.forward(0);
    client.write_all(b"request").expect("the gateway reads");
    let mut server = accept(&world.server);
    server.read_exact(&mut [0; 7]).expect("the request");
    common::reset(client);
    expect_reset(&server);
}

#[test]
fn backpressure_reaches_the_sender() {
    let world = World::start();
    let mut client = world.forward(0);
    client
        .set_write_timeout(Some(Duration::from_secs(2)))
        .expect("a socket option");
    let mut server = accept(&world.server);
    let bytes = vec![7; 1 << 20];
    let mut taken = 0u64;
    // The server does not read: finally no buffer accepts further bytes.
    while let Ok(count) = client.write(&bytes) {
        taken += count as u64;
        assert!(
            taken < 2 << 30,
            "{taken} bytes were taken that nobody reads"
        );
    }
    assert!(taken > 0, "the gateway takes nothing");
    client.shutdown(Shutdown::Write).expect("a half close");
    let mut arrived = 0;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match server.read(&mut buffer).expect("what was taken arrives") {
            0 => break,
            count => arrived += count as u64,
        }
    }
    assert_eq!(arrived, taken);
}

#[test]
fn clients_from_elsewhere_are_turned_away() {
    let world = World::start_with("", "clients = [\"10.0.0.0/8\"]");
    let mut client = Control::connect(world.near.ftp[0]);
    client.expect_code("421 gateway: ");
    client.expect_end();
}

#[test]
fn status_and_metrics_tell_the_same() {
    let world = World::start();
    let (mut client, mut server, mut client_data, _server_data) = world.prepared();
    client.send("STOR a");
    server.expect("STOR a");
    server.send("150 go");
    client_data
        .write_all(&[1; 50_000])
        .expect("the gateway reads");
    let status = world.near.wait_for("the upload", |s| {
        s.transfers
            .iter()
            .any(|t| t.up_bytes == 50_000 && t.limit == "client")
    });
    assert_eq!(status.peers[0].state, "up");
    assert_eq!(status.sessions_open, 1);
    let text = status.to_string();
    assert!(
        text.contains("limited by client") && text.contains("up since"),
        "{text}"
    );
    let metrics = world.near.http("/metrics");
    for line in [
        "longhaul_peer_up{peer=\"site-b\"} 1",
        "longhaul_sessions_open 1",
        "longhaul_transfers_open 1",
        "longhaul_dropped_datagrams_total{reason=\"bad_mac\"} 0",
    ] {
        assert!(
            metrics.lines().any(|l| l == line),
            "{line} is missing:\n{metrics}"
        );
    }
}

#[test]
fn a_gateway_does_not_dial_its_own_listener() {
    let (folder, key_a, key_b) = common::folder();
    let free = TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a port");
    let far = Gateway::start(
        &folder,
        "b.key",
        &format!(
            "[[peer]]\nname = \"site-a\"\npublic_key = \"{key_a}\"\n\
             [[ftp]]\nlisten = \"0.0.0.0:{port}\"\ntarget = \"10.0.0.1\"\n\
             [far]\nallow = [\"127.0.0.0/8:{port}\"]\n",
            port = free.port()
        ),
    );
    let near = Gateway::start(
        &folder,
        "a.key",
        &format!(
            "[[peer]]\nname = \"site-b\"\npublic_key = \"{key_b}\"\nendpoint = \"{}\"\n\
             [[ftp]]\nlisten = \"127.0.0.1:0\"\ntarget = \"127.0.0.3:{}\"\n",
            far.link,
            free.port()
        ),
    );
    let mut client = Control::connect(near.ftp[0]);
    let reply = client.expect_code("530 gateway: ");
    assert!(reply.contains("gateway itself"), "{reply}");
}

/// Tests that measure real time. `cargo xtask test` runs them without other tests in parallel.
mod real_time {
    use super::*;

    #[test]
    fn a_peer_that_is_down_is_named_with_the_time_of_its_last_answer() {
        let (folder, _, key_b) = common::folder();
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        let endpoint = silent.local_addr().expect("a bound socket");
        let near = Gateway::start(
            &folder,
            "a.key",
            &format!(
                "[[peer]]\nname = \"site-b\"\npublic_key = \"{key_b}\"\nendpoint = \"{endpoint}\"\n\
             [[ftp]]\nlisten = \"127.0.0.1:0\"\ntarget = \"10.0.0.1\"\n\
             [[forward]]\nlisten = \"127.0.0.1:0\"\ntarget = \"10.0.0.1:80\"\n"
            ),
        );
        let begun = Instant::now();
        let mut client = Control::connect(near.ftp[0]);
        let reply = client.expect_code("421 gateway: ");
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "it took {:?}",
            begun.elapsed()
        );
        for part in ["site-b", &endpoint.to_string(), "never"] {
            assert!(reply.contains(part), "{reply}");
        }
        client.expect_end();
        expect_reset(&TcpStream::connect(near.forwards[0]).expect("the gateway listens"));
        let status = near.snapshot();
        assert_eq!(status.peers[0].state, "never-answered");
        assert!(status.to_string().contains("UDP blocked?"), "{status}");
    }
}
