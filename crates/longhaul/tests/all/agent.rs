//! Tests of the agent as a program: its configuration file, kills, commands for files, and its
//! status pages.
#![allow(clippy::disallowed_methods, reason = "runs programs and sockets")]

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A running agent, and the folder with its configuration.
struct World {
    folder: tempfile::TempDir,
    agent: Option<Child>,
}

impl World {
    fn new(jobs: &str) -> Self {
        let folder = tempfile::tempdir().expect("room");
        for name in ["in", "out"] {
            fs::create_dir(folder.path().join(name)).expect("room");
        }
        fs::write(folder.path().join("jobs.toml"), jobs).expect("room");
        Self {
            folder,
            agent: None,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command
            .arg("agent")
            .arg("--config")
            .arg(self.path("jobs.toml"))
            .env("HOME", self.folder.path())
            .env_remove("XDG_STATE_HOME");
        command
    }

    fn start(&mut self) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("log"));
        let agent = self.command().stderr(log.expect("room")).spawn();
        self.agent = Some(agent.expect("the program"));
    }

    fn check(&self) -> Output {
        self.command().arg("--check").output().expect("the program")
    }

    fn kill(&mut self) {
        let mut agent = self.agent.take().expect("it runs");
        agent.kill().expect("it runs");
        agent.wait().expect("it ends");
    }

    /// Returns how often each line occurs in the file to which the command writes.
    fn calls(&self) -> BTreeMap<String, usize> {
        let text = fs::read_to_string(self.path("calls")).unwrap_or_default();
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            *counts.entry(line.to_owned()).or_default() += 1;
        }
        counts
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            // The agent may have ended.
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

#[track_caller]
fn wait(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "{what} in {TIMEOUT:?}");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn mistakes_in_the_file_are_named_with_line_and_column() {
    let job = |rest: &str| format!("[[job]]\nname = \"a\"\nfrom = \"in\"\nto = \"out\"\n{rest}");
    let cases = [
        ("", "jobs.toml:1:1: there is no [[job]]"),
        (
            "x = 1\n[[job]]\nname = \"a\"",
            "jobs.toml:1:1: there is no key \"x\" here: expected agent, job",
        ),
        (
            "[[job]]\nfrom = \"in\"",
            "jobs.toml:1:1: the job has no name",
        ),
        (
            "[[job]]\nname = \"a/b\"",
            "jobs.toml:2:8: a name has letters, digits, - and _",
        ),
        (&job(""), "jobs.toml:1:1: the job never runs"),
        (
            &job("every = \"soon\""),
            "jobs.toml:5:9: \"soon\" is no interval",
        ),
        (
            &job("cron = \"0 3 * *\""),
            "jobs.toml:5:8: \"0 3 * *\" is no cron expression",
        ),
        (
            &job("every = \"1 h\"\ncron = \"0 3 * * *\""),
            "jobs.toml:6:1: a job has either every or cron",
        ),
        (
            &job("every = \"1 h\"\nretrys = 3"),
            "jobs.toml:6:1: a job has no key \"retrys\"",
        ),
        (
            &job("every = \"1 h\"\ndry_run = true"),
            "jobs.toml:6:1: a job has no key \"dry_run\"",
        ),
        (
            &job("corn = \"0 3 * * *\""),
            "jobs.toml:5:1: a job has no key \"corn\": docs/moving.md has every key",
        ),
        (
            "[[job]]\nfrom = \"in\"\nnmae = \"a\"\nt0 = \"out\"",
            "jobs.toml:3:1: a job has no key \"nmae\"",
        ),
        (
            &job("every = \"1 h\"\nretries = \"many\""),
            "jobs.toml:6:11: invalid value 'many' for '--retries <N>'",
        ),
        (
            &job("every = \"1 h\"\ninclude = [\"a**\"]"),
            "jobs.toml:6:11: invalid value 'a**' for '--include <GLOB>'",
        ),
        (
            "[[job]]\nname = \"a\"\nfrom = \"ftp://h/x\"\nto = \"y\"\nevery = \"1 h\"\ngateway = \"nowhere\"",
            "jobs.toml:2:8: \"nowhere\" is no gateway",
        ),
        (
            &job("every = 10"),
            "jobs.toml:5:9: expected a text in quotes",
        ),
        (
            &job(
                "every = \"1 h\"\n[[job]]\nname = \"a\"\nfrom = \"x\"\nto = \"y\"\nevery = \"1 h\"",
            ),
            "jobs.toml:7:8: another job has the name \"a\"",
        ),
        (
            "[[job]]\nname = \"a\"\nfrom = \"ftp://h/x\"\nto = \"y\"\nwatch = true",
            "jobs.toml:3:1: only a folder of this machine can be watched",
        ),
        (
            "[[job]]\nname = \"a\"\nfrom = \"ftp://me:secret@h/x\"\nto = \"y\"\nevery = \"1 h\"",
            "jobs.toml:2:8: ",
        ),
        (
            &job("every = \"1 h\"\non_file_retries = -1"),
            "jobs.toml:6:19: expected a number of attempts",
        ),
        ("[[job]\n", "jobs.toml:1:"),
    ];
    for (text, expected) in cases {
        let world = World::new(text);
        let output = world.check();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}: {said}");
        assert!(said.contains(expected), "{text}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn a_file_is_checked_and_its_jobs_are_listed() {
    let world = World::new(
        "[[job]]\nname = \"many\"\nfrom = \"in\"\nto = [\"out\", \"out2\"]\nevery = \"10 min\"\n\
         keep_history = \"90 days\"\nexclude = [\"*.tmp\"]\ntransfers = 8\non_file = [\"/bin/true\"]\n\
         [[job]]\nname = \"hot\"\nfrom = \"in\"\nto = \"out3\"\nwatch = true\nremove_source = true\n",
    );
    let output = world.check();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "many-1: runs every 600 s; calls /bin/true for each file\n\
         many-2: runs every 600 s; calls /bin/true for each file\n\
         hot: watches its folder, and runs every 600 s; removes copied files from the source\n"
    );
    for first in ["many-1", "many-2"] {
        let words = format!(
            "the jobs {first} and hot both take files from {}",
            world.path("in").display()
        );
        assert!(said.contains(&words), "{said}");
    }
    assert!(said.contains("and hot removes copied files"), "{said}");
}

#[test]
fn a_check_warns_of_a_source_that_does_not_exist() {
    let world = World::new(
        "[[job]]\nname = \"a\"\nfrom = \"im\"\nto = \"out\"\nevery = \"1 h\"\n\
         [[job]]\nname = \"b\"\nfrom = \"in\"\nto = \"out\"\nevery = \"1 h\"\n\
         [[job]]\nname = \"c\"\nfrom = \"ftp://localhost/im\"\nto = \"out2\"\nevery = \"1 h\"\n",
    );
    let output = world.check();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let words = format!(
        "jobs.toml:2:8: the job a copies from {}, which does not exist: make it, or correct from\n",
        world.path("im").display()
    );
    assert!(
        said.ends_with(&words) && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn a_changed_file_is_taken_on_at_sighup_and_one_with_a_mistake_is_not() {
    let job = |name: &str, to: &str| {
        format!(
            "[[job]]\nname = \"{name}\"\nfrom = \"in\"\nto = \"{to}\"\nevery = \"1 s\"\nsettle = \"0s\"\n"
        )
    };
    let head = "[agent]\nstate = \"state\"\n";
    let mut world = World::new(&format!("{head}{}", job("one", "first")));
    fs::write(world.path("in/a"), b"x").expect("room");
    world.start();
    wait("the first job runs", || world.path("first/a").exists());
    let hang_up = |world: &World, text: &str| {
        fs::write(world.path("jobs.toml"), text).expect("room");
        let id = world.agent.as_ref().expect("it runs").id();
        let id = nix::unistd::Pid::from_raw(id.cast_signed());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGHUP).expect("it runs");
    };
    hang_up(&world, "[[job]]\nname = \"a/b\"\n");
    wait("the mistake is named", || {
        world.log().contains("the jobs stay as they are")
    });
    fs::write(world.path("in/b"), b"x").expect("room");
    wait("the first job goes on", || world.path("first/b").exists());
    hang_up(
        &world,
        &format!("{head}{}{}", job("one", "first"), job("two", "second")),
    );
    wait("the second job runs", || world.path("second/a").exists());
    fs::write(world.path("in/c"), b"x").expect("room");
    wait("both jobs run", || {
        world.path("first/c").exists() && world.path("second/c").exists()
    });
    assert!(
        !world.log().contains("another agent does the job"),
        "{}",
        world.log()
    );
}

#[test]
fn a_tilde_is_the_home_folder() {
    let mut world = World::new(
        "[agent]\nstate = \"~/state\"\n\
         [[job]]\nname = \"j\"\nfrom = \"~/in\"\nto = \"~/there\"\nevery = \"1 s\"\non_file = [\"touch\", \"~/called\"]\nsettle = \"0s\"\n",
    );
    fs::write(world.path("in/a"), b"x").expect("room");
    world.start();
    wait("the file is there", || world.path("there/a").exists());
    wait("the command was called", || world.path("called").exists());
    world.kill();
    assert!(world.path("state/memory/j.redb").exists());
    assert!(!world.path("~").exists());
}

#[test]
fn an_agent_that_is_killed_ten_times_takes_and_calls_for_each_file_once() {
    let mut world = World::new(
        "[[job]]\nname = \"hot\"\nfrom = \"in\"\nto = \"out\"\nwatch = true\nsettle = \"200 ms\"\n\
         on_file = [\"sh\", \"-c\", 'echo \"$LONGHAUL_PATH\" >> calls; mv \"$LONGHAUL_DESTINATION\" done/']\n",
    );
    fs::create_dir(world.path("done")).expect("room");
    let mut count = 0;
    for kill in 0..10_u64 {
        world.start();
        for _ in 0..8 {
            fs::write(world.path(&format!("in/{count}")), vec![1; 50_000]).expect("room");
            count += 1;
            sleep(Duration::from_millis(20 + 13 * kill));
        }
        world.kill();
    }
    world.start();
    wait("all were called for", || world.calls().len() == count);
    sleep(Duration::from_millis(500));
    let calls = world.calls();
    assert_eq!(calls.len(), count, "{}", world.log());
    assert!(
        calls.values().all(|it| *it == 1),
        "{calls:?}\n{}",
        world.log()
    );
    let done = fs::read_dir(world.path("done")).expect("there").count();
    assert_eq!(done, count);
}

#[test]
fn a_running_agent_tells_what_it_does() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = port.local_addr().expect("bound");
    drop(port);
    let mut world = World::new(&format!(
        "[agent]\nlisten = \"{address}\"\n[[job]]\nname = \"pull\"\nfrom = \"in\"\nto = \"out\"\nevery = \"1 s\"\n"
    ));
    fs::write(world.path("in/a"), b"12345").expect("room");
    world.start();
    wait("the file is there", || world.path("out/a").exists());
    let ask = |path: &str, host: &str| {
        let mut stream = TcpStream::connect(address).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    };
    let metric = "longhaul_job_files_total{job=\"pull\"} 1\n";
    wait("the file counts", || {
        ask("/metrics", "localhost").is_some_and(|it| it.contains(metric))
    });
    wait("the log has the run", || {
        let facts = [
            " INFO ",
            "the run has ended",
            "job=\"pull\"",
            "copied=1",
            "failed=0",
            "removed=0",
            "failed_calls=0",
            "bytes=5",
            "seconds=",
        ];
        let log = world.log();
        log.lines()
            .any(|line| facts.iter().all(|it| line.contains(it)))
    });
    // The next runs have no work.
    let runs = || {
        let answer = ask("/status.json", "localhost").unwrap_or_default();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let status: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        status["jobs"][0]["runs_total"].as_u64()
    };
    let before = runs();
    wait("the next runs have ended", || {
        runs() >= before.map(|it| it + 2)
    });
    let log = world.log();
    assert_eq!(log.matches("the run has ended").count(), 1, "{log}");
    let answer = ask("/status.json", "localhost").expect("an answer");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let status: serde_json::Value = serde_json::from_str(body).expect("JSON");
    let job = &status["jobs"][0];
    assert_eq!(job["name"], "pull");
    assert_eq!(job["bytes_total"], 5);
    assert_eq!(job["to"], world.path("out").display().to_string());
    let refused = ask("/status.json", "evil.example").expect("an answer");
    assert!(refused.starts_with("HTTP/1.0 421"), "{refused}");
}

#[test]
fn an_agent_ends_by_a_signal_and_two_do_not_do_the_same_job() {
    let mut world =
        World::new("[[job]]\nname = \"pull\"\nfrom = \"in\"\nto = \"out\"\nevery = \"1 h\"\n");
    world.start();
    wait("it runs", || world.log().contains("the agent runs"));
    wait("its memory is there", || {
        world
            .path(".local/state/longhaul/agent/memory/pull.redb")
            .exists()
    });
    let second = world.command().stderr(Stdio::piped()).output();
    let second = second.expect("the program");
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("another agent does the job pull"), "{said}");
    let mut agent = world.agent.take().expect("it runs");
    let id = agent.id().to_string();
    let ended = Command::new("kill").arg(id).status().expect("kill");
    assert!(ended.success());
    assert_eq!(agent.wait().expect("it ends").code(), Some(0));
}

#[test]
fn the_example_is_a_valid_file() {
    let examples = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/agent/jobs.toml"
    );
    let world = World::new(&fs::read_to_string(examples).expect("the example"));
    let output = world.check();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 3);
}
