//! The options and the execution of jobs that `copy`, `sync` and `check` share.

mod calls;
mod clean;
mod overlap;
mod pour;
mod progress_reporter;
mod settings;

use std::{ffi::OsString, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::ValueEnum;
use gatewayd::config::LogLevel;
use indicatif::MultiProgress;
use mover::{
    job::Job,
    journal::{Journal, JournalError},
    limit::RateLimit,
    location::Location,
    plan::{FileEvent, JobPurpose},
    run::{JobProgress, JobSummary},
};
use units::parse_duration;

use self::{
    calls::Calls,
    progress_reporter::{OutputFormat, ProgressReporter},
    settings::{ask_for_ssh, ask_passwords, share_gateways},
};
pub(crate) use self::{clean::clean, pour::pour_stdin, settings::Settings};
use crate::{
    connection_args::{ConnectionArgs, start_near},
    exit,
    filters::Filters,
    logging, open_files, output,
};

/// Flags of every command that works on files at source and destination.
#[derive(clap::Args)]
pub(crate) struct CommonArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    filters: Filters,
    /// Process this number of files in parallel, each over a separate connection
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    transfers: u16,
    /// Open at most this number of connections to each server [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    connections: Option<u16>,
    /// Limit the total rate of all transfers: a rate such as 10M, or a timetable such as '08:00,10M
    /// 18:30,off' [default: no limit]
    #[arg(long, value_name = "RATE|TIMETABLE")]
    pub(crate) bwlimit: Option<RateLimit>,
    /// Abort and retry a transfer after this time without progress
    #[arg(long, default_value = "60s", value_parser = parse_duration, value_name = "TIME")]
    stall_timeout: Duration,
    /// Retry a file this number of times; after that, the file counts as failed
    #[arg(long, default_value_t = 5, value_name = "N")]
    retries: u32,
    /// Show progress even if standard error is not a terminal, as a line every five seconds
    #[arg(short = 'P', long)]
    progress: bool,
    /// Print a line of JSON for each file, and a line with the result
    #[arg(long)]
    json: bool,
}

/// Flags of commands that write files.
#[derive(clap::Args)]
pub(crate) struct WriteArgs {
    /// Print the planned steps, and change nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Keep files at DST that are newer than the same files at SRC
    #[arg(long)]
    update: bool,
    /// Compare the content, instead of the times, of files with the same size, and copy files that
    /// differ
    #[arg(long)]
    checksum: bool,
    /// Treatment of symbolic links below SRC
    #[arg(long, value_enum, default_value_t = Links::Skip, value_name = "WHAT")]
    links: Links,
    /// Skip files that were changed within this time, because a program may still write them
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    settle: Option<Duration>,
    /// Check of each file after the copy
    #[arg(long, value_enum, default_value_t = Verify::Size, value_name = "HOW")]
    verify: Verify,
    /// Suffix of incomplete files
    #[arg(
        long,
        default_value = ".part",
        value_name = "SUFFIX",
        conflicts_with = "inplace"
    )]
    partial_suffix: String,
    /// Write files directly under their final names, for servers that refuse to rename files
    #[arg(long)]
    inplace: bool,
    /// Treatment of files that an earlier run has left incomplete
    #[arg(long, value_enum, default_value_t = Resume::Auto, value_name = "WHEN")]
    resume: Resume,
    /// Treatment of a file that grows during the copy
    #[arg(long, value_enum, default_value_t = Growth::Snapshot, value_name = "HOW")]
    growing: Growth,
    /// Run this program, without a shell, for each copied file. The program receives data about the
    /// file in environment variables, and as JSON on standard input
    #[arg(long, value_name = "CMD")]
    on_file: Option<String>,
}

/// Arguments of a command line for one of its destinations.
pub(crate) struct Order<'a> {
    pub(crate) sources: &'a [OsString],
    pub(crate) destination: &'a OsString,
    pub(crate) purpose: JobPurpose,
    pub(crate) common: &'a CommonArgs,
    /// Options for writing. `None` if the command writes no files.
    pub(crate) writing: Option<&'a WriteArgs>,
    /// Whether a single source directory becomes a subdirectory of a destination that ends in a
    /// slash. Several source directories always become subdirectories. A shell may expand a pattern
    /// to one source or to several sources, and both cases must give the same result.
    pub(crate) enters_destination: bool,
    pub(crate) makes_empty_directories: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Verify {
    /// No check
    None,
    /// Compare the sizes, and check that the source has not changed during the copy
    Size,
    /// Compare hashes if the server computes hashes; otherwise read the copy back and compare the
    /// content
    Hash,
    /// Read the copy back and compare the content
    Readback,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Links {
    /// Skip links
    Skip,
    /// Copy the targets of links
    Follow,
    /// Create links at DST; SRC and DST must both be on this machine
    Copy,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Growth {
    /// Copy the bytes that the file had at the beginning, and print a warning
    Snapshot,
    /// Copy until the file has not grown for ten seconds; only for files on this machine
    Follow,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Resume {
    /// Resume a file if its source is unchanged
    Auto,
    /// Copy each file from its beginning
    Never,
}

impl CommonArgs {
    /// Returns the output format that the options select.
    fn output_format(&self) -> OutputFormat {
        match self.json {
            true => OutputFormat::Json,
            false if is_seen() => OutputFormat::Bar,
            false if self.progress && !output::is_quiet() => OutputFormat::Lines,
            false => OutputFormat::Result,
        }
    }
}

impl Order<'_> {
    /// Checks that workers on other machines can execute the job. Refuses options that workers do
    /// not support, and relative local paths.
    pub(crate) fn check_for_workers(&self) -> anyhow::Result<()> {
        let common = self.common;
        let is_set = |is_it: fn(&WriteArgs) -> bool| self.writing.is_some_and(is_it);
        let whole = "workers report in their log, and longhaul jobs show has the progress";
        for (is_given, flag, why) in [
            (common.json, "--json", whole),
            (common.progress, "--progress", whole),
            (is_set(|it| it.dry_run), "--dry-run", "use longhaul copy"),
            (
                is_set(|it| it.on_file.is_some()),
                "--on-file",
                "a worker may be lost between a file and its command",
            ),
            (
                is_set(|it| it.links == Links::Copy),
                "--links copy",
                "servers receive no symbolic links",
            ),
            (
                is_set(|it| it.inplace),
                "--inplace",
                "a worker that was lost may still write to the same file",
            ),
            (
                self.makes_empty_directories,
                "--empty-dirs",
                "workers make directories for files",
            ),
            (
                common.bwlimit.is_some(),
                "--bwlimit",
                "give it to the workers",
            ),
        ] {
            let text = format!("a job of a fleet takes no {flag}: {why}");
            exit::ensure(!is_given, &text)?;
        }
        let sources = self
            .sources
            .iter()
            .map(|it| (it, Location::parse_source(it)));
        let destination = Location::parse_destination(self.destination);
        for (end, location) in sources.chain([(self.destination, destination)]) {
            let is_elsewhere = match location.map_err(exit::wrong_use)? {
                Location::Local(path) => !path.is_absolute(),
                Location::Remote(_) => false,
            };
            let text = format!(
                "{}: a worker runs in another folder: name the whole path, which each worker must have",
                end.display()
            );
            exit::ensure(!is_elsewhere, &text)?;
        }
        Ok(())
    }

    fn is_dry_run(&self) -> bool {
        self.writing.is_some_and(|it| it.dry_run)
    }

    /// Whether this run resumes parts of earlier runs, and leaves its own parts for later runs.
    fn resumes(&self) -> bool {
        let writing = self.writing.filter(|it| !it.dry_run);
        writing.is_some_and(|it| it.resume == Resume::Auto)
    }
}

/// A job that is ready to run, with its journal and its output.
struct PreparedJob {
    job: Arc<Job>,
    calls: Option<Calls>,
    journal: Option<Journal>,
    progress: Arc<JobProgress>,
    reporter: ProgressReporter,
}

/// Copies to all destinations of a command line in parallel. Returns the exit code.
pub(crate) fn run(orders: &[Order<'_>]) -> anyhow::Result<ExitCode> {
    let mut settings = Settings::read_all(orders)?;
    ask_passwords(&mut settings)?;
    // A user who copies files does not need the log messages of the gateway in this process.
    logging::follow(LogLevel::Error);
    open_files::raise_limit(open_files::MOVERS_MAX);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let code = runtime.block_on(work(orders, settings))?;
    // The program does not wait for a pending name resolution.
    runtime.shutdown_background();
    Ok(code)
}

async fn work(orders: &[Order<'_>], mut settings: Vec<Settings>) -> anyhow::Result<ExitCode> {
    let scheme = settings.iter().find_map(Settings::scheme);
    let mut ways: Vec<_> = settings.iter_mut().map(|it| &mut it.access).collect();
    let near = start_near(&mut ways, scheme)?;
    ask_for_ssh(&mut settings).await?;
    for (order, settings) in orders.iter().zip(&settings) {
        overlap::check(order, settings).await?;
    }
    share_gateways(&mut settings);
    let bars = MultiProgress::new();
    let first = JobProgress::new(orders[0].common.bwlimit.clone());
    let is_alone = orders.len() == 1;
    let mut running = Vec::new();
    let mut broken = Vec::new();
    for (order, settings) in orders.iter().zip(settings) {
        let destination = settings.ends().1;
        let to = (!is_alone).then(|| destination.clone());
        match PreparedJob::new(order, settings, to, first.beside(), &bars) {
            Ok(ready) => running.push((destination, tokio::spawn(ready.run()))),
            Err(error) => broken.push((destination, error)),
        }
    }
    // An error that ends one job does not end the others.
    let mut ends = Vec::new();
    for (destination, job) in running {
        match job.await.context("a job broke off") {
            Ok(Ok(end)) => ends.push(end),
            Ok(Err(error)) | Err(error) => broken.push((destination, error)),
        }
    }
    if let Some(near) = near {
        near.end().await;
    }
    let is_check = orders.iter().any(|it| it.writing.is_none());
    let is_broken = !broken.is_empty();
    for (destination, error) in broken {
        if is_alone {
            return Err(error);
        }
        eprintln!("longhaul: {destination}: {error:#}");
    }
    Ok(code(&ends, is_check, is_broken))
}

/// Outcome of a job.
struct JobOutcome {
    summary: JobSummary,
    /// Number of commands that failed or were not called.
    failed_calls: u64,
    is_interrupted: bool,
}

impl PreparedJob {
    fn new(
        order: &Order<'_>,
        settings: Settings,
        to: Option<String>,
        progress: JobProgress,
        bars: &MultiProgress,
    ) -> anyhow::Result<Self> {
        let journal = match order.resumes() {
            true => open_journal(&settings.name())?,
            false => None,
        };
        let words = settings.on_file.clone();
        let job = Arc::new(settings.job(order));
        let progress = Arc::new(progress);
        Ok(Self {
            calls: words.map(|words| Calls::new(words, job.clone())),
            reporter: ProgressReporter::new(
                order.common.output_format(),
                &job,
                to,
                progress.clone(),
                bars,
            ),
            job,
            journal,
            progress,
        })
    }

    async fn run(self) -> anyhow::Result<JobOutcome> {
        let (mut reporter, mut calls) = (self.reporter, self.calls);
        let mut interrupted = std::pin::pin!(exit::interrupted());
        let tell = |note: Option<FileEvent>, tally| {
            if let Some(calls) = &mut calls {
                if let Some(note) = &note {
                    calls.add(note, reporter.path(note));
                }
                while let Some(call) = calls.ended() {
                    reporter.report_call(&call);
                }
            }
            reporter.report(note, tally);
        };
        let (progress, interrupt) = (self.progress, interrupted.as_mut());
        let summary = mover::run::run(self.job, self.journal, progress, interrupt, tell).await;
        reporter.end_transfers();
        let mut is_interrupted = summary.is_interrupted;
        if let Some(calls) = &mut calls {
            while !is_interrupted {
                tokio::select! {
                    call = calls.next() => match call {
                        Some(call) => reporter.report_call(&call),
                        None => break,
                    },
                    () = interrupted.as_mut() => is_interrupted = true,
                }
            }
            // Commands that are still running continue without this process.
            for call in calls.give_up() {
                reporter.report_call(&call);
            }
        }
        reporter.print_result(&summary)?;
        Ok(JobOutcome {
            summary,
            failed_calls: reporter.failed_calls(),
            is_interrupted,
        })
    }
}

fn code(ends: &[JobOutcome], is_check: bool, is_broken: bool) -> ExitCode {
    let has_failed = |end: &JobOutcome| {
        let tally = end.summary.tally;
        let is_other = is_check && tally.differing + tally.missing + tally.surplus > 0;
        tally.failed > 0 || end.failed_calls > 0 || is_other
    };
    if ends.iter().any(|it| it.is_interrupted) {
        ExitCode::from(exit::INTERRUPTED)
    } else if is_broken || ends.iter().any(has_failed) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Opens the journal. Returns `None` if the home folder cannot contain a journal. A later run can
/// then not resume this run.
fn open_journal(name: &str) -> anyhow::Result<Option<Journal>> {
    let Some(folder) = Journal::folder() else {
        return Ok(None);
    };
    match Journal::open(&folder, name) {
        Ok(journal) => Ok(Some(journal.one_off())),
        Err(running @ JournalError::Running(_)) => Err(running.into()),
        Err(error) => {
            let error = anyhow::Error::from(error);
            tracing::warn!("an interrupted copy will restart from the beginning: {error:#}");
            Ok(None)
        }
    }
}

/// Whether standard error is a terminal that shows progress to a user.
fn is_seen() -> bool {
    use std::io::IsTerminal as _;
    !output::is_quiet() && std::io::stderr().is_terminal()
}
