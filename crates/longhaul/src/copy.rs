//! `longhaul copy SRC... DST`: files and directories from here to there.

mod settings;
mod told;

use std::{ffi::OsString, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::ValueEnum;
use gateway::config::LogLevel;
use mover::{
    journal::{Journal, JournalError},
    near::Near,
    run::Progress,
};
use tokio::signal::unix::{SignalKind, signal};
use units::{BitRate, parse_duration};

use self::{settings::Settings, told::Told};
use crate::{exit, logging, output};

/// Copy files and directories to or from FTP servers
///
/// SRC and DST are paths of this machine or URLs: ftp://[USER@]HOST[:PORT]/PATH, ftpes:// (TLS by
/// AUTH TLS), ftps:// (TLS from the first byte). The path of a URL begins in the directory of the
/// log-in; with a second slash, ftp://HOST//PATH, at the server's root.
///
/// A directory becomes DST: what is in SRC is in DST afterwards. A file becomes DST, or goes into DST
/// if that is a directory or ends in a slash. Of several sources each goes into DST. Files that DST
/// has with the same size and time are not copied again.
///
/// A file has the suffix .part until it is whole. A run that was interrupted is gone on with by the
/// same command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul copy film.mxf ftp://me@ftp.example.com/incoming/
  longhaul copy ftp://ftp.example.com//pub/data ./data --gateway 10.0.0.7:2121
  longhaul copy takes/ ftpes://me@10.20.0.5/takes --peer 'KEY@203.0.113.9:4810'

Passwords come from ~/.netrc, from --password-file, or from the environment variable
LONGHAUL_PASSWORD.

Exit codes: 0 all is there; 1 something failed, and is named; 2 wrong use; 3 interrupted.")]
pub(crate) struct Args {
    /// Files and directories to copy, and where to: at last the destination
    #[arg(required = true, num_args = 2.., value_name = "SRC... DST")]
    locations: Vec<OsString>,
    #[command(flatten)]
    way: Way,
    /// Move so many files at a time, each by a connection of its own
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    transfers: u16,
    /// Send and receive no faster than this
    #[arg(long, value_name = "RATE")]
    bwlimit: Option<BitRate>,
    /// What is compared once a file is there
    #[arg(long, value_enum, default_value_t = Verify::Size, value_name = "HOW")]
    verify: Verify,
    /// Call a file so until it is whole
    #[arg(
        long,
        default_value = ".part",
        value_name = "SUFFIX",
        conflicts_with = "inplace"
    )]
    partial_suffix: String,
    /// Write files under their own names, for servers that refuse to rename
    #[arg(long)]
    inplace: bool,
    /// Go on with what an earlier run has left
    #[arg(long, value_enum, default_value_t = Resume::Auto, value_name = "WHEN")]
    resume: Resume,
    /// Keep files of the destination that are newer
    #[arg(long)]
    update: bool,
    /// Make directories also where nothing is in them
    #[arg(long)]
    empty_dirs: bool,
    /// Give a transfer up, and try again, when nothing has moved for this long
    #[arg(long, default_value = "60s", value_parser = parse_duration, value_name = "TIME")]
    stall_timeout: Duration,
    /// Try so often again before a file counts as failed
    #[arg(long, default_value_t = 5, value_name = "N")]
    retries: u32,
    /// Print a line of JSON for each file, and one with the result
    #[arg(long)]
    json: bool,
}

/// How servers are reached.
#[derive(clap::Args)]
struct Way {
    /// Go through the front door of this gateway
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "peer")]
    gateway: Option<String>,
    /// Be the near gateway, and go through this far one
    #[arg(long, value_name = "KEY@HOST:PORT")]
    peer: Option<String>,
    /// With --peer: our private key, made by longhaul keygen [default: ~/.config/longhaul/key]
    #[arg(long, value_name = "FILE", requires = "peer")]
    key: Option<PathBuf>,
    /// Take the password from the first line of this file
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Read accounts from this file [default: ~/.netrc]
    #[arg(long, value_name = "FILE")]
    netrc: Option<PathBuf>,
    /// Accept this certificate of the server, by its SHA-256 fingerprint
    #[arg(long, value_name = "HEX", conflicts_with = "tls_insecure")]
    tls_pin: Option<String>,
    /// Accept any certificate: anybody on the path can read and change what is copied
    #[arg(long)]
    tls_insecure: bool,
    /// Let servers connect to this machine for data (active mode)
    #[arg(long)]
    active: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Verify {
    /// Nothing
    None,
    /// The size, and that the source did not change meanwhile
    Size,
    /// The content: it is read back
    Readback,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Resume {
    /// Where the source is what it was
    Auto,
    /// Not at all
    Never,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = Settings::read(args)?;
    // Who copies does not run a gateway, also where one is in the process.
    logging::follow(Some(LogLevel::Error));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let code = runtime.block_on(copy(args, settings))?;
    // A name that is being looked up would hold the program up.
    runtime.shutdown_background();
    Ok(code)
}

async fn copy(args: &Args, settings: Settings) -> anyhow::Result<ExitCode> {
    let near = match &settings.peer {
        Some((peer, key)) => {
            let scheme = settings.scheme();
            Some(Near::start(peer, key, scheme, &settings.verify_tls).map_err(exit::wrong_use)?)
        }
        None => None,
    };
    let name = settings.name();
    let job = settings.job(args, near.as_ref().map(Near::door));
    let journal = match args.resume {
        Resume::Never => None,
        Resume::Auto => open_journal(&name)?,
    };
    let progress = Arc::new(Progress::new(args.bwlimit));
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let interrupted = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let mut told = Told::new(args.json, &job, progress.clone());
    let summary = mover::run::run(job, journal, progress, interrupted, |note, tally| {
        told.hear(note, tally);
    })
    .await;
    if let Some(near) = near {
        near.end().await;
    }
    told.end(&summary)?;
    Ok(if summary.is_interrupted {
        ExitCode::from(INTERRUPTED)
    } else if summary.tally.failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The journal; none where the home folder takes none, which costs resumption alone.
fn open_journal(name: &str) -> anyhow::Result<Option<Journal>> {
    let Some(folder) = Journal::folder() else {
        return Ok(None);
    };
    match Journal::open(&folder, name) {
        Ok(journal) => Ok(Some(journal)),
        Err(running @ JournalError::Running(_)) => Err(running.into()),
        Err(error) => {
            let error = anyhow::Error::from(error);
            tracing::warn!("an interrupted copy will begin anew: {error:#}");
            Ok(None)
        }
    }
}

/// Exit code of a copy that was interrupted.
const INTERRUPTED: u8 = 3;

/// Redraws of the progress line.
fn is_seen() -> bool {
    use std::io::IsTerminal as _;
    !output::is_quiet() && std::io::stderr().is_terminal()
}
