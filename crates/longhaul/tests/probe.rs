//! Exit codes of `longhaul probe`, as scripts meet them.
#![allow(clippy::disallowed_methods, reason = "drives the kernel in real time")]

use std::{
    net::{SocketAddr, TcpListener},
    process::{Command, Output},
};

use probe::Peer;

fn probe(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.arg("probe").args(arguments);
    command.output().expect("the program")
}

#[track_caller]
fn assert_ends(arguments: &[&str], code: i32, words: &str) {
    let output = probe(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(said.contains(words), "{arguments:?}: {said}");
}

fn peer() -> (Peer, String) {
    let peer = Peer::start(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
    let address = peer.address().to_string();
    (peer, address)
}

#[test]
fn what_succeeds_ends_with_0() {
    let (_peer, at) = peer();
    assert_ends(&["transaction", &at], 0, "");
    assert_ends(&["tcp", &at, "--bytes", "1 MB", "--json"], 0, "");
    let plot = std::env::temp_dir().join(format!("probe-{}.svg", std::process::id()));
    let file = plot.display().to_string();
    let udp = [
        "udp", &at, "--rate", "1 Mbit/s", "--time", "100ms", "--plot", &file,
    ];
    assert_ends(&udp, 0, "");
    let drawn = std::fs::read_to_string(&plot).expect("a plot");
    assert!(drawn.contains("Delivered over time"), "{drawn}");
    std::fs::remove_file(plot).expect("it was there");
}

#[test]
fn a_refused_port_ends_with_1() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = closed.local_addr().expect("bound").to_string();
    drop(closed);
    assert_ends(&["tcp", &at], 1, "refused");
    assert_ends(&["ping", &at, "--tcp", "-n", "1"], 1, "");
}

#[test]
fn records_that_cannot_be_kept_end_with_1() {
    let (_peer, at) = peer();
    let nowhere = "/nonexistent/records.jsonl";
    assert_ends(&["transaction", &at, "--out", nowhere], 1, nowhere);
    assert_ends(
        &["transaction", &at, "--out", "/dev/full"],
        1,
        "writing records",
    );
}

#[test]
fn wrong_use_ends_with_2() {
    for (arguments, words) in [
        (&["udp", "127.0.0.1:9"][..], "--rate is missing"),
        (
            &["tcp", "127.0.0.1:9", "--streams", "101"],
            "streams: from 1 to 100",
        ),
        (&["ping", "127.0.0.1:9", "--tcp", "--size", "9"], "--size"),
        (&["transaction", "127.0.0.1"], "a port is missing"),
        (&["no-such-thing"], "unrecognized"),
    ] {
        assert_ends(arguments, 2, words);
    }
}
