//! Tests of SSH listeners in a gateway: sockets, host keys, reloads and status.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use crate::common::{Gateway, World};
use ssh::HostKey;

/// Adds an SSH listener to a configuration.
fn with_listener(text: &str, listen: SocketAddr, rest: &str) -> String {
    format!("{text}[[ssh]]\nlisten = \"{listen}\"\ntarget = \"127.0.0.9:1\"\n{rest}")
}

/// Returns an address on which no program listens.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("a bound socket")
}

fn fingerprint(path: &Path) -> String {
    HostKey::load_or_create(path)
        .expect("a host key")
        .fingerprint()
}

/// Returns the address and the fingerprint of each SSH listener in the gateway's status.
fn shown(gateway: &Gateway) -> Vec<(String, String)> {
    let listeners = gateway.snapshot().ssh.into_iter();
    listeners.map(|it| (it.listen, it.host_key)).collect()
}

#[test]
fn a_gateway_makes_a_host_key_at_its_start_and_shows_its_fingerprint() {
    let rest = "[[ssh]]\nlisten = \"127.0.0.1:0\"\nclients = [\"127.0.0.0/8\"]\n";
    let world = World::start_with("", rest);
    // The answer shows that the gateway has started.
    let shown_near = shown(&world.near);
    let path = world.folder.join("ssh_host_ed25519");
    let mode = fs::metadata(&path).expect("the gateway made it").mode();
    assert_eq!(mode & 0o777, 0o600);
    let listen = world.near.ssh[0];
    TcpStream::connect(listen).expect("it listens");
    let fingerprint = fingerprint(&path);
    let expected = (listen.to_string(), fingerprint.clone());
    assert_eq!(shown_near, [expected]);
    let text = world.near.snapshot().to_string();
    let line = format!("ssh on {listen} to user%server, host key {fingerprint}\n");
    assert!(text.contains(&line), "{text}");
    assert_eq!(shown(&world.far), []);
}

#[test]
fn a_reload_adds_changes_and_removes_ssh_listeners() {
    let world = World::start();
    let listen = free();
    let outcome = world
        .near
        .reload_and_tell(|text| with_listener(text, listen, ""));
    assert_eq!(outcome.taken, [format!("[[ssh]] {listen} added")]);
    let _client = TcpStream::connect(listen).expect("it listens");
    let key = fingerprint(&world.folder.join("ssh_host_ed25519"));
    assert_eq!(shown(&world.near), [(listen.to_string(), key.clone())]);

    let other = "host_key = \"other\"\nearly = \"off\"\n";
    let outcome = world
        .near
        .reload_and_tell(|text| with_listener(text, listen, other));
    assert_eq!(outcome.taken, [format!("[[ssh]] {listen} changed")]);
    let other_key = fingerprint(&world.folder.join("other"));
    assert_ne!(other_key, key);
    assert_eq!(shown(&world.near), [(listen.to_string(), other_key)]);

    // The content of the file changes, and its name does not.
    fs::rename(
        world.folder.join("ssh_host_ed25519"),
        world.folder.join("other"),
    )
    .expect("our files");
    world
        .near
        .reload_and_tell(|text| with_listener(text, listen, other));
    assert_eq!(shown(&world.near), [(listen.to_string(), key)]);

    let outcome = world.near.reload_and_tell(str::to_owned);
    assert_eq!(outcome.taken, [format!("[[ssh]] {listen} removed")]);
    assert!(TcpStream::connect(listen).is_err(), "the port is closed");
    assert_eq!(shown(&world.near), []);
}

#[test]
fn a_reload_with_an_unusable_host_key_applies_nothing() {
    let world = World::start();
    let (listen, other) = (free(), free());
    world
        .near
        .reload_and_tell(|text| with_listener(text, listen, ""));
    let before = shown(&world.near);
    let path = world.folder.join("open");
    HostKey::load_or_create(&path).expect("a host key");
    let readable = fs::Permissions::from_mode(0o644);
    fs::set_permissions(&path, readable).expect("our file");
    let outcome = world.near.reload_and_tell(|text| {
        let text = with_listener(text, listen, "");
        with_listener(&text, other, "host_key = \"open\"\n")
    });
    let error = outcome.error.expect("the key is open to others");
    assert!(
        error.contains("lets other users read it") && outcome.is_wrong,
        "{error}"
    );
    assert_eq!(shown(&world.near), before);
    assert!(TcpStream::connect(other).is_err(), "it was not opened");
    TcpStream::connect(listen).expect("the listener continues");
}
