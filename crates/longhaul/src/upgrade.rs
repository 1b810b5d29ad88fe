//! `longhaul upgrade`: replaces the process of a running gateway by a new process.

use std::{process::ExitCode, time::Duration};

use anyhow::Context as _;
use gatewayd::upgrade::UpgradeOutcome;

use crate::{
    admin::{self, Answer},
    output::Format,
    places,
};

/// Replace a running gateway with the program that is now installed
///
/// The gateway starts its program file again, with the same arguments. The new process reads the
/// configuration, takes over all ports, and serves all new sessions. The old process ends after its
/// last transfer, or after the time `upgrade_drain_max` of the configuration. The new process
/// interrupts no connection. If the new process fails, the old process continues. The gateway must
/// run on this machine.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul upgrade
  longhaul upgrade --config site-a.toml
  longhaul upgrade --admin /srv/a/a.key.admin.sock --json

Exit codes: 0 the new process serves; 1 the old process keeps serving, or no gateway answers;
2 wrong use or configuration.")]
pub(crate) struct Args {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    gateway: places::Gateway,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let admin = args.gateway.socket()?;
    let Answer { code, body } = admin::ask_patiently(&admin, "POST", "/upgrade", TIMEOUT)?;
    anyhow::ensure!(code != 503, "the gateway reports: {}", body.trim());
    let outcome: UpgradeOutcome = serde_json::from_str(&body)
        .with_context(|| format!("the program at {admin} answered with status {code}: {body:?}"))?;
    match &outcome.error {
        Some(error) if !args.format.json => {
            eprintln!(
                "longhaul: process {} keeps serving: {error}",
                outcome.old_pid
            );
        }
        _ => args.format.print(&outcome, text)?,
    }
    if outcome.error.is_none() && outcome.is_same_program && !args.format.json {
        eprintln!("longhaul: {}", same_program(&outcome.program));
    }
    Ok(match outcome.error {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
    })
}

fn text(outcome: &UpgradeOutcome) -> String {
    let UpgradeOutcome {
        pid,
        version,
        build,
        program,
        old_pid,
        sessions,
        ..
    } = outcome;
    let pid = pid.unwrap_or_default();
    let rest = match sessions {
        0 => "which ends".to_owned(),
        1 => "which ends when its session has".to_owned(),
        many => format!("which ends when its {many} sessions have"),
    };
    // A gateway of an older version reports neither its commit nor its program.
    let version = if build.is_empty() { version } else { build };
    let program = match program.as_str() {
        "" => String::new(),
        path => format!(", {path}"),
    };
    format!("process {pid} (version {version}{program}) has replaced {old_pid}, {rest}\n")
}

/// Returns the warning for an upgrade to an unchanged program file.
fn same_program(path: &str) -> String {
    format!(
        "the new process runs the same program as before: the gateway runs from {path}, and this file has not been \
         replaced. Install the new program there, and run this command again"
    )
}

/// Timeout of the request. The gateway's own timeout for an upgrade is shorter.
const TIMEOUT: Duration = Duration::from_secs(45);
