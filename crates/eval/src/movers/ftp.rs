//! File transfers with the FTP client of this crate, directly to the server or through the
//! gateways.

use std::{
    net::SocketAddr,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, ensure};
use units::ByteCount;

use super::TrialResult;
use crate::{
    cell::{Cell, TrialDirection},
    ftp::client::{self, ClientTransfer},
    stage::{self, Stage, WARM_UP},
};
use bench_kit::content::hash_file;
use emulator::Site;

pub(super) fn plain(stage: &Stage, cell: &Cell, limit: Duration) -> anyhow::Result<TrialResult> {
    transfer_all(stage, cell, stage.server_address, limit)
}

/// Runs one transfer that does not count. The gateways' link measures the path during this
/// transfer.
pub(super) fn warm_up(stage: &Stage, cell: &Cell) -> anyhow::Result<()> {
    let warm_up = ClientTransfer {
        address: stage.front_listener,
        direction: cell.work.direction,
        name: WARM_UP.to_owned(),
        size: stage::warm_up_size(cell),
        limit: WARM_UP_LIMIT,
    };
    let content = stage.content.clone();
    let warm = stage.at(Site::A, move || client::run(&warm_up, &content, |_| ()))?;
    let warm = warm.join().map_err(|_| anyhow!("a client panicked"))?;
    let warm = warm?.with_context(|| format!("warming up; {}", stage.last_words()))?;
    ensure!(
        warm.is_complete,
        "the link is not warm after {} s",
        WARM_UP_LIMIT.as_secs()
    );
    Ok(())
}

pub(super) fn accelerated(
    stage: &Stage,
    cell: &Cell,
    limit: Duration,
) -> anyhow::Result<TrialResult> {
    transfer_all(stage, cell, stage.front_listener, limit).with_context(|| stage.last_words())
}

/// Moves all files of the cell, with the number of clients that the cell states.
fn transfer_all(
    stage: &Stage,
    cell: &Cell,
    address: SocketAddr,
    limit: Duration,
) -> anyhow::Result<TrialResult> {
    let work = cell.work;
    let size = ByteCount::new(work.size_bytes);
    for number in 0..work.files {
        if work.direction == TrialDirection::Up {
            // An earlier trial may have stored a file of this name.
            let _ =
                std::fs::remove_file(stage.server_file(&stage::name(TrialDirection::Up, number)));
        }
    }
    let begun = Instant::now();
    let clients = (0..work.clients).map(|client| {
        let numbers = (0..work.files).filter(move |number| number % work.clients == client);
        let content = stage.content.clone();
        stage.at(Site::A, move || {
            let mut outcomes = Vec::new();
            for number in numbers {
                let transfer = ClientTransfer {
                    address,
                    direction: work.direction,
                    name: stage::name(work.direction, number),
                    size,
                    limit: limit.saturating_sub(begun.elapsed()),
                };
                let outcome = client::run(&transfer, &content, |_| ())?;
                outcomes.push((number, outcome));
                if !outcome.is_complete {
                    break;
                }
            }
            anyhow::Ok(outcomes)
        })
    });
    let clients: Vec<_> = clients.collect::<Result<_, _>>()?;
    // The function returns the first error only after all clients have ended. A client that still
    // ran would disturb the next trial.
    let joined: Vec<_> = clients.into_iter().map(JoinHandle::join).collect();
    let mut outcomes = Vec::new();
    for of_client in joined {
        outcomes.extend(of_client.map_err(|_| anyhow!("a client panicked"))???);
    }
    // For a single transfer, the time is the client's own measurement, which excludes the login.
    let time = match (&outcomes[..], work.files) {
        ([(_, only)], 1) => only.elapsed,
        _ => begun.elapsed(),
    };
    let is_complete = outcomes.len() == work.files as usize
        && outcomes.iter().all(|(_, outcome)| outcome.is_complete);
    let mut bytes = 0;
    let expected = stage.content.hash(size);
    for (number, outcome) in outcomes {
        let uploaded = stage.server_file(&stage::name(TrialDirection::Up, number));
        // An incomplete upload is measured by the size of the server's file. Bytes in the client's
        // kernel have not arrived.
        bytes += match (work.direction, outcome.is_complete) {
            (TrialDirection::Up, false) => uploaded.metadata().map_or(0, |file| file.len()),
            _ => outcome.bytes.bytes(),
        };
        if outcome.is_complete {
            let hash = match work.direction {
                TrialDirection::Down => outcome.hash,
                TrialDirection::Up => hash_file(&uploaded)?,
            };
            ensure!(hash == expected, "file {number}: the hashes differ");
        }
    }
    Ok(TrialResult {
        bytes,
        time,
        is_complete,
        ..TrialResult::default()
    })
}

/// Time limit of the warm-up. It far exceeds the time for four bandwidth-delay products on any path
/// of a plan.
const WARM_UP_LIMIT: Duration = Duration::from_secs(60);
