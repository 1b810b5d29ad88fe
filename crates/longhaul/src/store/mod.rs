//! `longhaul store ls|verify|clear`: administration of the chunk stores of a gateway.

mod clear;
mod list;
mod verify;

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Subcommand;
use relay::optimise::{StoreName, StoresSettings};

use crate::{exit, places};

/// Show, verify and clear the chunk stores of a gateway
///
/// With [store] in its configuration, a gateway stores chunks of the transferred content, in a
/// separate store for each peer and tenant. A damaged store delays transfers, but never changes
/// their content: the gateways send missing or damaged chunks again.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul store ls
  longhaul store verify
  longhaul store clear oslo

Exit codes: 0 done; 1 a step failed, or a store is damaged; 2 wrong use or configuration.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// Read the configuration from this file [default: /etc/longhaul/gateway.toml]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Action {
    Ls(list::Args),
    Verify(verify::Args),
    Clear(clear::Args),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let usage = "longhaul store [OPTIONS] <COMMAND>";
    let file = places::config(args.config.as_deref(), usage)?;
    let config = places::load(&file)?;
    let settings = config.store.as_ref().ok_or_else(|| {
        exit::misuse(format!(
            "{}: there is no [store], so this gateway keeps no chunks: add [store] with a folder",
            file.display()
        ))
    })?;
    let done = |()| ExitCode::SUCCESS;
    match &args.action {
        Action::Ls(args) => list::run(args, settings).map(done),
        Action::Verify(args) => verify::run(args, settings),
        Action::Clear(args) => clear::run(args, settings, &config).map(done),
    }
}

/// Returns all existing stores, sorted. Returns none if the folder does not exist.
fn all(settings: &StoresSettings) -> anyhow::Result<Vec<StoreName>> {
    match StoreName::all_in(&settings.folder) {
        // The folder may be missing, because the gateway makes it only when the gateway starts or
        // data moves.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        found => found.map_err(|error| not_allowed(&settings.folder, error)),
    }
}

/// Returns the existing stores that `wanted` selects. Each text in `wanted` is the name of a store
/// or of a peer.
fn chosen(settings: &StoresSettings, wanted: &[String]) -> anyhow::Result<Vec<StoreName>> {
    let all = all(settings)?;
    let is = |store: &StoreName, name: &String| store.folder == *name || store.peer == *name;
    for name in wanted {
        if !all.iter().any(|store| is(store, name)) {
            let names: Vec<_> = all.iter().map(|it| it.folder.as_str()).collect();
            let there = match &names[..] {
                [] => "none yet".to_owned(),
                names => names.join(", "),
            };
            return Err(exit::misuse(format!(
                "there is no store {name:?} in {}; there is: {there}",
                settings.folder.display()
            )));
        }
    }
    let of_all = all.into_iter();
    Ok(of_all
        .filter(|store| wanted.iter().any(|name| is(store, name)))
        .collect())
}

/// Returns the error for a store that cannot be used. If this user lacks permission, the error
/// contains a hint.
fn not_allowed(path: &Path, error: std::io::Error) -> anyhow::Error {
    let hint = match error.kind() {
        ErrorKind::PermissionDenied => {
            "; it belongs to the user that the gateway runs as, so ask as root or as this user"
        }
        _ => "",
    };
    anyhow::anyhow!("{}: {error}{hint}", path.display())
}
