//! Tests of `longhaul doctor`. Each test makes one common mistake. The command must find the
//! mistake and print the recommended action.
#![allow(
    clippy::disallowed_methods,
    reason = "runs programs and waits for them"
)]

use std::{
    fs::{self, File, Permissions},
    net::{TcpListener, UdpSocket},
    os::unix::fs::PermissionsExt as _,
    time::{Duration, SystemTime},
};

use fake_ftp::{Behaviour, FakeServer};
use link::Identity;

use crate::common::{
    side::{Running, Side, free, is_up, printed},
    ssh_server::SshServer,
};

/// Two gateways that are peers, and a server that sends a greeting.
struct Pair {
    far: Side,
    near: Side,
    target: String,
}

impl Pair {
    fn new(name: &str) -> Self {
        let target = FakeServer::start(Behaviour::default())
            .address()
            .to_string();
        let far = Side::new(&format!("{name}-far"));
        let near = Side::new(&format!("{name}-near"));
        let invite = printed(&far.far(&["--allow", &target]));
        let running = far.start();
        printed(&near.near(&invite, &["--target", &target, "--name", "oslo"]));
        drop(running);
        Self { far, near, target }
    }

    fn start(&self) -> (Running, Running) {
        let running = (self.far.start(), self.near.start());
        self.near.wait("a link", |it| is_up(it, "far"));
        running
    }
}

/// Runs `longhaul doctor` for one gateway. Returns the exit code and the findings.
fn doctor(side: &Side) -> (i32, String) {
    let output = side.run(&["doctor"], &[], "");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().expect("an exit code"), text)
}

/// Asserts that the command prints the finding `seen`, followed by the recommended action `cure`.
#[track_caller]
fn assert_finds(side: &Side, seen: &str, cure: &str) {
    let (code, text) = doctor(side);
    let mut lines = text.lines();
    let found = lines.find(|it| it.starts_with("WRONG") && it.contains(seen));
    assert!(found.is_some(), "{seen}: {text}");
    let named = lines.next().unwrap_or_default();
    assert!(
        named.contains("cure:") && named.contains(cure),
        "{cure}: {text}"
    );
    assert_eq!(code, 1, "{text}");
}

fn change(side: &Side, from: &str, to: &str) {
    let text = fs::read_to_string(side.config()).expect("it is there");
    assert!(text.contains(from), "{from}: {text}");
    fs::write(side.config(), text.replacen(from, to, 1)).expect("room");
}

#[test]
fn of_a_pair_that_works_nothing_is_wrong() {
    let pair = Pair::new("healthy");
    let _running = pair.start();
    for side in [&pair.far, &pair.near] {
        let (code, text) = doctor(side);
        assert_eq!(code, 0, "{text}");
        assert!(
            text.contains("it answers") && !text.contains("WRONG"),
            "{text}"
        );
        assert!(text.contains("ok     gateway: it runs"), "{text}");
    }
    let (_, text) = doctor(&pair.near);
    assert!(text.contains(&format!("{} greets", pair.target)), "{text}");
    let (_, text) = doctor(&pair.far);
    assert!(text.contains("it accepts connections"), "{text}");
}

#[test]
fn mistakes_in_files_are_found() {
    let side = Side::new("files");
    printed(&side.far(&["--allow", "127.0.0.1:1"]));
    let key = side.folder.path("state/gateway.key");
    // The file has an unknown key.
    change(&side, "[far]", "[fra]");
    assert_finds(&side, "gateway.toml:", "change the line that it names");
    change(&side, "[fra]", "[far]");
    // Others can read the private key.
    fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("ours");
    assert_finds(&side, "group or others can read", "chmod");
    fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("ours");
    // The key file is missing.
    change(&side, "gateway.key", "other.key");
    assert_finds(&side, "key file", "longhaul keygen");
    change(&side, "other.key", "gateway.key");
    // The clock is behind.
    let later = SystemTime::now() + Duration::from_secs(86_400);
    let file = File::options().write(true).open(&key).expect("ours");
    file.set_modified(later).expect("ours");
    assert_finds(&side, "the clock is behind", "set-ntp");
    file.set_modified(SystemTime::now()).expect("ours");
    // The gateway was not started, and another program uses its port.
    assert_finds(&side, "it does not run", "systemctl start longhaul");
    let _other = UdpSocket::bind(side.link).expect("it is free");
    assert_finds(&side, "in use", "ss -lnp");
}

#[test]
fn a_store_without_its_folder_keeps_no_gateway_from_its_start_and_is_found() {
    let side = Side::new("store-missing");
    printed(&side.far(&["--allow", "127.0.0.1:1"]));
    let disk = side.folder.path("disk");
    let text = fs::read_to_string(side.config()).expect("there");
    let store = format!("\n[store]\nfolder = \"{disk}/store\"\n");
    fs::write(side.config(), text + &store).expect("room");
    let running = side.start();
    assert_finds(
        &side,
        "disk/store is not there",
        &format!("mkdir -p {disk}"),
    );
    assert!(!std::path::Path::new(&disk).exists());
    drop(running);
    fs::create_dir(&disk).expect("room");
    let _running = side.start();
    let (_, text) = doctor(&side);
    assert!(
        text.contains(&format!("ok     store: {disk}/store")),
        "{text}"
    );
    fs::remove_dir(format!("{disk}/store")).expect("it was made");
    fs::write(format!("{disk}/store"), b"").expect("room");
    assert_finds(&side, "disk/store is no folder", "the path of a folder");
}

#[test]
fn a_peer_that_does_not_answer_is_found_with_the_reason() {
    let pair = Pair::new("peers");
    let (far, near) = (&pair.far, &pair.near);
    let (far_running, near_running) = pair.start();
    drop((far_running, near_running));
    // No process listens there.
    let running = near.start();
    assert_finds(near, "no program listens at UDP", "start the gateway there");
    drop(running);
    // The name cannot be resolved.
    change(
        near,
        &format!("endpoint = \"{}\"", far.link),
        "endpoint = \"far.invalid:4810\"",
    );
    let running = near.start();
    assert_finds(near, "has no address", "getent hosts");
    drop(running);
    change(
        near,
        "endpoint = \"far.invalid:4810\"",
        &format!("endpoint = \"{}\"", far.link),
    );
    // The key of the near side differs from its key at the far side.
    fs::remove_file(near.folder.path("state/gateway.key")).expect("there");
    let other = Identity::generate();
    let key = near.folder.path("state/gateway.key");
    other.write_new(key.as_ref()).expect("room");
    let _far = far.start();
    let _near = near.start();
    far.wait("a stranger", |it| {
        it["dropped"]["unknown_key"].as_u64() > Some(0)
    });
    assert_finds(far, "a key that no peer has here", "public_key =");
    assert_finds(near, "it never answered", "run longhaul doctor there");
}

#[test]
fn a_server_that_is_not_reached_is_found_with_the_reason() {
    let pair = Pair::new("servers");
    let (far, near) = (&pair.far, &pair.near);
    let nobody = free().to_string();
    // The far gateway does not permit this server.
    let target = format!("target = \"{}\"", pair.target);
    change(near, &target, &format!("target = \"{nobody}\""));
    let (running, near_running) = pair.start();
    assert_finds(near, "not allowed", "[far] allow");
    drop((running, near_running));
    // The server does not run.
    change(
        far,
        &format!("\"{}\"", pair.target),
        &format!("\"{nobody}\""),
    );
    let (_far, _near) = pair.start();
    assert_finds(far, "refused", "start the server");
    assert_finds(near, "421", "longhaul doctor at the far gateway");
}

#[test]
fn a_gateway_without_peers_and_one_with_taken_ports_are_found() {
    let side = Side::new("lonely");
    let taken = TcpListener::bind((side.ftp.ip(), 0)).expect("a port");
    let port = taken.local_addr().expect("bound").port();
    printed(&side.far(&["--allow", "127.0.0.1:1"]));
    printed(&side.run(&["peer", "rm", "--invites"], &[], ""));
    let listener = format!(
        "\n[[ftp]]\nlisten = \"{}\"\nclients = [\"127.0.0.0/8\"]\npassive_ports = \"{port}-{port}\"\n",
        side.ftp
    );
    let text = fs::read_to_string(side.config()).expect("there");
    fs::write(side.config(), text + &listener).expect("room");
    assert_finds(&side, "there is none", "longhaul peer invite");
    assert_finds(
        &side,
        &format!("another program has port {port}"),
        "ss -ltnp",
    );
}

#[test]
fn an_ssh_server_whose_host_key_is_not_known_is_found() {
    let server = SshServer::start();
    let (target, fingerprint) = (server.address.to_string(), server.fingerprint());
    let side = Side::new("ssh-keys");
    printed(&side.far(&["--allow", &target]));
    let peer = Identity::generate().public_key().to_string();
    printed(&side.run(&["peer", "add", "oslo", &peer], &[], ""));
    let unknown = format!("{fingerprint}, which is not in");
    assert_finds(&side, &unknown, &format!("setup far --allow {target}"));
    let known = side.folder.path("state/ssh_known_hosts");
    fs::write(&known, server.known_hosts_line()).expect("room");
    let (_, text) = doctor(&side);
    let line = format!(
        "ok     server {target}: it accepts connections, and its host key {fingerprint} is known"
    );
    assert!(text.contains(&line), "{text}");
    let other = SshServer::start();
    let (ip, port) = (server.address.ip(), server.address.port());
    let line = other.known_hosts_line();
    let (_, key) = line.split_once(' ').expect("a line");
    fs::write(&known, format!("# a comment\n[{ip}]:{port} {key}")).expect("room");
    assert_finds(&side, "but line 2 of", "compare the fingerprint");
    let text = fs::read_to_string(side.config()).expect("there");
    fs::write(
        side.config(),
        format!(
            "{text}\n[far.ssh]\nhost_key = \"{}\"\n",
            other.fingerprint()
        ),
    )
    .expect("room");
    assert_finds(&side, "permits only another key", "correct host_key");
    fs::write(
        side.config(),
        format!("{text}\n[far.ssh]\ntrust_on_first_use = true\n"),
    )
    .expect("room");
    fs::remove_file(&known).expect("there");
    let (_, text) = doctor(&side);
    assert!(
        text.contains("look   server") && text.contains("the first log-in adds"),
        "{text}"
    );
}

#[test]
fn an_ssh_listener_is_tested_up_to_the_ways_to_log_in_of_its_server() {
    let (server, other) = (SshServer::start(), SshServer::start());
    let target = server.address.to_string();
    let far = Side::new("ssh-listener-far");
    let near = Side::new("ssh-listener-near");
    let key = server.fingerprint();
    let invite = printed(&far.far(&["--allow", &target, "--ssh", "--host-key", &key]));
    let _far = far.start();
    let options = ["--service", "ssh", "--target", &target, "--name", "oslo"];
    printed(&near.near(&invite, &options));
    let _near = near.start();
    near.wait("a link", |it| is_up(it, "far"));
    let assert_offers = || {
        let (code, text) = doctor(&near);
        let line = format!("ok     listener {}: {target} offers a log-in by ", near.ftp);
        assert!(text.contains(&line) && text.contains("password"), "{text}");
        assert_eq!(code, 0, "{text}");
    };
    assert_offers();
    // `known_hosts` has another host key of the server.
    let known = far.folder.path("state/ssh_known_hosts");
    let line = other.known_hosts_line();
    let (_, key) = line.split_once(' ').expect("a line");
    let (ip, port) = (server.address.ip(), server.address.port());
    fs::write(&known, format!("[{ip}]:{port} {key}")).expect("room");
    assert_finds(
        &near,
        "line 1 of known_hosts",
        "at the far gateway: longhaul doctor",
    );
    // A reload applies other settings for servers.
    let text = fs::read_to_string(far.config()).expect("there");
    let pinned = format!(
        "{text}\n[far.ssh]\nhost_key = \"{}\"\n",
        server.fingerprint()
    );
    fs::write(far.config(), pinned).expect("room");
    let reloaded = printed(&far.run(&["reload"], &[], ""));
    assert!(reloaded.contains("applied: [far.ssh]"), "{reloaded}");
    assert_offers();
}
