//! The service of systemd, where there is one; a gateway that runs otherwise is asked at its admin address.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Context as _;
use gateway::{config::Config, reload::Outcome};

use crate::admin;

/// What has become of a gateway whose files were changed.
pub(crate) enum State {
    /// It runs by them.
    Running,
    /// It does not run; this is how it is started.
    Stopped(String),
}

/// Starts the service, unless it runs, and has what runs take the configuration on.
///
/// # Errors
/// If a service cannot be started, or does not take the configuration on.
pub(crate) fn start(config: &Config, file: &Path) -> anyhow::Result<State> {
    if take_on(config)? {
        return Ok(State::Running);
    }
    if !has_unit() {
        return Ok(State::Stopped(format!(
            "longhaul gateway --config {}",
            file.display()
        )));
    }
    eprintln!("Starting the service: systemctl enable --now {UNIT}");
    let started = systemctl(&["enable", "--now", UNIT]).status();
    let started = started.context("systemctl cannot be run")?;
    anyhow::ensure!(
        started.success(),
        "the service does not start; journalctl -u {UNIT} says why"
    );
    Ok(State::Running)
}

/// Has a gateway that runs take its files on. Returns whether one runs.
///
/// # Errors
/// If it does not take them on.
pub(crate) fn take_on(config: &Config) -> anyhow::Result<bool> {
    let Ok(answer) = admin::ask(config.admin_listen, "POST", "/reload") else {
        return Ok(false);
    };
    let at = config.admin_listen;
    let outcome: Outcome = serde_json::from_str(&answer.body)
        .with_context(|| format!("what answers at {at} is no gateway of this version"))?;
    if let Some(error) = outcome.error {
        anyhow::bail!("the gateway does not take it on: {error}");
    }
    for change in outcome.needs_restart {
        eprintln!("Needs a restart of the gateway: {change}");
    }
    Ok(true)
}

fn has_unit() -> bool {
    let asked = || systemctl(&["cat", UNIT]).stdout(Stdio::null()).status();
    Path::new("/run/systemd/system").is_dir() && asked().is_ok_and(|it| it.success())
}

fn systemctl(arguments: &[&str]) -> Command {
    let mut command = Command::new("systemctl");
    command.args(arguments).stdin(Stdio::null());
    command.stderr(Stdio::null());
    command
}

const UNIT: &str = "longhaul";
