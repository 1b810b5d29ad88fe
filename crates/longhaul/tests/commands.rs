//! Tests of the complete command line: its definition, help texts, JSON output and exit codes.
#![allow(clippy::disallowed_methods, reason = "runs programs")]

#[path = "all/common/mod.rs"]
mod common;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        net::UnixListener,
        process::CommandExt as _,
    },
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use common::{Folder, assert_ends};
use serde_json::{Value, json};

/// Runs a command. Asserts the exit code, and returns the single JSON object that the command
/// prints.
#[track_caller]
fn object(arguments: &[&str], code: i32) -> Value {
    let printed = assert_ends(arguments, code, "");
    let value: Value = serde_json::from_str(&printed).expect("one object of JSON");
    assert_eq!(value["schema"], 1, "{arguments:?}: {printed}");
    assert_eq!(printed.lines().count(), 1, "an object is a line");
    value
}

/// A running program that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The program may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_definition_has_no_contradiction() {
    longhaul::command().debug_assert();
}

/// Calls `each` for a command and all its visible subcommands. The second argument is the path of
/// the command, such as `longhaul peer add`.
fn visit(command: &clap::Command, path: &str, each: &mut impl FnMut(&clap::Command, &str)) {
    each(command, path);
    for subcommand in command.get_subcommands() {
        if !subcommand.is_hide_set() && subcommand.get_name() != "help" {
            visit(
                subcommand,
                &format!("{path} {}", subcommand.get_name()),
                each,
            );
        }
    }
}

fn assert_short_sentences(path: &str, text: &str) {
    for sentence in text.split("\n\n").flat_map(|it| it.split(". ")) {
        let words = sentence.split_whitespace().count();
        assert!(
            words <= SENTENCE_MAX_WORDS,
            "{path}: {words} words: {sentence}"
        );
    }
}

#[test]
fn help_speaks_with_one_voice_in_lines_of_100_columns() {
    let mut root = longhaul::command();
    root.build();
    let mut seen = 0;
    visit(&root, "longhaul", &mut |command, path| {
        seen += 1;
        let about = command.get_about().expect(path).to_string();
        assert!(!about.ends_with('.'), "{path}: {about}");
        assert!(about.starts_with(char::is_uppercase), "{path}: {about}");
        let first = about.split([' ', ',']).next().expect("a word");
        assert!(!first.ends_with('s'), "{path}: not imperative: {about}");
        let long = command.get_long_about().map(ToString::to_string);
        assert_short_sentences(path, long.as_deref().unwrap_or(&about));
        if let Some(long) = long
            && long.contains("\n\n")
        {
            assert!(long.ends_with('.'), "{path}: sentences end: {long}");
        }
        for argument in command.get_arguments().filter(|one| !one.is_hide_set()) {
            let help = argument.get_help().expect(path).to_string();
            let name = argument.get_id();
            let long = argument.get_long_help().map(ToString::to_string);
            assert_short_sentences(path, long.as_deref().unwrap_or(&help));
            assert!(!help.ends_with('.'), "{path} {name}: {help}");
            assert!(
                help.starts_with(char::is_uppercase),
                "{path} {name}: {help}"
            );
        }
        // Clap breaks long lines itself. The test therefore also checks the unrendered text after
        // the options, whose line breaks are made by hand.
        let after = command.get_after_help().map(ToString::to_string);
        let rendered = command
            .clone()
            .term_width(100)
            .render_long_help()
            .to_string();
        for line in after.unwrap_or_default().lines().chain(rendered.lines()) {
            assert!(line.chars().count() <= 100, "{path}: {line}");
        }
    });
    let least = if cfg!(feature = "laboratory") { 35 } else { 20 };
    assert!(seen >= least, "{seen} commands");
}

#[test]
fn calc_refuses_what_no_formula_answers() {
    for (arguments, words) in [
        (
            &["window", "--rate", "0 Mbit/s", "--rtt", "1ms"][..],
            "--rate",
        ),
        (&["rate", "--window", "64K", "--rtt", "0"], "--rtt"),
        (&["rate", "--window", "0", "--rtt", "1ms"], "--window"),
        (&["loss", "--loss", "0%", "--rtt", "1ms"], "--loss"),
        (&["loss", "--loss", "100%", "--rtt", "1ms"], "--loss"),
        (
            &["time", "--size", "0", "--rate", "1M", "--rtt", "0"],
            "--size",
        ),
        (&["loss", "--loss", "1%", "--rtt", "0"], "--rtt"),
        (
            &["loss", "--loss", "1%", "--rtt", "1ms", "--mss", "0"],
            "--mss",
        ),
        (
            &[
                "time", "--size", "1", "--rate", "1M", "--rtt", "0", "--loss", "100%",
            ],
            "--loss",
        ),
        (
            &[
                "time", "--size", "1", "--rate", "1M", "--rtt", "0", "--window", "0",
            ],
            "--window",
        ),
        (
            &["window", "--rate", "100", "--rtt", "1ms"],
            "is not a rate",
        ),
        (&[], "Usage"),
    ] {
        assert_ends(&[&["calc"], arguments].concat(), 2, words);
    }
}

#[test]
fn calc_prints_figures_for_programs() {
    let window = [
        "calc", "window", "--rate", "100M", "--rtt", "173ms", "--json",
    ];
    let figures = object(&window, 0);
    assert_eq!(figures["bandwidth_delay_product_bytes"], 2_162_500.0);
    assert_eq!(figures["window_scale_shift"], 6);
    let rate = [
        "calc", "rate", "--window", "64K", "--rtt", "100ms", "--json",
    ];
    assert_eq!(object(&rate, 0)["rate_bits_per_s"], 5_242_880.0);
    let loss = ["calc", "--json", "loss", "--loss", "0.1%", "--rtt", "200ms"];
    assert!(object(&loss, 0)["cubic_bits_per_s"].is_f64());
    let time = [
        "calc", "time", "--size", "1 GB", "--rate", "1G", "--rtt", "200ms", "--json",
    ];
    assert_eq!(object(&time, 0)["plain_limit"], "rate");
}

#[test]
fn a_gateway_is_checked_by_a_subcommand_and_by_its_old_spelling() {
    let folder = Folder::new("gateway");
    let (key, file) = (folder.path("a.key"), folder.path("a.toml"));
    let made = object(&["keygen", &key, "--json"], 0);
    assert_eq!(object(&["pubkey", &key, "--json"], 0), made);
    let shown = assert_ends(&["pubkey", &key], 0, "");
    assert_eq!(made["public_key"], shown.trim_end());
    assert_ends(
        &["keygen", &key],
        1,
        &format!(
            "longhaul: the key file {key} exists, and is not replaced: longhaul pubkey {key} prints its public key"
        ),
    );
    let spaced = folder.path("my key");
    assert_ends(&["keygen", &spaced], 0, "");
    let said = format!(
        "the key file {spaced} exists, and is not replaced: longhaul pubkey '{spaced}' prints"
    );
    assert_ends(&["keygen", &spaced], 1, &said);
    let absent = folder.path("b.key");
    let said = format!("longhaul: key file {absent}: No such file");
    assert_ends(&["pubkey", &absent], 1, &said);

    fs::write(&file, "[identity]\nkey_file = \"a.key\"\n").expect("room");
    let spellings = [
        &["gateway", "check", "--config", &file][..],
        &["gateway", "--config", &file, "check"],
        &["gateway", "--config", &file, "--check"],
        &["gateway", "--check", "--config", &file],
    ];
    let texts = spellings.map(|arguments| assert_ends(arguments, 0, ""));
    assert!(texts[0].contains(": ok\n") && texts.iter().all(|text| *text == texts[0]));
    let checked = object(&["gateway", "check", "--config", &file, "--json"], 0);
    assert_eq!(checked["error"], Value::Null);
    assert!(!checked["summary"].as_array().expect("lines").is_empty());
    for remove in ["remove-interception", "--remove-interception"] {
        let said = assert_ends(&["gateway", remove, "--config", &file], 0, "");
        assert!(said.contains("no [[ftp]] is transparent"), "{said}");
    }
    let remove = [
        "gateway",
        "remove-interception",
        "--config",
        &file,
        "--json",
    ];
    assert_eq!(object(&remove, 0)["removed"], json!([]));

    fs::write(&file, "[identity]\nkey = \"a.key\"\n").expect("room");
    let place = format!("{file}:2:1: ");
    for arguments in &spellings {
        assert_ends(arguments, 2, &place);
    }
    for action in [&["run"][..], &["remove-interception"], &[]] {
        assert_ends(
            &[&["gateway", "--config", &file], action].concat(),
            2,
            &place,
        );
    }
    let checked = object(&["gateway", "check", "--config", &file, "--json"], 2);
    assert!(
        checked["error"]
            .as_str()
            .is_some_and(|error| error.starts_with(&place))
    );
    assert_ends(&["gateway"], 2, "--config FILE is missing");
    assert_ends(&["gateway", "check"], 2, "--config FILE is missing");
    let usage = "Usage: longhaul gateway check [OPTIONS] [--config <FILE>]";
    assert_ends(&["gateway", "check"], 2, usage);
    let help = assert_ends(&["gateway", "check", "--help"], 0, "");
    assert!(help.contains(usage), "{help}");
    assert_ends(
        &["gateway", "--config", "/nonexistent.toml"],
        2,
        "cannot be read",
    );
    assert_ends(
        &["gateway", "--check", "check", "--config", &file],
        2,
        "one subcommand",
    );
}

#[test]
fn status_has_the_gateway_s_fields_and_the_schema() {
    let snapshot = json!({
        "version": "0.1.0",
        "started_unix_s": 1,
        "link_listen": "127.0.0.1:4810",
        "socket_buffer_asked_bytes": 1,
        "socket_buffer_receive_bytes": 1,
        "socket_buffer_send_bytes": 1,
        "dropped": {
            "unknown_key": 0, "bad_mac": 0, "replayed": 0, "crowded": 0,
            "malformed": 0, "unknown_connection": 0, "undecryptable": 0,
        },
        "peers": [],
        "sessions_open": 7,
        "sessions_total": 0,
        "refused_total": 0,
        "transfers_completed_total": 0,
        "transfers_failed_total": 0,
        "transfers": [],
        "of_a_newer_gateway": true,
    });
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound").to_string();
    thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let request = BufReader::new(client.try_clone().expect("a handle")).lines();
            let lines = request.map_while(Result::ok);
            assert!(lines.take_while(|line| !line.is_empty()).count() > 0);
            let answer = format!("HTTP/1.0 200 OK\r\n\r\n{snapshot}");
            client.write_all(answer.as_bytes()).expect("it listens");
        }
    });
    let shown = object(&["status", "--json", "--admin", &at], 0);
    assert_eq!(shown["sessions_open"], 7);
    assert_eq!(shown["of_a_newer_gateway"], true);
    assert!(!assert_ends(&["status", "--admin", &at], 0, "").is_empty());

    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = closed.local_addr().expect("bound").to_string();
    drop(closed);
    assert_ends(&["status", "--admin", &at], 1, "no gateway answers");
    assert_ends(&["status", "--admin", "nowhere"], 2, "--admin");
}

#[test]
fn a_running_gateway_takes_on_its_changed_file() {
    const TAKEN_ON: &str = "configuration read again";
    let folder = Folder::new("reload");
    let (key, file) = (folder.path("a.key"), folder.path("a.toml"));
    assert_ends(&["keygen", &key], 0, "");
    let config = |at: &str| {
        format!(
            "[identity]\nkey_file = \"a.key\"\n[admin]\nlisten = \"{at}\"\n\
             [link]\nlisten = \"127.0.0.1:0\"\n"
        )
    };
    let start = |at: &str| {
        fs::write(&file, config(at)).expect("room");
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.args(["gateway", "--config", &file]);
        command.env_remove("RUST_LOG").stdout(Stdio::null());
        let spawned = command.stderr(Stdio::piped()).spawn();
        let mut running = Running(spawned.expect("the program"));
        let stderr = running.0.stderr.take().expect("piped");
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        lines
            .any(|line| line.contains("gateway up"))
            .then_some((running, lines))
    };
    // Another test may start a program at the same moment. Between fork and exec, that program
    // holds copies of this process's sockets, and thus the port.
    let (at, (mut running, mut lines)) = (0..20)
        .find_map(|_| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let at = listener.local_addr().expect("bound").to_string();
            drop(listener);
            Some(at.clone()).zip(start(&at))
        })
        .expect("a gateway comes up");
    let (gateway, config) = (&mut running.0, config(&at));
    let mut until = |what: &[&str]| {
        let found = lines.find(|line| what.iter().any(|what| line.contains(what)));
        found.unwrap_or_else(|| panic!("it ends without {what:?}"))
    };

    let changed = format!("{config}drain_max = \"1 min\"\nidle_timeout = \"1 min\"\n[log]\n");
    fs::write(&file, format!("{changed}level = \"debug\"\n")).expect("room");
    let said = assert_ends(&["reload", "--config", &file], 0, "");
    let expected = "applied: [link] drain_max\napplied: [log] level\n\
                    needs a restart: [link] idle_timeout\n";
    assert_eq!(said, expected);
    until(&[TAKEN_ON]);
    let version = assert_ends(&["--version"], 0, "");
    let version = version.trim().trim_start_matches("longhaul ");
    let shown = assert_ends(&["status", "--config", &file], 0, "");
    assert!(
        shown.starts_with(&format!("gateway {version} on ")),
        "{version}: {shown}"
    );

    fs::write(&file, format!("{changed}level = \"warn\"\n")).expect("room");
    let outcome = object(&["reload", "--admin", &at, "--json"], 0);
    assert_eq!(outcome["taken"], serde_json::json!(["[log] level"]));
    fs::write(&file, format!("{changed}levle = \"warn\"\n")).expect("room");
    assert_ends(&["reload", "--admin", &at], 2, "a.toml:10:1");
    assert_ends(&["reload", "--config", &file], 2, "a.toml:10:1");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let listener = taken.local_addr().expect("bound").to_string();
    let forward = format!(
        "{config}[[peer]]\nname = \"b\"\npublic_key = \"{}\"\n\
         [[forward]]\nlisten = \"{listener}\"\ntarget = \"192.0.2.1:1\"\n",
        link::Identity::generate().public_key()
    );
    fs::write(&file, &forward).expect("room");
    assert_ends(&["reload", "--config", &file], 1, &listener);

    drop(taken);
    let process = nix::unistd::Pid::from_raw(gateway.id().try_into().expect("a number"));
    loop {
        nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGHUP).expect("it runs");
        if until(&[TAKEN_ON, "configuration not applied"]).contains(TAKEN_ON) {
            break;
        }
        // A program that another test starts may briefly hold the listener's port.
        thread::sleep(Duration::from_millis(10));
    }
    std::net::TcpStream::connect(&listener).expect("the forward listens");
    gateway.kill().expect("it runs until now");
    gateway.wait().expect("it has ended");
    assert_ends(&["reload", "--admin", &at], 1, "no gateway answers");
}

/// Only root can run a command as another user.
#[test]
fn an_ordinary_user_learns_which_command_needs_root() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let folder = Folder::new("ordinary");
    let mode = |path: &str, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is there");
    };
    mode(&folder.path(""), 0o755);
    // Ordinary users may not enter the folder of the program's build.
    let program = folder.path("longhaul");
    common::install_longhaul(&program);
    let (key, file, socket) = (
        folder.path("a.key"),
        folder.path("a.toml"),
        folder.path("a.sock"),
    );
    assert_ends(&["keygen", &key], 0, "");
    fs::write(&file, "[identity]\nkey_file = \"a.key\"\n").expect("room");
    let _listener = UnixListener::bind(&socket).expect("room");
    mode(&socket, 0o600);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).uid(NOBODY).gid(NOBODY);
        let output = command.output().expect("the program");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().expect("an exit code"), said)
    };
    for command in [&["reload"][..], &["upgrade"], &["peer", "ls"]] {
        let arguments = [command, &["--config", &file]].concat();
        let (code, said) = run(&arguments);
        assert_eq!(code, 2, "{said}");
        let step = format!(
            "Permission denied (os error 13); run it as root: sudo longhaul {} --config {file}\n",
            command.join(" ")
        );
        assert!(said.ends_with(&step), "{said}");
    }
    let (code, said) = run(&["reload", "--admin", &socket]);
    assert_eq!(code, 1, "{said}");
    let words = format!(
        "{socket} accepts only root and the gateway's user: run it as root: sudo longhaul reload --admin {socket}"
    );
    assert!(said.contains(&words), "{said}");
}

#[test]
fn setup_by_an_ordinary_user_names_the_command_for_root() {
    let folder = Folder::new("setup-ordinary");
    let program = folder.path("longhaul");
    common::install_longhaul(&program);
    let (closed, config) = (folder.path("closed"), folder.path("closed/new/a.toml"));
    fs::create_dir(&closed).expect("room");
    for path in [folder.path(""), closed.clone()] {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).expect("it is there");
    }
    let state = folder.path("closed/state");
    let sides = [
        &["setup", "near"][..],
        &[
            "setup",
            "far",
            "--allow",
            "127.0.0.1:21",
            "--endpoint",
            "127.0.0.1:4810",
        ],
    ];
    for side in sides {
        let arguments = [side, &["--config", &config, "--state", &state]].concat();
        let mut command = Command::new(&program);
        command.args(&arguments).stdin(Stdio::null());
        if nix::unistd::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let output = command.output().expect("the program");
        let said = String::from_utf8_lossy(&output.stderr);
        let words = format!(
            "longhaul: this user may not write to {closed}: run it as root: sudo longhaul {}\n",
            arguments.join(" ")
        );
        assert_eq!(said, words);
        assert_eq!(output.status.code(), Some(1));
    }
    for path in [folder.path(""), closed] {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is there");
    }
}

/// Only root can run a gateway as another user.
#[test]
fn a_gateway_names_its_user_for_a_file_that_it_cannot_read() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let folder = Folder::new("unreadable");
    let (key, file, token) = (
        folder.path("a.key"),
        folder.path("a.toml"),
        folder.path("token"),
    );
    let program = folder.path("longhaul");
    let mode = |path: &str, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is there");
    };
    mode(&folder.path(""), 0o755);
    chown(folder.path(""), Some(NOBODY), None).expect("root may");
    // Ordinary users may not enter the folder of the program's build.
    common::install_longhaul(&program);
    assert_ends(&["keygen", &key], 0, "");
    chown(&key, Some(NOBODY), None).expect("root may");
    fs::write(&token, "0123456789abcdef0123456789abcdef").expect("room");
    mode(&token, 0o600);
    let text = "[identity]\nkey_file = \"a.key\"\n[link]\nlisten = \"127.0.0.1:0\"\n\
                [admin]\nlisten = \"127.0.0.1:0\"\nsocket = \"a.sock\"\n";
    let with_token = format!("{text}token_file = \"token\"\n");
    let names_user = format!(
        "{token}: cannot be read: Permission denied (os error 13): the gateway runs as user \
         nobody, who must be able to read it: chown this file to nobody, or permit its group to read it"
    );
    let gateway = || {
        let mut command = Command::new(&program);
        command.args(["gateway", "--config", &file]);
        command.env_remove("RUST_LOG").uid(NOBODY).gid(NOBODY);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    fs::write(&file, &with_token).expect("room");
    let output = gateway().output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&names_user), "{said}");
    // Root can read every file, but the gateway's user cannot.
    let check = |code, words: &str| {
        assert_ends(&["gateway", "check", "--config", &file], code, words);
    };
    check(2, &names_user);
    let checked = object(&["gateway", "check", "--config", &file, "--json"], 2);
    let error = checked["error"].as_str().unwrap_or_default();
    assert!(error.ends_with(&names_user), "{error}");
    for section in ["spool", "store"] {
        let data = folder.path(section);
        fs::create_dir(&data).expect("room");
        mode(&data, 0o700);
        let with_folder = format!("{text}[{section}]\nfolder = \"{data}\"\n");
        fs::write(&file, with_folder).expect("room");
        check(
            2,
            &format!(
                "[{section}] folder {data}: Permission denied: the gateway runs as user nobody"
            ),
        );
        check(2, &format!("sudo chown nobody {data}"));
        chown(&data, Some(NOBODY), None).expect("root may");
        check(0, "");
    }
    fs::write(&file, text).expect("room");
    check(0, "");
    let mut running = Running(gateway().spawn().expect("the program"));
    let stderr = running.0.stderr.take().expect("piped");
    let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("gateway up")));
    fs::write(&file, &with_token).expect("room");
    assert_ends(&["reload", "--config", &file], 2, &names_user);
    let outcome = object(&["upgrade", "--config", &file, "--json"], 1);
    let error = outcome["error"].as_str().unwrap_or_default();
    assert!(error.ends_with(&names_user), "{error}");
    running.0.kill().expect("it runs until now");
    running.0.wait().expect("it has ended");
}

/// Usual user ID of the user without privileges.
const NOBODY: u32 = 65534;

#[test]
fn a_probe_tries_at_least_once() {
    for arguments in [
        &["bulk", "127.0.0.1:9"][..],
        &["ftp", "127.0.0.1:9"],
        &["transaction", "127.0.0.1:9"],
        &[
            "compare",
            "ftp",
            "--direct",
            "127.0.0.1:9",
            "--through",
            "127.0.0.1:9",
        ],
        &["ping", "127.0.0.1:9"],
        &["ping", "127.0.0.1:9", "--tcp"],
    ] {
        let arguments = [&["probe"], arguments, &["-n", "0"]].concat();
        assert_ends(&arguments, 2, "0");
    }
}

#[test]
fn a_tcp_test_takes_the_letters_of_iperf3() {
    // The refusal of the port shows that all letters were parsed.
    let letters = ["-p", "1", "-R", "-P", "2", "-n", "1m", "-w", "64k", "-J"];
    let arguments = [&["probe", "tcp", "127.0.0.1:1"], &letters[..]].concat();
    assert_ends(&arguments, 2, "both name a port");
}

#[test]
fn every_command_logs_by_its_options() {
    let calc = ["calc", "rate", "--window", "64K", "--rtt", "1ms"];
    for options in [&["-q"][..], &["-vv"], &["--log", "link=debug,info"]] {
        assert_ends(&[&calc, options].concat(), 0, "");
        assert_ends(&[options, &calc].concat(), 0, "");
    }
    for options in [
        &["-v", "-q"][..],
        &["--log", "link=loud"],
        &["--log", "inof"],
        &["--log", "info,"],
        &["--log", ""],
    ] {
        assert_ends(&[&calc, options].concat(), 2, "");
    }
    let apart = [&["-v"][..], &calc, &["-q"]].concat();
    assert_ends(&apart, 2, "-v and -q contradict each other");
}

#[test]
fn a_filter_beats_verbosity() {
    let folder = Folder::new("filter");
    let (key, file) = (folder.path("a.key"), folder.path("a.toml"));
    assert_ends(&["keygen", &key], 0, "");
    let config = "[identity]\nkey_file = \"a.key\"\n[link]\nlisten = \"127.0.0.1:0\"\n";
    fs::write(&file, config).expect("room");
    for verbosity in ["-vv", "-q"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.args(["gateway", "--config", &file, "--log", "info", verbosity]);
        let mut gateway = command.stderr(Stdio::piped()).spawn().expect("the program");
        let lines = BufReader::new(gateway.stderr.take().expect("piped")).lines();
        let mut lines = lines.map_while(Result::ok);
        let until_up: Vec<_> = lines
            .by_ref()
            .take_while(|line| !line.contains("gateway up"))
            .collect();
        gateway.kill().expect("it runs until now");
        gateway.wait().expect("it has ended");
        assert!(
            until_up.iter().all(|line| line.contains(" INFO ")),
            "{until_up:?}"
        );
        assert!(lines.next().is_none_or(|line| line.contains(" INFO ")));
    }
}

#[test]
fn wrong_use_ends_with_2() {
    assert_ends(&[], 2, "Usage");
    assert_ends(&["no-such-command"], 2, "unrecognized subcommand");
    assert_ends(&["help", "no-such-command"], 2, "unrecognized subcommand");
    assert_ends(&["keygen"], 2, "<FILE>");
    assert_ends(&["--help"], 0, "");
}

#[cfg(feature = "laboratory")]
#[test]
fn a_script_that_cannot_be_read_is_reported_with_the_reason() {
    let script = ["wan", "script", "/nonexistent.toml"];
    assert_ends(&script, 2, "reading /nonexistent.toml: No such file");
}

#[cfg(not(feature = "laboratory"))]
#[test]
fn a_production_build_refuses_the_laboratory_s_commands() {
    for arguments in [
        &["demo"][..],
        &["wan", "up", "--rtt", "1ms"],
        &["eval", "--help"],
    ] {
        let words = format!("no `{}`; install the package longhaul-lab", arguments[0]);
        assert_ends(arguments, 2, &words);
    }
    let plot = ["probe", "ping", "127.0.0.1:9", "--plot", "plot.svg"];
    assert_ends(&plot, 2, "this build draws no plots");
}

/// Maximum number of words in a sentence of a help text.
const SENTENCE_MAX_WORDS: usize = 25;
