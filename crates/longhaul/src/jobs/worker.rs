//! `longhaul jobs worker`: a process that takes work from the queue and moves files.

use std::{
    ffi::OsString,
    sync::{Mutex, PoisonError},
};

use fleet::worker::Worker;
use mover::{job::Job, limit::RateLimit};

use super::{
    pool_args::{PoolArgs, ReplicaArgs, process_name},
    submit::read,
};
use crate::{embedded_gateways::EmbeddedGateways, exit, moving::Settings};

/// Move files of the jobs in the queue, until SIGTERM or SIGINT
///
/// After the signal, other workers complete the unfinished work of this worker. In each slot, the
/// worker opens as many connections as --transfers of the job permits, four by default.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
    /// Move this number of batches of files in parallel
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    slots: u16,
    /// Stop retrying a batch or a listing after this number of attempts; eight attempts take at
    /// least ten minutes
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    attempts: u32,
    /// Limit the total rate of all slots: a rate such as 10M, or a timetable such as '08:00,10M
    /// 18:30,off' [default: no limit]
    #[arg(long, value_name = "RATE|TIMETABLE")]
    bwlimit: Option<RateLimit>,
    /// Use this name for the worker [default: the host name and the process ID]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

pub(super) async fn run(args: &Args) -> anyhow::Result<()> {
    let queue = args.pool.open_or_make(args.replicas).await?;
    let gateways = std::sync::Arc::new(Mutex::new(EmbeddedGateways::default()));
    let makers = gateways.clone();
    let make = move |words: &[OsString]| {
        let made = make(words, &makers);
        made.map_err(|error| format!("{error:#}"))
    };
    let name = args.name.clone().unwrap_or_else(process_name);
    tracing::info!(name, slots = args.slots, "the worker runs");
    let worker = Worker {
        name,
        slots: usize::from(args.slots),
        attempts: args.attempts,
        rate_max: args.bwlimit.clone(),
        make: Box::new(make),
    };
    fleet::worker::run(queue, worker, exit::interrupted()).await?;
    let gateways = std::mem::take(&mut *gateways.lock().unwrap_or_else(PoisonError::into_inner));
    gateways.end().await;
    tracing::info!("the worker has ended");
    Ok(())
}

/// Creates the job of a command line. The accounts and passwords come from this machine.
fn make(words: &[OsString], gateways: &Mutex<EmbeddedGateways>) -> anyhow::Result<Job> {
    let line = read(words)?;
    let mut orders = line.copy.orders()?;
    let order = orders.pop().filter(|_| orders.is_empty());
    let order = order.ok_or_else(|| exit::misuse("a job of a fleet has one destination"))?;
    order.check_for_workers()?;
    let mut settings = Settings::read(&order)?;
    let mut gateways = gateways.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(listeners) = gateways.listeners(&mut settings)? {
        settings.access.use_listeners(listeners);
    }
    Ok(settings.job(&order))
}
