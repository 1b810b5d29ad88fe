//! `longhaul agent`: the process that runs jobs on schedules and from watched folders.

mod config;
pub(crate) mod launch;

use std::{
    env,
    ffi::OsString,
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use jiff::Zoned;
use mover::agent::{self, AgentJob, AgentStatus, CallParameters, RunJob, Schedule};
use nix::unistd::geteuid;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
};

use self::config::{Config, JobConfig};
use crate::{
    embedded_gateways::EmbeddedGateways,
    exit,
    filters::now_unix_s,
    moving::{Order, Settings},
    open_files, output,
};

/// Copy files at scheduled times, and when files appear in watched folders
///
/// The agent runs the jobs in a configuration file. It records the name, size and time of each
/// copied file. It therefore copies each file exactly once, even across restarts. A job can run a
/// command once for each copied file.
///
/// On SIGHUP the agent reads the file again, and continues with the new jobs. If the file has a
/// mistake, the agent keeps the old jobs. The agent ends on SIGTERM and SIGINT. At its next start,
/// the agent resumes interrupted transfers.
#[derive(clap::Args)]
#[command(after_help = "\
Example of a file with one job that copies new files every ten minutes:

  [[job]]
  name = \"pull\"
  from = \"ftp://me@ftp.example.com//outgoing\"
  to = \"/srv/incoming\"
  every = \"10 min\"

Examples:
  longhaul agent --check --config jobs.toml
  longhaul agent --config jobs.toml

Exit codes: 0 ended by a signal; 1 the agent's state cannot be used; 2 wrong use or
configuration.")]
pub(crate) struct Args {
    /// Read the jobs from this file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the file, print its jobs, and end
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let file = std::path::absolute(&args.config).unwrap_or_else(|_| args.config.clone());
    let config = Config::load(&args.config).map_err(exit::wrong_use)?;
    // Relative paths in the file begin in the folder of the file.
    if let Some(folder) = file.parent() {
        env::set_current_dir(folder)
            .with_context(|| format!("cannot work in {}", folder.display()))?;
    }
    let warnings = examine(&config)?;
    if args.check {
        for warning in warnings {
            eprintln!("longhaul: {warning}");
        }
        let now = Zoned::now();
        for job in &config.jobs {
            output::print(&format!("{}\n", job.describe(&now)))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    open_files::raise_limit(open_files::MOVERS_MAX);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(work(config, &file))?;
    // Commands that are still running continue without the agent.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// Checks the jobs of a file for invalid values. Returns warnings about valid jobs that may
/// conflict, and about sources on this machine that do not exist.
fn examine(config: &Config) -> anyhow::Result<Vec<String>> {
    let mut sources = Vec::new();
    let mut warnings = Vec::new();
    for job in &config.jobs {
        let settings = Settings::read(&job.order())
            .map_err(|error| exit::misuse(format!("{}: {error:#}", job.at)))?;
        let source = settings.ends().0.pop().unwrap_or_default();
        warnings.extend(missing_source(job, &settings, &source));
        sources.push(source);
    }
    warnings.extend(rivals(&config.jobs, &sources));
    Ok(warnings)
}

/// Returns a warning if the job's source is on this machine and cannot be found.
fn missing_source(job: &JobConfig, settings: &Settings, source: &str) -> Option<String> {
    let error = fs::metadata(settings.local_source()?).err()?;
    Some(match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{}: the job {} copies from {source}, which does not exist: make it, or correct from",
            job.at, job.name
        ),
        _ => format!(
            "{}: the job {} cannot copy from {source}: {error}: permit it to this user, or correct from",
            job.at, job.name
        ),
    })
}

/// Returns a warning for each pair of jobs that share a source folder, if one of the two jobs
/// removes copied files.
fn rivals(jobs: &[JobConfig], sources: &[String]) -> Vec<String> {
    let is_within = |outer: &str, inner: &str| {
        let below = inner.strip_prefix(outer);
        below.is_some_and(|it| it.is_empty() || it.starts_with('/'))
    };
    let mut warnings = Vec::new();
    for (number, (job, source)) in jobs.iter().zip(sources).enumerate() {
        for (other, theirs) in jobs.iter().zip(sources).take(number) {
            let is_shared = is_within(source, theirs) || is_within(theirs, source);
            let remover = [other, job].into_iter().find(|it| it.removes_source);
            if let Some(remover) = remover.filter(|_| is_shared) {
                warnings.push(format!(
                    "{}: the jobs {} and {} both take files from {source}, and {} removes copied files: each file \
                     reaches only one of them, unless their filters differ",
                    job.at, other.name, job.name, remover.name
                ));
            }
        }
    }
    warnings
}

/// Runs the jobs of a file until a signal ends the process. At each SIGHUP, reads the file again
/// and runs its jobs.
async fn work(mut config: Config, file: &Path) -> anyhow::Result<()> {
    let mut hangups = signal(SignalKind::hangup()).context("cannot receive SIGHUP")?;
    let mut interrupted = std::pin::pin!(exit::interrupted());
    loop {
        let mut next = None;
        let until = async {
            tokio::select! {
                () = interrupted.as_mut() => {}
                loaded = reloaded(file, &mut hangups) => next = Some(loaded),
            }
        };
        work_until(config, until).await?;
        match next {
            Some(loaded) => config = loaded,
            None => break,
        }
    }
    tracing::info!("the agent has ended");
    Ok(())
}

/// Waits for a SIGHUP, and returns the new configuration. If the file is invalid, logs the mistake
/// and waits for the next SIGHUP.
async fn reloaded(file: &Path, hangups: &mut Signal) -> Config {
    loop {
        if hangups.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
        let loaded = Config::load(file).and_then(|it| examine(&it).map(|warnings| (it, warnings)));
        match loaded {
            Ok((config, warnings)) => {
                for warning in warnings {
                    tracing::warn!("{warning}");
                }
                tracing::info!(file = %file.display(), "the jobs are read again");
                return config;
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "the jobs stay as they are");
            }
        }
    }
}

/// Runs the jobs of one configuration until `until` resolves.
async fn work_until(config: Config, until: impl Future<Output = ()>) -> anyhow::Result<()> {
    let folder = match config.state {
        Some(folder) => folder,
        None => agent::folder().context("there is no home folder: name one by state in [agent]")?,
    };
    make_private(&folder)
        .with_context(|| format!("the folder {} cannot be used", folder.display()))?;
    let mut gateways = EmbeddedGateways::default();
    let mut jobs = Vec::new();
    for job in config.jobs {
        jobs.push(make(job, &mut gateways)?);
    }
    let ends = jobs.iter();
    let ends = ends.map(|it| [it.name.clone(), it.from.clone(), it.to.clone()]);
    let status = Arc::new(AgentStatus::new(now_unix_s(), ends));
    let mut pages = JoinSet::new();
    if let Some(listen) = config.listen {
        let listener = tokio::net::TcpListener::bind(listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {listen}"))?;
        let served = agent::serve(listener, config.hosts, status.clone());
        pages.spawn(async {
            if let Err(error) = served.await {
                tracing::error!(%error, "the pages of the agent have ended");
            }
        });
    }
    tracing::info!(jobs = jobs.len(), folder = %folder.display(), "the agent runs");
    agent::run(jobs, &folder, status, until).await?;
    pages.shutdown().await;
    gateways.end().await;
    Ok(())
}

/// Creates the folder of the agent's state, readable only for this user. The state contains names
/// of files and queries of URLs.
///
/// An earlier version created a folder that other users can read. The function removes their
/// access.
fn make_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let found = fs::metadata(folder)?;
    if found.uid() == geteuid().as_raw() && found.mode() & 0o077 != 0 {
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn make(config: JobConfig, gateways: &mut EmbeddedGateways) -> anyhow::Result<AgentJob> {
    let order = config.order();
    let mut settings = Settings::read(&order)?;
    let (mut sources, to) = settings.ends();
    let from = sources.pop().expect("a job has one source");
    let listeners = gateways
        .listeners(&mut settings)
        .map_err(|error| exit::misuse(format!("{}: {error:#}", config.at)))?;
    let launcher = ["/proc/self/exe", "launch"].map(OsString::from).to_vec();
    let caller = config.on_file.clone().map(|command| CallParameters {
        command,
        launcher,
        timeout: config.on_file_timeout,
        retries: config.on_file_retries,
    });
    Ok(AgentJob {
        name: config.name.clone(),
        times: config.times.clone(),
        watched: config.times.is_watched.then(|| PathBuf::from(&from)),
        from,
        to,
        caller,
        keep_history: config.keep_history,
        // Each run reads the accounts and the filter rules again, because they may have changed.
        make: Box::new(move || {
            let order = config.order();
            let mut settings = Settings::read(&order).map_err(|it| format!("{it:#}"))?;
            if let Some(listeners) = &listeners {
                settings.access.use_listeners(listeners.clone());
            }
            let mut job = settings.job(&order);
            job.plan.removes_source = config.removes_source;
            job.plan.leaves_partial = !config.takes_partial;
            Ok(RunJob {
                job,
                rate_max: order.common.bwlimit.clone(),
            })
        }),
    })
}

impl JobConfig {
    fn order(&self) -> Order<'_> {
        let orders = self.copy.orders().ok();
        let order = orders.and_then(|mut orders| orders.pop());
        order.expect("the file is read as a command line with a source and a destination")
    }

    /// Describes the job on one line. If a cron expression gives the times of the job, the line
    /// contains the first run after `now`.
    fn describe(&self, now: &Zoned) -> String {
        let Self { name, times, .. } = self;
        let schedule = &times.schedule;
        let mut text = match times.is_watched {
            true => format!("{name}: watches its folder, and runs {schedule}"),
            false => format!("{name}: runs {schedule}"),
        };
        if matches!(schedule, Schedule::Cron(_)) {
            text += &match schedule.after(now) {
                Some(next) if next.second() == 0 => {
                    format!(", next run {}", next.strftime("%Y-%m-%d %H:%M %:z"))
                }
                Some(next) => format!(", next run {}", next.strftime("%Y-%m-%d %H:%M:%S %:z")),
                None => ", no next run: the calendar has no such day".to_owned(),
            };
        }
        if let Some(command) = &self.on_file {
            let program = Path::new(&command[0]).display();
            text += &format!("; calls {program} for each file");
        }
        if self.removes_source {
            text += "; removes copied files from the source";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    /// Returns the description of a job with these keys, at noon of 29 November 2026 in Berlin.
    fn description(keys: &str) -> String {
        let folder = tempfile::tempdir().expect("room");
        let file = folder.path().join("jobs.toml");
        let text = format!("[[job]]\nname = \"nightly\"\nfrom = \"/in\"\nto = \"/out\"\n{keys}");
        fs::write(&file, text).expect("room");
        let config = Config::load(&file).expect("it is right");
        let noon: Timestamp = "2026-11-29T12:00:00+01:00".parse().expect("a time");
        let zone = jiff::tz::TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a rule");
        config.jobs[0].describe(&noon.to_zoned(zone))
    }

    #[test]
    fn a_check_prints_the_next_run_of_a_cron_expression() {
        for (keys, expected) in [
            (
                "cron = \"0 2 * * *\"",
                "nightly: runs cron 0 2 * * *, next run 2026-11-30 02:00 +01:00",
            ),
            (
                "cron = \"0 2 * 6 *\"\non_file = [\"/bin/true\"]",
                "nightly: runs cron 0 2 * 6 *, next run 2027-06-01 02:00 +02:00; calls /bin/true for each file",
            ),
            (
                "cron = \"30 0 2 * * *\"\nwatch = true",
                "nightly: watches its folder, and runs cron 30 0 2 * * *, next run 2026-11-30 02:00:30 +01:00",
            ),
            (
                "cron = \"0 0 30 2 *\"",
                "nightly: runs cron 0 0 30 2 *, no next run: the calendar has no such day",
            ),
            ("every = \"10 min\"", "nightly: runs every 600 s"),
        ] {
            assert_eq!(description(keys), expected);
        }
    }
}
