//! `longhaul copy --clean`: removes the parts that an interrupted run has left.

use std::process::ExitCode;

use anyhow::Context as _;
use mover::{
    journal::{Journal, LeftPart},
    run::Browser,
};

use super::{Order, Settings, open_journal, settings::ask_passwords};
use crate::{output, way::start_near};

/// Removes the parts that earlier runs of the same command have left at their destinations, and the journals.
pub(crate) fn clean(orders: &[Order<'_>]) -> anyhow::Result<ExitCode> {
    let mut settings = Settings::read_all(orders)?;
    ask_passwords(&mut settings)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let cleaned = runtime.block_on(work(orders, settings));
    // A name that is being looked up would hold the program up.
    runtime.shutdown_background();
    cleaned.map(|()| ExitCode::SUCCESS)
}

async fn work(orders: &[Order<'_>], mut settings: Vec<Settings>) -> anyhow::Result<()> {
    let scheme = settings.iter().find_map(Settings::scheme);
    let mut ways: Vec<_> = settings.iter_mut().map(|it| &mut it.access).collect();
    let near = start_near(&mut ways, scheme)?;
    for (order, settings) in orders.iter().zip(settings) {
        let destination = settings.ends().1;
        let journal = open_journal(&settings.name())?;
        let left = match &journal {
            Some(journal) => journal.left().context("the journal cannot be read")?,
            None => Vec::new(),
        };
        if let Some(journal) = journal.as_ref().filter(|_| !left.is_empty()) {
            let job = settings.job(order);
            let mut browser = Browser::open(&job.destination, None).await?;
            for part in &left {
                remove(&mut browser, journal, part).await?;
            }
            browser.close().await;
        }
        let text = match left.len() {
            0 => format!("{destination}: nothing is left of an earlier run\n"),
            1 => format!("{destination}: one part removed\n"),
            count => format!("{destination}: {count} parts removed\n"),
        };
        output::print(&text)?;
    }
    if let Some(near) = near {
        near.end().await;
    }
    Ok(())
}

async fn remove(browser: &mut Browser, journal: &Journal, part: &LeftPart) -> anyhow::Result<()> {
    for name in &part.names {
        if browser.look(name).await?.is_some() {
            browser.delete(name).await?;
        }
    }
    let ended = journal
        .end(&part.key)
        .and_then(|()| journal.end_pieces(&part.key));
    ended.context("the journal cannot be written")
}
