//! Tests of a gateway's messages to a service manager, received on a socket like that of systemd.
#![allow(
    clippy::disallowed_methods,
    reason = "runs programs and waits for them"
)]

use std::{
    os::unix::net::UnixDatagram,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::common::side::{Running, Side, TIMEOUT, printed};

/// Receives messages until the message `wanted` arrives. Returns the number of messages before it.
fn hear(socket: &UnixDatagram, wanted: &str) -> usize {
    let begun = Instant::now();
    let mut others = 0;
    loop {
        let mut message = [0; 100];
        let length = socket.recv(&mut message).expect("a message");
        if message[..length].trim_ascii_end() == wanted.as_bytes() {
            return others;
        }
        others += 1;
        assert!(begun.elapsed() < TIMEOUT, "{wanted} did not come");
    }
}

#[test]
fn systemd_hears_that_a_gateway_is_up_works_and_ends() {
    let side = Side::new("watchdog");
    printed(&side.far(&["--allow", "127.0.0.1:1"]));
    let path = side.folder.path("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let mut program = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    program
        .args(["gateway", "--config", &side.config()])
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "400000")
        .stderr(Stdio::null());
    let child = program.spawn().expect("the program");
    let pid = Pid::from_raw(child.id() as i32);
    let running = Running(child);
    assert_eq!(hear(&socket, "READY=1"), 0);
    for _ in 0..3 {
        let begun = Instant::now();
        hear(&socket, "WATCHDOG=1");
        assert!(begun.elapsed() < Duration::from_secs(2));
    }
    kill(pid, Signal::SIGTERM).expect("it runs");
    hear(&socket, "STOPPING=1");
    drop(running);
}
