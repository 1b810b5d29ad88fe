//! `longhaul jobs`: jobs that several machines share. The machines communicate over NATS JetStream.

mod pool_args;
mod show;
mod submit;
mod worker;

use std::process::ExitCode;

use anyhow::Context as _;
use fleet::{
    message::{Message, is_name},
    queue::{PoolQueue, random_name},
    record::{JobRecord, JobState},
};
use gatewayd::config::LogLevel;

use self::pool_args::PoolArgs;
use crate::{exit, filters::now_unix_s, logging, open_files, output};

/// Share the files of a job among several machines
///
/// Jobs wait in a queue of NATS JetStream. Workers on any number of machines process the jobs. One
/// worker lists the source, and all workers move the files in batches. No work is lost if a worker
/// is killed or the NATS server fails. If a batch fails at every attempt, `longhaul jobs ls` lists
/// the batch with the reason until the batch is retried.
///
/// The queue contains no passwords of FTP servers. Each worker reads passwords from the same
/// sources as longhaul copy.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul jobs worker --nats nats://nats.example
  longhaul jobs submit --nats nats://nats.example ftp://a.example//takes ftp://b.example//takes
  longhaul jobs ls --nats nats://nats.example
  longhaul jobs retry --nats nats://nats.example 5c1f09a3d2

The URL of the NATS server comes from --nats, or from the environment variable LONGHAUL_NATS. The
password for NATS comes from --nats-password-file, or from the environment variable
LONGHAUL_NATS_PASSWORD.

Exit codes: 0 done; 1 the queue cannot be used, or the job does not exist; 2 wrong use.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Submit(submit::Args),
    Ls(show::ListArgs),
    Show(show::ShowArgs),
    Retry(RetryArgs),
    Cancel(CancelArgs),
    Worker(worker::Args),
}

/// Retry the failed batches of jobs, or retry cancelled jobs
#[derive(clap::Args)]
struct RetryArgs {
    /// Names of the jobs
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,
    #[command(flatten)]
    pool: PoolArgs,
}

/// Cancel jobs; running transfers end within some seconds
#[derive(clap::Args)]
struct CancelArgs {
    /// Names of the jobs
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,
    #[command(flatten)]
    pool: PoolArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // A worker reports its progress in the log. All other subcommands log only errors.
    if !matches!(args.command, Command::Worker(_)) {
        logging::follow(LogLevel::Error);
    }
    open_files::raise_limit(open_files::MOVERS_MAX);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let done = runtime.block_on(async {
        match &args.command {
            Command::Submit(args) => submit::run(args).await,
            Command::Ls(args) => show::list(args).await,
            Command::Show(args) => show::show(args).await,
            Command::Retry(args) => retry(args).await,
            Command::Cancel(args) => cancel(args).await,
            Command::Worker(args) => worker::run(args).await,
        }
    });
    runtime.shutdown_background();
    done.map(|()| ExitCode::SUCCESS)
}

async fn retry(args: &RetryArgs) -> anyhow::Result<()> {
    check_names(&args.jobs)?;
    let queue = args.pool.open().await?;
    for job in &args.jobs {
        let again = retry_one(&queue, job).await?;
        output::print(&format!("{job}: {again}\n"))?;
    }
    Ok(())
}

/// Puts the failed batches of a job back into the queue. Orders a new listing instead if the
/// listing has failed, the job was cancelled, or its work was lost. Returns a text about the
/// result.
async fn retry_one(queue: &PoolQueue, job: &str) -> anyhow::Result<String> {
    let record = known(queue.record(job).await?, job)?;
    let letters = queue.dead_letters(Some(job)).await?;
    let order = record.order();
    let mut messages = Vec::new();
    for (_, letter) in &letters {
        let key = letter.key.as_deref().unwrap_or_default();
        // The subject of a message shows its kind, but a dead letter contains no subject. The key
        // therefore determines the kind.
        let kind = if key == order.key() { "order" } else { "batch" };
        let read = Message::read(kind, letter.payload.as_bytes());
        let message = read.context("a dead letter cannot be read")?;
        let is_given_up = match &message {
            Message::Order(_) => true,
            Message::Batch(batch) => record.has_given_up(batch),
        };
        messages.extend(is_given_up.then_some(message));
    }
    let is_stuck = match record.state() {
        JobState::Done => false,
        JobState::Cancelled => true,
        // Some work may be missing without a dead letter, for example after the loss of a disk.
        _ => messages.is_empty() && queue.waiting(job).await? == 0,
    };
    if is_stuck || messages.contains(&order) {
        // The listing finds all missing files again.
        messages = vec![order];
    }
    if record.state() == JobState::Done {
        messages.clear();
    }
    for message in &messages {
        queue.forget_attempts(&message.key()).await?;
        queue.change(job, |it| it.retry(message)).await?;
        let id = format!("again-{}", random_name());
        queue.put(message, &id).await?;
    }
    // The letters are removed last. Work that is queued twice does no harm, but lost work does.
    for (number, _) in &letters {
        queue.remove_dead_letter(*number).await?;
    }
    Ok(match &messages[..] {
        [] => "no batch had failed".to_owned(),
        [Message::Order(_)] => "its source is listed again".to_owned(),
        [_] => "1 batch is tried again".to_owned(),
        all => format!("{} batches are tried again", all.len()),
    })
}

async fn cancel(args: &CancelArgs) -> anyhow::Result<()> {
    check_names(&args.jobs)?;
    let queue = args.pool.open().await?;
    for job in &args.jobs {
        let now = now_unix_s();
        let changed = queue
            .change(job, |it| {
                it.is_cancelled = !matches!(it.state(), JobState::Done);
                it.ended_unix_s = it.ended_unix_s.or(Some(now));
            })
            .await?;
        let record = known(changed, job)?;
        anyhow::ensure!(record.is_cancelled, "{job} is done already");
        queue.drop_waiting(job).await?;
        for (number, _) in queue.dead_letters(Some(job)).await? {
            queue.remove_dead_letter(number).await?;
        }
        output::print(&format!("{job}: cancelled\n"))?;
    }
    Ok(())
}

fn known(record: Option<JobRecord>, job: &str) -> anyhow::Result<JobRecord> {
    record.with_context(|| format!("there is no job {job}: longhaul jobs ls shows the jobs"))
}

/// Checks the names of jobs before the first request to the NATS server.
fn check_names(jobs: &[String]) -> anyhow::Result<()> {
    for job in jobs {
        exit::ensure(
            is_name(job),
            &format!("{job:?} is no name of a job: longhaul jobs ls shows the names"),
        )?;
    }
    Ok(())
}
