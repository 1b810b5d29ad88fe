//! Tests of `longhaul setup` and `longhaul peer`: two unrelated gateways become peers with an
//! invite.
#![allow(
    clippy::disallowed_methods,
    reason = "runs programs and waits for them"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpStream,
    thread,
    time::Duration,
};

use fake_ftp::{Behaviour, FakeServer};
use serde_json::Value;

use crate::common::{
    self,
    side::{Side, TIMEOUT, assert_refused, is_up, printed},
};

#[test]
fn a_configuration_without_a_folder_is_written_to_the_present_one() {
    let side = Side::new("bare");
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_longhaul"));
    program
        .current_dir(side.folder.path("."))
        .args(["setup", "far", "--config", "bare.toml", "--state", "state"])
        .args(["--endpoint", "192.0.2.1:4810", "--allow", "127.0.0.1:1"])
        .arg("--no-start");
    printed(&program.output().expect("the program"));
    let written = fs::read_to_string(side.folder.path("bare.toml")).expect("written");
    assert!(written.contains("allow = [\"127.0.0.1:1\"]"), "{written}");
}

#[test]
fn two_gateways_join_by_an_invite_and_carry_a_session() {
    let (far, near) = (Side::new("far"), Side::new("near"));
    let server = FakeServer::start(Behaviour::default());
    let target = server.address().to_string();
    let invite = printed(&far.far(&["--allow", &target]));
    assert_eq!(invite.lines().count(), 1, "{invite}");
    let written = fs::read_to_string(far.config()).expect("written");
    assert!(
        written.starts_with("# Ours\n") && written.contains("# by hand"),
        "{written}"
    );
    let _far = far.start();
    let output = near.near(&invite, &["--target", &target, "--name", "oslo"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    printed(&output);
    assert!(
        said.contains("as \"oslo\"") && !said.contains(&invite),
        "{said}"
    );
    let near_runs = near.start();
    near.wait("a link", |it| is_up(it, "far"));
    far.wait("a link", |it| is_up(it, "oslo"));
    let client = TcpStream::connect(near.ftp).expect("the listener");
    client.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line).expect("a line");
    assert!(line.starts_with("220"), "{line}");
    // A repetition changes nothing.
    let before = fs::read_to_string(near.config()).expect("written");
    let again = near.near(&invite, &["--target", &target]);
    printed(&again);
    assert_eq!(fs::read_to_string(near.config()).expect("there"), before);
    // The invite is useless to another gateway.
    let other = Side::new("other");
    let refused = other.near(&invite, &["--name", "bern"]);
    assert_refused(&refused, 1, "was used before, by another gateway");
    assert!(
        !fs::read_to_string(other.config())
            .expect("there")
            .contains("peer")
    );
    let known = printed(&far.run(&["peer", "ls"], &[], ""));
    assert!(known.contains("oslo") && !known.contains("bern"), "{known}");
    // The peer receives the reason, even if it was down and connects later.
    drop(near_runs);
    printed(&far.run(&["peer", "rm", "oslo", "--now"], &[], ""));
    far.wait("no peer", |it| !is_up(it, "oslo"));
    let _near = near.start();
    near.wait("the reason", |it| it["peers"][0]["state"] == "dismissed");
    let client = TcpStream::connect(near.ftp).expect("the listener");
    client.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line).expect("a line");
    assert!(
        line.starts_with("421") && line.contains("no longer a peer of far"),
        "{line}"
    );
    let found = String::from_utf8(near.run(&["doctor"], &[], "").stdout).expect("text");
    assert!(found.contains("no longer a peer"), "{found}");
    let listed = printed(&far.run(&["peer", "ls"], &[], ""));
    assert!(!listed.contains("removed"), "{listed}");
    // A new invite makes it a peer again, with the same key.
    let again = printed(&far.run(&["peer", "invite"], &[], ""));
    printed(&near.near(&again, &["--target", &target, "--name", "oslo"]));
    near.wait("a link again", |it| is_up(it, "far"));
}

#[test]
fn copy_through_a_listener_reaches_its_fixed_server_alone() {
    let (far, near) = (Side::new("fixed-far"), Side::new("fixed-near"));
    let server = FakeServer::start(Behaviour {
        only_user: Some("me"),
        ..Behaviour::default()
    });
    let target = server.address().to_string();
    let invite = printed(&far.far(&["--allow", &target]));
    let _far = far.start();
    printed(&near.near(&invite, &["--target", &target, "--name", "oslo"]));
    let _near = near.start();
    near.wait("a link", |it| is_up(it, "far"));
    let [file, password] = ["file", "password"].map(|it| near.folder.path(it));
    fs::write(&file, "content").expect("room");
    fs::write(&password, "secret\n").expect("room");
    let listener = near.ftp.to_string();
    let options = ["--gateway", &listener, "--password-file", &password];
    let copy = |url: &str, code, words: &str| {
        let ends = ["copy", &file, url, "--retries", "0"];
        common::assert_ends(&[&ends[..], &options].concat(), code, words);
    };
    copy(&format!("ftp://me@{target}/file"), 0, "");
    assert_eq!(server.content("file").as_deref(), Some(&b"content"[..]));
    // The server gets the whole name of the account, and refuses it.
    let other = "ftp://me@ftp.example.com/file";
    for words in [
        "530 Login incorrect",
        &format!("the listener {listener} has a fixed server"),
        "then the URL must name that server as target of the listener does",
    ] {
        copy(other, 1, words);
    }
    // If the client names the right server, the error can only concern the account.
    copy(
        &format!("ftp://joe@{target}/file"),
        1,
        "check user and password",
    );
}

#[test]
fn an_invite_that_is_of_no_use_is_refused_with_the_reason() {
    let (far, near) = (Side::new("refusing"), Side::new("refused"));
    let invite = printed(&far.far(&["--allow", "127.0.0.1:1", "--expires", "1 s"]));
    let _far = far.start();
    thread::sleep(Duration::from_millis(1100));
    assert_refused(&near.near(&invite, &[]), 1, "has expired");
    let again = printed(&far.run(&["peer", "invite"], &[], ""));
    let mut damaged = again.clone();
    let last = damaged.pop().expect("a character");
    damaged.push(if last == 'A' { 'B' } else { 'A' });
    assert_refused(&near.near(&damaged, &[]), 2, "damaged");
    assert_refused(&near.near("nonsense", &[]), 2, "this is no invite");
    assert_refused(&near.near("", &[]), 2, "this is no invite");
    let seen = near.run(&["setup", "near", &again], &[], "");
    assert_refused(&seen, 2, "every user of this machine can read");
    printed(&far.run(&["peer", "rm", "--invites"], &[], ""));
    let not_written = "was withdrawn: ask for a new one. The configuration was not written: remove the cause, \
                       and run the same command again";
    assert_refused(&near.near(&again, &[]), 1, not_written);
    // The configuration file is unchanged by all of that.
    let config = fs::read_to_string(near.config()).expect("there");
    assert!(!config.contains("[[peer]]"), "{config}");
    // A mistake is found before the invite is used up.
    let good = printed(&far.run(&["peer", "invite"], &[], ""));
    fs::write(near.config(), format!("{config}\n[limits]\nnonsense = 1\n")).expect("room");
    assert_refused(&near.near(&good, &[]), 2, "nonsense");
    fs::write(near.config(), config).expect("room");
    printed(&near.near(&good, &["--name", "oslo"]));
}

#[test]
fn a_dry_run_shows_and_writes_nothing() {
    let far = Side::new("dry");
    let before = fs::read_to_string(far.config()).expect("there");
    let output = far.far(&["--allow", "10.0.0.1:21", "--dry-run"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(printed(&output), "");
    assert!(said.contains("+ allow = [\"10.0.0.1:21\"]"), "{said}");
    assert_eq!(fs::read_to_string(far.config()).expect("there"), before);
    assert!(fs::metadata(far.folder.path("state")).is_err());
}

#[test]
fn an_endpoint_of_ipv6_is_listened_at() {
    let side = Side::new("ipv6");
    let config = side.folder.path("new/gateway.toml");
    let (state, allow) = (side.folder.path("state"), "10.0.0.1:21");
    let output = common::longhaul(&[
        "setup",
        "far",
        "--config",
        &config,
        "--state",
        &state,
        "--no-start",
        "--allow",
        allow,
        "--endpoint",
        "[2001:db8::1]:4810",
    ]);
    printed(&output);
    let written = fs::read_to_string(&config).expect("written");
    assert!(written.contains("listen = \"[::]:4810\""), "{written}");
}

#[test]
fn no_command_leaves_a_register_that_a_gateway_cannot_start_with() {
    let side = Side::new("whole");
    printed(&side.far(&["--allow", "10.0.0.1:21"]));
    let key = "rCW9n4E3pZ3Eo0UO4C1xOHxpSrHiVTmSlrOqDGpJcnE=";
    for name in ["(invite x)", "", "a\nb", &"x".repeat(65)] {
        assert_refused(
            &side.run(&["peer", "add", name, key], &[], ""),
            2,
            "printable",
        );
        let refused = side.run(&["peer", "invite"], &["--name", name], "");
        assert_refused(&refused, 2, "printable");
    }
    assert_refused(
        &side.run(&["peer", "invite"], &["--expires", "0 s"], ""),
        2,
        "1 s to 30 d",
    );
    // A listener requires the peer.
    let serves = ["--serves", "10.0.0.1", "*.example"];
    printed(&side.run(&["peer", "add", "oslo", key], &serves, ""));
    let listed = printed(&side.run(&["peer", "ls"], &[], ""));
    assert!(listed.contains("serves 10.0.0.1 *.example"), "{listed}");
    let text = fs::read_to_string(side.config()).expect("there");
    let listener = format!(
        "\n[[ftp]]\nlisten = \"{}\"\ntarget = \"10.0.0.1:21\"\n",
        side.ftp
    );
    fs::write(side.config(), text.clone() + &listener).expect("room");
    assert_refused(
        &side.run(&["peer", "rm", "oslo"], &[], ""),
        2,
        "serves this target",
    );
    printed(&side.run(&["gateway", "check"], &[], ""));
    // The command can remove a peer whose entry in the register has a mistake.
    fs::write(side.config(), text).expect("room");
    let register = side.folder.path("state/gateway.key.peers");
    let wrong = fs::read_to_string(&register)
        .expect("there")
        .replace("\"oslo\"", "\"(invite x)\"");
    fs::write(&register, wrong).expect("room");
    assert_refused(&side.run(&["peer", "ls"], &[], ""), 2, "it is no name");
    printed(&side.run(&["peer", "rm", "(invite x)"], &[], ""));
    printed(&side.run(&["peer", "ls"], &[], ""));
}

#[test]
fn a_peer_that_is_removed_is_none_by_its_key_either() {
    let side = Side::new("both");
    printed(&side.far(&["--allow", "10.0.0.1:21"]));
    let key = "rCW9n4E3pZ3Eo0UO4C1xOHxpSrHiVTmSlrOqDGpJcnE=";
    printed(&side.run(&["peer", "add", "oslo", key], &[], ""));
    // The operator gives the peer an allow list of its own.
    let text = fs::read_to_string(side.config()).expect("there");
    let peer = format!("peer = [{{ name = \"bergen\", public_key = \"{key}\", allow = [] }}]\n");
    fs::write(side.config(), peer + &text).expect("room");
    let listed = printed(&side.run(&["peer", "ls"], &[], ""));
    assert!(
        listed.contains("bergen") && !listed.contains("oslo"),
        "{listed}"
    );
    printed(&side.run(&["peer", "rm", "bergen"], &[], ""));
    let listed = printed(&side.run(&["peer", "ls"], &[], ""));
    assert!(!listed.contains(key), "{listed}");
}

#[test]
fn peers_are_added_and_removed_by_name() {
    let side = Side::new("peers");
    printed(&side.far(&["--allow", "10.0.0.1:21"]));
    let key = "rCW9n4E3pZ3Eo0UO4C1xOHxpSrHiVTmSlrOqDGpJcnE=";
    printed(&side.run(
        &["peer", "add", "oslo", key],
        &["--endpoint", "oslo.example:4810"],
        "",
    ));
    for (name, key) in [
        ("oslo", "AAW9n4E3pZ3Eo0UO4C1xOHxpSrHiVTmSlrOqDGpJcnE="),
        ("bern", key),
    ] {
        let refused = side.run(&["peer", "add", name, key], &[], "");
        assert_refused(&refused, 2, "the peer \"oslo\" has this name or key");
    }
    let listed = printed(&side.run(&["peer", "ls"], &["--json"], ""));
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed["peers"][0]["endpoint"], "oslo.example:4810");
    assert_eq!(listed["invites"].as_array().map(Vec::len), Some(1));
    assert_refused(
        &side.run(&["peer", "rm", "bern"], &[], ""),
        2,
        "no peer \"bern\"",
    );
    printed(&side.run(&["peer", "rm", "oslo"], &[], ""));
    let listed = printed(&side.run(&["peer", "ls"], &[], ""));
    assert!(!listed.contains("oslo"), "{listed}");
}
