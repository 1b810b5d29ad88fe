//! `longhaul copy --clean`: removal of the parts that an interrupted run has left.

use std::process::ExitCode;

use anyhow::Context as _;
use mover::run::CleanResult;

use super::{
    Order, Settings, open_journal,
    settings::{ask_for_ssh, ask_passwords},
};
use crate::{connection_args::start_near, output};

/// Removes the parts that earlier runs of the same command have left at their destinations. Also
/// removes the journals of these runs.
pub(crate) fn clean(orders: &[Order<'_>]) -> anyhow::Result<ExitCode> {
    let mut settings = Settings::read_all(orders)?;
    ask_passwords(&mut settings)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let is_whole = runtime.block_on(work(orders, settings));
    // The program does not wait for a pending name resolution.
    runtime.shutdown_background();
    is_whole.map(|is_whole| match is_whole {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Removes the parts at all destinations. Returns whether every directory was read and every part
/// was removed.
async fn work(orders: &[Order<'_>], mut settings: Vec<Settings>) -> anyhow::Result<bool> {
    let mut is_whole = true;
    let scheme = settings.iter().find_map(Settings::scheme);
    let mut ways: Vec<_> = settings.iter_mut().map(|it| &mut it.access).collect();
    let near = start_near(&mut ways, scheme)?;
    ask_for_ssh(&mut settings).await?;
    for (order, settings) in orders.iter().zip(settings) {
        let destination = settings.ends().1;
        let journal = open_journal(&settings.name())?;
        let job = settings.job(order);
        let cleaned = mover::run::clean(&job, journal.as_ref()).await?;
        let text = format!("{destination}: {}\n", message(&cleaned));
        output::print(&text)?;
        for failure in &cleaned.failures {
            eprintln!("{failure}");
        }
        is_whole &= cleaned.failed == 0;
    }
    if let Some(near) = near {
        near.end().await;
    }
    Ok(is_whole)
}

fn message(cleaned: &CleanResult) -> String {
    let CleanResult {
        removed,
        kept,
        failed,
        ..
    } = *cleaned;
    let mut text = match (removed, kept) {
        (0, 0) => "nothing is left of an earlier run".to_owned(),
        (0, _) => "no part removed".to_owned(),
        _ => format!("{} removed", output::counted(removed, "part")),
    };
    if kept > 0 {
        text += &format!(
            ", {kept} left alone: another process may write to them, or another user has them"
        );
    }
    if failed > 0 {
        text += &format!(", {}", output::counted(failed, "failure"));
    }
    text
}
