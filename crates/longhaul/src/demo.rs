//! `longhaul demo`: both kinds of transfer side by side over an emulated WAN.

use std::process::ExitCode;

use anyhow::Context;
use eval::demo::DemoConfig;

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("finding this program's own file")?;
    eval::demo::run(&DemoConfig::new(program))?;
    Ok(ExitCode::SUCCESS)
}
