//! `longhaul agent`: jobs on schedules, and watched folders.

mod config;
pub(crate) mod launch;

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use mover::agent::{self, AgentJob, Caller, Making, Status};

use self::config::{Config, JobConfig};
use crate::{
    exit,
    filters::now_unix_s,
    moving::{Order, Settings},
    nears::Nears,
    open_files, output,
};

/// Copy files on schedules, and when they come into watched folders
///
/// The agent runs the jobs of a file. It remembers which files it has taken, by name, size and time, so
/// that it takes none twice and misses none, however often it is ended and started. It calls a command for
/// each file that it has moved, once.
///
/// The agent ends on SIGTERM and SIGINT. Transfers under way are gone on with when it starts again.
#[derive(clap::Args)]
#[command(after_help = "\
A file with one job, which pulls what is new every ten minutes:

  [[job]]
  name = \"pull\"
  from = \"ftp://me@ftp.example.com//outgoing\"
  to = \"/srv/incoming\"
  every = \"10 min\"

Examples:
  longhaul agent --check --config jobs.toml
  longhaul agent --config jobs.toml

Exit codes: 0 ended by a signal; 1 what the agent remembers cannot be used; 2 wrong use or
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
    let config = Config::load(&args.config).map_err(exit::wrong_use)?;
    // Paths in the file begin where the file is.
    if let Some(folder) = args.config.parent().filter(|it| !it.as_os_str().is_empty()) {
        env::set_current_dir(folder)
            .with_context(|| format!("cannot work in {}", folder.display()))?;
    }
    for job in &config.jobs {
        Settings::read(&job.order())
            .map_err(|error| exit::misuse(format!("{}: {error:#}", job.at)))?;
    }
    if args.check {
        for job in &config.jobs {
            output::print(&format!("{job}\n"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    open_files::raise_limit(open_files::MOVERS_MAX);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(work(config))?;
    // Commands that still run go on by themselves.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

async fn work(config: Config) -> anyhow::Result<()> {
    let folder = match config.state {
        Some(folder) => folder,
        None => agent::folder().context("there is no home folder: name one by state in [agent]")?,
    };
    let mut nears = Nears::default();
    let mut jobs = Vec::new();
    for job in config.jobs {
        jobs.push(make(job, &mut nears)?);
    }
    let ends = jobs.iter();
    let ends = ends.map(|it| [it.name.clone(), it.from.clone(), it.to.clone()]);
    let status = Arc::new(Status::new(now_unix_s(), ends));
    if let Some(listen) = config.listen {
        let listener = tokio::net::TcpListener::bind(listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {listen}"))?;
        let served = agent::serve(listener, config.hosts, status.clone());
        tokio::spawn(async {
            if let Err(error) = served.await {
                tracing::error!(%error, "the pages of the agent have ended");
            }
        });
    }
    tracing::info!(jobs = jobs.len(), folder = %folder.display(), "the agent runs");
    agent::run(jobs, &folder, status, exit::interrupted()).await?;
    nears.end().await;
    tracing::info!("the agent has ended");
    Ok(())
}

fn make(config: JobConfig, nears: &mut Nears) -> anyhow::Result<AgentJob> {
    let order = config.order();
    let mut settings = Settings::read(&order)?;
    let (mut sources, to) = settings.ends();
    let from = sources.pop().expect("a job has one source");
    let door = nears
        .door(&mut settings)
        .map_err(|error| exit::misuse(format!("{}: {error:#}", config.at)))?;
    let launcher = ["/proc/self/exe", "launch"].map(OsString::from).to_vec();
    let caller = config.on_file.clone().map(|command| Caller {
        command,
        launcher,
        timeout: config.on_file_timeout,
    });
    Ok(AgentJob {
        name: config.name.clone(),
        times: config.times.clone(),
        watched: config.times.is_watched.then(|| PathBuf::from(&from)),
        from,
        to,
        caller,
        keep_history: config.keep_history,
        // Accounts and rules of filters may have changed since the last run.
        make: Box::new(move || {
            let order = config.order();
            let mut settings = Settings::read(&order).map_err(|it| format!("{it:#}"))?;
            if let Some(door) = &door {
                settings.access.go_through(door.clone());
            }
            let mut job = settings.job(&order);
            job.plan.removes_source = config.removes_source;
            job.plan.leaves_partial = !config.takes_partial;
            Ok(Making {
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
}

impl std::fmt::Display for JobConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, times, .. } = self;
        write!(f, "{name}: ")?;
        if times.is_watched {
            write!(f, "watches its folder, and ")?;
        }
        write!(f, "runs {}", times.schedule)?;
        if let Some(command) = &self.on_file {
            let program = Path::new(&command[0]).display();
            write!(f, "; calls {program} for each file")?;
        }
        if self.removes_source {
            write!(f, "; removes what it has taken")?;
        }
        Ok(())
    }
}
