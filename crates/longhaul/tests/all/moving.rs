//! Tests of `longhaul copy`, `sync`, `check` and `ls`: exit codes and messages.
#![allow(clippy::disallowed_methods, reason = "runs programs")]

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use fake_ftp::{Behaviour, FakeServer};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::common::{Folder, assert_ends, longhaul};

#[test]
fn a_copy_says_what_is_wrong_with_its_command_line() {
    let folder = Folder::new("copy");
    let (from, to) = (folder.path("from"), folder.path("to"));
    fs::write(&from, b"content").expect("room");
    let cases: [(&[&str], &str); 10] = [
        (
            &["me@ftp.example.com:/takes"],
            "did you mean sftp://me@ftp.example.com//takes or ./me@ftp.example.com:/takes",
        ),
        (&["ftp.example.com:takes"], "did you mean"),
        (&["https://localhost/x"], "a web server is a source alone"),
        (&["https://localhost/x/"], "must name a file"),
        (
            &["ftp://me:secret@localhost/x"],
            "must not contain a password",
        ),
        (&["smb://localhost/x"], "\"smb\" is no scheme"),
        (&["ftp://localhost:70000/x"], "is no server"),
        (
            &["ftp://localhost/x", "--gateway", "nowhere"],
            "is no gateway",
        ),
        (&["ftp://localhost/x", "--peer", "nowhere"], "is no peer"),
        (
            &[&to, "--gateway", "localhost:1"],
            "source and destination are on this machine",
        ),
    ];
    for (arguments, expected) in cases {
        let said = assert_ends(&[&["copy", &from], arguments].concat(), 2, expected);
        assert!(!said.contains("secret"), "{said}");
    }
    assert_ends(&["copy", &from, &to, "-q"], 0, "");
    assert_eq!(fs::read(&to).expect("copied"), b"content");
    assert_ends(&["copy", "/nonexistent", &to], 1, "there is no such file");
    let refused = ["copy", &from, "ftp://127.0.0.1:1/x", "--retries"];
    let once = longhaul(&[&refused[..], &["0"]].concat());
    let said = String::from_utf8_lossy(&once.stderr).into_owned();
    assert_eq!(said.matches("Connection refused").count(), 1, "{said}");
    assert!(!said.contains("trying again"), "{said}");
    let twice = longhaul(&[&refused[..], &["2"]].concat());
    let said = String::from_utf8_lossy(&twice.stderr).into_owned();
    assert_eq!(said.matches("trying again").count(), 1, "{said}");
    for (flag, value, code) in [
        ("--max-age", "1w", 0),
        ("--max-age", "2026-01-01", 0),
        ("--min-age", "2100-01-01 08:00", 0),
        ("--max-age", "soon", 2),
    ] {
        let other = folder.path("other");
        let words = if code == 2 { "nor a date such as" } else { "" };
        assert_ends(&["copy", &from, &other, flag, value], code, words);
    }
}

#[test]
fn of_a_web_server_nothing_is_listed() {
    assert_ends(
        &["ls", "https://localhost/x"],
        2,
        "a web server has no listings",
    );
    let gateway = [
        "copy",
        "https://localhost/x",
        "/tmp",
        "--gateway",
        "localhost:1",
    ];
    assert_ends(&gateway, 2, "so a gateway has no effect");
}

#[test]
fn a_sync_and_a_check_say_what_they_did_by_words_and_exit_codes() {
    let folder = Folder::new("sync");
    let (from, to) = (folder.path("from"), folder.path("to"));
    write(&folder, &["from/a", "from/sub/b", "from/cache/c", "to/old"]);
    let said = |arguments: Vec<&str>, code: i32, words: &str| {
        let done = longhaul(&arguments);
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert_eq!(done.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
        said
    };
    let sync = |more: &[&str], code, words: &str| {
        let arguments = [
            "sync",
            &from,
            &to,
            "--exclude",
            "cache/",
            "--resume",
            "never",
        ];
        said([&arguments[..], more].concat(), code, words)
    };
    let check = |more: &[&str], code, words: &str| {
        said([&["check", &from, &to][..], more].concat(), code, words)
    };
    check(&[], 1, "3 missing at DST; 1 only at DST");
    let dry = sync(
        &["-n"],
        0,
        "2 files would be copied, 14 B; 1 only at DST; 1 left out (-v lists it)",
    );
    assert!(dry.contains(&format!("would copy {from}/sub/b")), "{dry}");
    assert!(!Path::new(&folder.path("to/a")).exists());
    sync(
        &["--delete", "--max-delete", "10%"],
        1,
        "--max-delete 10% does not allow that (look at them with -n, then give --max-delete 1): nothing is deleted",
    );
    // A small directory permits a few deletions.
    let done = sync(&["--delete"], 0, "1 deleted");
    assert!(done.contains("2 there already"), "{done}");
    check(&["--exclude", "cache/"], 0, "2 files are the same");
    check(&["--json"], 1, r#""result":"missing"#);
    fs::write(folder.path("to/a"), b"CONTENT").expect("room");
    check(&["--checksum"], 1, "the content");
    check(
        &["--checksum"],
        1,
        "1 file is the same; 1 differs; 1 missing",
    );
    fs::write(folder.path("to/sub/b"), b"CONTENT").expect("room");
    check(
        &["--checksum"],
        1,
        "0 files are the same; 2 differ; 1 missing",
    );
    for (arguments, expected) in [
        (&["--max-delete", "5"][..], "--delete"),
        (&["--delete", "--max-delete", "x"], "neither a number"),
        (&["--include", "a**"], "alone between slashes"),
    ] {
        sync(arguments, 2, expected);
    }
    assert_ends(
        &["sync", &folder.path("from/sub"), &from],
        2,
        "a directory within it",
    );
    assert_ends(&["check", "/nonexistent", &to], 1, "there is no such file");
}

#[test]
fn a_listing_is_sorted_filtered_and_says_what_fails() {
    let folder = Folder::new("ls");
    write(&folder, &["b.txt", "a.txt", "cache/x", "sub/deep/z.bak"]);
    fs::write(folder.path("line\nbreak"), b"").expect("room");
    let top = folder.path("");
    let names = assert_ends(&["ls", "-1", &top], 0, "");
    assert_eq!(names, "a.txt\nb.txt\ncache/\nline\\nbreak\nsub/\n");
    let long = assert_ends(&["ls", &top, "--include", "a*"], 0, "");
    let first = long.lines().next().expect("a line");
    assert!(
        first.trim_start().starts_with("7  20") && first.ends_with("  a.txt"),
        "{long}"
    );
    let below = assert_ends(
        &["ls", "-R1", &top, "--exclude=/cache/", "--exclude=*.txt"],
        0,
        "",
    );
    assert_eq!(below, "line\\nbreak\nsub/\nsub/deep/\nsub/deep/z.bak\n");
    let one = assert_ends(&["ls", "-1", &folder.path("a.txt")], 0, "");
    assert_eq!(one, "a.txt\n");
    let json = assert_ends(&["ls", "--json", &folder.path("sub/deep")], 0, "");
    let entry = r#"{"schema":1,"event":"entry","path":"z.bak","kind":"file","bytes":7,"#;
    assert!(json.starts_with(entry), "{json}");
    assert_ends(&["ls", &folder.path("nothing")], 1, "there is no such file");
    assert_ends(
        &["ls", &top, "--gateway", "localhost:1"],
        2,
        "so a gateway has no effect",
    );
    let rules = folder.path("rules");
    fs::write(&rules, "- a\nb\n").expect("room");
    let place = "rules: line 2, column 1: a rule begins with +";
    assert_ends(&["ls", &top, "--filter-from", &rules], 2, place);
}

#[test]
fn one_directory_of_a_pattern_goes_where_two_would_go() {
    let folder = Folder::new("pattern");
    write(&folder, &["src/day1/x"]);
    let (day1, day2) = (folder.path("src/day1"), folder.path("src/day2"));
    let to = |name: &str| folder.path(name);
    assert_ends(&["copy", &day1, &to("one/"), "-q"], 0, "");
    write(&folder, &["src/day2/y"]);
    assert_ends(&["copy", &day1, &day2, &to("two/"), "-q"], 0, "");
    for path in ["one/day1/x", "two/day1/x", "two/day2/y"] {
        assert!(Path::new(&to(path)).exists(), "{path}");
    }
    // If the destination ends in no slash, or the source ends in a slash, the source becomes the
    // destination.
    assert_ends(&["copy", &day1, &to("plain"), "-q"], 0, "");
    assert_ends(&["copy", &format!("{day1}/"), &to("slash/"), "-q"], 0, "");
    assert_ends(&["sync", &day1, &to("sync/"), "-q"], 0, "");
    for path in ["plain/x", "slash/x", "sync/x"] {
        assert!(Path::new(&to(path)).exists(), "{path}");
    }
}

#[test]
fn progress_within_a_file_is_reported_as_json() {
    let folder = Folder::new("progress");
    let (from, to) = (folder.path("from"), folder.path("to"));
    fs::write(&from, vec![1; 8_000_000]).expect("room");
    let line = [
        "copy",
        "--json",
        "--bwlimit",
        "8M",
        "--resume",
        "never",
        &from,
        &to,
    ];
    let printed = assert_ends(&line, 0, "");
    let lines = printed
        .lines()
        .map(|it| serde_json::from_str::<Value>(it).expect("JSON"));
    let progress = lines
        .filter(|it| it["event"] == "progress")
        .collect::<Vec<_>>();
    let first = progress.first().expect("it takes more than five seconds");
    assert_eq!((&first["wanted"], &first["moved"]), (&1.into(), &0.into()));
    assert_eq!(first["bytes_wanted"], 8_000_000);
    assert!(
        first["bytes"]
            .as_u64()
            .is_some_and(|it| it > 0 && it < 8_000_000),
        "{first}"
    );
}

#[test]
fn standard_input_becomes_a_file_whole_or_not_at_all() {
    let folder = Folder::new("stdin");
    let to = folder.path("to");
    let pour = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command
            .args(["copy", "-"])
            .args(arguments)
            .env("HOME", folder.path("home"));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().expect("the program")
    };
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|it| it as u8).collect();
    let mut copy = pour(&[&to]);
    let mut input = copy.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, &bytes).expect("it reads");
    assert!(!Path::new(&to).exists(), "it is not whole yet");
    drop(input);
    let done = copy.wait_with_output().expect("it ends");
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        done.status.success() && printed.contains("3 MB copied"),
        "{printed}"
    );
    assert_eq!(fs::read(&to).expect("copied"), bytes);
    // An interrupted copy leaves no file.
    let mut copy = pour(&[&folder.path("other")]);
    let mut input = copy.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, &bytes).expect("it reads");
    kill(Pid::from_raw(copy.id() as i32), Signal::SIGINT).expect("it runs");
    assert!(!copy.wait().expect("it ends").success());
    let names = fs::read_dir(folder.path("")).expect("a folder").count();
    assert_eq!(names, 1, "the first copy alone");
    for (arguments, words) in [
        (vec![folder.path("")], "name the file"),
        (
            vec![to.clone(), folder.path("x")],
            "standard input goes alone",
        ),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let refused = pour(&arguments).wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(words), "{said}");
    }
    assert_ends(&["sync", "-", &to], 2, "only longhaul copy reads");
}

#[test]
fn a_pipe_or_a_device_is_no_source() {
    let folder = Folder::new("pipe");
    let pipe = folder.path("pipe");
    nix::unistd::mkfifo(pipe.as_str(), nix::sys::stat::Mode::S_IRWXU).expect("room");
    let to = folder.path("to");
    for source in [pipe.as_str(), "/dev/zero"] {
        assert_ends(
            &["copy", source, &to],
            1,
            "it is a pipe, a device or a socket",
        );
        assert!(!Path::new(&to).exists());
    }
}

#[test]
fn a_copy_leaves_a_journal_only_when_it_is_interrupted_and_clean_removes_its_part() {
    let folder = Folder::new("journal");
    let (from, to) = (folder.path("from"), folder.path("to"));
    fs::write(&from, vec![1; 20_000_000]).expect("room");
    let journals = || {
        let jobs = folder.path("home/.local/state/longhaul/jobs");
        fs::read_dir(jobs).into_iter().flatten().count()
    };
    let command = |more: &[&str], to: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command
            .args(["copy", &from, to])
            .args(more)
            .env("HOME", folder.path("home"))
            .env_remove("XDG_STATE_HOME")
            .stdout(Stdio::piped());
        command
    };
    let parts = || {
        let entries = fs::read_dir(folder.path("")).expect("a folder").flatten();
        let names = entries.map(|it| it.file_name().display().to_string());
        names.filter(|it| it.ends_with(".part")).count()
    };
    let interrupt = |more: &[&str], signal| {
        let mut copy = command(&[&["--bwlimit", "8M"], more].concat(), &to)
            .spawn()
            .expect("the program");
        let begun = Instant::now();
        while parts() == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "a part");
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(Duration::from_millis(500));
        kill(Pid::from_raw(copy.id() as i32), signal).expect("it runs");
        copy.wait().expect("it ends");
    };
    interrupt(&[], Signal::SIGINT);
    assert_eq!((journals(), parts()), (1, 1));
    // The path is another spelling of the same place.
    let cleaned = command(&["--clean"], &folder.path(".//to"))
        .output()
        .expect("the program");
    let printed = String::from_utf8_lossy(&cleaned.stdout).into_owned();
    assert!(printed.contains("1 part removed"), "{printed}");
    assert_eq!((journals(), parts()), (0, 0));
    let clean = |to: &str| {
        let cleaned = command(&["--clean"], to).output().expect("the program");
        String::from_utf8_lossy(&cleaned.stdout).into_owned()
    };
    let printed = clean(&to);
    assert!(printed.contains("nothing is left"), "{printed}");
    std::os::unix::fs::symlink(folder.path(""), folder.path("here")).expect("room");
    for (spelling, more) in [
        ("here/to", &[][..]),
        (".//to", &["--resume", "never"]),
        ("here/./to", &["--resume", "never"]),
    ] {
        interrupt(more, Signal::SIGKILL);
        assert_eq!(parts(), 1);
        let printed = clean(&folder.path(spelling));
        assert!(printed.contains("1 part removed"), "{spelling}: {printed}");
        assert_eq!((journals(), parts()), (0, 0), "{spelling}");
    }
    // The next run removes a part without a record.
    interrupt(&["--resume", "never"], Signal::SIGKILL);
    assert!(command(&[], &to).status().expect("the program").success());
    assert_eq!((journals(), parts()), (0, 0));
    assert_eq!(fs::metadata(&to).expect("copied").len(), 20_000_000);
}

/// Creates files of 7 bytes with these paths.
fn write(folder: &Folder, paths: &[&str]) {
    for path in paths {
        let path = folder.path(path);
        fs::create_dir_all(Path::new(&path).parent().expect("a folder")).expect("room");
        fs::write(path, b"content").expect("room");
    }
}

#[test]
fn a_copy_to_several_destinations_has_a_result_for_each() {
    let folder = Folder::new("several");
    write(&folder, &["from/a", "from/sub/b", "second/sub/b"]);
    let from = folder.path("from");
    let [first, second] = ["first", "second"].map(|it| folder.path(it));
    let said = assert_ends(
        &["copy", &from, "--to", &first, "--to", &second, "-v"],
        0,
        "",
    );
    assert!(
        said.contains(&format!("{first}: 2 files copied, 14 B")),
        "{said}"
    );
    for destination in [&first, &second] {
        for path in ["a", "sub/b"] {
            let there = fs::read(Path::new(destination).join(path)).expect("there");
            assert_eq!(there, b"content");
        }
    }
    let refuses = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = refuses.local_addr().expect("bound");
    drop(refuses);
    let url = format!("ftp://{address}/x");
    let third = folder.path("third");
    let done = longhaul(&[
        "copy",
        &from,
        "--to",
        &url,
        "--to",
        &third,
        "--retries",
        "0",
    ]);
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("-> {url}")), "{said}");
    assert!(said.contains(&format!("{third}: 2 files copied")), "{said}");
    assert!(Path::new(&third).join("sub/b").exists(), "{said}");
}

#[test]
fn a_destination_that_does_not_answer_holds_no_other_up() {
    let folder = Folder::new("silent");
    write(&folder, &["from/a"]);
    // This server accepts connections, and sends no bytes.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("ftp://{}/x", silent.local_addr().expect("bound"));
    let (from, to) = (folder.path("from"), folder.path("to"));
    let arguments = [
        "copy",
        &from,
        "--to",
        &url,
        "--to",
        &to,
        "--json",
        "--retries",
        "0",
        "--stall-timeout",
        "2s",
    ];
    let said = assert_ends(&arguments, 1, "");
    let lines = said
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let results: Vec<Value> = lines.filter(|it: &Value| it["event"] == "result").collect();
    let [first, second] = &results[..] else {
        panic!("two results: {said}");
    };
    assert_eq!(
        (&first["to"], &first["moved"]),
        (&to.into(), &1.into()),
        "{said}"
    );
    assert!(
        first["elapsed_s"].as_f64().is_some_and(|it| it < 1.5),
        "{said}"
    );
    assert_eq!(
        (&second["to"], &second["failed"]),
        (&url.into(), &1.into()),
        "{said}"
    );
}

#[test]
fn destinations_are_named_once_and_one_at_least() {
    let folder = Folder::new("named");
    write(&folder, &["from/a"]);
    let (from, to) = (folder.path("from"), folder.path("to"));
    assert_ends(
        &["copy", &from],
        2,
        "the destination is missing: give it last, or by --to",
    );
    let link = folder.path("link");
    std::os::unix::fs::symlink(folder.path(""), &link).expect("room");
    for same in [
        format!("{to}/"),
        format!("{link}/to"),
        format!("{link}/./to"),
    ] {
        assert_ends(&["copy", &from, "--to", &to, "--to", &same], 2, "twice");
    }
    let same = ["--to", "ftp://anonymous@host/x", "--to", "ftpes://HOST/x/"];
    assert_ends(&[&["copy", &from][..], &same].concat(), 2, "twice");
    assert_ends(
        &["copy", &from, "--to", &folder.path("from/sub")],
        2,
        "into itself",
    );
    let servers = ["--to", "ftp://a.example/", "--to", "ftpes://b.example/"];
    let peer = ["--peer", "KEY@localhost:1"];
    let arguments = [&["copy", &from][..], &servers, &peer].concat();
    assert_ends(&arguments, 2, "the same scheme");
    let names = folder.path("peers.toml");
    fs::write(&names, "studio = \"nowhere\"\n").expect("room");
    let named = |name| {
        [
            &["copy", &from][..],
            &servers[..2],
            &["--peer", name, "--peers", &names],
        ]
        .concat()
    };
    assert_ends(
        &named("studio"),
        2,
        "peers.toml:1:10: \"nowhere\" is no peer",
    );
    assert_ends(&named("oslo"), 2, "names no peer \"oslo\"; it names studio");
    let servers = ["--to", "ftp://a.example/", "--to", "ftp://b.example/"];
    let three = ["--gateway", "a:1", "--gateway", "b:1", "--gateway", "c:1"];
    let arguments = [&["copy", &from][..], &servers, &three].concat();
    assert_ends(
        &arguments,
        2,
        "--gateway must be given once, or as often as --to: 2 times",
    );
    assert_ends(
        &[&["ls", "ftp://a.example/"][..], &three].concat(),
        2,
        "--gateway was given several times",
    );
}

#[test]
fn a_command_is_called_for_each_file_that_was_moved() {
    let folder = Folder::new("on-file");
    write(&folder, &["from/a", "from/sub/b c", "to/a"]);
    let [from, to, out] = ["from", "to", "out"].map(|it| folder.path(it));
    fs::create_dir(&out).expect("room");
    let script = folder.path("script");
    let text =
        format!("cat > \"{out}/$(basename \"$LONGHAUL_PATH\")\"; test \"$1\" = 'an argument'\n");
    fs::write(&script, text).expect("room");
    let command = format!("sh {script} 'an argument'");
    assert_ends(&["copy", &from, &to, "--on-file", &command], 0, "");
    let facts: Value =
        serde_json::from_slice(&fs::read(format!("{out}/b c")).expect("called")).expect("JSON");
    assert_eq!(facts["path"], "sub/b c");
    assert_eq!(facts["source"], format!("{from}/sub/b c"));
    assert_eq!(facts["destination"], format!("{to}/sub/b c"));
    assert_eq!(facts["bytes"], 7);
    assert!(facts["modified_unix_s"].is_i64() && facts.get("job").is_none());

    let other = folder.path("other");
    let one = ["copy", &format!("{from}/a"), &folder.path("one")];
    let printed = assert_ends(&[&one[..], &["--on-file", "false"]].concat(), 1, "");
    assert!(printed.contains("; 1 command failed"), "{printed}");
    let arguments = ["copy", &from, &other, "--on-file", "false"];
    let done = longhaul(&arguments);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!(
            "failed: --on-file for {from}/sub/b c: exit status: 1"
        )),
        "{said}"
    );
    let arguments = [
        "copy",
        &from,
        &folder.path("third"),
        "--on-file",
        "/nonexistent",
        "--json",
    ];
    let said = assert_ends(&arguments, 1, "");
    assert!(
        said.contains(&format!(
            r#""event":"called","path":"{from}/a","failure":"No such file"#
        )),
        "{said}"
    );
    assert_ends(
        &["copy", &from, &to, "--on-file", "a 'b"],
        2,
        "a quote is open",
    );
}

#[test]
fn a_server_that_all_destinations_share_has_no_more_connections_than_allowed() {
    let folder = Folder::new("connections");
    write(&folder, &["from/a"]);
    let from = folder.path("from");
    let servers = ["--to", "ftp://localhost:1/a", "--to", "ftp://localhost:1/b"];
    let arguments = [&["copy", &from, "--connections", "1"][..], &servers].concat();
    assert_ends(&arguments, 2, "--connections are too few");
    assert_ends(
        &["copy", &from, &folder.path("to"), "--connections", "1"],
        0,
        "",
    );
}

#[test]
fn a_destination_of_this_machine_may_stand_beside_one_behind_a_gateway() {
    let folder = Folder::new("beside");
    write(&folder, &["from/a"]);
    let (from, to) = (folder.path("from"), folder.path("to"));
    let gateway = ["--gateway", "127.0.0.1:1", "--retries", "0"];
    let servers = ["--to", "ftp://a.example/x", "--to", &to];
    assert_ends(
        &[&["copy", &from][..], &servers, &gateway].concat(),
        1,
        "cannot connect to 127.0.0.1",
    );
    assert!(Path::new(&to).join("a").exists());
}

#[test]
fn commands_for_files_hear_their_names_and_none_is_called_after_an_interruption() {
    let folder = Folder::new("interrupted");
    let names = ["a", "b", "c", "d", "e", "f"];
    write(&folder, &names);
    let sources = names.map(|it| folder.path(it));
    let (to, called) = (folder.path("to/"), folder.path("called"));
    fs::create_dir(&called).expect("room");
    let script = folder.path("script");
    let text = format!("touch {called}/$LONGHAUL_PATH; exec sleep 5\n");
    fs::write(&script, text).expect("room");
    let command = format!("sh {script}");
    let mut copy = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    copy.env("HOME", folder.path("")).arg("copy").args(&sources);
    copy.args([&to, "--on-file", &command, "--transfers", "1"]);
    // A pipe would stay open as long as a command runs.
    let errors = folder.path("errors");
    let file = fs::File::create(&errors).expect("room");
    let mut copy = copy.stderr(Stdio::from(file)).spawn().expect("the program");
    let count = || fs::read_dir(&called).expect("a folder").count();
    for _ in 0..500 {
        if count() == 4 && Path::new(&folder.path("to/f")).exists() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let begun = Instant::now();
    let id = i32::try_from(copy.id()).expect("a process");
    kill(Pid::from_raw(id), Signal::SIGINT).expect("it runs");
    let ended = copy.wait().expect("it has run");
    let said = fs::read_to_string(&errors).expect("text");
    assert_eq!(ended.code(), Some(3), "{said}");
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "it waits for no command"
    );
    assert_eq!(said.matches("not called: interrupted").count(), 2, "{said}");
    let mut heard: Vec<_> = fs::read_dir(&called)
        .expect("a folder")
        .map(|it| it.expect("an entry").file_name())
        .collect();
    heard.sort();
    assert_eq!(heard.len(), 4);
    assert!(
        heard.iter().all(|it| names.iter().any(|name| it == name)),
        "{heard:?}"
    );
}

/// The test starts a copy to two destinations while another process copies to one of them.
#[test]
fn a_destination_to_which_another_process_copies_ends_no_other_job() {
    let folder = Folder::new("busy");
    write(&folder, &["from/a"]);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("ftp://{}/x", silent.local_addr().expect("bound"));
    let (from, to) = (folder.path("from"), folder.path("to"));
    let program = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command
            .env("HOME", folder.path(""))
            .env_remove("XDG_STATE_HOME");
        command.stderr(Stdio::piped()).arg("copy").arg(&from);
        command
    };
    let mut first = program().arg(&url).spawn().expect("the program");
    // The first process has its journal by then.
    silent.accept().expect("it connects");
    let second = program().args(["--to", &url, "--to", &to]).output();
    let second = second.expect("the program");
    first.kill().expect("it waits");
    first.wait().expect("it has ended");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1), "{said}");
    let words = format!("{url}: another process does the same job");
    assert!(said.contains(&words), "{said}");
    assert!(Path::new(&to).join("a").exists(), "{said}");
}

#[test]
fn links_are_left_out_followed_or_copied() {
    let folder = Folder::new("links");
    let from = folder.path("from");
    write(&folder, &["from/a", "from/sub/b", "elsewhere/c"]);
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, folder.path(name)).expect("room");
    };
    link("../elsewhere", "from/there");
    link("a", "from/same");
    link("nowhere", "from/dangling");
    link("..", "from/sub/circle");
    let copy = |to: &str, links: &str, words: &str| {
        let arguments = ["copy", &from, &folder.path(to), "--links", links, "-v"];
        let said = assert_ends(&arguments, 0, "");
        assert!(said.contains(words), "{said}");
    };
    copy("skipped", "skip", "2 files copied, 14 B");
    assert!(!Path::new(&folder.path("skipped/same")).exists());
    copy("followed", "follow", "4 files copied, 28 B");
    for name in ["same", "there/c"] {
        let path = folder.path(&format!("followed/{name}"));
        let found = fs::symlink_metadata(&path).expect("it was copied");
        assert!(found.is_file(), "{name}");
    }
    copy("copied", "copy", "6 files copied, 14 B");
    for (name, target) in [
        ("dangling", "nowhere"),
        ("sub/circle", ".."),
        ("there", "../elsewhere"),
    ] {
        let led = fs::read_link(folder.path(&format!("copied/{name}"))).expect("a link");
        assert_eq!(led, Path::new(target));
    }
    copy("copied", "copy", "0 files copied, 0 B");
    let remote = ["copy", &from, "ftp://localhost/x", "--links", "copy"];
    assert_ends(&remote, 2, "servers receive no symbolic links");
}

#[test]
fn wrong_options_for_sftp_servers_are_refused_before_any_connection() {
    let (sftp, ftp) = ("sftp://me@localhost/x", "ftp://me@localhost/x");
    let peer = "a@localhost:4810";
    for (arguments, words) in [
        (
            &["copy", sftp, ftp, "--gateway", "localhost:2222"][..],
            "leads to FTP servers or to SSH servers",
        ),
        (
            &["copy", sftp, "x", "--host-key", "SHA256:short"],
            "--host-key must be a fingerprint",
        ),
        (
            &["ls", sftp, "--identity", "/there/is/no/key"],
            "--identity /there/is/no/key",
        ),
        (
            &["copy", sftp, "x", "--peer", peer, "--known-hosts", "file"],
            "cannot be used with",
        ),
        (
            &["copy", "x", "me@localhost:/y"],
            "did you mean sftp://me@localhost//y",
        ),
        (
            &["ls", "sftp://me:secret@localhost/x"],
            "must not contain a password",
        ),
    ] {
        assert_ends(arguments, 2, words);
    }
}

#[test]
fn a_copy_compares_content_and_leaves_out_what_may_still_be_written() {
    let folder = Folder::new("checksum");
    let (from, to) = (folder.path("from"), folder.path("to"));
    write(&folder, &["from/a", "from/b", "to/a", "to/b"]);
    fs::write(folder.path("to/b"), b"CONTENT").expect("room");
    let old = std::time::SystemTime::now() - Duration::from_secs(3600);
    for name in ["from/a", "from/b"] {
        let file = fs::File::options().write(true).open(folder.path(name));
        file.and_then(|it| it.set_modified(old)).expect("a time");
    }
    let copy = |more: &[&str], words: &str| {
        let said = assert_ends(&[&["copy", &from, &to, "-v"][..], more].concat(), 0, "");
        assert!(said.contains(words), "{said}");
        said
    };
    let json = copy(&["--checksum", "--json", "--verify", "hash"], "");
    assert!(json.contains(r#""moved":1,"same":1"#), "{json}");
    assert!(json.contains(r#""proof":"content""#), "{json}");
    assert_eq!(fs::read(folder.path("to/b")).expect("there"), b"content");
    write(&folder, &["from/new"]);
    copy(&["--settle", "10min"], "1 left out");
    assert!(!Path::new(&folder.path("to/new")).exists());
    copy(&[], "1 file copied");
}

#[test]
fn a_directory_that_cannot_be_made_has_one_line_for_all_its_files() {
    let folder = Folder::new("unmade");
    let names: Vec<String> = (0..5).map(|number| format!("from/day/{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    write(&folder, &names);
    let server = FakeServer::start(Behaviour {
        replies: [("MKD", "550 Create directory operation failed.")].into(),
        ..Behaviour::default()
    });
    let (from, to) = (folder.path("from"), format!("ftp://{}/", server.address()));
    let output = longhaul(&["copy", &from, &to, "--retries", "0"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = "failed: 5 more files, because their directories cannot be made (-v lists them)";
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(
        said.contains("the server refused MKD: 550 Create"),
        "{said}"
    );
    assert!(said.contains(last), "{said}");
}

#[test]
fn a_listing_that_is_refused_names_what_to_try() {
    for (reply, words) in [
        (
            "530 gateway: TLS is required here: choose explicit TLS (ftpes:// or --ssl-reqd), AUTH TLS comes first",
            "comes first (write ftpes:// in place of ftp:// in the URL)",
        ),
        (
            "530 Login incorrect.",
            "530 Login incorrect. (is the user in the URL right",
        ),
        (
            "500 OOPS: vsftpd: refusing to run with writable root inside chroot()",
            "inside chroot() (the fault is in the server, and not in user or password",
        ),
    ] {
        let server = FakeServer::start(Behaviour {
            replies: [("USER", reply)].into(),
            ..Behaviour::default()
        });
        let url = format!("ftp://me@{}/", server.address());
        assert_ends(&["ls", &url], 1, words);
    }
}

#[test]
fn a_missing_password_names_the_searched_netrc_file_and_an_empty_one_is_sent() {
    let folder = Folder::new("passwords");
    let (netrc, empty) = (folder.path("my netrc"), folder.path("empty"));
    for file in [&netrc, &empty] {
        fs::write(file, "\n").expect("room");
    }
    let server = FakeServer::start(Behaviour::default());
    let at = server.address();
    let ls = |user: &str, options: &[&str], password: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.arg("ls").arg(format!("ftp://{user}@{at}/"));
        command.args(options).stdin(Stdio::null());
        command
            .env("HOME", folder.path(""))
            .env_remove("LONGHAUL_PASSWORD");
        if let Some(password) = password {
            command.env("LONGHAUL_PASSWORD", password);
        }
        let output = command.output().expect("the program");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    for (options, searched) in [(&[][..], "~/.netrc"), (&["--netrc", &netrc], &netrc)] {
        let (code, said) = ls("me", options, None);
        let words =
            format!("no password for me at 127.0.0.1: not in {searched}, no --password-file");
        assert!(code == Some(1) && said.contains(&words), "{said}");
    }
    for (user, options, password) in [
        ("me", &[][..], Some("")),
        ("me", &["--password-file", &empty], None),
        ("ftp", &[], None),
    ] {
        let (code, said) = ls(user, options, password);
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn a_copy_says_within_seconds_what_is_wrong_and_what_to_try() {
    let folder = Folder::new("refusals");
    let from = folder.path("from");
    fs::write(&from, b"content").expect("room");
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = nobody.local_addr().expect("bound");
    drop(nobody);
    let url = format!("ftp://me@{at}/x");
    let refused = ["copy", &from, &url, "--retries", "0"];
    assert_ends(&refused, 1, "is it up, and the port right?");
    // The server accepts connections, and sends no bytes.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = silent.local_addr().expect("bound");
    let url = format!("ftp://me@{at}/x");
    let waits = ["--retries", "0", "--stall-timeout", "6s"];
    let said = longhaul(&[&["copy", &from, &url][..], &waits].concat()).stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("did not answer"), "{said}");
    let expected = format!("the server {at} has not let us in for 4 s");
    assert_eq!(said.matches(&expected).count(), 1, "{said}");
}
