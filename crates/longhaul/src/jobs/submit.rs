//! `longhaul jobs submit`: puts a job into the queue for the workers.

use std::ffi::OsString;

use clap::Parser as _;
use fleet::{message::EncodedBytes, queue::random_name, record::JobRecord};
use serde::Serialize;

use super::pool_args::{PoolArgs, ReplicaArgs};
use crate::{copy::Line, exit, filters::now_unix_s, moving::Settings, output};

/// Add a job to the queue, and print the name of the job
///
/// ARGS are arguments of longhaul copy: flags, sources, and one destination. The flags of this
/// command must come before ARGS. A local path must exist on the machine of each worker, for
/// example on a mounted file system.
#[derive(clap::Args)]
#[command(
    override_usage = "longhaul jobs submit [OPTIONS] [FLAGS OF COPY] SRC... DST",
    after_help = "\
Examples:
  longhaul jobs submit ftp://a.example//takes ftpes://b.example//takes
  longhaul jobs submit --pool oslo --transfers 2 --include '*.mxf' /mnt/card ftp://me@b.example/day1"
)]
pub(super) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Arguments of longhaul copy: flags, sources, and one destination
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

#[derive(Serialize)]
struct SubmitResult<'a> {
    job: &'a str,
}

pub(super) async fn run(args: &Args) -> anyhow::Result<()> {
    let line = read(&args.args)?;
    let mut orders = line.copy.orders()?;
    exit::ensure(
        orders.len() == 1,
        "a job of a fleet has one destination: submit a job for each",
    )?;
    let order = orders.pop().expect("there is one");
    order.check_for_workers()?;
    let (from, to) = Settings::read(&order)?.ends();
    let words: Vec<EncodedBytes> = args
        .args
        .iter()
        .map(|it| EncodedBytes::from_os(it))
        .collect();
    let words_bytes: usize = words.iter().map(|it| it.encoded().len()).sum();
    exit::ensure(
        words_bytes <= WORDS_BYTES_MAX,
        "the command line is too long for a job: name a directory, and select its files by --include",
    )?;
    let from = match &from[..] {
        [one] => one.clone(),
        [first, more @ ..] => format!("{first} and {} more", more.len()),
        [] => String::new(),
    };
    let queue = args.pool.open_or_make(args.replicas).await?;
    let record = JobRecord::new(random_name(), words, from, to, now_unix_s());
    queue.create(&record).await?;
    queue.put(&record.order(), "1").await?;
    let job = &record.job;
    match args.json {
        true => output::print(&output::json(&SubmitResult { job })),
        false => output::print(&format!("{job}\n")),
    }
}

/// Maximum length of a job's command line in bytes. The record of a job contains the command line,
/// and workers rewrite the record for each batch.
const WORDS_BYTES_MAX: usize = 64 * 1024;

/// Parses the arguments in the same way as `longhaul copy`.
pub(super) fn read(words: &[OsString]) -> anyhow::Result<Line> {
    Line::try_parse_from(words).map_err(|error| {
        let said = error.to_string();
        let first = said.lines().next().unwrap_or_default();
        exit::misuse(first.trim_start_matches("error: "))
    })
}
