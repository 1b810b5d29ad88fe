//! `longhaul copy - DST`: the copy of standard input to a file.
#![allow(clippy::disallowed_methods, reason = "measures how long a copy takes")]

use std::{os::fd::AsFd as _, process::ExitCode, time::Instant};

use anyhow::Context as _;
use gatewayd::config::LogLevel;
use mover::run::{JobProgress, pour};
use serde::Serialize;
use units::{BitRate, ByteCount};

use super::{
    Order, Settings,
    settings::{ask_for_ssh, ask_passwords},
};
use crate::{connection_args::start_near, exit, logging, output};

/// JSON output of the result.
#[derive(Serialize)]
struct PourResult<'a> {
    event: &'static str,
    path: &'a str,
    moved: u64,
    failed: u64,
    bytes: u64,
    elapsed_s: f64,
}

/// Copies standard input to a file at the destination. Returns the exit code.
pub(crate) fn pour_stdin(orders: &[Order<'_>]) -> anyhow::Result<ExitCode> {
    let [order] = orders else {
        return Err(exit::misuse(
            "standard input can be read once: name one destination",
        ));
    };
    let writing = order.writing.expect("a copy writes");
    let has_other = writing.dry_run || writing.on_file.is_some();
    exit::ensure(
        !has_other,
        "standard input is not a file, so --dry-run and --on-file do not apply",
    )?;
    let mut settings = Settings::read_all(orders)?;
    ask_passwords(&mut settings)?;
    logging::follow(LogLevel::Error);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let settings = settings.pop().expect("an order has settings");
    let poured = runtime.block_on(work(order, settings));
    // The program does not wait for standard input or for a name resolution.
    runtime.shutdown_background();
    poured.map(|()| ExitCode::SUCCESS)
}

async fn work(order: &Order<'_>, mut settings: Settings) -> anyhow::Result<()> {
    let scheme = settings.scheme();
    let near = start_near(&mut [&mut settings.access], scheme)?;
    ask_for_ssh(std::slice::from_mut(&mut settings)).await?;
    let (destination, to) = (settings.locations().1.path(), settings.ends().1);
    let has_name = !destination.is_empty() && !destination.ends_with(b"/");
    exit::ensure(
        has_name,
        "standard input has no name: name the file at the destination",
    )?;
    let job = settings.job(order);
    let progress = JobProgress::new(order.common.bwlimit.clone());
    let begun = Instant::now();
    let (site, moving) = (&job.destination, &job.moving);
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    let input = input.context("cannot read standard input")?;
    let input = tokio::fs::File::from_std(std::fs::File::from(input));
    let poured = pour(
        site,
        &destination,
        moving,
        &progress,
        input,
        exit::interrupted(),
    )
    .await;
    if let Some(near) = near {
        near.end().await;
    }
    let (bytes, elapsed) = (poured.context(to.clone())?, begun.elapsed());
    if order.common.json {
        return output::print(&output::json(&PourResult {
            event: "result",
            path: &to,
            moved: 1,
            failed: 0,
            bytes,
            elapsed_s: elapsed.as_secs_f64(),
        }));
    }
    if output::is_quiet() {
        return Ok(());
    }
    let bytes = ByteCount::new(bytes);
    let (rate, elapsed_s) = (
        BitRate::from_transfer(bytes, elapsed),
        elapsed.as_secs_f64(),
    );
    output::print(&format!(
        "{to}: {} copied in {elapsed_s:.1} s, {rate}\n",
        bytes.measured()
    ))
}
