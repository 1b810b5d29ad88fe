//! `longhaul doctor`: search for common faults. Each fault is printed with a recommended action.

mod files;
mod finding;
mod listeners;
mod machine;
mod peers;
mod running;
mod servers;
mod ssh;
mod stores;

use std::{path::PathBuf, process::ExitCode};

use gatewayd::config::Config;

use self::finding::{Findings, Verdict};
use crate::{output::Format, places};

/// Search for common faults, and print a remedy for each fault
///
/// The command checks the configuration, the key, the clock and the socket buffers. It checks
/// whether the gateway runs, whether each peer responds, and whether each server is reachable. A
/// near gateway reaches servers through the far gateway. Run the command on both machines, because
/// some checks are possible on only one machine.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul doctor
  longhaul doctor --config site-a.toml --json

Exit codes: 0 no fault found; 1 at least one fault found; 2 wrong use.")]
pub(crate) struct Args {
    #[command(flatten)]
    format: Format,
    /// Read the configuration from this file [default: /etc/longhaul/gateway.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let file = places::config(args.config.as_deref(), "longhaul doctor [OPTIONS]")?;
    let mut findings = Findings::default();
    match Config::load(&file) {
        Ok(config) => {
            findings.good("configuration", format!("{} is right", file.display()));
            examine(&config, &mut findings);
        }
        Err(error) => findings.wrong(
            "configuration",
            error.to_string(),
            files::cure(&error.to_string()),
        ),
    }
    args.format.print(&findings, Findings::to_text)?;
    Ok(match findings.worst() {
        Verdict::Wrong => ExitCode::FAILURE,
        Verdict::Good | Verdict::Doubtful => ExitCode::SUCCESS,
    })
}

fn examine(config: &Config, findings: &mut Findings) {
    files::examine(config, findings);
    machine::examine(findings);
    let snapshot = running::examine(config, findings);
    stores::examine(config, snapshot.as_ref(), findings);
    peers::examine(config, snapshot.as_ref(), findings);
    if snapshot.is_some() {
        listeners::examine_near(config, findings);
        ssh::examine_near(config, findings);
    }
    listeners::examine_passive_ports(config, findings, snapshot.is_some());
    servers::examine(config, findings);
}
