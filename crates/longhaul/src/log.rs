//! `longhaul log`: a temporary change of the log filter of a running gateway.

use crate::{
    admin::{self, Answer},
    exit, logging, output, places,
};

/// Change the log filter of a running gateway
///
/// The change lasts until the gateway ends, is upgraded, or reads its configuration again. After
/// that, the filter of the command line, the environment or `[log] level` in the configuration
/// applies again. The gateway must run on this machine.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul log debug
  longhaul log info,link=debug
  longhaul log warn --config site-a.toml
  longhaul reload                           # undoes the change

Exit codes: 0 done; 1 no gateway answers; 2 wrong use, or an invalid filter.")]
pub(crate) struct Args {
    /// Log level such as 'debug', or log filter such as 'info,link=debug'
    #[arg(value_name = "LEVEL|FILTER", value_parser = logging::parse_filter)]
    filter: String,
    #[command(flatten)]
    gateway: places::Gateway,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let admin = args.gateway.socket()?;
    let Answer { code, body } = admin::send(&admin, "/log", &args.filter)?;
    let said = body.trim();
    match code {
        200 => output::print(&format!(
            "the gateway logs {:?} until its next reload or restart\n",
            args.filter
        )),
        422 => Err(exit::misuse(format!(
            "the gateway refuses the filter: {said}"
        ))),
        _ => anyhow::bail!("the program at {admin} answered with status {code}: {said:?}"),
    }
}
