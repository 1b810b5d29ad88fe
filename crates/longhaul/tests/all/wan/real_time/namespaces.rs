//! Tests that need network namespaces and the programs `setpriv` and `unshare` of util-linux.
#![allow(
    clippy::disallowed_methods,
    reason = "waits for processes in real time"
)]

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{self, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};

/// An emulated WAN with its own names. It is always removed when the test ends.
struct TestWan {
    program: PathBuf,
    name: String,
    sites: [String; 2],
    as_nobody: bool,
}

impl TestWan {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "test-{}-{}",
            process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let sites = ["a", "b"].map(|site| format!("{name}-{site}"));
        let program = PathBuf::from(env!("CARGO_BIN_EXE_longhaul"));
        Self {
            program,
            name,
            sites,
            as_nobody: false,
        }
    }

    /// Creates a WAN for a user without privileges. If the test runs as root, it switches to the
    /// user `nobody`. It then runs a copy of the program, because `nobody` has no access to the
    /// original.
    fn of_ordinary_user() -> Self {
        let mut wan = Self::new();
        if geteuid().is_root() {
            let copy = std::env::temp_dir().join(&wan.name);
            // A separate process makes the copy. Otherwise, a child process of another test could
            // inherit a descriptor that is open for writing. The copy could then not be executed.
            let installed = Command::new("install")
                .args(["-m", "755"])
                .arg(&wan.program)
                .arg(&copy)
                .status();
            assert!(installed.expect("coreutils").success());
            wan.program = copy;
            wan.as_nobody = true;
        }
        wan
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("run")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = if self.as_nobody {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
            command.arg(&self.program);
            command
        } else {
            Command::new(&self.program)
        };
        command
            .args(["wan", "--name", &self.name])
            .args(arguments)
            .current_dir("/");
        command
    }

    fn up(&self, arguments: &[&str]) -> Output {
        let names = ["up", "--name-a", &self.sites[0], "--name-b", &self.sites[1]];
        self.run(&[&names, arguments].concat())
    }

    fn exec(&self, site: usize, script: &str) -> Output {
        self.run(&["exec", &self.sites[site], "--", "bash", "-c", script])
    }

    fn show(&self) -> serde_json::Value {
        let output = self.run(&["show", "--json"]);
        assert_eq!(code(&output), 0, "{}", errors(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

impl Drop for TestWan {
    fn drop(&mut self) {
        self.run(&["down"]);
        if self.as_nobody {
            let _ = fs::remove_file(&self.program);
        }
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("not killed")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until a condition holds. Panics after [`TIMEOUT`].
#[track_caller]
fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {TIMEOUT:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Maximum time to wait. A killed process ends within this time, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Test scenario that must succeed for every kind of user.
fn story(wan: &TestWan) {
    let up = wan.up(&["--rate", "100 Mbit/s", "--rtt", "20ms", "--loss", "1%"]);
    assert_eq!(code(&up), 0, "{}", errors(&up));
    let again = wan.up(&[]);
    assert_eq!(code(&again), 1);
    assert!(errors(&again).contains("already up"), "{}", errors(&again));

    assert_eq!(
        code(&wan.exec(0, "exit 7")),
        7,
        "the exit status is passed on"
    );
    let inside = wan.exec(1, "cat /proc/net/fib_trie");
    assert!(
        String::from_utf8_lossy(&inside.stdout).contains("10.77.0.2"),
        "in its namespace"
    );

    assert_eq!(
        code(&wan.run(&["set", "a-to-b", "--loss", "0%", "--corrupt", "0.5%"])),
        0
    );
    let shown = wan.show();
    assert_eq!(shown["schema"], 1);
    assert_eq!(shown["a_to_b"]["config"]["loss"], 0.0);
    assert_eq!(shown["a_to_b"]["config"]["corruption"], 0.005);
    assert_eq!(
        shown["b_to_a"]["config"]["loss"], 0.01,
        "the other direction is left alone"
    );
    assert_eq!(
        shown["a_to_b"]["config"]["rate"], 100_000_000,
        "and what is not named"
    );
    assert_eq!(shown["a_to_b"]["config"]["queue"], 300_000);

    assert_eq!(code(&wan.run(&["set", "--outage", "on"])), 0);
    wan.exec(0, "echo lost > /dev/udp/10.77.0.2/9");
    assert_eq!(wan.show()["a_to_b"]["counters"]["outage_drops"], 1);
    assert_eq!(
        code(&wan.run(&["set", "--outage", "off", "--corrupt", "0%"])),
        0
    );
    wan.exec(0, "echo passes > /dev/udp/10.77.0.2/9; sleep 0.1");
    assert_eq!(wan.show()["a_to_b"]["counters"]["delivered"], 1);

    assert_eq!(
        code(&wan.run(&["set", "a-to-b", "--interface-down", "on"])),
        0
    );
    assert_ne!(
        code(&wan.exec(0, "echo > /dev/udp/10.77.0.2/9")),
        0,
        "nothing can be sent"
    );
    assert_eq!(
        code(&wan.run(&["set", "a-to-b", "--interface-down", "off"])),
        0
    );
    assert_eq!(code(&wan.exec(0, "echo > /dev/udp/10.77.0.2/9")), 0);

    let page = wan.run(&["show"]);
    assert!(String::from_utf8_lossy(&page.stdout).contains("rate 100 Mbit/s, queue 300 kB"));
    assert_eq!(code(&wan.run(&["down"])), 0);
    assert_eq!(code(&wan.run(&["show"])), 1, "gone");
}

#[test]
fn a_wan_is_raised_used_changed_and_taken_down() {
    let wan = TestWan::new();
    story(&wan);
    assert!(
        wan.sites
            .iter()
            .all(|site| !Path::new("/run/netns").join(site).exists())
    );
}

#[test]
fn an_ordinary_user_can_do_the_same() {
    story(&TestWan::of_ordinary_user());
}

#[test]
fn what_a_dead_emulator_leaves_is_no_obstacle() {
    let wan = TestWan::new();
    let die = || {
        assert_eq!(code(&wan.up(&[])), 0);
        let pid = wan.show()["pid"].as_i64().expect("a number");
        kill(Pid::from_raw(pid as i32), Signal::SIGKILL).expect("kill");
        wait("its end", || !wan.run(&["show"]).status.success());
    };
    die();
    die();
    let down = wan.run(&["down"]);
    assert_eq!(code(&down), 0);
    assert!(errors(&down).contains("had died"), "{}", errors(&down));
    assert!(
        wan.sites
            .iter()
            .all(|site| !Path::new("/run/netns").join(site).exists())
    );
    assert_eq!(
        code(&wan.run(&["down"])),
        1,
        "now there is nothing to remove"
    );
}

#[test]
fn sigterm_takes_everything_down() {
    let wan = TestWan::new();
    assert_eq!(code(&wan.up(&["--profile", "transatlantic"])), 0);
    let pid = wan.show()["pid"].as_i64().expect("a number");
    kill(Pid::from_raw(pid as i32), Signal::SIGTERM).expect("kill");
    let process = format!("/proc/{pid}/exe");
    wait("its end", || !Path::new(&process).exists());
    assert!(
        wan.sites
            .iter()
            .all(|site| !Path::new("/run/netns").join(site).exists())
    );
    assert_eq!(code(&wan.run(&["down"])), 1, "nothing is left");
}

#[test]
fn an_ordinary_user_captures_what_passes() {
    let wan = TestWan::of_ordinary_user();
    assert_eq!(code(&wan.up(&[])), 0);
    // The emulator's own process could neither make nor find this folder.
    let folder = std::env::temp_dir().join(format!("{}-capture", wan.name));
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("permissions");
    let file = folder.join("a.pcap");
    let path = file.to_str().expect("plain");
    let ends: [(&[&str], Option<Signal>); 3] = [
        (&["--packets", "3"], None),
        (&["--for", "1.5s"], None),
        (&[], Some(Signal::SIGINT)),
    ];
    for (options, signal) in ends {
        let capture = ["capture", &wan.sites[0], "--out", path, "--snap", "60"];
        let mut child = wan
            .command(&[&capture, options].concat())
            .stderr(Stdio::piped())
            .spawn()
            .expect("run");
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("UTF-8");
        assert!(line.starts_with("capturing at"), "{line}");
        wan.exec(0, "for i in 1 2 3; do echo $i > /dev/udp/10.77.0.2/9; done");
        if let Some(signal) = signal {
            kill(Pid::from_raw(child.id() as i32), signal).expect("kill");
        }
        line.clear();
        said.read_line(&mut line).expect("UTF-8");
        assert!(child.wait().expect("its end").success(), "{line}");
        let bytes = fs::read(&file).expect("the capture");
        assert_eq!(bytes[..4], 0xa1b2_3c4d_u32.to_ne_bytes(), "nanoseconds");
        // The capture has at least the three packets. It may also contain the kernel's answers,
        // which report that port 9 is closed.
        assert!(bytes.len() >= 24 + 3 * (16 + 44), "{} bytes", bytes.len());
        assert!(line.contains(" 0 left out"), "{line}");
        if options == ["--packets", "3"] {
            assert!(line.contains(": 3 packets,"), "{line}");
        }
    }
    let wrong = wan.run(&["capture", "moon", "--out", path]);
    assert_eq!(code(&wrong), 2, "{}", errors(&wrong));
    fs::remove_dir_all(&folder).expect("remove");
}

#[test]
fn the_radio_of_a_profile_is_shown_and_stays() {
    let wan = TestWan::new();
    assert_eq!(code(&wan.up(&["--profile", "wifi-11b"])), 0);
    let shown = &wan.show()["radio"];
    assert_eq!(shown["rate"].as_u64(), Some(11_000_000), "{shown}");
    assert_eq!(shown["hops"].as_u64(), Some(2), "{shown}");
    let text = wan.run(&["show"]);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("radio: half-duplex, 11 Mbit/s"), "{text}");
    let refused = wan.run(&["set", "--profile", "transatlantic"]);
    assert_eq!(code(&refused), 2);
    assert!(errors(&refused).contains("medium"), "{}", errors(&refused));
    assert_eq!(code(&wan.run(&["set", "--loss", "1%"])), 0);
    assert_eq!(wan.show()["a_to_b"]["config"]["loss"].as_f64(), Some(0.01));
}

#[test]
fn wrong_use_exits_with_2_and_says_what_is_wrong() {
    let wan = TestWan::new();
    for (arguments, part) in [
        (&["up", "--loss", "0.1"][..], "such as \"0.1%\""),
        (&["up", "--rate", "300 MB/s"], "is not a rate"),
        (&["up", "--profile", "moon"], "geo-satellite"),
        (
            &["up", "--name-a", "x", "--name-b", "x"],
            "both sites are called x",
        ),
        (&["up", "--address-a", "10.1.0.1"], "of one /24"),
        (&["up", "a-to-b", "--rtt", "10ms"], "both directions"),
        (&["up", "a-to-b", "--profile", "wifi-11b"], "share a radio"),
        (
            &["up", "--rtt", "10ms", "--delay", "5ms"],
            "cannot be used with",
        ),
        (&["exec", "site-a"], "required"),
        (&["raise"], "unrecognized subcommand"),
        (&["calibrate", "--only", "luck"], "there are"),
    ] {
        let output = wan.run(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", errors(&output));
        assert!(
            errors(&output).contains(part),
            "{arguments:?}: {}",
            errors(&output)
        );
    }
    let output = wan.run(&["set", "--loss", "1%"]);
    assert_eq!(code(&output), 1);
    assert!(errors(&output).contains(&wan.name), "names what is not up");
}

#[test]
fn profiles_are_listed_for_people_and_for_programs() {
    let wan = TestWan::new();
    let text = wan.run(&["profiles"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("transatlantic: "));
    let output = wan.run(&["profiles", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["schema"], 1);
    let profiles = value["profiles"].as_array().expect("a list");
    let one = profiles.iter().find(|one| one["name"] == "transatlantic");
    assert!(one.expect("known")["a_to_b"]["rate"].is_u64());
}

#[test]
fn a_script_changes_the_path_under_traffic() {
    let wan = TestWan::new();
    assert_eq!(code(&wan.up(&[])), 0);
    let file = std::env::temp_dir().join(format!("{}.toml", wan.name));
    let path = file.to_str().expect("plain");
    let script = "[[step]]\nat = \"300ms\"\ndirection = \"a-to-b\"\noutage = \"on\"\n\
                  [[step]]\nat = \"800ms\"\noutage = \"off\"\nloss = \"1%\"\n";
    fs::write(&file, script).expect("a script");
    let wrong = wan.name.clone() + "-missing.toml";
    assert_eq!(code(&wan.run(&["script", &wrong])), 2);
    let mut traffic = wan
        .command(&[
            "exec",
            &wan.sites[0],
            "--",
            "bash",
            "-c",
            "for i in {1..60}; do echo $i > /dev/udp/10.77.0.2/9; sleep 0.02; done",
        ])
        .stderr(Stdio::null())
        .spawn()
        .expect("run");
    let output = wan.run(&["script", path]);
    assert_eq!(code(&output), 0, "{}", errors(&output));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        said,
        "   0.300 s  a-to-b  outage on\n   0.800 s  both    loss 1%, outage off\n"
    );
    assert!(traffic.wait().expect("its end").success());
    let shown = wan.show();
    let lost = shown["a_to_b"]["counters"]["outage_drops"].as_u64();
    assert!(lost.is_some_and(|lost| (1..60).contains(&lost)), "{lost:?}");
    assert_eq!(shown["a_to_b"]["config"]["outage"], false);
    assert_eq!(shown["b_to_a"]["config"]["loss"], 0.01);
    fs::write(&file, "[[step]]\nat = \"1s\"\nloss = \"1\"\n").expect("a script");
    let output = wan.run(&["script", path]);
    assert_eq!(code(&output), 2);
    assert!(errors(&output).contains(":3:8: "), "{}", errors(&output));
    fs::remove_file(&file).expect("remove");
}

/// If namespaces are not permitted, each command that needs them prints the setting that forbids
/// them. The command leaves no files.
#[test]
fn a_system_that_forbids_namespaces_is_detected_by_its_setting() {
    // A separate user namespace limits the setting to this test.
    let wan = TestWan::of_ordinary_user();
    let folder = std::env::temp_dir().join(format!("{}-forbidden", wan.name));
    fs::create_dir(&folder).expect("a folder");
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans/smoke.toml");
    let eval = format!("eval {plan} --out {}/results", folder.display());
    for command in [
        &format!("wan up --wan {}", wan.name),
        "wan calibrate",
        &eval,
    ] {
        let script = format!(
            "echo 0 > /proc/sys/user/max_user_namespaces; \
             exec setpriv --bounding-set=-all --inh-caps=-all {} {command}",
            wan.program.display(),
        );
        let output = Command::new("unshare")
            .args(["-r", "sh", "-c", &script])
            .output()
            .expect("run");
        assert_eq!(code(&output), 1, "{command}");
        let text = errors(&output);
        assert!(
            text.contains("user.max_user_namespaces is 0"),
            "{command}: {text}"
        );
    }
    let left = fs::read_dir(&folder).expect("read").count();
    assert_eq!(left, 0, "nothing half written");
    fs::remove_dir(&folder).expect("remove");
}
