//! Tests of `longhaul trace`: the trace agrees with the gateway's counters, and a slow reader does
//! not delay the gateway.
#![allow(
    clippy::disallowed_methods,
    reason = "runs programs and waits for them"
)]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, kill},
        socket::{setsockopt, sockopt::RcvBuf},
    },
    unistd::Pid,
};
use serde_json::Value;

use crate::common::{
    assert_ends,
    side::{Running, Side, TIMEOUT, free, is_up, printed},
};

/// Two gateways with a forward to a server that reads and discards all bytes.
struct Pair {
    near: Side,
    near_runs: Running,
    _far: (Side, Running),
    forward: SocketAddr,
}

impl Pair {
    fn new(name: &str) -> Self {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = server.local_addr().expect("bound").to_string();
        thread::spawn(move || {
            for client in server.incoming() {
                let mut client = client.expect("a connection");
                thread::spawn(move || std::io::copy(&mut client, &mut std::io::sink()));
            }
        });
        let far = Side::new(&format!("{name}-far"));
        let near = Side::new(&format!("{name}-near"));
        let invite = printed(&far.far(&["--allow", &target]));
        let far_runs = far.start();
        printed(&near.near(&invite, &[]));
        let forward = free();
        let text = fs::read_to_string(near.config()).expect("it was written");
        let listener = format!("\n[[forward]]\nlisten = \"{forward}\"\ntarget = \"{target}\"\n");
        fs::write(near.config(), text + &listener).expect("room");
        let near_runs = near.start();
        near.wait("a link", |it| is_up(it, "far"));
        Self {
            near,
            near_runs,
            _far: (far, far_runs),
            forward,
        }
    }

    fn trace(&self, rest: &[&str]) -> (Child, String) {
        let file = self.near.folder.path("trace.sqlog");
        let mut program = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        let fixed = ["trace", "far", "--out", &file, "--config"];
        program.args(fixed).arg(self.near.config()).args(rest);
        program.stdout(Stdio::piped()).stderr(Stdio::piped());
        (program.spawn().expect("the program"), file)
    }

    /// Sends bytes for the given time, at a rate that any machine can sustain.
    fn send_for(&self, time: Duration) {
        let mut stream = TcpStream::connect(self.forward).expect("a listener");
        let begun = Instant::now();
        while begun.elapsed() < time {
            stream.write_all(&[7; 64 << 10]).expect("the link is up");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the number of datagrams and bytes that the gateway has sent to its peer.
    fn sent(&self) -> (u64, u64) {
        // The snapshot of the link is a tenth of a second old.
        thread::sleep(Duration::from_millis(300));
        let status = self.near.status().expect("it answers");
        let peer = &status["peers"][0];
        assert_eq!(peer["name"], "far");
        let count = |name: &str| peer[name].as_u64().expect(name);
        (count("sent_datagrams"), count("sent_bytes"))
    }

    /// Returns the memory that the near gateway uses, in bytes.
    fn memory_bytes(&self) -> u64 {
        let pid = self.near_runs.0.id();
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).expect("it runs");
        let pages = text.split(' ').nth(1).and_then(|it| it.parse::<u64>().ok());
        pages.expect("a number") * 4096
    }
}

/// Returns the records of a trace file. Each record is one JSON object.
fn records(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(file).expect("a file");
    assert!(text.ends_with('\n'), "the last record is whole");
    let record = |line: &str| {
        let line = line.strip_prefix('\u{1e}').expect("a record separator");
        serde_json::from_str(line).expect("a JSON text")
    };
    text.lines().map(record).collect()
}

/// Checks the properties that all trace files have in common. Returns the event records.
fn events(file: &str) -> Vec<Value> {
    let mut records = records(file);
    let header = records.remove(0);
    assert_eq!(header["qlog_version"], "0.3");
    assert_eq!(header["qlog_format"], "JSON-SEQ");
    assert!(header["trace"]["common_fields"]["reference_time"].is_f64());
    let times = records
        .iter()
        .map(|it| it["time"].as_f64().expect("a time"));
    assert!(times.is_sorted(), "times do not fall");
    for name in [
        "connectivity:connection_state_updated",
        "recovery:congestion_state_updated",
        "recovery:metrics_updated",
    ] {
        let event = records.iter().find(|it| it["name"] == name).expect(name);
        assert_eq!(event["group_id"].as_str().map(str::len), Some(8), "{event}");
    }
    records
}

fn sum(events: &[Value], name: &str, field: &str) -> u64 {
    let named = events.iter().filter(|it| it["name"] == name);
    named.filter_map(|it| it["data"][field].as_u64()).sum()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn an_idle_link_is_seen_every_second() {
    let pair = Pair::new("trace-idle");
    let (child, file) = pair.trace(&["--seconds", "3"]);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let events = events(&file);
    let metrics = events
        .iter()
        .filter(|it| it["name"] == "recovery:metrics_updated");
    assert!((3..30).contains(&metrics.count()), "{events:?}");
    let words = format!("{file}: {} events", events.len());
    assert!(said(&output).contains(&words), "{}", said(&output));
}

#[test]
fn a_busy_link_has_sent_what_the_trace_counts() {
    let pair = Pair::new("trace-busy");
    let before = pair.sent();
    let (child, file) = pair.trace(&[]);
    thread::sleep(Duration::from_millis(500));
    pair.send_for(Duration::from_secs(2));
    thread::sleep(Duration::from_millis(500));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let after = pair.sent();
    let events = events(&file);
    let metrics = events
        .iter()
        .filter(|it| it["name"] == "recovery:metrics_updated");
    assert!(metrics.count() > 100, "some 200 samples while it sends");
    let datagrams = sum(&events, "transport:datagrams_sent", "count");
    let bytes = sum(&events, "transport:datagrams_sent", "longhaul_bytes");
    assert!(bytes > 5_000_000, "the transfer is in it: {bytes}");
    // Keep-alives and reports are sent before and after.
    let (all_datagrams, all_bytes) = (after.0 - before.0, after.1 - before.1);
    println!("trace: {datagrams} datagrams, {bytes} bytes; status: {all_datagrams}, {all_bytes}");
    assert!(datagrams <= all_datagrams && all_datagrams - datagrams < 50);
    assert!(bytes <= all_bytes && all_bytes - bytes < 50_000);
    assert!(sum(&events, "transport:datagrams_received", "count") > 0);
}

#[test]
fn a_gateway_that_ends_leaves_a_whole_file() {
    let pair = Pair::new("trace-end");
    let (child, file) = pair.trace(&[]);
    thread::sleep(Duration::from_millis(500));
    let pid = Pid::from_raw(pair.near_runs.0.id() as i32);
    kill(pid, Signal::SIGTERM).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("the gateway has ended the trace"));
    events(&file);
}

#[test]
fn what_cannot_be_traced_is_said() {
    let pair = Pair::new("trace-wrong");
    let (config, file) = (pair.near.config(), pair.near.folder.path("no.sqlog"));
    let no_peer = ["trace", "öslo & co", "--config", &config, "--out", &file];
    assert_ends(
        &no_peer,
        2,
        "there is no peer \"öslo & co\"; there is \"far\"",
    );
    assert!(!fs::exists(&file).expect("a folder"), "no file is left");
    assert_ends(&["trace", "far", "--admin", "127.0.0.1:1"], 1, "no gateway");
    assert_ends(&["trace", "far", "--seconds", "0"], 2, "--seconds");
    let nowhere = ["trace", "far", "--config", &config, "--out", "/nowhere/x"];
    assert_ends(&nowhere, 1, "/nowhere/x");
    for sign in ["Origin: http://evil.example", "Sec-Fetch-Site: cross-site"] {
        let mut stream = ask(pair.near.admin, sign);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.contains(" 403 "), "{answer}");
    }
}

/// Sends a request for a trace, and reads no response.
fn ask(admin: SocketAddr, header: &str) -> TcpStream {
    let mut stream = TcpStream::connect(admin).expect("a listener");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    setsockopt(&stream, RcvBuf, &4096).expect("a socket");
    let request = format!("GET /trace?peer=far HTTP/1.0\r\nHost: {admin}\r\n{header}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

/// Sends a request for a trace. Returns the connection and the status line of the response.
fn begin(admin: SocketAddr) -> (TcpStream, String) {
    let mut stream = ask(admin, "Accept: */*");
    let mut line = [0; 12];
    stream.read_exact(&mut line).expect("an answer");
    (stream, String::from_utf8_lossy(&line[9..]).into_owned())
}

#[test]
fn readers_that_do_not_read_are_few_cost_little_and_go() {
    let pair = Pair::new("trace-slow");
    pair.send_for(Duration::from_secs(1));
    let before = pair.memory_bytes();
    let admin = pair.near.admin;
    let readers = [(); 4].map(|()| begin(admin));
    assert!(readers.iter().all(|(_, code)| code == "200"));
    assert_eq!(begin(admin).1, "429", "a fifth");
    let begun = Instant::now();
    let mut peak = 0;
    // The gateway disconnects a reader that reads nothing for ten seconds.
    loop {
        pair.send_for(Duration::from_secs(1));
        peak = peak.max(pair.memory_bytes());
        if begin(admin).1 == "200" {
            break;
        }
        assert!(begun.elapsed() < 3 * TIMEOUT, "nobody is cut off");
    }
    let grown = peak.saturating_sub(before);
    println!(
        "after {:?} one is cut off; {grown} bytes more",
        begun.elapsed()
    );
    assert!(begun.elapsed() > Duration::from_secs(5), "they were there");
    assert!(grown < 8 << 20, "{grown} bytes more");
    drop(readers);
}
