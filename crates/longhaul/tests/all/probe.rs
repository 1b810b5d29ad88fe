//! Tests of the exit codes of `longhaul probe`. Scripts use these exit codes.
#![allow(clippy::disallowed_methods, reason = "drives the kernel in real time")]

use std::{
    net::{SocketAddr, TcpListener},
    process::{Command, Output},
};

use probe::ProbePeer;

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

fn peer() -> (ProbePeer, String) {
    let peer = ProbePeer::start(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
    let address = peer.address().to_string();
    (peer, address)
}

#[test]
fn what_succeeds_ends_with_0() {
    let (_peer, at) = peer();
    assert_ends(&["transaction", &at], 0, "");
    assert_ends(&["tcp", &at, "--bytes", "1 MB", "--json"], 0, "");
    assert_ends(&["tcp", &at, "--bytes", "1 MB", "--both"], 0, "");
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

fn records(arguments: &[&str]) -> Vec<serde_json::Value> {
    let output = probe(arguments);
    assert!(output.status.success(), "{arguments:?}");
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    let record = |line| serde_json::from_str(line).expect("a line is an object");
    text.lines().map(record).collect()
}

#[test]
fn iperf3_s_letters_mean_the_same() {
    let (_peer, at) = peer();
    let (host, port) = at.rsplit_once(':').expect("HOST:PORT");
    let tcp = [
        "tcp", host, "-p", port, "-P", "2", "-R", "-t", "0.2", "-w", "64K", "-J",
    ];
    let [record] = &records(&tcp)[..] else {
        panic!("one record for one test");
    };
    assert_eq!(record["schema"], 1);
    assert_eq!(record["task"]["streams"], 2);
    assert_eq!(record["task"]["window_bytes"], 65_536);
    assert_eq!(record["task"]["direction"], "down");
    assert_eq!(record["task"]["limit"]["time"]["ms"], 200);

    let udp = [
        "udp", host, "-p", port, "-b", "1M", "-t", "100ms", "-l", "200", "-J",
    ];
    let record = &records(&udp)[0];
    assert_eq!(record["schema"], 1);
    assert_eq!(record["task"]["rate_bits_per_s"], 1_000_000);
    assert_eq!(record["task"]["payload_bytes"], 200);
    assert_ends(&["tcp", &at, "-p", port], 2, "both name a port");
}

#[test]
fn arrivals_had_another_name() {
    let (_peer, at) = peer();
    for option in ["--arrivals", "--rate"] {
        let all = records(&["transaction", &at, "-n", "3", option, "1000", "--json"]);
        assert_eq!(all.len(), 3);
        assert!(all.iter().all(|record| record["schema"] == 1));
        let bits = ["transaction", &at, option, "1 Mbit/s"];
        assert_ends(&bits, 2, "is not a number of arrivals a second");
    }
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
        (&["udp", "127.0.0.1:9", "-b", "1M", "-l", "70000"], "65507"),
        (&["udp", "127.0.0.1:9", "-b", "1000000"], "is not a rate"),
        (
            &["tcp", "127.0.0.1:9", "--bidir", "-R"],
            "cannot be used with",
        ),
        (
            &["serve", "-p", "1", "--listen", "127.0.0.1:1"],
            "cannot be used with",
        ),
        (
            &["bulk", "127.0.0.1:9", "--proxy", "ftp://127.0.0.1:1"],
            "neither socks5",
        ),
        (
            &["ftp", "127.0.0.1:9", "--script", "/nonexistent.ftp"],
            "/nonexistent.ftp",
        ),
        (&["no-such-thing"], "unrecognized"),
    ] {
        assert_ends(arguments, 2, words);
    }
}
