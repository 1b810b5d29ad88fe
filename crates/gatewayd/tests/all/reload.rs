//! Tests of reloads: the gateway reads its configuration again while it runs.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use gatewayd::reload::ReloadOutcome;

use crate::common::{
    self, Control, Gateway, Prepared, World, accept, folder, passive, pattern, read_all,
};

/// Measures the time in which `bytes` pass through the forward.
fn bring(world: &World, bytes: &[u8]) -> Duration {
    let began = Instant::now();
    let mut client = world.forward(0);
    let mut received = vec![0; bytes.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| client.write_all(bytes).expect("the gateway takes it"));
        let mut server = accept(&world.server);
        server
            .read_exact(&mut received)
            .expect("everything arrives");
    });
    assert_eq!(received, bytes);
    began.elapsed()
}

/// Returns an address on which no program listens.
fn free() -> SocketAddr {
    free_at(Ipv4Addr::LOCALHOST)
}

fn free_at(ip: Ipv4Addr) -> SocketAddr {
    let [at] = several_free_at(ip);
    at
}

/// Returns several different addresses on which no program listens.
fn several_free_at<const COUNT: usize>(ip: Ipv4Addr) -> [SocketAddr; COUNT] {
    let listeners = [(); COUNT].map(|()| TcpListener::bind((ip, 0)).expect("a port"));
    listeners.map(|listener| listener.local_addr().expect("a bound socket"))
}

fn target(world: &World) -> SocketAddr {
    world.server.local_addr().expect("a bound socket")
}

/// Asserts that exactly these changes were applied.
#[track_caller]
fn expect_taken(outcome: &ReloadOutcome, taken: &[String]) {
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.taken, taken, "{outcome:?}");
    assert_eq!(outcome.needs_restart, [""; 0], "{outcome:?}");
}

fn is_refused(at: SocketAddr) -> bool {
    TcpStream::connect(at).is_err()
}

/// Sends a command from the client to the server, and its reply back.
fn exchange(client: &mut Control, server: &mut Control) {
    client.send("NOOP");
    server.expect("NOOP");
    server.send("200 ok");
    client.expect("200 ok");
}

/// Transfers the last bytes of an open upload, and its final reply.
fn finish_upload(prepared: Prepared) {
    let (mut client, mut server, mut client_data, server_data) = prepared;
    client_data.write_all(b"rest").expect("the gateway reads");
    client_data.shutdown(Shutdown::Write).expect("an end");
    assert!(read_all(&server_data).ends_with(b"rest"));
    drop(server_data);
    server.send("226 done");
    client.expect("226 done");
}

#[test]
fn a_reload_opens_and_closes_listeners_and_sessions_go_on() {
    let world = World::start();
    let upload = world.mid_upload();
    let (mut client, mut server) = world.session();
    let (ftp, forward, target) = (free(), free(), target(&world));
    let first = format!("[[ftp]]\nlisten = \"127.0.0.1:0\"\ntarget = \"{target}\"\n");
    let added = format!(
        "[[ftp]]\nlisten = \"{ftp}\"\ntarget = \"{target}\"\n\
         [[forward]]\nlisten = \"{forward}\"\ntarget = \"{target}\"\n"
    );
    let outcome = world
        .near
        .reload_and_tell(|text| text.replace(&first, "") + &added);
    // The former second listener is now the first listener of the file. It has the same address as
    // the removed listener, but other settings.
    let names = [
        "[[ftp]] 127.0.0.1:0 changed".to_owned(),
        format!("[[ftp]] {ftp} added"),
        "[[ftp]] 127.0.0.1:0 removed".to_owned(),
        format!("[[forward]] {forward} added"),
    ];
    expect_taken(&outcome, &names);
    assert!(
        is_refused(world.near.ftp[1]),
        "the removed listener refuses connections"
    );
    exchange(&mut client, &mut server);
    let mut new = Control::connect(ftp);
    let mut new_server = world.accept();
    new_server.send("220 ready");
    new.expect("220 ready");
    let _forwarded = TcpStream::connect(forward).expect("it listens");
    let _at_server = world.accept();

    // The new listeners are removed again: their sessions continue.
    let outcome = world.near.reload_and_tell(str::to_owned);
    assert_eq!(outcome.error, None);
    assert!(is_refused(ftp) && is_refused(forward));
    exchange(&mut new, &mut new_server);
    let (_data, _server_data) = passive(&mut new, &mut new_server);
    finish_upload(upload);
}

#[test]
fn a_changed_listener_has_its_new_settings_for_new_sessions_only() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    let outcome = world.near.reload_and_tell(|text| {
        let target = format!("target = \"{}\"\n", target(&world));
        text.replacen(
            &target,
            &format!("{target}external_address = \"192.0.2.7\"\n"),
            1,
        )
    });
    expect_taken(&outcome, &["[[ftp]] 127.0.0.1:0 changed".to_owned()]);
    let announced = |client: &mut Control, server: &mut Control| {
        client.send("PASV");
        let _port = server.open_data_port();
        client.expect_code("227")
    };
    let old = announced(&mut client, &mut server);
    assert!(old.contains("(127,0,0,1,"), "{old}");
    let (mut client, mut server) = world.session();
    let new = announced(&mut client, &mut server);
    assert!(new.contains("(192,0,2,7,"), "{new}");
}

#[test]
fn limits_hold_for_new_sessions() {
    let world = World::start();
    let _session = world.session();
    let limited = |text: &str| format!("{text}[limits]\nsessions_max = 1\n");
    expect_taken(
        &world.near.reload_and_tell(limited),
        &["[limits]".to_owned()],
    );
    Control::connect(world.near.ftp[0]).expect_code("421");
    world.near.reload_and_tell(str::to_owned);
    world.session();
}

#[test]
fn a_wrong_file_is_refused_whole_with_its_place() {
    let world = World::start();
    let upload = world.mid_upload();
    let listener = free();
    let added = |text: &str| {
        format!("{text}[[forward]]\nlisten = \"{listener}\"\ntarget = \"127.0.0.9:1\"\n")
    };
    let outcome = world
        .near
        .reload_and_tell(|text| added(text) + "[limits]\nsesions_max = 1\n");
    let error = outcome.error.expect("it is wrong");
    let line = added(&world.near.text).lines().count() + 2;
    assert!(error.contains(&format!("test.toml:{line}:1: ")), "{error}");
    assert!(outcome.is_wrong && outcome.taken.is_empty());
    assert!(is_refused(listener), "nothing of it was taken on");

    // An address in use causes a refusal, too, but is no mistake of the file.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("a bound socket");
    let outcome = world.near.reload_and_tell(|text| {
        added(text) + &format!("[[forward]]\nlisten = \"{at}\"\ntarget = \"127.0.0.9:1\"\n")
    });
    let error = outcome.error.expect("the address is taken");
    assert!(
        error.contains(&at.to_string()) && !outcome.is_wrong,
        "{error}"
    );
    assert!(is_refused(listener), "nothing of it was taken on");
    let outcome = world.near.reload_and_tell(added);
    expect_taken(&outcome, &[format!("[[forward]] {listener} added")]);
    finish_upload(upload);
}

#[test]
fn what_takes_a_restart_is_named_and_the_rest_is_taken_on() {
    let world = World::start();
    let outcome = world.near.reload_and_tell(|text| {
        text.replace(
            "drain_max = \"1 s\"\n",
            "drain_max = \"2 s\"\nmemory_max = \"512 MiB\"\nidle_timeout = \"1 min\"\npolicy = \"background\"\n",
        )
    });
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.taken, ["[link] drain_max"]);
    let names = [
        "[link] policy, rate_reserved",
        "[link] memory_max",
        "[link] idle_timeout",
        "[limits], with memory_max",
    ];
    assert_eq!(outcome.needs_restart, names);
    world.session();
}

#[test]
fn what_the_far_side_allows_is_taken_on() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    let none = |text: &str| {
        let (before, _) = text.split_once("[far]").expect("a far side");
        before.to_owned()
    };
    let outcome = world.far.reload_and_tell(none);
    expect_taken(&outcome, &["[[peer]] \"site-a\" changed".to_owned()]);
    Control::connect(world.near.ftp[0]).expect_code("530");
    // An earlier session continues, and so do its data connections.
    exchange(&mut client, &mut server);
    let (_data, _server_data) = passive(&mut client, &mut server);
    world.far.reload_and_tell(str::to_owned);
    world.session();
}

#[test]
fn peers_come_and_go_and_their_sessions_with_them() {
    let world = World::start();
    let (mut cut_client, _cut_server, cut_data, cut_server_data) = world.mid_upload();
    let (other, _, key_far) = folder();
    let near_key = |text: &str| {
        let (_, rest) = text.split_once("public_key = \"").expect("a key");
        rest[..44].to_owned()
    };
    // The third gateway stores the same key of the near gateway as the second gateway does.
    let of_near = near_key(&world.far.text);
    let target = target(&world);
    let third = Gateway::start(
        &other,
        "b.key",
        &format!(
            "[[peer]]\nname = \"site-a\"\npublic_key = \"{of_near}\"\n[far]\nallow = [\"{target}\"]\n"
        ),
    );
    let listener = free();
    let peer = format!(
        "[[peer]]\nname = \"site-c\"\npublic_key = \"{key_far}\"\nendpoint = \"{}\"\n\
         [[ftp]]\nlisten = \"{listener}\"\ntarget = \"{target}\"\nvia = \"site-c\"\n",
        third.link
    );
    let (before, after) = world.near.text.split_once("[[ftp]]").expect("a listener");
    let with_both = format!("{before}{peer}[[ftp]]{after}");
    let outcome = world.near.reload_and_tell(|_| with_both.clone());
    assert!(
        outcome
            .taken
            .contains(&"[[peer]] \"site-c\" added".to_owned()),
        "{outcome:?}"
    );
    let mut client = Control::connect(listener);
    let mut server = world.accept();
    server.send("220 by way of site-c");
    client.expect("220 by way of site-c");
    let sessions = |gateway: &Gateway| gateway.snapshot().sessions_open;
    assert_eq!(sessions(&third), 1);
    world.near.wait_for("both", |s| s.peers.len() == 2);

    // Only the third gateway is left, and it serves all servers.
    let head = &before[..before.find("[[peer]]").expect("a peer")];
    let outcome = world
        .near
        .reload_and_tell(|_| format!("{head}{peer}[[ftp]]{after}"));
    // With fewer peers, each peer has more streams, so the default limits change too.
    let taken = ["[limits]", "[[peer]] \"site-b\" removed"];
    expect_taken(&outcome, &taken.map(str::to_owned));
    world
        .near
        .wait_for("the third alone", |s| s.peers.len() == 1);
    let _another = world.session();
    assert_eq!(
        sessions(&third),
        2,
        "new sessions go to the peer that is left"
    );
    cut_client.expect_code("426");
    cut_client.expect_code("421");
    expect_cut(&cut_data);
    expect_cut(&cut_server_data);
    exchange(&mut client, &mut server);

    // The change is reverted: the third gateway leaves, and the second returns.
    let outcome = world.near.reload_and_tell(str::to_owned);
    assert_eq!(outcome.error, None);
    let _third = world.session();
    third.wait_for("no session", |s| s.sessions_open == 0);
    client.expect_code("421");
    let _ = std::fs::remove_dir_all(other);
}

/// Asserts that no further bytes arrive, and that the connection does not end in an orderly way.
fn expect_cut(stream: &TcpStream) {
    let mut bytes = Vec::new();
    let read = (&*stream).read_to_end(&mut bytes);
    let is_late = |error: &std::io::Error| {
        matches!(
            error.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
        )
    };
    assert!(!read.as_ref().is_err_and(is_late), "{read:?}");
}

#[test]
fn a_removed_peer_is_disconnected_at_once_and_gets_the_reason() {
    let world = World::start();
    let (mut client, mut server, client_data, server_data) = world.mid_upload();
    let removed = |text: &str| {
        let (before, after) = text.split_once("[[peer]]").expect("a peer");
        let (_, far) = after.split_once("[far]").expect("a far side");
        format!("{before}[far]{far}")
    };
    let outcome = world.far.reload_and_tell(removed);
    assert!(
        outcome
            .taken
            .contains(&"[[peer]] \"site-a\" removed".to_owned()),
        "{outcome:?}"
    );
    client.expect_code("426");
    client.expect_code("421");
    expect_cut(&client_data);
    expect_cut(&server_data);
    assert!(server.try_line().is_err(), "the server's session has ended");
    world
        .near
        .wait_for("the reason", |s| s.peers[0].state == "dismissed");
    world.far.wait_for("no session", |s| s.sessions_open == 0);
    let told = Control::connect(world.near.ftp[0]).expect_code("421");
    assert!(told.contains("no longer a peer of site-b"), "{told}");
    // The peer may return.
    world.far.reload_and_tell(str::to_owned);
    world.near.wait_for("a link", |s| s.peers[0].state == "up");
    world.session();
}

#[test]
fn a_key_that_is_taken_away_ends_what_was_begun_with_it() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    let (other, _, _) = folder();
    let other_key = link::Identity::generate().public_key().to_string();
    let key = {
        let (_, rest) = world.far.text.split_once("public_key = \"").expect("a key");
        rest[..44].to_owned()
    };
    // First both keys are valid, as in a rotation: no session ends.
    let both = |text: &str| {
        text.replace(
            &format!("\"{key}\""),
            &format!("[\"{key}\", \"{other_key}\"]"),
        )
    };
    let outcome = world.far.reload_and_tell(both);
    expect_taken(&outcome, &["[[peer]] \"site-a\" changed".to_owned()]);
    exchange(&mut client, &mut server);
    let outcome = world
        .far
        .reload_and_tell(|text| text.replace(&key, &other_key));
    expect_taken(&outcome, &["[[peer]] \"site-a\" changed".to_owned()]);
    client.expect_code("421");
    world
        .near
        .wait_for("the reason", |s| s.peers[0].state == "dismissed");
    let _ = std::fs::remove_dir_all(other);
}

#[test]
fn a_removed_pass_through_listener_has_its_data_ports_until_its_clients_leave() {
    let world = World::start();
    let target = target(&world);
    let (listener, data) = (free(), free());
    let port = data.port();
    let added = format!(
        "[[ftp]]\nlisten = \"{listener}\"\ntarget = \"{target}\"\n\
         tls = {{ mode = \"pass-through\" }}\npassive_ports = \"{port}-{port}\"\n"
    );
    let outcome = world.near.reload_and_tell(|text| format!("{text}{added}"));
    expect_taken(&outcome, &[format!("[[ftp]] {listener} added")]);
    let mut client = Control::connect(listener);
    let mut server = world.accept();
    server.send("220 ready");
    client.expect("220 ready");
    world.near.reload_and_tell(str::to_owned);
    assert!(is_refused(listener));
    exchange(&mut client, &mut server);
    // A new client may still be relayed. The far gateway does not allow this port of the server.
    let connected = TcpStream::connect(data);
    connected.expect("the data port of a session that goes on");
    drop((client, server));
    let deadline = Instant::now() + common::TIMEOUT;
    while !is_refused(data) {
        assert!(Instant::now() < deadline, "the port is never given back");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn only_programs_of_our_user_may_reload() {
    let world = World::start();
    assert_eq!(world.near.ask("GET", "/reload", "").0, 405);
    assert_eq!(world.near.ask("POST", "/reload", "").0, 200);
    for order in ["/reload", "/upgrade", "/log"] {
        let mut stream = TcpStream::connect(world.near.admin).expect("the admin address");
        write!(stream, "POST {order} HTTP/1.0\r\n\r\n").expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.0 403"), "{order}: {answer}");
        let socket = world.near.socket.display().to_string();
        assert!(answer.contains(&socket), "{answer}");
    }
}

/// A transfer that is half finished.
struct Running {
    parts: Prepared,
    is_upload: bool,
    bytes: usize,
}

impl Running {
    /// Transfers some more bytes.
    fn go_on(&mut self, piece: &[u8]) {
        let (_, _, client_data, server_data) = &mut self.parts;
        let (from, to) = match self.is_upload {
            true => (client_data, server_data),
            false => (server_data, client_data),
        };
        from.write_all(piece).expect("the gateway reads");
        let mut received = vec![0; piece.len()];
        to.read_exact(&mut received).expect("it arrives");
        assert_eq!(received, piece);
        self.bytes += piece.len();
    }

    fn finish(self) {
        let (mut client, mut server, client_data, server_data) = self.parts;
        let (from, to) = match self.is_upload {
            true => (client_data, server_data),
            false => (server_data, client_data),
        };
        drop(from);
        assert_eq!(read_all(&to), b"");
        drop(to);
        server.send("226 done");
        client.expect("226 done");
    }
}

/// Returns the near gateway's configuration for one round of the test. Settings of each kind differ
/// from the previous round.
fn changed(text: &str, round: usize, target: SocketAddr, free: [SocketAddr; 4]) -> String {
    let [ftp, forward, passing, data] = free;
    let mut text = text.replace(
        "drain_max = \"1 s\"\n",
        &format!(
            "drain_max = \"{} s\"\nrate_max = \"{} Mbit/s\"\n",
            2 + round % 5,
            500 + round
        ),
    );
    text = text.replace(
        "name = \"site-b\"\n",
        &format!("name = \"site-b\"\nrate_max = \"{} Mbit/s\"\n", 400 + round),
    );
    let mode = ["fast", "strict"][round % 2];
    let tail = format!(
        "[limits]\nsessions_max = {}\n\
         [log]\nlevel = \"debug\"\ntransfer_log = \"transfers-{}.log\"\n",
        500 + round,
        round % 2,
    );
    let mut listeners = String::new();
    if round.is_multiple_of(2) {
        let key = link::Identity::from_seed([9; 32]).public_key();
        listeners += &format!(
            "[[peer]]\nname = \"site-x\"\npublic_key = \"{key}\"\nserves = [\"192.0.2.0/24\"]\n"
        );
        listeners +=
            &format!("[[ftp]]\nlisten = \"{ftp}\"\ntarget = \"{target}\"\nmode = \"{mode}\"\n");
    }
    if round % 4 < 2 {
        listeners += &format!("[[forward]]\nlisten = \"{forward}\"\ntarget = \"{target}\"\n");
        let port = data.port();
        listeners += &format!(
            "[[ftp]]\nlisten = \"{passing}\"\ntarget = \"{target}\"\n\
             tls = {{ mode = \"pass-through\" }}\npassive_ports = \"{port}-{port}\"\n"
        );
    }
    if round.is_multiple_of(5) {
        // The transfers use this listener.
        let listener = format!("target = \"{target}\"\n");
        text = text.replacen(&listener, &format!("{listener}mode = \"{mode}\"\n"), 1);
    }
    text + &listeners + &tail
}

fn reloads_harm_no_transfer(transfers: usize, rounds: usize) {
    let world = World::start();
    let mut running: Vec<_> = (0..transfers)
        .map(|number| Running {
            is_upload: number % 2 == 0,
            parts: match number % 2 {
                0 => world.uploading(),
                _ => world.downloading(),
            },
            bytes: 0,
        })
        .collect();
    // No client connects from this address, so its ports stay free until the test uses them.
    let apart = Ipv4Addr::new(127, 129, 0, 7);
    let (target, free) = (target(&world), several_free_at(apart));
    let occupied = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = occupied.local_addr().expect("a bound socket");
    let (mut taken, mut refused) = (0, 0);
    let mut kinds = std::collections::BTreeSet::new();
    for round in 0..rounds {
        let wrong = [
            "[limits]\nidle_timeout = \"soon\"\n".to_owned(),
            "[[forward]]\n".to_owned(),
            format!("[[forward]]\nlisten = \"{at}\"\ntarget = \"127.0.0.9:1\"\n"),
        ];
        let is_wrong = round % 3 == 2;
        let outcome = world.near.reload_and_tell(|text| {
            let text = changed(text, round, target, free);
            match is_wrong {
                true if round % 9 == 8 => text + &wrong[2],
                true => text.replace("[limits]", &wrong[round % 2]),
                false => text,
            }
        });
        assert_eq!(
            outcome.error.is_some(),
            is_wrong,
            "round {round}: {outcome:?}"
        );
        assert_eq!(outcome.needs_restart, [""; 0], "round {round}");
        match is_wrong {
            true => refused += 1,
            false => taken += 1,
        }
        let kind = |change: &String| change.replace(|c: char| c.is_ascii_digit(), "");
        kinds.extend(outcome.taken.iter().map(kind));
        let allow = format!("[far]\nallow = [\"127.0.{round}.9:1\", ");
        let outcome = world
            .far
            .reload_and_tell(|text| text.replace("[far]\nallow = [", &allow));
        assert_eq!(outcome.error, None);
        let piece = pattern(100 + round);
        for transfer in &mut running {
            transfer.go_on(&piece);
        }
    }
    assert!(taken >= rounds / 2 && refused >= rounds / 4);
    for kind in [
        "[link] rate_max",
        "[link] drain_max",
        "[limits]",
        "[log] transfer_log",
        "[[peer]] \"site-b\" changed",
        "[[peer]] \"site-x\" added",
        "[[peer]] \"site-x\" removed",
        "[[ftp]] ...: added",
        "[[ftp]] ...: removed",
        "[[ftp]] ...: changed",
        "[[forward]] ...: added",
        "[[forward]] ...: removed",
    ] {
        assert!(kinds.contains(kind), "{kind}: {kinds:?}");
    }
    let bytes: usize = running.iter().map(|transfer| transfer.bytes).sum();
    for transfer in running {
        transfer.finish();
    }
    let finished = world.near.wait_for("the end of all", |s| {
        s.ftp_succeeded.transfers == transfers as u64
    });
    let totals = finished.ftp_succeeded;
    assert_eq!(totals.upload_bytes + totals.download_bytes, bytes as u64);
    assert_eq!(finished.ftp_failed.transfers, 0);
}

#[test]
fn fifty_transfers_do_not_notice_a_hundred_reloads() {
    reloads_harm_no_transfer(50, 100);
}

/// Tests that measure real time. `cargo xtask test` runs them without other tests in parallel.
mod real_time {
    use super::*;

    #[test]
    fn caps_on_rates_are_taken_on_from_either_side_and_lifted_again() {
        let world = World::start();
        let bytes = pattern(2_000_000);
        bring(&world, &bytes);
        let capped = |section: &str| {
            let section = section.to_owned();
            move |text: &str| text.replace(&section, &format!("{section}rate_max = \"8 Mbit/s\"\n"))
        };
        // At 8 Mbit/s 2 MB take 2 s. The peer needs time to apply the limit.
        let at_least = Duration::from_millis(1_800);
        let settle = || std::thread::sleep(Duration::from_millis(300));
        for section in ["[[peer]]\n", "[link]\n"] {
            world.near.reload(capped(section));
            settle();
            let took = bring(&world, &bytes);
            assert!(took >= at_least, "{section:?} at the sender: {took:?}");
        }
        world.near.reload(str::to_owned);
        world.far.reload(capped("[[peer]]\n"));
        settle();
        let took = bring(&world, &bytes);
        assert!(took >= at_least, "at the receiver: {took:?}");
        world.far.reload(str::to_owned);
        settle();
        // Under the limit these bytes would take 20 s.
        let took = bring(&world, &pattern(20_000_000));
        assert!(took < Duration::from_secs(18), "still capped: {took:?}");
    }
}
