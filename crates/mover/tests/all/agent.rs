//! Tests of an agent with a real FTP server: watched folders, commands for files, and restarts.
#![allow(
    clippy::disallowed_methods,
    reason = "waits for what an agent does in real time"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use mover::{
    agent::{AgentJob, AgentStatus, CallParameters, JobTimes, RunJob, Schedule, run},
    job::Job,
    limit::RateLimit,
};
use tokio::{runtime::Runtime, sync::oneshot, task::JoinHandle};

use crate::common::{World, content, write};

/// An agent that runs until the test ends it.
struct Agent {
    runtime: Runtime,
    status: Arc<AgentStatus>,
    end: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
}

struct AgentSetting {
    world: Arc<World>,
    command: Option<&'static str>,
    removes_source: bool,
    settle: Duration,
    timeout: Duration,
    retries: u32,
}

impl AgentSetting {
    fn new() -> Self {
        Self {
            world: Arc::new(World::new()),
            command: None,
            removes_source: false,
            settle: Duration::ZERO,
            timeout: Duration::from_secs(60),
            retries: 0,
        }
    }

    /// Returns a job that uploads `here/out` to `out`.
    fn upload(&self) -> AgentJob {
        let world = self.world.clone();
        let from = world.here("out");
        fs::create_dir_all(&from).expect("room");
        let watched = from.clone();
        self.job("up", Some(watched), move || world.upload(&from, "out"))
    }

    /// Returns a job that downloads `in` to `here/in`.
    fn download(&self) -> AgentJob {
        let world = self.world.clone();
        fs::create_dir_all(world.at_server("in")).expect("room");
        let to = world.here("in");
        self.job("down", None, move || world.download("in", &to))
    }

    fn job(
        &self,
        name: &str,
        watched: Option<PathBuf>,
        make: impl Fn() -> Job + Send + Sync + 'static,
    ) -> AgentJob {
        let interval = if watched.is_some() { "10 min" } else { "1 s" };
        let removes_source = self.removes_source;
        let launcher = ["sh", "-c", LAUNCHER].map(Into::into).to_vec();
        let log = self.world.here("calls");
        AgentJob {
            name: name.to_owned(),
            times: JobTimes {
                schedule: Schedule::every(interval).expect("a time"),
                is_watched: watched.is_some(),
                settle: self.settle,
            },
            watched,
            from: format!("{name} from"),
            to: format!("{name} to"),
            make: Box::new(move || {
                let mut job = make();
                job.plan.removes_source = removes_source;
                Ok(RunJob {
                    job,
                    rate_max: None,
                })
            }),
            caller: self.command.map(|it| CallParameters {
                command: vec![
                    "sh".into(),
                    "-c".into(),
                    it.into(),
                    log.clone().into_os_string(),
                ],
                launcher,
                timeout: self.timeout,
                retries: self.retries,
            }),
            keep_history: Duration::from_secs(86_400),
        }
    }

    fn start(&self, jobs: Vec<AgentJob>) -> Agent {
        let runtime = Runtime::new().expect("a runtime");
        let folder = self.world.here("state");
        let names = jobs
            .iter()
            .map(|it| [it.name.clone(), String::new(), String::new()]);
        let status = Arc::new(AgentStatus::new(0, names));
        let (end, ended) = oneshot::channel::<()>();
        let told = status.clone();
        let running = runtime.spawn(async move {
            let ended = async {
                // The agent was dropped.
                let _ = ended.await;
            };
            run(jobs, &folder, told, ended).await.expect("an agent");
        });
        Agent {
            runtime,
            status,
            end: Some(end),
            running: Some(running),
        }
    }

    /// Returns the text of a job's history.
    fn history(&self, job: &str) -> String {
        let folder = self.world.here("state/history").join(job);
        let days = fs::read_dir(folder).into_iter().flatten().flatten();
        let read = days.map(|it| fs::read_to_string(it.path()).expect("read"));
        read.collect()
    }

    /// Returns the paths of the files for which the command was called, in the order of the calls.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.world.here("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Agent {
    /// Ends the agent as a signal would.
    fn end(mut self) {
        drop(self.end.take());
        let running = self.running.take().expect("it runs");
        self.runtime.block_on(running).expect("it ends");
    }

    /// Ends the agent as a kill would, without any cleanup.
    fn kill(mut self) {
        self.running.take().expect("it runs").abort();
        // Open files are closed afterwards, as after a kill.
        self.runtime.shutdown_timeout(TIMEOUT);
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

fn has(path: &Path, bytes: &[u8]) -> bool {
    fs::read(path).is_ok_and(|it| it == bytes)
}

#[test]
fn a_watched_folder_is_uploaded_a_file_at_a_time_and_not_before_it_has_settled() {
    let mut setting = AgentSetting::new();
    setting.settle = Duration::from_millis(600);
    let agent = setting.start(vec![setting.upload()]);
    let file = setting.world.here("out/below/film");
    let mut bytes = Vec::new();
    for part in 0..8 {
        bytes.extend(vec![part; 100_000]);
        write(&file, &bytes);
        sleep(Duration::from_millis(200));
        assert!(!setting.world.at_server("out/below/film").exists());
    }
    let there = setting.world.at_server("out/below/film");
    wait("the file is there", || has(&there, &bytes));
    let status = &agent.status.snapshot().jobs[0];
    assert_eq!(status.runs_failed_total, 0, "{status:?}");
    agent.end();
}

#[test]
fn what_was_taken_is_not_taken_again_after_a_restart_though_the_destination_has_lost_it() {
    let mut setting = AgentSetting::new();
    setting.command = Some(LOG);
    write(&setting.world.at_server("in/a"), b"one");
    write(&setting.world.at_server("in/b"), &content(3_000_000));
    let here = setting.world.here("in");
    let agent = setting.start(vec![setting.download()]);
    wait("both were called for", || setting.calls().len() == 2);
    assert!(has(&here.join("a"), b"one"));
    let run = "\"event\":\"run\",\"moved\":2";
    wait("the run has ended", || {
        setting.history("down").contains(run)
    });
    agent.kill();
    fs::remove_file(here.join("a")).expect("there");
    let agent = setting.start(vec![setting.download()]);
    write(&setting.world.at_server("in/c"), b"three");
    wait("the new one was called for", || setting.calls().len() == 3);
    assert!(!here.join("a").exists(), "it was taken before");
    let mut calls = setting.calls();
    calls.sort();
    assert_eq!(calls, ["a", "b", "c"]);
    let called = "\"event\":\"called\",\"path\":\"c\",\"result\":\"done\"";
    wait("the call has ended", || {
        setting.history("down").contains(called)
    });
    agent.end();
    let text = setting.history("down");
    for expected in [
        "\"event\":\"copied\",\"path\":\"a\",\"bytes\":3",
        called,
        run,
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}

#[test]
fn a_source_that_was_taken_is_removed_and_one_that_changed_meanwhile_is_not_lost() {
    let mut setting = AgentSetting::new();
    setting.removes_source = true;
    setting.command = Some(LOG);
    let file = setting.world.here("out/a");
    let agent = setting.start(vec![setting.upload()]);
    write(&file, b"one");
    wait("the source is gone", || !file.exists());
    assert!(has(&setting.world.at_server("out/a"), b"one"));
    write(&file, b"other");
    let there = setting.world.at_server("out/a");
    wait("the new content is there", || has(&there, b"other"));
    wait("the source is gone again", || !file.exists());
    wait("it was called for twice", || setting.calls() == ["a", "a"]);
    let time = fs::metadata(&there).expect("there").modified();
    fs::remove_file(&there).expect("there");
    let aside = setting.world.here("aside");
    write(&aside, b"other");
    let opened = fs::File::options().write(true).open(&aside).expect("there");
    opened.set_modified(time.expect("a time")).expect("set");
    drop(opened);
    fs::rename(&aside, &file).expect("room");
    wait(
        "the same file is sent again, since somebody put it there again",
        || has(&there, b"other"),
    );
    wait("it was called for once more", || setting.calls().len() == 3);
    agent.end();
}

#[test]
fn a_run_that_was_interrupted_goes_on_when_the_agent_starts_whatever_the_schedule_says() {
    let setting = AgentSetting::new();
    write(&setting.world.at_server("in/a"), &content(5_000_000));
    let job = |rate_max: Option<RateLimit>| {
        let mut job = setting.download();
        job.times.schedule = Schedule::every("24 h").expect("a time");
        let world = setting.world.clone();
        job.make = Box::new(move || {
            let mut job = world.download("in", &world.here("in"));
            job.moving.rate_max.clone_from(&rate_max);
            let rate_max = rate_max.clone();
            Ok(RunJob { job, rate_max })
        });
        job
    };
    let agent = setting.start(vec![job(Some("10 Mbit/s".parse().expect("a rate")))]);
    let status = agent.status.clone();
    wait("some of it has moved", || {
        let run = &status.snapshot().jobs[0].run;
        run.as_ref().is_some_and(|it| it.bytes_moved > 500_000)
    });
    agent.end();
    assert!(!setting.world.here("in/a").exists());
    let agent = setting.start(vec![job(None)]);
    wait("it is here", || {
        has(&setting.world.here("in/a"), &content(5_000_000))
    });
    agent.end();
    write(&setting.world.at_server("in/b"), b"for tomorrow");
    let agent = setting.start(vec![job(None)]);
    sleep(Duration::from_millis(500));
    assert!(!setting.world.here("in/b").exists(), "nothing was left");
    agent.end();
}

#[test]
fn commands_that_hang_hold_up_no_transfer_and_are_killed_in_time() {
    let mut setting = AgentSetting::new();
    setting.command = Some("echo \"$LONGHAUL_PATH\" >> \"$0\"; exec sleep 6 2> /dev/null");
    setting.timeout = Duration::from_secs(2);
    for number in 0..10 {
        write(&setting.world.at_server(&format!("in/{number}")), b"x");
    }
    let agent = setting.start(vec![setting.download()]);
    let here = setting.world.here("in");
    wait("all are here", || {
        fs::read_dir(&here).is_ok_and(|it| it.count() == 10)
    });
    wait("four commands run", || setting.calls().len() == 4);
    write(&setting.world.at_server("in/late"), b"late");
    wait("the late one is here", || has(&here.join("late"), b"late"));
    wait("all were called for", || setting.calls().len() == 11);
    wait("all were killed", || {
        setting.history("down").matches("killed after 2 s").count() == 11
    });
    agent.end();
}

#[test]
fn a_command_reads_the_facts_of_its_file() {
    let mut setting = AgentSetting::new();
    setting.command = Some(
        "{ echo \"$LONGHAUL_JOB $LONGHAUL_PATH $LONGHAUL_BYTES $LONGHAUL_DESTINATION\"; cat; echo; } >> \"$0\"",
    );
    write(&setting.world.at_server("in/below/a b"), b"12345");
    let agent = setting.start(vec![setting.download()]);
    wait("it was called", || setting.calls().len() == 2);
    agent.end();
    let calls = setting.calls();
    assert_eq!(calls[0], "down below/a b 5 down to/below/a b");
    let facts: serde_json::Value = serde_json::from_str(&calls[1]).expect("JSON");
    assert_eq!(facts["path"], "below/a b");
    assert_eq!(facts["source"], "down from/below/a b");
    assert_eq!(facts["bytes"], 5);
}

#[test]
fn a_command_that_cannot_be_started_is_called_when_it_can() {
    let mut setting = AgentSetting::new();
    setting.command = Some(LOG);
    write(&setting.world.at_server("in/a"), b"x");
    let mut job = setting.download();
    let caller = job.caller.as_mut().expect("a command");
    caller.launcher = vec!["/nonexistent".into()];
    let agent = setting.start(vec![job]);
    wait("the file is here", || setting.world.here("in/a").exists());
    sleep(Duration::from_millis(300));
    agent.kill();
    assert_eq!(setting.calls(), [""; 0]);
    let agent = setting.start(vec![setting.download()]);
    wait("it was called for", || setting.calls() == ["a"]);
    agent.end();
}

#[test]
fn a_damaged_memory_fails_its_job_alone_and_the_cure_is_named() {
    let setting = AgentSetting::new();
    let agent = setting.start(vec![setting.upload()]);
    wait("a run has ended", || {
        agent.status.snapshot().jobs[0].runs_total > 0
    });
    agent.end();
    let file = setting.world.here("state/memory/up.redb");
    let whole = fs::read(&file).expect("it is there");
    for (number, damaged) in [Vec::new(), content(100_000), whole[..5000].to_vec()]
        .into_iter()
        .enumerate()
    {
        fs::write(&file, damaged).expect("room");
        let name = format!("new{number}");
        write(&setting.world.at_server(&format!("in/{name}")), b"x");
        write(&setting.world.here(&format!("out/{name}")), b"x");
        let agent = setting.start(vec![setting.upload(), setting.download()]);
        let here = setting.world.here(&format!("in/{name}"));
        wait("the other job runs", || here.exists());
        let error = || {
            let run = agent.status.snapshot().jobs[0].run.clone();
            run.and_then(|it| it.error).unwrap_or_default()
        };
        wait("the cure is named", || {
            error().contains("is damaged")
                && error().contains(&format!("move {} away", file.display()))
        });
        assert!(!setting.world.at_server(&format!("out/{name}")).exists());
        agent.end();
        fs::remove_file(&file).expect("it is there");
        let agent = setting.start(vec![setting.upload(), setting.download()]);
        let there = setting.world.at_server(&format!("out/{name}"));
        wait("the job begins anew", || there.exists());
        agent.end();
    }
}

#[test]
fn a_command_that_fails_is_seen_and_called_again_as_often_as_asked() {
    let mut setting = AgentSetting::new();
    setting.command = Some("echo \"$LONGHAUL_PATH\" >> \"$0\"; exit 3");
    setting.retries = 1;
    write(&setting.world.at_server("in/a"), b"x");
    let agent = setting.start(vec![setting.download()]);
    wait("it was called twice", || setting.calls() == ["a", "a"]);
    let failed = || agent.status.snapshot().jobs[0].calls_failed_total;
    wait("both have failed", || failed() == 2);
    let metrics = agent.status.snapshot().to_metrics();
    let metric = "longhaul_job_calls_failed_total{job=\"down\"} 2";
    assert!(metrics.contains(metric), "{metrics}");
    let called = "\"event\":\"called\",\"path\":\"a\",\"result\":\"exit status: 3\"";
    wait("it is written down once", || {
        setting.history("down").matches(called).count() == 1
    });
    wait("a run names it", || {
        setting.history("down").contains("\"failed_calls\":1")
    });
    agent.end();
}

#[test]
fn a_server_whose_time_zone_changes_has_nothing_taken_again_and_no_command_called_again() {
    let mut setting = AgentSetting::new();
    setting.command = Some(LOG);
    let names = ["a", "b", "c", "d", "sub/e"];
    for name in names {
        write(
            &setting.world.at_server(&format!("in/{name}")),
            name.as_bytes(),
        );
    }
    let agent = setting.start(vec![setting.download()]);
    // The next agent repeats calls that the first agent has not recorded.
    wait("all calls are recorded", || {
        let history = setting.history("down");
        history.matches("\"event\":\"called\"").count() == names.len()
    });
    agent.end();
    for name in names {
        let path = setting.world.at_server(&format!("in/{name}"));
        let file = fs::File::options().write(true).open(path).expect("there");
        let time = file
            .metadata()
            .and_then(|it| it.modified())
            .expect("a time");
        file.set_modified(time - Duration::from_secs(3600))
            .expect("ours");
    }
    write(&setting.world.at_server("in/new"), b"new");
    let agent = setting.start(vec![setting.download()]);
    wait("the new one was called for", || {
        setting.calls().contains(&"new".to_owned())
    });
    // The memory has the new times now, so no further run reports them.
    let runs = || agent.status.snapshot().jobs[0].runs_total;
    let before = runs();
    wait("another run has ended", || runs() > before + 1);
    agent.end();
    assert_eq!(
        setting.calls().len(),
        names.len() + 1,
        "{:?}",
        setting.calls()
    );
    let copied = setting.history("down").matches("\"copied\"").count();
    assert_eq!(copied, names.len() + 1);
}

/// Shell script of the launcher. Unless the mark exists, it creates the mark and replaces itself
/// with the command.
const LAUNCHER: &str = "ln \"$0\" \"$1\" 2>/dev/null || exit 0; shift; exec \"$@\"";

/// Shell script of the command. Writes one line for each call.
const LOG: &str = "echo \"$LONGHAUL_PATH\" >> \"$0\"";

const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn a_source_that_is_open_for_writing_is_not_taken() {
    let mut setting = AgentSetting::new();
    setting.removes_source = true;
    let file = setting.world.here("out/a");
    write(&file, b"the first half");
    let writer = fs::File::options().append(true).open(&file);
    let mut writer = writer.expect("it is there");
    let agent = setting.start(vec![setting.upload()]);
    let done = setting.world.at_server("out/b");
    write(&setting.world.here("out/b"), b"closed");
    wait("another file is taken", || done.exists());
    assert!(!setting.world.at_server("out/a").exists());
    std::io::Write::write_all(&mut writer, b", and the second").expect("room");
    drop(writer);
    let there = setting.world.at_server("out/a");
    wait("all of it is taken", || {
        has(&there, b"the first half, and the second")
    });
    wait("the source is gone", || !file.exists());
    agent.end();
}
