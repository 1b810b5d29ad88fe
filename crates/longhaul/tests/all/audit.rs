//! Tests of the audit trail: failed log-ins and orders are logged with every log filter.
#![allow(
    clippy::disallowed_methods,
    reason = "runs programs and waits for them"
)]

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use fake_ftp::{Behaviour, FakeServer};
use regex::Regex;

use crate::common::{
    self,
    side::{Running, Side, TIMEOUT, printed},
};

/// A user name that contains a complete log line. The log must escape it.
const FORGER: &str = "x\" WARN audit: failed log-in from 192.0.2.9 port=1 server=";

/// Starts an FTP server that refuses all passwords.
fn refusing_server() -> SocketAddr {
    let server = FakeServer::start(Behaviour {
        replies: [("PASS", "530 Login incorrect.")].into(),
        ..Behaviour::default()
    });
    server.address()
}

/// Performs a log-in that the server refuses.
fn fail_to_log_in(listener: SocketAddr, user: &str) {
    let mut stream = TcpStream::connect(listener).expect("the listener");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let mut lines = BufReader::new(stream.try_clone().expect("a handle")).lines();
    let mut next = || lines.next().expect("a line").expect("in time");
    assert!(next().starts_with("220"));
    write!(stream, "USER {user}\r\n").expect("it reads");
    assert!(next().starts_with("331"));
    stream.write_all(b"PASS guess\r\n").expect("it reads");
    assert!(next().starts_with("530"));
}

/// Returns the regular expressions in the gateway's filter file for fail2ban.
fn expressions() -> Vec<Regex> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/fail2ban/filter.d/longhaul.conf"
    );
    let text = fs::read_to_string(path).expect("the filter");
    let (_, rest) = text.split_once("failregex = ").expect("expressions");
    let (all, _) = rest.split_once("ignoreregex").expect("an end");
    let lines = all.lines().map(str::trim).filter(|line| !line.is_empty());
    let regex = |line: &str| {
        let line = line.replace("<ADDR>", "(?P<ip>[0-9A-Fa-f:.]+)");
        Regex::new(&line).expect("an expression")
    };
    let found: Vec<_> = lines.map(regex).collect();
    assert_eq!(found.len(), 3);
    found
}

/// Returns the address that fail2ban would ban after a log line. Fail2ban removes the time from the
/// line if it recognises the format, so both forms are tested.
fn banned(expressions: &[Regex], line: &str) -> Option<String> {
    let without_time = line.split_once("Z ").map_or(line, |(_, rest)| rest);
    let mut found = expressions
        .iter()
        .flat_map(|it| [it.captures(line), it.captures(without_time)]);
    found.find_map(|it| Some(it?["ip"].to_owned()))
}

#[test]
fn failed_log_ins_are_logged_and_no_filter_hides_them() {
    for form in ["text", "json"] {
        let (far, near) = (
            Side::new(&format!("audit-far-{form}")),
            Side::new(&format!("audit-near-{form}")),
        );
        let target = refusing_server().to_string();
        let invite = printed(&far.far(&["--allow", &target]));
        let _far = far.start();
        printed(&near.near(&invite, &["--target", &target]));
        let path = near.folder.path("log");
        let mut program = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        program.args([
            "gateway",
            "--config",
            &near.config(),
            "--log-format",
            form,
            "--log",
            "off",
        ]);
        let log = File::create(&path).expect("room");
        let _near = Running(program.stderr(log).spawn().expect("the program"));
        near.wait("a link", |it| common::side::is_up(it, "far"));
        fail_to_log_in(near.ftp, "mallory");
        printed(&near.run(&["log"], &["off"], ""));
        fail_to_log_in(near.ftp, FORGER);
        near.wait("a count", |it| it["logins_failed_total"] == 2);
        let is_whole = || {
            fs::read_to_string(&path)
                .expect("a log")
                .matches("failed log-in from 127")
                .count()
                == 2
        };
        let begun = Instant::now();
        while !is_whole() {
            assert!(begun.elapsed() < TIMEOUT, "no line");
            thread::sleep(Duration::from_millis(20));
        }
        let text = fs::read_to_string(&path).expect("a log");
        let expressions = expressions();
        let addresses: Vec<_> = text
            .lines()
            .filter_map(|line| banned(&expressions, line))
            .collect();
        assert_eq!(addresses, ["127.0.0.1", "127.0.0.1"], "{text}");
        assert!(text.contains("mallory") && text.contains(&target), "{text}");
        // The trail names the user and the process that ordered the change of the log.
        let uid = nix::unistd::geteuid().to_string();
        let order = text.lines().find(|line| line.contains("admin socket"));
        let order = order.unwrap_or_else(|| panic!("no order: {text}"));
        assert!(order.contains(&uid) && order.contains("pid"), "{order}");
    }
}

#[test]
fn a_journal_s_message_has_the_address() {
    let expressions = expressions();
    for (line, address) in [
        ("failed log-in from 192.0.2.7", Some("192.0.2.7")),
        (
            "host longhaul[7]: failed log-in from 2001:db8::7",
            Some("2001:db8::7"),
        ),
        (
            "host longhaul[7]: 2026-01-01T00:00:00.1Z  WARN audit: failed log-in from 192.0.2.7 port=7 server=\"a:21\" user=\"x\"",
            Some("192.0.2.7"),
        ),
        (
            "2026-01-01T00:00:00.1Z  INFO ftp{user=x}: failed log-in from 192.0.2.7 port=1 server=",
            None,
        ),
        ("hello failed log-in from 192.0.2.7 ", None),
    ] {
        assert_eq!(banned(&expressions, line).as_deref(), address, "{line}");
    }
}
