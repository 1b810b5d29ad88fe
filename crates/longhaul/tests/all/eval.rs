//! Tests of `longhaul eval` with invalid input, and of the files that it leaves.
#![allow(clippy::disallowed_methods, reason = "runs programs")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A temporary folder that is deleted when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("longhaul-eval-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("room");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn eval(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.arg("eval").args(arguments);
    command
}

#[track_caller]
fn assert_ends(mut command: Command, code: i32, words: &str) -> Output {
    let output = command.output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
    assert!(said.contains(words), "{command:?}: {said}");
    output
}

/// Returns the records of an evaluation from the documentation.
fn records() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/wifi.jsonl");
    fs::read_to_string(path).expect("they are part of the repository")
}

const PLAN: &str = "\
name = \"small\"\ntitle = \"Small\"\nabout = \"Little.\"\nrepetitions = 1\nlimit = \"5 s\"\nsides = [\"uftp\"]\n
[[cells]]\nrate = \"50 Mbit/s\"\nrtt = \"2ms\"\ndirection = \"down\"\nsize = \"100 kB\"\n";

#[test]
fn a_plan_with_a_typo_is_refused_with_its_place() {
    let folder = Folder::new("typo");
    let plan = folder.file("plan.toml", &PLAN.replace("rtt", "rrt"));
    let out = folder.0.join("out").display().to_string();
    assert_ends(eval(&[&plan, "--out", &out]), 2, "plan.toml:10:1: ");
    assert_ends(eval(&["/nonexistent.toml"]), 2, "/nonexistent.toml");
    let unread = ["report", "records.jsonl", "--plan", "/nonexistent.toml"];
    assert_ends(eval(&unread), 2, "/nonexistent.toml");
    assert!(!Path::new(&out).exists(), "nothing was begun");
}

#[test]
fn records_that_cannot_be_read_are_left_alone() {
    let folder = Folder::new("corrupt");
    let mut text = records();
    text.insert_str(text.find('\n').expect("lines") + 1, "{\"plan\": 7}\n");
    let path = folder.file("small.jsonl", &text);
    let out = folder.0.display().to_string();
    let plan = folder.file("plan.toml", PLAN);
    let place = "small.jsonl:2: not a record";
    assert_ends(eval(&["--report", &path]), 1, place);
    assert_ends(eval(&["report", &path]), 1, place);
    assert_ends(eval(&["--compare", &path, &path]), 1, place);
    assert_ends(eval(&["compare", &path, &path]), 1, place);
    assert_ends(eval(&[&plan, "--out", &out]), 1, place);
    let output = assert_ends(eval(&["report", &path]), 1, place);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("at line 1").count(), 1, "told once: {said}");
    assert_eq!(fs::read_to_string(&path).expect("still there"), text);
    assert!(!folder.0.join("small.html").exists());
}

#[test]
fn a_full_disk_leaves_the_earlier_report() {
    let folder = Folder::new("full");
    let path = folder.file("small.jsonl", &records());
    let page = folder.file("small.html", "the one before");
    let part = folder.0.join("small.html.part");
    std::os::unix::fs::symlink("/dev/full", part).expect("a link");
    assert_ends(eval(&["--report", &path]), 1, "No space left");
    assert_eq!(fs::read_to_string(&page).expect("there"), "the one before");
}

#[test]
fn a_report_is_made_again_with_its_plan_s_title() {
    let folder = Folder::new("again");
    let path = folder.file("small.jsonl", &records());
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans/wifi.toml");
    assert_ends(eval(&[plan, "--report", &path]), 0, "");
    let text = || fs::read_to_string(folder.0.join("small.md")).expect("made");
    assert!(text().starts_with("# Half-duplex radio"), "{}", text());
    assert_ends(eval(&["--report", &path]), 0, "");
    assert!(text().starts_with("# small\n"), "{}", text());
    // The records contain other trials than the plan's.
    let plan = folder.file("plan.toml", PLAN);
    assert_ends(eval(&[&plan, "--report", &path]), 1, "no records");
    assert!(text().starts_with("# small\n"), "{}", text());
}

#[test]
fn reports_and_comparisons_are_subcommands_with_json() {
    let folder = Folder::new("subcommands");
    let path = folder.file("small.jsonl", &records());
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans/wifi.toml");
    let json = |arguments: &[&str]| {
        let output = assert_ends(eval(arguments), 0, "");
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(value["schema"], 1, "{arguments:?}");
        value
    };
    let report = json(&["report", &path, "--plan", plan, "--json"]);
    assert_eq!(report["files"].as_array().map(Vec::len), Some(2));
    assert!(folder.0.join("small.html").exists());
    let figures = &report["report"];
    assert_eq!(
        figures["title"],
        "Half-duplex radio: 802.11b with an access point"
    );
    let rows = figures["rows"].as_array().expect("rows");
    assert!(rows.iter().any(|row| row["efficiency"]["median"].is_f64()));

    let compared = json(&["compare", &path, &path, "--json"]);
    let rows = compared["rows"].as_array().expect("rows");
    assert!(!rows.is_empty() && rows.iter().all(|row| row["before"] == row["after"]));
    let [new, old] = [&["compare", &path, &path], &["--compare", &path, &path]]
        .map(|arguments| assert_ends(eval(arguments), 0, "").stdout);
    assert!(new == old && !new.is_empty());

    let empty = folder.file("empty.jsonl", "");
    assert_ends(
        eval(&["compare", &path, &empty]),
        1,
        "empty.jsonl: no records",
    );

    let planned = json(&[plan, "--dry-run", "--json"]);
    let cells = planned["cells"].as_array().map(Vec::len);
    assert!(cells > Some(0) && planned["trials"].as_u64() > Some(0));
}

#[test]
fn a_plan_differs_from_a_subcommand() {
    for arguments in [
        &[][..],
        &["plans/smoke.toml", "compare", "a.jsonl", "b.jsonl"],
        &["--published", "report", "a.jsonl"],
        &["--report", "a.jsonl", "compare", "a.jsonl", "b.jsonl"],
        &["report", "a.jsonl", "--published"],
        &["compare", "a.jsonl"],
    ] {
        assert_ends(eval(arguments), 2, "");
    }
    // The argument is a file, which does not exist.
    assert_ends(eval(&["./report"]), 2, "./report: No such file");
}

/// If a program is missing, the record states this, and a later run repeats the trial. The test
/// hides the program `uftpd` with an empty search path.
#[test]
fn a_missing_program_is_reported() {
    let folder = Folder::new("missing");
    let plan = folder.file("plan.toml", PLAN);
    let out = folder.0.display().to_string();
    let run = || {
        let mut command = eval(&[&plan, "--out", &out]);
        command.env("PATH", "/nonexistent");
        assert_ends(command, 0, "UFTP")
    };
    let said = run();
    let said = String::from_utf8_lossy(&said.stderr);
    assert!(said.contains("not tried: "), "{said}");
    let lines = || {
        let records = fs::read_to_string(folder.0.join("small.jsonl"));
        records.expect("kept").lines().count()
    };
    assert_eq!(lines(), 1);
    let record = fs::read_to_string(folder.0.join("small.jsonl")).expect("kept");
    assert!(record.starts_with("{\"schema\":1,"), "{record}");
    let report = fs::read_to_string(folder.0.join("small.md")).expect("made");
    assert!(report.contains("uftpd is not installed"), "{report}");
    run();
    assert_eq!(lines(), 2);
}

/// Tests that need the programs vsftpd, sshd, sftp, rsync and lftp.
mod installed {
    /// Tests in which the server and the movers run in separate network namespaces.
    mod namespaces {
        use super::super::*;

        const MOVERS: &str = "\
name = \"movers\"\ntitle = \"Movers\"\nrepetitions = 1\nlimit = \"60 s\"
sides = [\"mover-direct\", \"mover-gateway\", \"mover-peer\"]\n
[[cells]]\nrate = \"50 Mbit/s\"\nrtt = \"10ms\"\nthreads = 2\nsize = \"200 kB\"\n
[[cells]]\nrate = \"50 Mbit/s\"\nrtt = \"10ms\"\nthreads = 2\nsize = \"200 kB\"\nfiles = 3\n";

        #[test]
        fn our_mover_fetches_directly_through_gateways_and_as_one() {
            let folder = Folder::new("movers");
            let plan = folder.file("plan.toml", MOVERS);
            let out = folder.0.display().to_string();
            assert_ends(eval(&[&plan, "--out", &out]), 0, "");
            let records = fs::read_to_string(folder.0.join("movers.jsonl")).expect("written");
            for side in ["mover-direct", "mover-gateway", "mover-peer"] {
                let side = format!("\"side\":\"{side}\"");
                let lines: Vec<_> = records.lines().filter(|it| it.contains(&side)).collect();
                assert_eq!(lines.len(), 2, "{records}");
                for line in lines {
                    assert!(line.contains("\"outcome\":\"complete\""), "{line}");
                }
            }
            let report = fs::read_to_string(folder.0.join("movers.md")).expect("made");
            assert!(report.contains("## Times of movers, seconds"), "{report}");
        }

        const SFTP_MOVERS: &str = "\
name = \"movers\"\ntitle = \"Movers\"\nprotocol = \"sftp\"\nrepetitions = 1\nlimit = \"60 s\"
sides = [\"sftp\", \"sftp-gateway\", \"rsync\", \"rsync-gateway\", \"lftp\", \"lftp-gateway\"]\n
[[cells]]\nrate = \"50 Mbit/s\"\nrtt = \"10ms\"\nthreads = 2\nsize = \"200 kB\"\n
[[cells]]\nrate = \"50 Mbit/s\"\nrtt = \"10ms\"\nthreads = 2\nsize = \"200 kB\"\nfiles = 3\n";

        /// Every program moves one file and several files. Without root privileges, the records
        /// state the reason why sshd cannot run.
        #[test]
        fn programs_fetch_by_sftp_directly_and_through_gateways() {
            let folder = Folder::new("sftp-movers");
            let plan = folder.file("plan.toml", SFTP_MOVERS);
            let out = folder.0.display().to_string();
            assert_ends(eval(&[&plan, "--out", &out]), 0, "");
            let records = fs::read_to_string(folder.0.join("movers.jsonl")).expect("written");
            let outcome = match nix::unistd::geteuid().is_root() {
                true => "\"outcome\":\"complete\"",
                false => "\"not-tried\":\"sshd needs the user ids of its account",
            };
            let lines: Vec<_> = records.lines().collect();
            assert_eq!(lines.len(), 2 * 6, "{records}");
            for line in lines {
                assert!(line.contains(outcome), "{line}");
            }
            let report = fs::read_to_string(folder.0.join("movers.md")).expect("made");
            assert!(
                report.contains("| cell | sftp | sftp, gateways |"),
                "{report}"
            );
        }
    }
}
