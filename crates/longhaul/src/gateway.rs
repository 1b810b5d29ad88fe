//! `longhaul gateway --config FILE`: runs a gateway, checks its configuration, or removes the
//! kernel rules of a killed gateway.

use std::{
    fmt::Display,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use clap::Subcommand;
use gatewayd::{
    config::{Config, ConfigError},
    daemon, intercept,
    upgrade::{Predecessor, Program},
};
use serde::Serialize;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tracing::{info, warn};

use crate::{exit, gateway_user, logging, notify, open_files, output::Format, places};

/// Run a gateway
///
/// A gateway accepts connections of FTP clients and other TCP clients, and moves their data over
/// the WAN to another gateway.
///
/// After SIGTERM or SIGINT, the gateway ends when its transfers are complete, or after the time
/// `drain_max` of the configuration. On SIGHUP and on `longhaul reload`, the gateway reads the
/// configuration file again and applies the changes while transfers continue. A log message names
/// changes that need a restart. If the program's file has been replaced, SIGHUP starts the new
/// program instead, as `longhaul upgrade` does.
#[derive(clap::Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Read the configuration from this file [default: /etc/longhaul/gateway.toml]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    // Spellings of version 0.1 for `check` and `remove-interception`.
    #[arg(long, hide = true)]
    check: bool,
    #[arg(long, hide = true, conflicts_with = "check")]
    remove_interception: bool,
}

#[derive(Clone, Copy, Subcommand)]
enum Action {
    /// Run a gateway (same as without a subcommand)
    #[command(override_usage = USAGE_RUN)]
    Run,
    /// Check a configuration file and the key file that it names
    ///
    /// The command prints a summary of the configuration, or the first mistake with its line and
    /// column. It opens no socket. If root runs the command, it also finds files that the gateway's
    /// user cannot use. This user is the user of the service, or the owner of the key file.
    #[command(override_usage = USAGE_CHECK, after_help = "\
Example:
  longhaul gateway check --config site-a.toml

Exit codes: 0 the configuration is valid; 2 the configuration is invalid.")]
    Check {
        #[command(flatten)]
        format: Format,
    },
    /// Remove the rules of transparent listeners that a killed gateway left in the kernel
    ///
    /// A gateway that ends normally removes its rules itself. The command refuses to run while the
    /// gateway is running.
    #[command(override_usage = USAGE_REMOVE, after_help = "\
Example:
  longhaul gateway remove-interception --config site-a.toml")]
    RemoveInterception {
        #[command(flatten)]
        format: Format,
    },
}

const USAGE: &str = "longhaul gateway [OPTIONS] [--config <FILE>] [COMMAND]";

const USAGE_RUN: &str = "longhaul gateway run [OPTIONS] [--config <FILE>]";
const USAGE_CHECK: &str = "longhaul gateway check [OPTIONS] [--config <FILE>]";
const USAGE_REMOVE: &str = "longhaul gateway remove-interception [OPTIONS] [--config <FILE>]";

const EXAMPLES: &str = "\
Examples:
  longhaul gateway check --config site-a.toml
  longhaul gateway --config site-a.toml
  longhaul gateway --config site-a.toml --log info,link=debug

Exit codes: 0 ended by a signal, after draining; 1 the gateway failed, for example because a port is
in use; 2 wrong use or configuration.";

/// JSON output of `longhaul gateway check`.
#[derive(Serialize)]
struct CheckResult<'a> {
    file: &'a Path,
    /// Summary of the configuration. `None` if the configuration is invalid.
    summary: Option<Vec<String>>,
    /// The first mistake in the configuration, with its position.
    error: Option<String>,
}

/// JSON output of `longhaul gateway remove-interception`.
#[derive(Serialize)]
struct RemovalResult<'a> {
    file: &'a Path,
    /// One line of text for each transparent listener.
    removed: Vec<String>,
}

impl Args {
    fn action(&self) -> anyhow::Result<Action> {
        let format = Format { json: false };
        let old = match (self.check, self.remove_interception) {
            (true, _) => Some(Action::Check { format }),
            (_, true) => Some(Action::RemoveInterception { format }),
            _ => None,
        };
        exit::ensure(
            old.is_none() || self.action.is_none(),
            "--check and --remove-interception are old spellings of subcommands; give one subcommand",
        )?;
        Ok(self.action.or(old).unwrap_or(Action::Run))
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let action = args.action()?;
    let usage = match args.action {
        None => USAGE,
        Some(Action::Run) => USAGE_RUN,
        Some(Action::Check { .. }) => USAGE_CHECK,
        Some(Action::RemoveInterception { .. }) => USAGE_REMOVE,
    };
    let file = &places::config(args.config.as_deref(), usage)?;
    let loaded = Config::load(file);
    if let Action::Check { format } = action {
        return check(file, &loaded, format);
    }
    let predecessor = Predecessor::from_environment()?;
    let config = match loaded {
        Ok(config) => config,
        Err(error) => {
            // The error of `remove-interception` must not name the user of this process as the
            // gateway's user.
            let error = match action {
                Action::RemoveInterception { .. } => error,
                _ => error.with_gateway_user(),
            };
            if let Some(predecessor) = predecessor {
                predecessor.refuse(&error);
            }
            return Ok(refuse(&error));
        }
    };
    if let Action::RemoveInterception { format } = action {
        let removed = intercept::remove(&config)?;
        format.print(&RemovalResult { file, removed }, |done| {
            match &*done.removed {
                [] => format!("{}: no [[ftp]] is transparent\n", file.display()),
                lines => lines.join("\n") + "\n",
            }
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    serve(file, config, predecessor)
}

fn check(
    file: &Path,
    loaded: &Result<Config, ConfigError>,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let (text, error) = match loaded {
        Ok(config) => (config.to_string(), gateway_user::find_denied(config, file)),
        Err(error) => (String::new(), Some(places::explain(error))),
    };
    if let Some(error) = &error
        && !format.json
    {
        return Ok(refuse(error));
    }
    let is_valid = error.is_none();
    let checked = CheckResult {
        file,
        summary: is_valid.then(|| text.lines().map(str::to_owned).collect()),
        error,
    };
    format.print(&checked, |_| format!("{}: ok\n{text}\n", file.display()))?;
    Ok(match is_valid {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(2),
    })
}

/// Prints a mistake in the configuration. The line starts with the file position, in the format
/// that editors recognise.
fn refuse(error: &impl Display) -> ExitCode {
    eprintln!("{error}");
    ExitCode::from(2)
}

fn serve(
    file: &Path,
    config: Config,
    predecessor: Option<Predecessor>,
) -> anyhow::Result<ExitCode> {
    gatewayd::set_build(env!("LONGHAUL_VERSION"));
    logging::take_form(config.log_format)?;
    logging::follow(config.log_level);
    let program = Program::this();
    let program = program
        .inspect_err(|error| warn!(%error, "cannot be upgraded"))
        .ok();
    // Each session keeps two to four files open.
    open_files::raise_limit(u64::MAX);
    let bound = daemon::BoundSockets::bind_or_inherit(&config, predecessor)?;
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
        let file = file.to_owned();
        let reloads = daemon::ReloadChannels {
            orders: orders()?,
            load: Arc::new(move || Config::load(&file)),
            on_applied: Box::new(|config| logging::follow(config.log_level)),
            set_log: Some(Arc::new(logging::set)),
            program,
        };
        let aborted =
            daemon::run(config, bound, reloads, notify::service_manager(), shutdown).await?;
        for transfer in &aborted.transfers {
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
            transfers = aborted.transfers.len(),
            streams = aborted.streams,
            "gateway down"
        );
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns a channel on which one reload order arrives for each SIGHUP.
fn orders() -> io::Result<mpsc::Receiver<()>> {
    let mut hangup = signal(SignalKind::hangup())?;
    let (orders, received) = mpsc::channel(1);
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            if orders.send(()).await.is_err() {
                return;
            }
        }
    });
    Ok(received)
}
