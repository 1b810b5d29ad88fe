//! `longhaul probe compare`: alternating measurements of two routes to one server.

use std::{fs, path::PathBuf};

use anyhow::Context;
use bench_kit::machine;
use probe::{
    compare::Comparison,
    ftp::{self, FtpProbe},
    transaction::{self, TransactionProbe},
};

use crate::laboratory::drawn_file;

use super::{
    Verdict,
    ftp::SessionArgs,
    options::{ArrivalArgs, Output},
    transaction::ExchangeArgs,
};

/// Compare two paths to a server: the direct path, and the path through gateways
///
/// The attempts alternate between the two paths.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    /// Compare FTP sessions
    #[command(after_help = EXAMPLES)]
    Ftp(Box<Ftp>),
    /// Compare short transactions
    #[command(after_help = EXAMPLES)]
    Transaction(Box<Transaction>),
}

#[derive(clap::Args)]
struct Ftp {
    #[command(flatten)]
    routes: RouteArgs,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    arrive: ArrivalArgs,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
struct Transaction {
    #[command(flatten)]
    routes: RouteArgs,
    #[command(flatten)]
    exchange: ExchangeArgs,
    #[command(flatten)]
    arrive: ArrivalArgs,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
struct RouteArgs {
    /// Address of the server, for the direct path
    #[arg(long, value_name = "HOST:PORT")]
    direct: String,
    /// Address of the gateway's listener that leads to the server
    #[arg(long, value_name = "HOST:PORT")]
    through: String,
    /// Write a page with tables and plots to this file
    #[arg(long, value_name = "FILE.html", value_parser = drawn_file)]
    page: Option<PathBuf>,
    /// Title of the page
    #[arg(
        long,
        default_value = "Directly and through the gateways",
        value_name = "TEXT"
    )]
    title: String,
    /// Add this sentence about the path to the page; may be given several times
    #[arg(long, value_name = "TEXT")]
    note: Vec<String>,
}

const EXAMPLES: &str = "\
--count is the number of attempts on each path. --arrivals is the rate of attempts on both paths
together.

Examples:
  longhaul probe compare ftp --direct 10.77.0.2:21 --through 127.0.0.1:2121 --folder files \\
      -n 1250 --arrivals 8 --out sessions.jsonl --page sessions.html
  longhaul probe compare transaction --direct 10.77.0.2:4811 --through 127.0.0.1:4811 -n 1000

Exit codes: 0 all attempts succeeded on both paths; 1 some attempts failed; 2 wrong use.";

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    match &args.subcommand {
        Subcommand::Ftp(args) => compare_ftp(args),
        Subcommand::Transaction(args) => compare_transactions(args),
    }
}

fn compare_ftp(args: &Ftp) -> anyhow::Result<Verdict> {
    let before = machine::describe();
    let direct = args.session.probe(&args.routes.direct, &args.arrive)?;
    let through = FtpProbe {
        label: THROUGH.to_owned(),
        ..args.session.probe(&args.routes.through, &args.arrive)?
    };
    let mut sink = args.output.sink(2 * args.arrive.count)?;
    let sessions = ftp::run_by_turns(&[&direct, &through], |session| {
        sink.add(session, session.failure.is_none());
    })?;
    sink.finish()?;
    let comparison = Comparison::of_ftp(&args.routes.title, &LABELS, &sessions);
    conclude(&args.routes, &args.output, &comparison, before)
}

fn compare_transactions(args: &Transaction) -> anyhow::Result<Verdict> {
    let before = machine::describe();
    let direct = args.exchange.probe(&args.routes.direct, &args.arrive)?;
    let through = TransactionProbe {
        label: THROUGH.to_owned(),
        ..args.exchange.probe(&args.routes.through, &args.arrive)?
    };
    let mut sink = args.output.sink(2 * args.arrive.count)?;
    let all = transaction::run_by_turns(&[&direct, &through], |one| {
        sink.add(one, one.failure.is_none());
    })?;
    sink.finish()?;
    let comparison = Comparison::of_transactions(&args.routes.title, &LABELS, &all);
    conclude(&args.routes, &args.output, &comparison, before)
}

fn conclude(
    routes: &RouteArgs,
    output: &Output,
    comparison: &Comparison,
    machine: String,
) -> anyhow::Result<Verdict> {
    if let Some(path) = &routes.page {
        let mut conditions = routes.note.clone();
        conditions.push(format!("The machine: {machine}."));
        conditions.push(format!("longhaul {}.", env!("LONGHAUL_VERSION")));
        let html = comparison.html(&conditions);
        fs::write(path, html).with_context(|| path.display().to_string())?;
    }
    output.conclude(&comparison.table.text(), &comparison.plots)?;
    Ok(Verdict::of(comparison.misses.is_empty()))
}

const THROUGH: &str = "through";
const LABELS: [&str; 2] = ["direct", THROUGH];
