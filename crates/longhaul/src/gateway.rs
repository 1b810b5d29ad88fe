//! `longhaul gateway --config FILE`: runs a gateway.

use std::{io, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context as _;
use gateway::{config::Config, daemon, intercept};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tracing::{info, warn};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only say whether the configuration is right.
    #[arg(long)]
    check: bool,
    /// Only remove the rules of transparent front doors that a killed gateway has left in the kernel
    #[arg(long, conflicts_with = "check")]
    remove_interception: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = match Config::load(&args.config) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error}");
            return Ok(ExitCode::from(2));
        }
    };
    if args.check {
        println!("{}: ok", args.config.display());
        println!("{config}");
        return Ok(ExitCode::SUCCESS);
    }
    if args.remove_interception {
        let removed = intercept::remove(&config)?;
        if removed.is_empty() {
            println!("{}: no [[ftp]] is transparent", args.config.display());
        }
        for line in removed {
            println!("{line}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    raise_file_limit();
    let bound = daemon::Bound::bind(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let reloads = reload_on_hangup(args.config.clone())?;
        let cut_short = daemon::run(config, bound, reloads, shutdown, DRAIN).await?;
        for transfer in &cut_short.transfers {
            warn!(
                side = transfer.side,
                target = transfer.target,
                client = transfer.client,
                up_bytes = transfer.up_bytes,
                down_bytes = transfer.down_bytes,
                "cut short"
            );
        }
        info!(
            transfers = cut_short.transfers.len(),
            streams = cut_short.streams,
            "gateway down"
        );
        Ok(ExitCode::SUCCESS)
    })
}

/// Takes as many file descriptors as the system grants: a session has two to four, and most systems
/// begin with 1024.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        warn!(%error, "the limit on open files stays as it is");
    }
}

/// Reads the configuration again at each SIGHUP. One with a mistake is logged, and changes nothing.
fn reload_on_hangup(path: PathBuf) -> io::Result<mpsc::Receiver<Config>> {
    let mut hangup = signal(SignalKind::hangup())?;
    let (reloads, received) = mpsc::channel(1);
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match Config::load(&path) {
                Ok(config) => {
                    if reloads.send(config).await.is_err() {
                        return;
                    }
                }
                Err(error) => warn!("configuration not read again: {error}"),
            }
        }
    });
    Ok(received)
}

/// Time for transfers under way to end after SIGTERM, within systemd's 90 s.
const DRAIN: Duration = Duration::from_secs(10);
