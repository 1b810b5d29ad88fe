//! The two kinds of work that measure waiting times instead of goodput: FTP sessions and short
//! transactions.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use units::ByteCount;

use super::{TrialFailure, TrialResult};
use crate::{cell::Cell, record::UserExperience, side::Side, stage::Stage};
use emulator::Site;
use probe::{
    Arrivals, FailureKind,
    ftp::{self, FtpProbe, SessionRecord},
    transaction::{self, Transaction, TransactionProbe, TransactionRequest},
};

/// Runs the script of 35 commands with concurrent users, and measures their waiting times.
pub(super) fn sessions(
    side: Side,
    stage: &Stage,
    cell: &Cell,
) -> Result<TrialResult, TrialFailure> {
    let server = route(side, stage.server_address, stage.front_listener)?;
    let mut probe = FtpProbe::new(server);
    probe.file_size = ByteCount::new(cell.work.size_bytes);
    probe.timeout = TIMEOUT;
    probe.arrivals = arrivals(cell, SESSIONS_PER_S);
    let (sessions, time) = at_client(stage, move || ftp::run(&probe, |_| ()))?;
    let summary = ftp::SessionSummary::of(sessions.iter());
    let each = |of: fn(&SessionRecord) -> Vec<f64>| sessions.iter().flat_map(of).collect();
    let answers = UserExperience {
        seconds: BTreeMap::from([
            (
                "commands".to_owned(),
                each(|session| session.response_seconds().collect()),
            ),
            (
                "transfers".to_owned(),
                each(|session| session.transfer_seconds().collect()),
            ),
            (
                "sessions".to_owned(),
                each(|session| {
                    Vec::from_iter(session.failure.is_none().then(|| session.seconds()))
                }),
            ),
        ]),
        complete: counts([
            (
                "commands",
                summary.commands_complete,
                summary.commands_planned,
            ),
            (
                "transfers",
                summary.transfers_complete,
                summary.transfers_planned,
            ),
            ("sessions", summary.sessions_complete, summary.sessions),
        ]),
        failures: kinds(&summary.failures),
    };
    Ok(answered(answers, time))
}

/// Runs users who each send a short request over a new connection, and measures their waiting
/// times.
pub(super) fn transactions(
    side: Side,
    stage: &Stage,
    cell: &Cell,
) -> Result<TrialResult, TrialFailure> {
    let server = route(side, stage.peer_address, stage.peer_listener)?;
    let mut probe = TransactionProbe::new(server);
    probe.request = TransactionRequest::Peer {
        answer_bytes: cell.work.size_bytes,
    };
    probe.timeout = TIMEOUT;
    probe.arrivals = arrivals(cell, TRANSACTIONS_PER_S);
    let (transactions, time) = at_client(stage, move || transaction::run(&probe, |_| ()))?;
    let summary = transaction::TransactionSummary::of(transactions.iter());
    let each = |of: fn(&Transaction) -> Option<f64>| transactions.iter().filter_map(of).collect();
    let answers = UserExperience {
        seconds: BTreeMap::from([
            ("connections".to_owned(), each(Transaction::setup_seconds)),
            ("transactions".to_owned(), each(Transaction::total_seconds)),
        ]),
        complete: counts([("transactions", summary.complete, summary.tried)]),
        failures: kinds(&summary.failures),
    };
    Ok(answered(answers, time))
}

fn route(side: Side, direct: SocketAddr, listener: SocketAddr) -> Result<SocketAddr, TrialFailure> {
    match side {
        Side::FtpCubic | Side::FtpBbr => Ok(direct),
        Side::Longhaul => Ok(listener),
        _ => Err(TrialFailure::NotTried("it moves files only".to_owned())),
    }
}

fn arrivals(cell: &Cell, rate_per_s: f64) -> Arrivals {
    Arrivals {
        count: u64::from(cell.work.files),
        rate_per_s: Some(rate_per_s),
        at_once: cell.work.files as usize,
        ..Arrivals::default()
    }
}

/// Runs a probe at site A.
fn at_client<T: Send + 'static, E: std::error::Error + Send + Sync + 'static>(
    stage: &Stage,
    probe: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> anyhow::Result<(T, Duration)> {
    let begun = Instant::now();
    let thread = stage.at(Site::A, probe)?;
    let tried = thread.join().map_err(|_| anyhow!("a probe panicked"))?;
    let tried = tried.context("entering a site")?.context("the probe")?;
    Ok((tried, begun.elapsed()))
}

fn counts<const N: usize>(all: [(&str, usize, usize); N]) -> BTreeMap<String, [u64; 2]> {
    let all = all.map(|(what, complete, of)| (what.to_owned(), [complete as u64, of as u64]));
    BTreeMap::from(all)
}

fn kinds(failures: &BTreeMap<FailureKind, usize>) -> BTreeMap<String, u64> {
    let all = failures.iter();
    all.map(|(kind, count)| (kind.to_string(), *count as u64))
        .collect()
}

fn answered(answers: UserExperience, time: Duration) -> TrialResult {
    TrialResult {
        bytes: 0,
        time,
        is_complete: true,
        answers: Some(answers),
    }
}

const TIMEOUT: Duration = Duration::from_secs(30);
const SESSIONS_PER_S: f64 = 5.0;
const TRANSACTIONS_PER_S: f64 = 20.0;
