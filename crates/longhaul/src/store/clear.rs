//! `longhaul store clear`: deletes all chunks of the selected stores.

use std::time::Duration;

use anyhow::Context as _;
use gatewayd::config::Config;
use optimiser::store::{self, StoreOpenError};
use relay::optimise::{StoreName, StoresSettings};
use serde::Serialize;
use serde_json::{Value, json};

use super::{all, chosen, not_allowed};
use crate::{
    admin::{self, AdminPlace, Answer},
    output::Format,
    places,
};

/// Delete all chunks in stores
///
/// The next transfer of the same content sends all bytes over the link. If a running gateway has
/// the store open, the gateway itself clears the store and continues. The other gateway keeps its
/// own store. If only one gateway has a chunk, the chunk is sent again.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul store clear oslo
  longhaul store clear oslo-0f2a6d0a5b1c9e77-news
  longhaul store clear --all

Exit codes: 0 done; 1 a store could not be cleared; 2 wrong use or configuration.")]
pub(super) struct Args {
    /// Stores to clear: the name of a peer for all its stores, or the name of a store from
    /// 'longhaul store ls'
    #[arg(value_name = "STORE", required_unless_present = "all")]
    stores: Vec<String>,
    /// Clear all stores
    #[arg(long, conflicts_with = "stores")]
    all: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct ClearResult {
    cleared: Vec<String>,
}

pub(super) fn run(args: &Args, settings: &StoresSettings, config: &Config) -> anyhow::Result<()> {
    let names = match args.all {
        true => all(settings)?,
        false => chosen(settings, &args.stores)?,
    };
    let mut cleared = Vec::new();
    let mut failed = None;
    for name in names {
        match clear(settings, config, &name) {
            Ok(()) => cleared.push(name.folder),
            Err(error) => {
                failed = Some(error.context(format!("{} was not cleared", name.folder)));
                break;
            }
        }
    }
    args.format.print(&ClearResult { cleared }, |done| {
        let lines = done.cleared.iter().map(|it| format!("{it}: cleared\n"));
        match (lines.collect::<String>(), &failed) {
            (lines, None) if lines.is_empty() => "there is no store yet\n".to_owned(),
            (lines, _) => lines,
        }
    })?;
    failed.map_or(Ok(()), Err)
}

fn clear(settings: &StoresSettings, config: &Config, name: &StoreName) -> anyhow::Result<()> {
    match store::remove(&settings.folder.join(&name.folder)) {
        Ok(()) => Ok(()),
        Err(StoreOpenError::InUse { .. }) => ask(config, &name.folder),
        Err(StoreOpenError::Folder { folder, source }) => Err(not_allowed(&folder, source)),
        Err(error) => Err(error.into()),
    }
}

/// Sends the running gateway the request to clear a store.
fn ask(config: &Config, store: &str) -> anyhow::Result<()> {
    let at = places::socket_of(config);
    let body = json!({ "store": store }).to_string();
    let answer = admin::order(&at, "/dashboard/clear", &body, TIMEOUT).context(
        "a gateway has it open, and cannot be asked; clear it while the gateway is down",
    )?;
    judge(&at, &answer)
}

fn judge(at: &AdminPlace, Answer { code, body }: &Answer) -> anyhow::Result<()> {
    let said: Value = serde_json::from_str(body).unwrap_or_default();
    let said = said["error"].as_str().unwrap_or(body).trim();
    match code {
        204 => Ok(()),
        404 => anyhow::bail!("it is open, but not by the gateway at {at}: {said}"),
        _ => {
            anyhow::bail!("the gateway at {at} refuses: {said}; clear it while the gateway is down")
        }
    }
}

/// Timeout of the request. A store of several terabytes has about ten thousand files to delete.
const TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_reported_with_its_reason() {
        let at = AdminPlace::Address(([127, 0, 0, 1], 9810).into());
        let told = |code, body: &str| {
            let answer = Answer {
                code,
                body: body.to_owned(),
            };
            judge(&at, &answer).map_err(|error| error.to_string())
        };
        assert_eq!(told(204, ""), Ok(()));
        for (code, body, words) in [
            (
                403,
                "{\"error\":\"the dashboard is off\"}",
                "refuses: the dashboard is off; clear",
            ),
            (
                404,
                "{\"error\":\"there is no such open store\"}",
                "not by the gateway at 127.0.0.1:9810",
            ),
            (404, "", "not by the gateway"),
            (500, "odd\n", "refuses: odd;"),
        ] {
            let error = told(code, body).expect_err(words);
            assert!(error.contains(words), "{error}");
        }
    }
}
