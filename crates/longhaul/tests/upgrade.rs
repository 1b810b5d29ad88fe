//! Another process takes a gateway's place while connections go on.
#![allow(
    clippy::disallowed_methods,
    reason = "runs programs and waits for them"
)]

mod common;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use common::side::{PATIENCE, Side, free, printed};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

/// A gateway whose process changes.
struct Gateway {
    side: Side,
    pids: Vec<i32>,
}

impl Gateway {
    /// Starts the gateway of `side`, which has been set up.
    fn start(side: Side) -> Self {
        let pids = Vec::new();
        let mut gateway = Self { side, pids };
        gateway.restart();
        gateway
    }

    fn restart(&mut self) {
        let mut program = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        program.args(["gateway", "--config", &self.side.config()]);
        let child = program.stderr(Stdio::null()).spawn();
        let mut child = child.expect("the program");
        self.pids.push(child.id() as i32);
        thread::spawn(move || child.wait());
        self.wait_for_peer();
    }

    /// Waits until it answers, and where it has a peer, that does.
    fn wait_for_peer(&self) {
        self.side.wait("an answer", |status| {
            let mut peers = status["peers"].as_array().into_iter().flatten();
            peers.all(|it| it["state"] == "up")
        });
    }

    fn upgrade(&self) -> (i32, Value, String) {
        let output = self.side.run(&["upgrade"], &["--json"], "");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let told = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code().unwrap_or(-1), told, said)
    }

    /// Has another process take the place of the present one.
    fn succeed(&mut self) {
        let (code, told, said) = self.upgrade();
        assert_eq!(code, 0, "{told} {said}");
        assert_eq!(told["old_pid"], self.pid());
        let pid = told["pid"].as_i64().expect("a number");
        self.pids.push(pid as i32);
    }

    /// The process that serves.
    fn pid(&self) -> i32 {
        *self.pids.last().expect("one was started")
    }

    fn runs(&self, pid: i32) -> bool {
        kill(Pid::from_raw(pid), None).is_ok()
    }

    /// Waits until only the newest process is left.
    fn wait_for_one(&self) {
        let begun = Instant::now();
        let older = &self.pids[..self.pids.len() - 1];
        while older.iter().any(|pid| self.runs(*pid)) {
            assert!(begun.elapsed() < PATIENCE, "an old process does not end");
            thread::sleep(Duration::from_millis(50));
        }
        assert!(self.runs(self.pid()));
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        for pid in &self.pids {
            // Most have ended.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
    }
}

/// A pair with a forward to a server that sends back what comes.
struct Pair {
    near: Gateway,
    far: Gateway,
    forward: SocketAddr,
}

impl Pair {
    fn new(name: &str) -> Self {
        let far = Side::new(&format!("{name}-far"));
        let near = Side::new(&format!("{name}-near"));
        let (echo, forward) = (serve_echo(), free());
        let invite = printed(&far.far(&["--allow", &echo.to_string()]));
        let far = Gateway::start(far);
        printed(&near.near(&invite, &[]));
        let config = near.config();
        let text = fs::read_to_string(&config).expect("it was written");
        let door = format!("\n[[forward]]\nlisten = \"{forward}\"\ntarget = \"{echo}\"\n");
        fs::write(&config, text + &door).expect("room");
        let near = Gateway::start(near);
        Self { near, far, forward }
    }

    /// A new connection, and how long its first answer took.
    fn connect(&self) -> (TcpStream, Duration) {
        let begun = Instant::now();
        let mut stream = TcpStream::connect(self.forward).expect("a listener");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        echo(&mut stream, 1);
        (stream, begun.elapsed())
    }
}

/// Where a server listens that sends back what comes.
fn serve_echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            thread::spawn(move || {
                let mut back = stream.try_clone().expect("a handle");
                std::io::copy(&mut stream, &mut back)
            });
        }
    });
    address
}

/// Sends bytes there and back.
fn echo(stream: &mut TcpStream, bytes: usize) {
    let sent: Vec<u8> = (0..bytes).map(|at| (at * 7 % 251) as u8).collect();
    let mut writer = stream.try_clone().expect("a handle");
    let copy = sent.clone();
    let writing = thread::spawn(move || writer.write_all(&copy));
    let mut came = vec![0; bytes];
    stream
        .read_exact(&mut came)
        .expect("the connection goes on");
    writing.join().expect("no panic").expect("it goes on");
    assert!(came == sent);
}

#[test]
fn connections_go_on_through_upgrades_of_both_sides() {
    let mut pair = Pair::new("upgrade");
    let mut streams = Vec::new();
    for round in 0..6 {
        streams.push(pair.connect().0);
        match round % 2 {
            0 => pair.near.succeed(),
            _ => pair.far.succeed(),
        }
        let (stream, took) = pair.connect();
        println!("after upgrade {round} a new connection took {took:?}");
        drop(stream);
        for stream in &mut streams {
            echo(stream, 300_000);
        }
    }
    drop(streams);
    pair.near.wait_for_one();
    pair.far.wait_for_one();
    pair.connect();
}

#[test]
fn a_process_that_cannot_begin_leaves_the_old_one_in_its_place() {
    let pair = Pair::new("upgrade-refused");
    let (mut stream, _) = pair.connect();
    let config = pair.near.side.config();
    let right = fs::read_to_string(&config).expect("it was written");
    for (wrong, words) in [
        (format!("{right}[nonsense]\n"), "unknown field \"nonsense\""),
        (
            right.replace(&pair.near.side.link.to_string(), &free().to_string()),
            "another address takes a restart",
        ),
    ] {
        fs::write(&config, wrong).expect("room");
        // The command would find the mistake itself.
        let url = ["--admin", &pair.near.side.admin.to_string(), "--json"];
        let output = common::longhaul(&[&["upgrade"][..], &url].concat());
        assert_eq!(output.status.code(), Some(1));
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let error = told["error"].as_str().unwrap_or_default();
        assert!(error.contains(words), "{error}");
        echo(&mut stream, 100_000);
        pair.connect();
    }
}

/// Whichever of the two processes is killed in the midst of it.
#[test]
fn a_process_that_is_killed_while_it_hands_over_leaves_one_that_serves() {
    let mut pair = Pair::new("upgrade-killed");
    for round in 0..12u64 {
        let (near, url) = (&pair.near, pair.near.side.admin.to_string());
        let old = near.pid();
        let command =
            thread::spawn(move || common::longhaul(&["upgrade", "--json", "--admin", &url]));
        // From before the new process is there until after the old one has handed over.
        let begun = Instant::now();
        let pause = Duration::from_millis(4 * round);
        let mut fresh = None;
        while begun.elapsed() < pause || fresh.is_none() && begun.elapsed() < PATIENCE / 4 {
            fresh = fresh.or_else(|| successor_of(old, &near.side.config()));
        }
        let fresh = fresh.expect("a new process was started");
        let victim = if round % 2 == 0 { old } else { fresh };
        kill(Pid::from_raw(victim), Signal::SIGKILL).expect("it runs");
        let told = command.join().expect("no panic");
        println!(
            "round {round}: the {} process was killed; {}",
            if victim == old { "old" } else { "new" },
            String::from_utf8_lossy(&told.stdout).trim()
        );
        pair.near.pids.push(fresh);
        if victim == old {
            pair.near.wait_for_peer();
        } else if told.status.success() {
            // The hand-over was over: a service manager would start it anew.
            kill(Pid::from_raw(old), Signal::SIGKILL).expect("it runs");
            pair.near.restart();
        } else {
            pair.near.pids.push(old);
        }
        pair.connect();
    }
}

/// The process beside `old` that was started with this configuration.
fn successor_of(old: i32, config: &str) -> Option<i32> {
    let entries = fs::read_dir("/proc").ok()?;
    let pids = entries.filter_map(|it| it.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.into_iter().find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        *pid != old
            && !line.starts_with("/bin/sh")
            && line.contains("longhaul\0gateway\0")
            && line.contains(config)
    })
}
