//! Tests of upgrades: another process replaces a gateway's process while connections continue.
#![allow(
    clippy::disallowed_methods,
    reason = "runs programs and waits for them"
)]

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::common::{
    self,
    side::{Side, TIMEOUT, free, printed},
};

/// A gateway that is run by one process after another.
pub(crate) struct Gateway {
    pub(crate) side: Side,
    program: String,
    pids: Vec<i32>,
}

impl Gateway {
    /// Starts the gateway of `side`, which is already set up.
    pub(crate) fn start(side: Side) -> Self {
        let program = env!("CARGO_BIN_EXE_longhaul").to_owned();
        Self::start_program(side, program)
    }

    fn start_program(side: Side, program: String) -> Self {
        let pids = Vec::new();
        let mut gateway = Self {
            side,
            program,
            pids,
        };
        gateway.restart();
        gateway
    }

    fn restart(&mut self) {
        self.start_process();
        self.wait_for_peer();
    }

    fn start_process(&mut self) {
        let mut program = Command::new(&self.program);
        program.args(["gateway", "--config", &self.side.config()]);
        let child = program.stderr(Stdio::null()).spawn();
        let mut child = child.expect("the program");
        self.pids.push(child.id() as i32);
        thread::spawn(move || child.wait());
    }

    /// Waits until the gateway answers and all its peers are connected.
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

    /// Replaces the serving process by a new process.
    pub(crate) fn succeed(&mut self) {
        let (code, told, said) = self.upgrade();
        assert_eq!(code, 0, "{told} {said}");
        assert_eq!(told["old_pid"], self.pid());
        let pid = told["pid"].as_i64().expect("a number");
        self.pids.push(pid as i32);
    }

    /// Returns the process ID of the serving process.
    fn pid(&self) -> i32 {
        *self.pids.last().expect("one was started")
    }

    fn runs(&self, pid: i32) -> bool {
        kill(Pid::from_raw(pid), None).is_ok()
    }

    /// Waits until all processes except the serving process have ended.
    pub(crate) fn wait_for_one(&self) {
        let begun = Instant::now();
        let older = &self.pids[..self.pids.len() - 1];
        while older.iter().any(|pid| self.runs(*pid)) {
            assert!(begun.elapsed() < TIMEOUT, "an old process does not end");
            thread::sleep(Duration::from_millis(50));
        }
        assert!(self.runs(self.pid()));
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        for pid in &self.pids {
            // Most processes have ended.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
    }
}

/// Two gateways with a forward to a server that sends all received bytes back.
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
        let listener = format!("\n[[forward]]\nlisten = \"{forward}\"\ntarget = \"{echo}\"\n");
        fs::write(&config, text + &listener).expect("room");
        let near = Gateway::start(near);
        Self { near, far, forward }
    }

    /// Opens a connection through the forward. Returns the connection, and the time until the first
    /// reply.
    fn connect(&self) -> (TcpStream, Duration) {
        let begun = Instant::now();
        let mut stream = TcpStream::connect(self.forward).expect("a listener");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        echo(&mut stream, 1);
        (stream, begun.elapsed())
    }
}

/// Starts a server that sends all received bytes back. Returns its address.
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

/// Sends bytes, and checks that the same bytes return.
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
            "a change of the address needs a restart",
        ),
    ] {
        fs::write(&config, wrong).expect("room");
        // The command itself would find the mistake.
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

#[test]
fn a_program_that_cannot_be_started_is_named_with_the_next_step() {
    let lone = Side::new("upgrade-program");
    printed(&lone.far(&["--allow", "127.0.0.1:1"]));
    let program = lone.folder.path("longhaul");
    common::install_longhaul(&program);
    let lone = Gateway::start_program(lone, program.clone());
    let replace = |text: &str, mode| {
        let new = format!("{program}.new");
        common::install_script(&new, text, mode);
        fs::rename(&new, &program).expect("it is there");
    };
    let not_executable = format!("{program} is not executable: set its permissions to 755");
    let broken = format!(
        "the new process of {program} ended before it was ready; {program} --version: exit status: 7; messages of \
         the new process are in the gateway's log (journalctl -u longhaul)"
    );
    let foreign = format!("{program} --version: Exec format error (os error 8)");
    for (text, mode, words) in [
        ("#!/bin/sh\nexit 0\n", 0o644, not_executable.as_str()),
        ("#!/bin/sh\nexit 7\n", 0o755, &broken),
        ("\u{7f}ELF of another machine", 0o755, &foreign),
    ] {
        replace(text, mode);
        let (code, told, said) = lone.upgrade();
        assert_eq!(code, 1, "{told} {said}");
        let error = told["error"].as_str().unwrap_or_default();
        assert!(error.contains(words), "{error}");
    }
    fs::remove_file(&program).expect("it is there");
    let (_, told, _) = lone.upgrade();
    let error = told["error"].as_str().unwrap_or_default();
    assert!(error.contains("cannot be started: No such file"), "{error}");
    assert!(lone.side.status().is_some(), "the old process serves");
}

#[test]
fn an_upgrade_reports_the_program_and_warns_if_it_is_unchanged() {
    let lone = Side::new("upgrade-same");
    printed(&lone.far(&["--allow", "127.0.0.1:1"]));
    let program = lone.folder.path("longhaul");
    common::install_longhaul(&program);
    let mut lone = Gateway::start_program(lone, program.clone());
    let version = common::longhaul(&["--version"]).stdout;
    let version = String::from_utf8_lossy(&version).into_owned();
    let version = version.trim().trim_start_matches("longhaul ");
    let warning = format!("the gateway runs from {program}, and this file has not been replaced");
    for is_replaced in [false, true] {
        if is_replaced {
            let new = format!("{program}.new");
            common::install_longhaul(&new);
            fs::rename(&new, &program).expect("it is there");
        }
        let output = lone.side.run(&["upgrade"], &[], "");
        let [printed, said] =
            [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        let pid = printed.split(' ').nth(1).and_then(|it| it.parse().ok());
        let pid: i32 = pid.expect("a process");
        let words = format!("(version {version}, {program}) has replaced {}", lone.pid());
        lone.pids.push(pid);
        assert!(printed.contains(&words), "{printed}");
        assert_eq!(said.contains(&warning), !is_replaced, "{said}");
    }
}

/// The old process continues after its timeout. The new process must then not serve at the same
/// time.
#[test]
fn a_process_that_comes_too_late_does_not_serve() {
    let pair = Pair::new("upgrade-late");
    let folder = &pair.far.side.folder;
    let program = folder.path("longhaul");
    common::install_longhaul(&program);
    let lone = Side::new("upgrade-late-lone");
    printed(&lone.far(&["--allow", "127.0.0.1:1"]));
    let lone = Gateway::start_program(lone, program.clone());
    let slow = format!("{program}.new");
    let real = env!("CARGO_BIN_EXE_longhaul");
    let text = format!("#!/bin/sh\nsleep 7\nexec {real} \"$@\"\n");
    common::install_script(&slow, &text, 0o755);
    fs::rename(&slow, &program).expect("it is there");
    let (code, told, said) = lone.upgrade();
    assert_eq!(code, 1, "{told} {said}");
    let error = told["error"].as_str().unwrap_or_default();
    assert!(error.contains("not ready within"), "{error}");
    thread::sleep(Duration::from_secs(5));
    let config = lone.side.config();
    assert_eq!(successor_of(lone.pid(), &config), None, "two would serve");
    assert!(lone.side.status().is_some());
}

/// The client has sent all its bytes. Most of them are still in flight when the process is
/// replaced.
#[test]
fn bytes_that_are_on_their_way_arrive() {
    let mut pair = Pair::new("upgrade-drain");
    let config = pair.far.side.config();
    let text = fs::read_to_string(&config).expect("it was written");
    let slow = text.replacen("[link]\n", "[link]\nrate_max = \"8 Mbit/s\"\n", 1);
    fs::write(&config, slow).expect("room");
    pair.far.succeed();
    pair.far.wait_for_one();
    pair.near.wait_for_peer();
    let (mut stream, _) = pair.connect();
    let mut writer = stream.try_clone().expect("a handle");
    let writing = thread::spawn(move || {
        let written = writer.write_all(&[7; 6_000_000]);
        writer.shutdown(Shutdown::Write).expect("it is open");
        written
    });
    thread::sleep(Duration::from_millis(1500));
    pair.far.succeed();
    let upgraded = Instant::now();
    let mut came = Vec::new();
    let read = stream.read_to_end(&mut came);
    read.expect("the connection goes on");
    let took = upgraded.elapsed();
    assert!(
        took > Duration::from_secs(1),
        "most was still on its way: {took:?}"
    );
    writing.join().expect("no panic").expect("it goes on");
    assert_eq!(came.len(), 6_000_000);
    pair.far.wait_for_one();
}

/// An SSH listener without a server. The new process has the same socket and the same host key.
#[test]
fn an_upgrade_passes_on_the_socket_of_an_ssh_listener() {
    let mut pair = Pair::new("upgrade-ssh");
    let listen = free();
    let config = pair.near.side.config();
    let text = fs::read_to_string(&config).expect("it was written");
    let listener = format!("\n[[ssh]]\nlisten = \"{listen}\"\ntarget = \"127.0.0.9:1\"\n");
    fs::write(&config, text + &listener).expect("room");
    printed(&pair.near.side.run(&["reload"], &[], ""));
    let shown = |side: &Side| {
        let status = side.status().expect("it answers");
        assert_eq!(status["ssh"][0]["listen"], listen.to_string());
        status["ssh"][0]["host_key"].clone()
    };
    let host_key = shown(&pair.near.side);
    let done = Arc::new(AtomicBool::new(false));
    let client = {
        let done = done.clone();
        thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                TcpStream::connect(listen).expect("the port is always open");
                thread::sleep(Duration::from_millis(5));
            }
        })
    };
    pair.near.succeed();
    pair.near.wait_for_one();
    done.store(true, Ordering::Relaxed);
    client.join().expect("no refused connection");
    assert_eq!(shown(&pair.near.side), host_key);
}

/// The old process still serves a session, but must not listen on any port.
#[test]
fn an_upgrade_takes_on_other_addresses_and_closes_what_is_gone() {
    let mut pair = Pair::new("upgrade-addresses");
    let (mut held, _) = pair.connect();
    let (config, before) = (pair.near.side.config(), pair.near.side.admin);
    let after = free();
    let text = fs::read_to_string(&config).expect("it was written");
    let (kept, _) = text.split_once("[[forward]]").expect("there is one");
    let changed = kept.replace(&before.to_string(), &after.to_string());
    assert_ne!(changed, kept, "the address was there");
    fs::write(&config, changed).expect("room");
    let admin = before.to_string();
    let output = common::longhaul(&["upgrade", "--json", "--admin", &admin]);
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let pid = told["pid"].as_i64().expect("a new process");
    pair.near.pids.push(pid as i32);
    pair.near.side.admin = after;
    pair.near.wait_for_peer();
    for gone in [before, pair.forward] {
        let refused = TcpStream::connect(gone).expect_err("nobody listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{gone}");
    }
    echo(&mut held, 10_000);
}

/// A program may send a reload order to the old process, because the program has not yet detected
/// the upgrade.
#[test]
fn an_order_to_reload_that_comes_to_the_earlier_process_is_not_lost() {
    let mut pair = Pair::new("upgrade-order");
    let old = pair.near.pid();
    pair.near.succeed();
    let (config, before, after) = (pair.near.side.config(), pair.forward, free());
    let text = fs::read_to_string(&config).expect("it was written");
    let changed = text.replace(&before.to_string(), &after.to_string());
    fs::write(&config, changed).expect("room");
    kill(Pid::from_raw(old), Signal::SIGHUP).expect("it is still there");
    let begun = Instant::now();
    while TcpStream::connect(after).is_err() {
        assert!(
            begun.elapsed() < TIMEOUT,
            "the near gateway still listens at its old address"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// The new process must receive this socket from the old process, because the address is still in
/// use.
#[test]
fn the_address_with_tls_is_handed_over() {
    let mut pair = Pair::new("upgrade-https");
    let (config, https) = (pair.near.side.config(), free());
    let token = pair.near.side.folder.path("admin.token");
    fs::write(&token, "0123456789abcdef".repeat(4)).expect("room");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("our file");
    let text = fs::read_to_string(&config).expect("it was written");
    let keys = format!("[admin]\ntoken_file = \"{token}\"\nhttps = {{ listen = \"{https}\" }}\n");
    fs::write(&config, text.replace("[admin]\n", &keys)).expect("room");
    for _ in 0..2 {
        pair.near.succeed();
        let mut stream = TcpStream::connect(https).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        stream.write_all(b"no TLS").expect("it is open");
        let mut came = [0];
        stream.read_exact(&mut came).expect("an answer");
        assert_eq!(came, [21], "an alert of TLS");
    }
}

#[test]
fn a_reload_that_is_asked_for_in_the_midst_of_an_upgrade_is_not_lost() {
    let mut pair = Pair::new("upgrade-reload");
    let (config, admin) = (pair.near.side.config(), pair.near.side.admin.to_string());
    let (mut at, old) = (pair.forward, pair.near.pid());
    let url = admin.clone();
    let upgrade = thread::spawn(move || common::longhaul(&["upgrade", "--json", "--admin", &url]));
    let begun = Instant::now();
    while successor_of(old, &config).is_none() {
        assert!(begun.elapsed() < TIMEOUT, "a new process was started");
    }
    // The reloads occur before, during and after the handover.
    for _ in 0..8 {
        let text = fs::read_to_string(&config).expect("it was written");
        let moved = free();
        let changed = text.replace(&at.to_string(), &moved.to_string());
        fs::write(&config, changed).expect("room");
        at = moved;
        let told = common::longhaul(&["reload", "--admin", &admin]);
        let said = String::from_utf8_lossy(&told.stderr);
        assert!(
            told.status.success() || said.contains("ask again"),
            "{said}"
        );
        let begun = Instant::now();
        while TcpStream::connect(at).is_err() {
            assert!(begun.elapsed() < TIMEOUT, "it has not moved; {said}");
            thread::sleep(Duration::from_millis(5));
        }
    }
    let told = upgrade.join().expect("no panic");
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    pair.near
        .pids
        .extend(told["pid"].as_i64().map(|pid| pid as i32));
    pair.near.wait_for_peer();
}

/// An old process must not rely on the peers that were configured when it was replaced.
#[test]
fn a_removed_peer_ends_in_all_earlier_processes_too() {
    let mut pair = Pair::new("upgrade-removed");
    let (mut oldest, _) = pair.connect();
    pair.far.succeed();
    // The test needs a session in the second process. The near gateway itself decides when it
    // connects to that process.
    let begun = Instant::now();
    let mut older = loop {
        let (stream, _) = pair.connect();
        let status = pair.far.side.status().expect("it answers");
        if status["transfers"].as_array().map(Vec::len) == Some(1) {
            break stream;
        }
        assert!(begun.elapsed() < TIMEOUT, "the near gateway stays");
        thread::sleep(Duration::from_millis(100));
    };
    pair.far.succeed();
    echo(&mut oldest, 10_000);
    echo(&mut older, 10_000);
    // Both processes are reported.
    pair.far.side.wait("reports of both", |status| {
        let processes = status["older_processes"].as_array();
        let mut processes = processes.into_iter().flatten();
        processes.clone().count() == 2 && processes.all(|it| it["transfers_open"] == 1)
    });
    let admin = pair.far.side.admin.to_string();
    let shown = printed(&common::longhaul(&["status", "--admin", &admin]));
    assert!(shown.contains("older process "), "{shown}");
    let status = pair.far.side.status().expect("it answers");
    let name = status["peers"][0]["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    printed(&pair.far.side.run(&["peer", "rm"], &[&name, "--now"], ""));
    for held in [&mut oldest, &mut older] {
        let mut came = [0];
        // The connection must end, rather than stay silent until the test's timeout.
        match held.read(&mut came) {
            Ok(count) => assert_eq!(count, 0, "it goes on"),
            Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock, "it goes on"),
        }
    }
    pair.far.wait_for_one();
    pair.near.side.wait("the reason", |status| {
        status["peers"][0]["state"] == "dismissed"
    });
    let mut stream = TcpStream::connect(pair.forward).expect("a listener");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let mut came = [0];
    let answered = stream
        .write_all(b"x")
        .and_then(|()| stream.read_exact(&mut came));
    assert!(answered.is_err(), "it was let in");
}

/// The test kills the serving process. A service manager then starts a gateway that has no channel
/// to the older processes.
#[test]
fn a_removed_peer_ends_in_processes_whose_successor_has_died() {
    for is_restarted in [false, true] {
        let mut pair = Pair::new(&format!("upgrade-orphan-{is_restarted}"));
        let (mut held, _) = pair.connect();
        let status = pair.far.side.status().expect("it answers");
        let name = status["peers"][0]["name"].as_str().expect("a name");
        let name = name.to_owned();
        pair.far.succeed();
        echo(&mut held, 10_000);
        let died = pair.far.pid();
        kill(Pid::from_raw(died), Signal::SIGKILL).expect("it runs");
        echo(&mut held, 10_000);
        if is_restarted {
            // The orphan still has the old address.
            let config = pair.far.side.config();
            let text = fs::read_to_string(&config).expect("it was written");
            let link = pair.far.side.link.to_string();
            let moved = text.replacen(&link, &free().to_string(), 1);
            assert_ne!(moved, text, "the address was there");
            fs::write(&config, moved).expect("room");
            pair.far.start_process();
            pair.far.side.wait("an answer", |_| true);
            assert_ne!(pair.far.pid(), died);
        }
        let removed = pair.far.side.run(&["peer", "rm"], &[&name, "--now"], "");
        printed(&removed);
        let said = String::from_utf8_lossy(&removed.stderr);
        assert_eq!(
            said.contains("the running gateway has applied it"),
            is_restarted,
            "{said}"
        );
        let mut came = [0];
        match held.read(&mut came) {
            Ok(count) => assert_eq!(count, 0, "it goes on"),
            Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock, "it goes on"),
        }
    }
}

/// The test kills the old process or the new process at several moments of the handover.
#[test]
fn a_process_that_is_killed_while_it_hands_over_leaves_one_that_serves() {
    let mut pair = Pair::new("upgrade-killed");
    let config = pair.near.side.config();
    for round in 0..12u64 {
        let [old] = running(&config)[..] else {
            panic!("{:?} run", running(&config));
        };
        let url = pair.near.side.admin.to_string();
        let command =
            thread::spawn(move || common::longhaul(&["upgrade", "--json", "--admin", &url]));
        let begun = Instant::now();
        let fresh = loop {
            // A process that is about to become the shell looks like a gateway for a moment.
            let seen = successor_of(old, &config);
            thread::sleep(Duration::from_millis(3));
            if let Some(fresh) = seen.filter(|pid| running(&config).contains(pid)) {
                break fresh;
            }
            assert!(begun.elapsed() < TIMEOUT, "a new process was started");
        };
        // The moments range from the start of the new process to the end of the handover.
        thread::sleep(Duration::from_millis(5 * round));
        let is_old = round % 2 == 0;
        let victim = if is_old { old } else { fresh };
        kill(Pid::from_raw(victim), Signal::SIGKILL).expect("it runs");
        let told = command.join().expect("no panic");
        let said = String::from_utf8_lossy(&told.stdout);
        let which = if is_old { "old" } else { "new" };
        println!(
            "round {round}: the {which} process was killed; {}",
            said.trim()
        );
        if !is_old && told.status.success() {
            // The handover was complete, and a service manager would restart the gateway.
            let _ = kill(Pid::from_raw(old), Signal::SIGKILL);
            pair.near.restart();
        }
        pair.near.pids.extend([old, fresh]);
        pair.near.wait_for_peer();
        pair.connect();
        let begun = Instant::now();
        while running(&config).len() > 1 {
            assert!(begun.elapsed() < TIMEOUT, "{:?} run", running(&config));
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the process ID of a gateway with this configuration. Ignores the process `old`.
fn successor_of(old: i32, config: &str) -> Option<i32> {
    let others = running(config).into_iter();
    others.filter(|pid| *pid != old).max()
}

/// Returns the process IDs of all gateways that run with this configuration.
fn running(config: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("it is there");
    let pids = entries.filter_map(|it| it.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let is_gateway = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let is_shell = line.starts_with("/bin/sh");
        !is_shell && line.contains("longhaul\0gateway\0") && line.contains(config)
    };
    pids.filter(is_gateway).collect()
}
