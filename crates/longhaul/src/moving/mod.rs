//! What `copy`, `sync` and `check` share: flags, the jobs that they make, and how these run.

mod calls;
mod clean;
mod overlap;
mod pour;
mod settings;
mod told;

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
    plan::{Note, Purpose},
    run::{Progress, Summary},
};
use units::parse_duration;

use self::{
    calls::Calls,
    settings::{ask_passwords, share_gateways},
    told::{Manner, Told},
};
pub(crate) use self::{clean::clean, pour::pour_stdin, settings::Settings};
use crate::{
    exit,
    filters::Filters,
    logging, open_files, output,
    way::{Way, start_near},
};

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
    /// Have no more connections to any server than this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    connections: Option<u16>,
    /// Send and receive no faster than this; by the clock with a timetable: '08:00,10M 18:30,off'
    #[arg(long, value_name = "RATE|TIMETABLE")]
    pub(crate) bwlimit: Option<RateLimit>,
    /// Give a transfer up, and try again, when nothing has moved for this long
    #[arg(long, default_value = "60s", value_parser = parse_duration, value_name = "TIME")]
    stall_timeout: Duration,
    /// Try so often again before a file counts as failed
    #[arg(long, default_value_t = 5, value_name = "N")]
    retries: u32,
    /// Show progress also where standard error is no terminal: a line every five seconds
    #[arg(short = 'P', long)]
    progress: bool,
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
    /// Read files that both ends have with the same size, and copy those whose content differs; times do not count
    #[arg(long)]
    checksum: bool,
    /// What becomes of symbolic links below SRC
    #[arg(long, value_enum, default_value_t = Links::Skip, value_name = "WHAT")]
    links: Links,
    /// Leave out files that were changed within this time: they may still be written
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    settle: Option<Duration>,
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
    /// What is copied of a file that grows meanwhile
    #[arg(long, value_enum, default_value_t = Growth::Snapshot, value_name = "HOW")]
    growing: Growth,
    /// Call this program for each file that was moved; no shell. It has the file's facts in its environment, and as JSON
    /// on its standard input
    #[arg(long, value_name = "CMD")]
    on_file: Option<String>,
}

/// What a command line asks for, to one destination.
pub(crate) struct Order<'a> {
    pub(crate) sources: &'a [OsString],
    pub(crate) destination: &'a OsString,
    pub(crate) purpose: Purpose,
    pub(crate) common: &'a Common,
    /// `None`: nothing is written.
    pub(crate) writing: Option<&'a Writing>,
    /// A directory goes into a destination that ends in a slash, as it does beside other sources: a shell may have made
    /// one source or several of a pattern.
    pub(crate) enters_destination: bool,
    pub(crate) makes_empty_directories: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Verify {
    /// Nothing
    None,
    /// The size, and that the source did not change meanwhile
    Size,
    /// The content: by hashes where the server makes them, else it is read back
    Hash,
    /// The content: it is read back
    Readback,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Links {
    /// They are left out
    Skip,
    /// What they lead to is copied
    Follow,
    /// They are made at DST; both ends must be on this machine
    Copy,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Growth {
    /// The bytes that it had at the beginning, with a warning
    Snapshot,
    /// All, until it has not grown for ten seconds; for files of this machine
    Follow,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Resume {
    /// Where the source is what it was
    Auto,
    /// Not at all
    Never,
}

impl Common {
    /// How is told what is done.
    fn manner(&self) -> Manner {
        match self.json {
            true => Manner::Json,
            false if is_seen() => Manner::Bar,
            false if self.progress && !output::is_quiet() => Manner::Lines,
            false => Manner::Result,
        }
    }
}

impl Order<'_> {
    /// The same files, moved by other machines: what only this process could do is refused.
    pub(crate) fn check_for_workers(&self) -> anyhow::Result<()> {
        let common = self.common;
        let is_set = |is_it: fn(&Writing) -> bool| self.writing.is_some_and(is_it);
        let whole = "workers tell by their log, and by longhaul jobs show";
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
                "FTP cannot carry symbolic links",
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

    /// Goes on with parts of earlier runs, and leaves parts to later ones.
    fn resumes(&self) -> bool {
        let writing = self.writing.filter(|it| !it.dry_run);
        writing.is_some_and(|it| it.resume == Resume::Auto)
    }
}

/// A job that is to run, and what it tells.
struct Ready {
    job: Arc<Job>,
    calls: Option<Calls>,
    journal: Option<Journal>,
    progress: Arc<Progress>,
    told: Told,
}

/// Does what a command line asks for, to all destinations at the same time, and returns the exit code.
pub(crate) fn run(orders: &[Order<'_>]) -> anyhow::Result<ExitCode> {
    let mut settings = Settings::read_all(orders)?;
    ask_passwords(&mut settings)?;
    // Who copies does not run a gateway, also where one is in the process.
    logging::follow(Some(LogLevel::Error));
    open_files::raise_limit(open_files::MOVERS_MAX);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let code = runtime.block_on(work(orders, settings))?;
    // A name that is being looked up would hold the program up.
    runtime.shutdown_background();
    Ok(code)
}

async fn work(orders: &[Order<'_>], mut settings: Vec<Settings>) -> anyhow::Result<ExitCode> {
    let scheme = settings.iter().find_map(Settings::scheme);
    let mut ways: Vec<_> = settings.iter_mut().map(|it| &mut it.access).collect();
    let near = start_near(&mut ways, scheme)?;
    for (order, settings) in orders.iter().zip(&settings) {
        overlap::check(order, settings).await?;
    }
    share_gateways(&mut settings);
    let bars = MultiProgress::new();
    let first = Progress::new(orders[0].common.bwlimit.clone());
    let is_alone = orders.len() == 1;
    let mut running = Vec::new();
    let mut broken = Vec::new();
    for (order, settings) in orders.iter().zip(settings) {
        let destination = settings.ends().1;
        let to = (!is_alone).then(|| destination.clone());
        match Ready::new(order, settings, to, first.beside(), &bars) {
            Ok(ready) => running.push((destination, tokio::spawn(ready.run()))),
            Err(error) => broken.push((destination, error)),
        }
    }
    // What breaks one job off ends no other.
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

/// What a job came to.
struct End {
    summary: Summary,
    /// Commands that have failed, or were not called.
    failed_calls: u64,
    is_interrupted: bool,
}

impl Ready {
    fn new(
        order: &Order<'_>,
        settings: Settings,
        to: Option<String>,
        progress: Progress,
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
            told: Told::new(order.common.manner(), &job, to, progress.clone(), bars),
            job,
            journal,
            progress,
        })
    }

    async fn run(self) -> anyhow::Result<End> {
        let (mut told, mut calls) = (self.told, self.calls);
        let mut interrupted = std::pin::pin!(exit::interrupted());
        let tell = |note: Option<Note>, tally| {
            if let Some(calls) = &mut calls {
                if let Some(note) = &note {
                    calls.hear(note, told.path(note));
                }
                while let Some(call) = calls.ended() {
                    told.called(&call);
                }
            }
            told.hear(note, tally);
        };
        let (progress, interrupt) = (self.progress, interrupted.as_mut());
        let summary = mover::run::run(self.job, self.journal, progress, interrupt, tell).await;
        told.moved();
        let mut is_interrupted = summary.is_interrupted;
        if let Some(calls) = &mut calls {
            while !is_interrupted {
                tokio::select! {
                    call = calls.next() => match call {
                        Some(call) => told.called(&call),
                        None => break,
                    },
                    () = interrupted.as_mut() => is_interrupted = true,
                }
            }
            // Commands under way go on by themselves.
            for call in calls.give_up() {
                told.called(&call);
            }
        }
        told.end(&summary)?;
        Ok(End {
            summary,
            failed_calls: told.failed_calls(),
            is_interrupted,
        })
    }
}

fn code(ends: &[End], is_check: bool, is_broken: bool) -> ExitCode {
    let has_failed = |end: &End| {
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

/// The journal; none where the home folder takes none, which costs resumption alone.
fn open_journal(name: &str) -> anyhow::Result<Option<Journal>> {
    let Some(folder) = Journal::folder() else {
        return Ok(None);
    };
    match Journal::open(&folder, name) {
        Ok(journal) => Ok(Some(journal.one_off())),
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
