//! `longhaul demo`: both kinds of transfer side by side over an emulated WAN.

use anyhow::Context;
use eval::demo::DemoConfig;

use crate::output;

/// Move a file by plain FTP and through Longhaul over an emulated WAN, and compare both
///
/// The demonstration needs no other program and no configuration. It takes about two minutes. It runs as
/// root and as an ordinary user.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding this program's own file")?;
    let config = DemoConfig {
        shows_progress: !output::is_quiet(),
        ..DemoConfig::new(program)
    };
    eval::demo::run(&config)
}
