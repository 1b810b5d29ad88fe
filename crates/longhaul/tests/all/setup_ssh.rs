//! Tests of `longhaul setup` for SSH servers: host keys at the far gateway, and listeners at the
//! near gateway.
#![allow(
    clippy::disallowed_methods,
    reason = "runs programs and waits for them"
)]

use std::{fs, process::Output};

use crate::common::{
    side::{Side, assert_refused, free, printed},
    ssh_server::SshServer,
};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_host_key_is_added_only_after_a_confirmation() {
    let server = SshServer::start();
    let (target, fingerprint) = (server.address.to_string(), server.fingerprint());
    let side = Side::new("setup-host-key");
    let known_hosts = side.folder.path("state/ssh_known_hosts");
    // The key stays unconfirmed, because there is no terminal.
    let output = side.far(&["--allow", &target, "--ssh"]);
    printed(&output);
    let text = said(&output);
    let shown = format!("Host key of {target}: ssh-ed25519 {fingerprint}\n");
    assert!(text.contains(&shown), "{text}");
    let next = format!("give --host-key {fingerprint}");
    assert!(
        text.contains("is not confirmed") && text.contains(&next),
        "{text}"
    );
    assert!(fs::metadata(&known_hosts).is_err(), "nothing was added");

    let output = side.far(&["--allow", &target, "--ssh", "--host-key", &fingerprint]);
    printed(&output);
    assert!(
        said(&output).contains(&format!("New host key of {target} in {known_hosts}")),
        "{}",
        said(&output)
    );
    let written = fs::read_to_string(&known_hosts).expect("it was added");
    assert_eq!(written, server.known_hosts_line());

    // A repetition changes nothing.
    let output = side.far(&["--allow", &target, "--ssh"]);
    printed(&output);
    assert!(said(&output).contains("already known"), "{}", said(&output));
    let again = fs::read_to_string(&known_hosts).expect("there");
    assert_eq!(again, written);
}

#[test]
fn a_host_key_that_contradicts_is_refused_before_any_change() {
    let (server, other) = (SshServer::start(), SshServer::start());
    let target = server.address.to_string();
    let side = Side::new("setup-other-key");
    let output = side.far(&[
        "--allow",
        &target,
        "--ssh",
        "--host-key",
        &other.fingerprint(),
    ]);
    assert_refused(&output, 2, "no --host-key names the host key of");
    let config = fs::read_to_string(side.config()).expect("there");
    assert!(!config.contains(&target), "{config}");

    let known_hosts = side.folder.path("state/ssh_known_hosts");
    let line = other.known_hosts_line();
    let (_, key) = line.split_once(' ').expect("a line");
    let (ip, port) = (server.address.ip(), server.address.port());
    let changed = format!("[{ip}]:{port} {key}");
    fs::write(&known_hosts, &changed).expect("room");
    let output = side.far(&[
        "--allow",
        &target,
        "--ssh",
        "--host-key",
        &server.fingerprint(),
    ]);
    assert_refused(&output, 1, "but line 1 of");
    assert_eq!(fs::read_to_string(&known_hosts).expect("there"), changed);
    let output = side.far(&["--allow", &target, "--host-key", "MD5:00"]);
    assert_refused(&output, 2, "ssh-keygen -l");
}

#[test]
fn a_server_that_does_not_answer_prevents_no_setup() {
    let side = Side::new("setup-no-server");
    let target = free().to_string();
    let output = side.far(&["--allow", &target, "--ssh"]);
    printed(&output);
    let text = said(&output);
    assert!(
        text.contains(&format!("The host key of {target} is not known")),
        "{text}"
    );
    let config = fs::read_to_string(side.config()).expect("there");
    assert!(config.contains(&target), "{config}");
}

#[test]
fn setup_near_adds_an_ssh_listener() {
    let (far, near) = (Side::new("setup-ssh-far"), Side::new("setup-ssh-near"));
    let invite = printed(&far.far(&["--allow", "127.0.0.1:1"]));
    let _far = far.start();
    let options = [
        "--service",
        "ssh",
        "--target",
        "127.0.0.1",
        "--name",
        "oslo",
    ];
    printed(&near.near(&invite, &options));
    let config = fs::read_to_string(near.config()).expect("written");
    let listener = format!(
        "[[ssh]]\nlisten = \"{}\"\ntarget = \"127.0.0.1:22\"\nvia = \"far\"\n",
        near.ftp
    );
    assert!(config.contains(&listener), "{config}");
    assert!(!config.contains("[[ftp]]"), "{config}");
    let _near = near.start();
    near.wait("a host key", |status| {
        let host_key = status["ssh"][0]["host_key"].as_str();
        host_key.is_some_and(|it| it.starts_with("SHA256:"))
    });
    let refused = near.near(&invite, &["--service", "smtp"]);
    assert_refused(&refused, 2, "expected ftp or ssh");
}
