//! `longhaul store ls`: the list of the chunk stores.

use std::path::PathBuf;

use optimiser::store::{self, StoreContent, StoreReadError};
use relay::optimise::{StoreName, StoresSettings};
use serde::Serialize;
use units::ByteCount;

use super::{all, not_allowed};
use crate::output::{self, Format};

/// List the chunk stores
///
/// The command changes nothing, and works even while a gateway has the stores open.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul store ls
  longhaul store ls --json | jq '.stores[] | {store, chunks, disk_bytes}'

Exit codes: 0 done; 1 a store cannot be read; 2 wrong use or configuration.")]
pub(super) struct Args {
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct List {
    folder: PathBuf,
    /// Maximum size of each store.
    size_max_bytes: ByteCount,
    stores: Vec<Store>,
}

#[derive(Serialize)]
struct Store {
    store: String,
    peer: String,
    /// Tenant of the store. Null if the peer's store has no tenant.
    tenant: Option<String>,
    chunks: u64,
    /// Total size of the chunks' content.
    content_bytes: ByteCount,
    disk_bytes: ByteCount,
    segments: u64,
    /// Whether a gateway is using the store.
    is_open: bool,
}

pub(super) fn run(args: &Args, settings: &StoresSettings) -> anyhow::Result<()> {
    let stores = all(settings)?.into_iter().map(|it| look(settings, it));
    let list = List {
        folder: settings.folder.clone(),
        size_max_bytes: settings.size_max,
        stores: stores.collect::<anyhow::Result<_>>()?,
    };
    args.format.print(&list, text)
}

fn look(settings: &StoresSettings, name: StoreName) -> anyhow::Result<Store> {
    let folder = settings.folder.join(&name.folder);
    let is_open = store::is_in_use(&folder).map_err(|error| not_allowed(&folder, error))?;
    let listing = match store::list(&folder) {
        Ok(listing) => listing,
        // The store was cleared, and has not been used since.
        Err(StoreReadError::None { .. }) => StoreContent::default(),
        Err(StoreReadError::Folder { folder, source }) => return Err(not_allowed(&folder, source)),
        Err(error) => return Err(error.into()),
    };
    Ok(Store {
        store: name.folder,
        peer: name.peer,
        tenant: Some(name.tenant).filter(|it| !it.is_empty()),
        chunks: listing.chunks,
        content_bytes: ByteCount::new(listing.content_bytes),
        disk_bytes: ByteCount::new(listing.disk_bytes),
        segments: listing.segments,
        is_open,
    })
}

fn text(list: &List) -> String {
    let folder = list.folder.display();
    if !list.folder.exists() {
        return format!(
            "{folder} is not there: a gateway makes it when data moves, if the folder above it is there\n"
        );
    }
    if list.stores.is_empty() {
        return format!("{folder} has no store yet: a gateway makes them when data moves\n");
    }
    let mut text = String::new();
    for it in &list.stores {
        let tenant = it.tenant.as_ref();
        let tenant = tenant.map_or(String::new(), |tenant| format!(", tenant {tenant}"));
        let open = if it.is_open { ", open" } else { "" };
        text += &format!(
            "{}: peer {}{tenant}, {} with {}, {} of {} in {}{open}\n",
            it.store,
            it.peer,
            output::counted(it.chunks, "chunk"),
            it.content_bytes.measured(),
            it.disk_bytes.measured(),
            list.size_max_bytes.measured(),
            output::counted(it.segments, "segment"),
        );
    }
    text
}
