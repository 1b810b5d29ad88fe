//! Tests of the content and the format of a gateway's log, and of their changes at run time.
#![allow(
    clippy::disallowed_methods,
    reason = "runs programs and waits for them"
)]

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    process::Command,
};

use serde_json::Value;

use crate::common::{
    assert_ends,
    side::{Running, Side, TIMEOUT, printed},
};

/// A gateway that writes its log to a file.
struct Logged {
    side: Side,
    _running: Running,
}

impl Logged {
    fn start(name: &str, options: &[&str]) -> Self {
        Self::of(Side::new(name), options)
    }

    fn of(side: Side, options: &[&str]) -> Self {
        printed(&side.far(&["--allow", "127.0.0.1:1"]));
        let log = File::create(side.folder.path("log")).expect("room");
        let mut program = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        program.args(["gateway", "--config", &side.config()]);
        let child = program.args(options).stderr(log).spawn();
        let running = Running(child.expect("the program"));
        side.wait("an admin address", |_| true);
        Self {
            side,
            _running: running,
        }
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.side.folder.path("log")).expect("a log");
        let line = |line| serde_json::from_str(line).expect("a JSON object on each line");
        let lines = text.lines().map(line);
        // The log contains the audit trail regardless of the filter.
        lines
            .filter(|line: &Value| line["target"] != "audit")
            .collect()
    }

    fn has(&self, level: &str) -> bool {
        self.lines().iter().any(|line| line["level"] == level)
    }
}

/// Sends a log filter to the gateway. Returns the HTTP status line.
fn post(socket: &str, filter: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("a listener");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let length = filter.len();
    let request = format!(
        "POST /log HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{filter}"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer[9..12].to_owned()
}

#[test]
fn what_is_logged_changes_until_a_reload() {
    let gateway = Logged::start("logs-change", &["--log-format", "json"]);
    let side = &gateway.side;
    let up = &gateway.lines()[0];
    for field in ["timestamp", "level", "target", "fields"] {
        assert!(!up[field].is_null(), "{field} in {up}");
    }
    assert!(up["fields"]["link"].is_string(), "{up}");
    assert!(!gateway.has("TRACE"), "at first");

    assert_ends(&["log", "trace", "--config", &side.config()], 0, "");
    side.wait("an answer", |_| true);
    assert!(gateway.has("TRACE"), "a request is traced");

    let admin = side.admin.to_string();
    assert_ends(&["log", "error", "--admin", &admin], 0, "");
    let before = gateway.lines().len();
    side.wait("an answer", |_| true);
    assert_eq!(gateway.lines().len(), before, "nothing is an error");

    printed(&side.run(&["reload"], &[], ""));
    let line = gateway.lines().pop().expect("a line");
    assert_eq!(line["level"], "INFO", "{line}");
    assert_eq!(gateway.lines().len(), before + 1, "and no trace");
}

#[test]
fn a_reload_brings_back_the_filter_of_the_command_line() {
    let options = ["--log-format", "json", "--log", "warn"];
    let gateway = Logged::start("logs-flag", &options);
    assert_ends(&["log", "trace", "--config", &gateway.side.config()], 0, "");
    gateway.side.wait("an answer", |_| true);
    assert!(gateway.has("TRACE"), "it logs more");
    printed(&gateway.side.run(&["reload"], &[], ""));
    let before = gateway.lines().len();
    gateway.side.wait("an answer", |_| true);
    assert_eq!(gateway.lines().len(), before);
    assert!(
        !gateway.has("INFO"),
        "the reload itself is not worth a warning"
    );
}

#[test]
fn the_form_is_that_of_the_file_unless_the_command_line_says_so() {
    let with_format = |name: &str, format: &str| {
        let side = Side::new(name);
        let text = fs::read_to_string(side.config()).expect("it was written");
        let text = format!("{text}\n[log]\nformat = \"{format}\"\n");
        fs::write(side.config(), text).expect("room");
        side
    };
    let gateway = Logged::of(with_format("logs-file", "json"), &[]);
    assert_eq!(gateway.lines()[0]["fields"]["message"], "gateway up");
    let text = fs::read_to_string(gateway.side.config()).expect("it was written");
    let other = text.replace("\"json\"", "\"text\"");
    fs::write(gateway.side.config(), other).expect("room");
    let said = printed(&gateway.side.run(&["reload"], &[], ""));
    assert!(said.contains("needs a restart: [log] format"), "{said}");
    assert!(gateway.lines().len() > 1, "still lines of JSON");

    let gateway = Logged::of(with_format("logs-over", "json"), &["--log-format", "text"]);
    let log = fs::read_to_string(gateway.side.folder.path("log")).expect("a log");
    assert!(log.contains("gateway up") && !log.starts_with('{'), "{log}");
}

#[test]
fn wrong_filters_are_refused() {
    assert_ends(&["log", "inof"], 2, "is no level");
    assert_ends(&["log", "link=loud"], 2, "link=loud");
    assert_ends(&["log"], 2, "FILTER");
    assert_ends(&["log", "info", "--admin", "127.0.0.1:1"], 1, "no gateway");
    let gateway = Logged::start("logs-wrong", &[]);
    let socket = gateway.side.folder.path("state/gateway.key.admin.sock");
    for (filter, code) in [
        ("inof", "422"),
        ("", "422"),
        (&"link=info,".repeat(1000), "413"),
        ("info", "200"),
    ] {
        assert_eq!(post(&socket, filter), code, "{filter:.20}");
    }
}

#[test]
fn a_machine_without_a_journal_is_reported() {
    if fs::exists("/run/systemd/journal/socket").unwrap_or(true) {
        return;
    }
    let words = "no systemd journal takes messages on this machine";
    assert_ends(&["status", "--log-format", "journald"], 2, words);
    let side = Side::new("logs-journal");
    printed(&side.far(&["--allow", "127.0.0.1:1"]));
    let text = fs::read_to_string(side.config()).expect("it was written");
    fs::write(side.config(), text + "\n[log]\nformat = \"journald\"\n").expect("room");
    let words = "[log] format = journald: no systemd journal";
    assert_ends(&["gateway", "--config", &side.config()], 2, words);
}
