//! Processes of trials. Each process runs at one site, and is killed at its time limit with all its
//! descendants.

use std::{
    fs::File,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use emulator::Site;

use super::TrialFailure;
use crate::{process_tree::kill_tree, stage::Stage};

/// Outcome of a process that has exited by itself or has been killed at its time limit.
pub(super) struct ProcessEnd {
    pub(super) is_over: bool,
    success: bool,
    pub(super) time: Duration,
    pub(super) said: String,
}

impl ProcessEnd {
    pub(super) fn succeeded(&self) -> anyhow::Result<()> {
        if !self.success {
            let last: Vec<_> = self.said.lines().rev().take(3).collect();
            bail!("{}", last.join(" / "));
        }
        Ok(())
    }
}

/// Returns a command that runs a program at a site.
pub(super) fn at(stage: &Stage, site: Site, program: &str) -> Result<Command, TrialFailure> {
    let command = stage.command(site, program)?;
    command.ok_or_else(|| TrialFailure::NotTried(format!("{program} is not installed")))
}

/// Runs a program, and kills the program if it exceeds `limit`.
pub(super) fn run_limited(
    mut command: Command,
    limit: Duration,
) -> Result<ProcessEnd, TrialFailure> {
    let log = bench_kit::scratch::folder("program")?;
    let path = log.join("said");
    let file = File::create(&path).context("a log")?;
    let err = file.try_clone().context("a log")?;
    command.stdin(Stdio::null()).stdout(file).stderr(err);
    let begun = Instant::now();
    let mut child = BackgroundProcess::start(command)?;
    let ended = loop {
        let status = child.0.try_wait().context("a program's end")?;
        let time = begun.elapsed();
        if status.is_some() || time >= limit {
            break ProcessEnd {
                is_over: status.is_some(),
                success: status.is_some_and(|status| status.success()),
                time,
                said: String::new(),
            };
        }
        thread::sleep(END_CHECK_INTERVAL);
    };
    drop(child);
    let said = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_dir_all(&log);
    Ok(ProcessEnd { said, ..ended })
}

/// A child process. Drop kills the process and its descendants.
pub(super) struct BackgroundProcess(Child);

impl BackgroundProcess {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        Ok(Self(command.spawn().context(program)?))
    }

    /// Starts a server and waits until it listens. If the server does not start, the trial counts
    /// as not tried instead of failed.
    pub(super) fn serve(
        command: Command,
        stage: &Stage,
        site: Site,
        port: u16,
    ) -> Result<Self, TrialFailure> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut server = Self::start(command)?;
        let begun = Instant::now();
        while !stage.is_served(site, port)? {
            let has_ended = server.0.try_wait().context("a server's end")?.is_some();
            if has_ended || begun.elapsed() > READY_TIMEOUT {
                let why = format!("{program} does not come up");
                return Err(TrialFailure::NotTried(why));
            }
            thread::sleep(READY_CHECK_INTERVAL);
        }
        Ok(server)
    }
}

impl Drop for BackgroundProcess {
    fn drop(&mut self) {
        kill_tree(&mut self.0);
    }
}

/// Timeout for a server to start listening.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
const READY_CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Interval at which the evaluation checks whether a program has exited. The interval limits the
/// resolution of the measured time.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(2);
