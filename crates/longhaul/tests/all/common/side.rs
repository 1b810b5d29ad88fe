//! A gateway with its own files and addresses, set up with the same commands that users run.

use std::{
    fs,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU8, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Folder, longhaul};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// A running gateway process. It is killed when the test ends.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The gateway may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Files and addresses of one gateway.
pub(crate) struct Side {
    pub(crate) folder: Folder,
    pub(crate) link: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) ftp: SocketAddr,
}

/// Returns an address on which no program listens. Each call uses another loopback IP address, so
/// no other test uses the port.
pub(crate) fn free() -> SocketAddr {
    let listener = TcpListener::bind((own_ip(), 0)).expect("a port");
    listener.local_addr().expect("bound")
}

fn own_ip() -> Ipv4Addr {
    static TAKEN: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    let number = TAKEN.fetch_add(1, Ordering::Relaxed) % 250 + 1;
    Ipv4Addr::new(127, 128 | high, low, number)
}

impl Side {
    pub(crate) fn new(name: &str) -> Self {
        let link = UdpSocket::bind((own_ip(), 0)).expect("a port");
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

    pub(crate) fn config(&self) -> String {
        self.folder.path("gateway.toml")
    }

    /// Runs a command with this gateway's configuration file. `told` is the standard input of the
    /// command.
    pub(crate) fn run(&self, command: &[&str], rest: &[&str], told: &str) -> Output {
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
        // A command without questions does not read its input.
        let _ = stdin.write_all(told.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("it ends")
    }

    pub(crate) fn far(&self, rest: &[&str]) -> Output {
        let (state, link) = (self.folder.path("state"), self.link.to_string());
        let fixed = ["--state", &state, "--endpoint", &link, "--no-start"];
        self.run(&["setup", "far"], &[&fixed[..], rest].concat(), "")
    }

    pub(crate) fn near(&self, invite: &str, rest: &[&str]) -> Output {
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

    pub(crate) fn start(&self) -> Running {
        let mut program = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        program.args(["gateway", "--config", &self.config()]);
        let running = Running(program.spawn().expect("the program"));
        self.wait("an admin address", |_| true);
        running
    }

    pub(crate) fn status(&self) -> Option<Value> {
        let admin = self.admin.to_string();
        let output = longhaul(&["status", "--json", "--admin", &admin]);
        serde_json::from_slice(&output.stdout).ok()
    }

    pub(crate) fn wait(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            let status = self.status();
            if status.as_ref().is_some_and(&holds) {
                return;
            }
            assert!(
                begun.elapsed() < TIMEOUT,
                "{what} did not come about: {status:?}"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[track_caller]
pub(crate) fn printed(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[track_caller]
pub(crate) fn assert_refused(output: &Output, code: i32, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "{words}: {said}");
}

pub(crate) fn is_up(status: &Value, name: &str) -> bool {
    let peers = status["peers"].as_array().into_iter().flatten();
    let mut named = peers.filter(|it| it["name"] == name);
    named.any(|it| it["state"] == "up")
}
