//! `longhaul jobs ls` and `longhaul jobs show`: the progress and the dead letters of jobs.

use fleet::{
    dead_letter::DeadLetter,
    queue::Claim,
    record::{FileCounts, JobRecord, JobState},
};
use serde::Serialize;
use units::ByteCount;

use super::{check_names, known, pool_args::PoolArgs};
use crate::output;

/// List jobs, and work that failed at every attempt (dead letters)
#[derive(clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// Print a line of JSON for each job, and a line for each dead letter
    #[arg(long)]
    json: bool,
}

/// Show one job: its files, its workers, and its work that failed at every attempt (dead letters)
#[derive(clap::Args)]
pub(super) struct ShowArgs {
    /// Name of the job
    job: String,
    #[command(flatten)]
    pool: PoolArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// JSON output about one job.
#[derive(Serialize)]
struct Job<'a> {
    job: &'a str,
    state: JobState,
    from: &'a str,
    to: &'a str,
    submitted_unix_s: i64,
    ended_unix_s: Option<i64>,
    #[serde(flatten)]
    counts: FileCounts,
    batches: Option<u32>,
    batches_done: u64,
    batches_given_up: u64,
    listing_failure: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line<'a> {
    Job(Job<'a>),
    DeadLetter(&'a DeadLetter),
}

#[derive(Serialize)]
struct JobDetails<'a> {
    #[serde(flatten)]
    job: Job<'a>,
    claims: Vec<WorkClaim<'a>>,
    dead_letters: Vec<&'a DeadLetter>,
}

#[derive(Serialize)]
struct WorkClaim<'a> {
    work: &'a str,
    #[serde(flatten)]
    claim: &'a Claim,
}

impl<'a> Job<'a> {
    fn of(record: &'a JobRecord) -> Self {
        Self {
            job: &record.job,
            state: record.state(),
            from: &record.from,
            to: &record.to,
            submitted_unix_s: record.submitted_unix_s,
            ended_unix_s: record.ended_unix_s,
            counts: record.counts,
            batches: record.batches,
            batches_done: record.done.len(),
            batches_given_up: record.dead.len(),
            listing_failure: record.listing_failure.as_deref(),
        }
    }
}

pub(super) async fn list(args: &ListArgs) -> anyhow::Result<()> {
    let queue = args.pool.open().await?;
    let (records, unreadable) = queue.records().await?;
    let letters = queue.dead_letters(None).await?;
    if args.json {
        for record in &records {
            output::print(&output::json(&Line::Job(Job::of(record))))?;
        }
        for (_, letter) in &letters {
            output::print(&output::json(&Line::DeadLetter(letter)))?;
        }
        return Ok(());
    }
    let mut text = String::new();
    for record in &records {
        text += &format!("{}\n", line(record));
    }
    for job in &unreadable {
        text += &format!("{job}  cannot be read: another version has written it\n");
    }
    if !letters.is_empty() {
        text += "\nGiven up:\n";
    }
    for (_, letter) in letters.iter().rev().take(LETTERS_SHOWN_MAX) {
        text += &format!("{}\n", described(letter));
    }
    if letters.len() > LETTERS_SHOWN_MAX {
        let more = letters.len() - LETTERS_SHOWN_MAX;
        text += &format!("and {more} more: longhaul jobs show JOB, or --json\n");
    }
    output::print(&text)
}

pub(super) async fn show(args: &ShowArgs) -> anyhow::Result<()> {
    check_names(std::slice::from_ref(&args.job))?;
    let queue = args.pool.open().await?;
    let record = known(queue.record(&args.job).await?, &args.job)?;
    let is_over = matches!(
        record.state(),
        JobState::Done | JobState::Failed | JobState::Cancelled
    );
    let claims = match is_over {
        // If a finished job has claims, they belong to lost workers and are not shown.
        true => Vec::new(),
        false => queue.claims(&args.job).await?,
    };
    let letters = queue.dead_letters(Some(&args.job)).await?;
    if args.json {
        let claims = claims.iter().map(|(work, claim)| WorkClaim { work, claim });
        return output::print(&output::json(&JobDetails {
            job: Job::of(&record),
            claims: claims.collect(),
            dead_letters: letters.iter().map(|(_, letter)| letter).collect(),
        }));
    }
    let mut text = format!("{}\n", line(&record));
    text += &format!("submitted {}", time(record.submitted_unix_s));
    if let Some(ended) = record.ended_unix_s {
        text += &format!(", ended {}", time(ended));
    }
    let counts = record.counts;
    text += &format!(
        "\n{} copied, {}; {} there already, {} left out\n",
        files(&record),
        ByteCount::new(counts.bytes).measured(),
        counts.same,
        counts.left_out,
    );
    if let Some(batches) = record.batches {
        let (done, dead) = (record.done.len(), record.dead.len());
        text += &format!("{done} of {batches} batches done, {dead} failed\n");
    }
    for (work, claim) in &claims {
        let since = time(claim.since_unix_s);
        let (worker, attempt) = (&claim.worker, claim.attempt);
        text += &match claim.is_held {
            true => format!("{work}: {worker} works on it since {since}, attempt {attempt}"),
            false => format!("{work}: waits after attempt {attempt} of {worker}"),
        };
        if let Some(failure) = &claim.last_failure {
            text += &format!("; before: {failure}");
        }
        text += "\n";
    }
    for (_, letter) in &letters {
        text += &format!("failed: {}\n", described(letter));
    }
    output::print(&text)
}

/// Returns one line of text about a job.
fn line(record: &JobRecord) -> String {
    let state = match record.state() {
        JobState::Queued => "queued",
        JobState::Listing => "listing",
        JobState::Running => "running",
        JobState::Done => "done",
        JobState::Failed => "failed",
        JobState::Cancelled => "cancelled",
    };
    let bytes = ByteCount::new(record.counts.bytes).measured();
    format!(
        "{}  {state:9}  {}, {bytes}  {} -> {}",
        record.job,
        files(record),
        record.from,
        record.to,
    )
}

/// Returns the number of moved files as text. The text also contains the number of all files, if
/// that number is known.
fn files(record: &JobRecord) -> String {
    let FileCounts { wanted, moved, .. } = record.counts;
    match record.batches {
        Some(_) => format!("{moved} of {}", output::counted(wanted, "file")),
        None => output::counted(moved, "file"),
    }
}

fn described(letter: &DeadLetter) -> String {
    let what = letter.key.as_deref().unwrap_or("a message");
    let at = time(letter.given_up_unix_s);
    let mut text = format!("{what}: {}", letter.reason);
    if letter.attempts > 0 {
        text += &format!("; {}", output::counted(letter.attempts.into(), "attempt"));
    }
    text + &format!(", at last by {} at {at}", letter.worker)
}

fn time(unix_s: i64) -> String {
    relay::time::utc(u64::try_from(unix_s).unwrap_or_default())
}

const LETTERS_SHOWN_MAX: usize = 20;
