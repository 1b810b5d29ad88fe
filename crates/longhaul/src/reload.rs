//! `longhaul reload`: makes a running gateway apply its changed configuration.

use std::process::ExitCode;

use anyhow::Context as _;
use gatewayd::reload::ReloadOutcome;

use crate::{
    admin::{self, Answer},
    output::Format,
    places,
};

/// Make a running gateway read its configuration file again
///
/// The gateway applies all changes that need no restart. If the file is invalid or an address is in
/// use, the gateway applies no change. Transfers and sessions continue. The command prints the
/// applied changes, and names the changes that need a restart. The gateway must run on this
/// machine.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul reload
  longhaul reload --config site-a.toml
  longhaul reload --admin /srv/a/a.key.admin.sock --json

Exit codes: 0 the changes are in effect, or need a restart; 1 no gateway answers, or an address is
in use; 2 wrong use or configuration.")]
pub(crate) struct Args {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    gateway: places::Gateway,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let admin = args.gateway.socket()?;
    let Answer { code, body } = admin::ask(&admin, "POST", "/reload")?;
    anyhow::ensure!(code != 503, "the gateway reports: {}", body.trim());
    let outcome: ReloadOutcome = serde_json::from_str(&body)
        .with_context(|| format!("the program at {admin} answered with status {code}: {body:?}"))?;
    match &outcome.error {
        Some(error) if !args.format.json => eprintln!("longhaul: nothing was applied: {error}"),
        _ => args.format.print(&outcome, ToString::to_string)?,
    }
    Ok(match &outcome {
        ReloadOutcome { error: None, .. } => ExitCode::SUCCESS,
        ReloadOutcome { is_wrong: true, .. } => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    })
}
