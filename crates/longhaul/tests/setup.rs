//! `longhaul setup` and `longhaul peer`: two gateways that knew nothing of each other join by an invite.
#![allow(
    clippy::disallowed_methods,
    reason = "runs programs and waits for them"
)]

mod common;

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use common::{Folder, longhaul};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

/// A gateway that runs, and ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One side: its files, and its addresses, which are free.
struct Side {
    folder: Folder,
    link: SocketAddr,
    admin: SocketAddr,
    ftp: SocketAddr,
}

/// An address that nobody else has at the moment.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound")
}

impl Side {
    fn new(name: &str) -> Self {
        let link = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let side = Self {
            folder: Folder::new(name),
            link: link.local_addr().expect("bound"),
            admin: free(),
            ftp: free(),
        };
        let text = format!(
            "# Ours\n[link]\nlisten = \"{}\" # by hand\n\n[admin]\nlisten = \"{}\"\n",
            side.link, side.admin
        );
        fs::write(side.config(), text).expect("room");
        side
    }

    fn config(&self) -> String {
        self.folder.path("gateway.toml")
    }

    /// Runs a command on the files of this side; `told` is its standard input.
    fn run(&self, command: &[&str], rest: &[&str], told: &str) -> Output {
        let config = self.config();
        let mut program = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        program.args(command).args(["--config", &config]).args(rest);
        let mut child = program
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program");
        let mut stdin = child.stdin.take().expect("a pipe");
        // Who does not ask does not read.
        let _ = stdin.write_all(told.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("it ends")
    }

    fn far(&self, rest: &[&str]) -> Output {
        let (state, link) = (self.folder.path("state"), self.link.to_string());
        let fixed = ["--state", &state, "--endpoint", &link, "--no-start"];
        self.run(&["setup", "far"], &[&fixed[..], rest].concat(), "")
    }

    fn near(&self, invite: &str, rest: &[&str]) -> Output {
        let (state, listen) = (self.folder.path("state"), self.ftp.to_string());
        let fixed = [
            "--state",
            &state,
            "--listen",
            &listen,
            "--no-start",
            "--invite-file",
            "-",
        ];
        self.run(&["setup", "near"], &[&fixed[..], rest].concat(), invite)
    }

    fn start(&self) -> Running {
        let mut program = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        program.args(["gateway", "--config", &self.config()]);
        let running = Running(program.spawn().expect("the program"));
        self.wait("an admin address", |_| true);
        running
    }

    fn status(&self) -> Option<Value> {
        let admin = self.admin.to_string();
        let output = longhaul(&["status", "--json", "--admin", &admin]);
        serde_json::from_slice(&output.stdout).ok()
    }

    fn wait(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        while !self.status().is_some_and(|it| holds(&it)) {
            assert!(begun.elapsed() < PATIENCE, "{what} did not come about");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[track_caller]
fn printed(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[track_caller]
fn assert_refused(output: &Output, code: i32, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "{words}: {said}");
}

fn is_up(status: &Value, name: &str) -> bool {
    let peers = status["peers"].as_array().into_iter().flatten();
    let mut named = peers.filter(|it| it["name"] == name);
    named.any(|it| it["state"] == "up")
}

#[test]
fn two_gateways_join_by_an_invite_and_carry_a_session() {
    let (far, near) = (Side::new("far"), Side::new("near"));
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = server.local_addr().expect("bound").to_string();
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
    let _near = near.start();
    near.wait("a link", |it| is_up(it, "far"));
    far.wait("a link", |it| is_up(it, "oslo"));
    let client = TcpStream::connect(near.ftp).expect("the door");
    client.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let (mut of_server, _) = server.accept().expect("the far gateway");
    of_server.write_all(b"220 hello\r\n").expect("a connection");
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line).expect("a line");
    assert!(line.starts_with("220"), "{line}");
    // The same again changes nothing.
    let before = fs::read_to_string(near.config()).expect("written");
    let again = near.near(&invite, &["--target", &target]);
    printed(&again);
    assert_eq!(fs::read_to_string(near.config()).expect("there"), before);
    // Another gateway gets nothing for it.
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
    printed(&far.run(&["peer", "rm", "oslo"], &[], ""));
    far.wait("no peer", |it| !is_up(it, "oslo"));
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
    assert_refused(&seen, 2, "can be read by everybody on this machine");
    printed(&far.run(&["peer", "rm", "--invites"], &[], ""));
    assert_refused(&near.near(&again, &[]), 1, "was withdrawn");
    // Nothing was written for all of that.
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
        assert_refused(&refused, 2, "there is a peer \"oslo\"");
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
