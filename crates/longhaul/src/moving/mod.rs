//! What `copy`, `sync` and `check` share: flags, the job that they make, and how it runs.

mod settings;
mod told;

use std::{ffi::OsString, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::ValueEnum;
use gateway::config::LogLevel;
use mover::{
    journal::{Journal, JournalError},
    plan::Purpose,
    run::Progress,
};
use units::{BitRate, parse_duration};

pub(crate) use self::settings::Settings;
use self::told::Told;
use crate::{exit, filters::Filters, logging, output, way::Way};

/// Flags of every command that works on files at two places.
#[derive(clap::Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) way: Way,
    #[command(flatten)]
    filters: Filters,
    /// Work on so many files at a time, each by a connection of its own
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    transfers: u16,
    /// Send and receive no faster than this
    #[arg(long, value_name = "RATE")]
    pub(crate) bwlimit: Option<BitRate>,
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

/// Flags of commands that write files.
#[derive(clap::Args)]
pub(crate) struct Writing {
    /// Tell what would be done, and change nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Keep files of the destination that are newer
    #[arg(long)]
    update: bool,
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
}

/// What a command line asks for.
pub(crate) struct Order<'a> {
    /// Sources, and at last the destination.
    pub(crate) locations: &'a [OsString],
    pub(crate) purpose: Purpose,
    pub(crate) common: &'a Common,
    /// `None`: nothing is written.
    pub(crate) writing: Option<&'a Writing>,
    pub(crate) makes_empty_directories: bool,
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

impl Order<'_> {
    fn is_dry_run(&self) -> bool {
        self.writing.is_some_and(|it| it.dry_run)
    }

    /// Goes on with parts of earlier runs, and leaves parts to later ones.
    fn resumes(&self) -> bool {
        let writing = self.writing.filter(|it| !it.dry_run);
        writing.is_some_and(|it| it.resume == Resume::Auto)
    }
}

/// Does what a command line asks for, and returns the exit code.
pub(crate) fn run(order: &Order<'_>) -> anyhow::Result<ExitCode> {
    let settings = Settings::read(order)?;
    // Who copies does not run a gateway, also where one is in the process.
    logging::follow(Some(LogLevel::Error));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let code = runtime.block_on(work(order, settings))?;
    // A name that is being looked up would hold the program up.
    runtime.shutdown_background();
    Ok(code)
}

async fn work(order: &Order<'_>, mut settings: Settings) -> anyhow::Result<ExitCode> {
    let scheme = settings.servers().next().map(|it| it.scheme);
    let near = settings.access.start_near(scheme)?;
    let name = settings.name();
    let job = settings.job(order);
    let journal = if order.resumes() {
        open_journal(&name)?
    } else {
        None
    };
    let progress = Arc::new(Progress::new(order.common.bwlimit));
    let mut told = Told::new(order.common.json, &job, progress.clone());
    let interrupted = exit::interrupted();
    let summary = mover::run::run(job, journal, progress, interrupted, |note, tally| {
        told.hear(note, tally);
    })
    .await;
    if let Some(near) = near {
        near.end().await;
    }
    told.end(&summary)?;
    let tally = summary.tally;
    let is_other = order.writing.is_none() && tally.differing + tally.missing + tally.surplus > 0;
    Ok(if summary.is_interrupted {
        ExitCode::from(exit::INTERRUPTED)
    } else if tally.failed > 0 || is_other {
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

/// Whether somebody sees a progress line.
fn is_seen() -> bool {
    use std::io::IsTerminal as _;
    !output::is_quiet() && std::io::stderr().is_terminal()
}
