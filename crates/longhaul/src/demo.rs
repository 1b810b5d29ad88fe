//! `longhaul demo`: a comparison of plain FTP and Longhaul over an emulated WAN.

use anyhow::Context;
use eval::demo::{DemoConfig, Demonstration};

use crate::output::{self, Format};

/// Move a file by plain FTP and through Longhaul over an emulated WAN, and compare the two
/// transfers
///
/// The command needs no other program, no configuration and no root privileges. It takes about two
/// minutes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding this program's own file")?;
    let mut config = DemoConfig {
        shows_progress: !output::is_quiet(),
        ..DemoConfig::new(program)
    };
    if args.format.json {
        // Standard output contains only the result.
        config.tell = |text| eprintln!("{text}");
    }
    let shown = eval::demo::run(&config)?;
    args.format.print(&shown, Demonstration::text)
}
