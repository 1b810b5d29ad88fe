//! `longhaul store verify`: a check of all chunks in the selected stores.

use std::{path::Path, process::ExitCode, time::Duration};

use indicatif::ProgressStyle;
use optimiser::store::{self, StoreReadError, Verification};
use relay::optimise::{StoreName, StoresSettings};
use serde::Serialize;
use units::ByteCount;

use super::{all, chosen, not_allowed};
use crate::output::{self, Format};

/// Read all chunks in stores, and report damaged chunks
///
/// The command compares the hash of each chunk with the chunk's name. It changes nothing, and works
/// even while a gateway has the store open. Damage delays transfers, but never changes their
/// content: a gateway checks each chunk before use, and requests damaged chunks again.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul store verify
  longhaul store verify oslo --json

Exit codes: 0 no chunk is damaged; 1 a chunk is damaged, or a store cannot be read; 2 wrong use or
configuration.")]
pub(super) struct Args {
    /// Stores to verify: the name of a peer for all its stores, or the name of a store from
    /// 'longhaul store ls' [default: all stores]
    #[arg(value_name = "STORE")]
    stores: Vec<String>,
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct VerifyResult {
    stores: Vec<Store>,
}

#[derive(Serialize)]
struct Store {
    store: String,
    peer: String,
    /// Tenant of the store. Null if the peer's store has no tenant.
    tenant: Option<String>,
    chunks: u64,
    content_bytes: ByteCount,
    segments: u64,
    damaged_chunks: u64,
    /// Number of files that have the name of a segment but are not readable as a segment.
    damaged_segments: u64,
    /// Damaged chunks, at most the first thousand.
    damage: Vec<Damage>,
}

#[derive(Serialize)]
struct Damage {
    segment: String,
    /// Byte offset of the chunk's record in the segment file.
    offset_bytes: u64,
}

pub(super) fn run(args: &Args, settings: &StoresSettings) -> anyhow::Result<ExitCode> {
    let names = match &args.stores[..] {
        [] => all(settings)?,
        wanted => chosen(settings, wanted)?,
    };
    let stores = names.into_iter().map(|it| verify(settings, it));
    let verified = VerifyResult {
        stores: stores.collect::<anyhow::Result<_>>()?,
    };
    args.format.print(&verified, text)?;
    Ok(match verified.stores.iter().any(Store::is_damaged) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

fn verify(settings: &StoresSettings, name: StoreName) -> anyhow::Result<Store> {
    let folder = settings.folder.join(&name.folder);
    let bar = output::progress(0);
    let template = "{msg}: {bytes} of {total_bytes}, {elapsed} elapsed, {eta} left";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
    bar.set_message(name.folder.clone());
    bar.enable_steady_tick(Duration::from_millis(500));
    let verified = store::verify(&folder, &mut |read_bytes, total_bytes| {
        bar.set_length(total_bytes);
        bar.set_position(read_bytes);
    });
    bar.finish_and_clear();
    let found = match verified {
        Ok(found) => found,
        // The store was cleared, and has not been used since.
        Err(StoreReadError::None { .. }) => Verification::default(),
        Err(StoreReadError::Folder { folder, source }) => return Err(not_allowed(&folder, source)),
        Err(error) => return Err(error.into()),
    };
    let damage = found.damage.iter().map(|it| Damage {
        segment: file_name(&it.segment),
        offset_bytes: it.offset_bytes,
    });
    Ok(Store {
        store: name.folder,
        peer: name.peer,
        tenant: Some(name.tenant).filter(|it| !it.is_empty()),
        chunks: found.listing.chunks,
        content_bytes: ByteCount::new(found.listing.content_bytes),
        segments: found.listing.segments,
        damaged_chunks: found.damaged,
        damaged_segments: found.listing.foreign,
        damage: damage.collect(),
    })
}

impl Store {
    fn is_damaged(&self) -> bool {
        self.damaged_chunks + self.damaged_segments > 0
    }
}

fn text(verified: &VerifyResult) -> String {
    let mut text = String::new();
    for it in &verified.stores {
        text += &format!(
            "{}: {} with {} in {}: ",
            it.store,
            output::counted(it.chunks, "chunk"),
            it.content_bytes.measured(),
            output::counted(it.segments, "segment")
        );
        text += &match (it.damaged_chunks, it.damaged_segments) {
            (0, 0) => "nothing is damaged\n".to_owned(),
            (chunks, 0) => format!("{} damaged\n", output::counted(chunks, "chunk")),
            (0, segments) => {
                format!("{} damaged\n", output::counted(segments, "further segment"))
            }
            (chunks, segments) => format!(
                "{} and {} damaged\n",
                output::counted(chunks, "chunk"),
                output::counted(segments, "further segment")
            ),
        };
        for damage in it.damage.iter().take(TOLD_MAX) {
            text += &format!(
                "  a chunk of {} at offset {}\n",
                damage.segment, damage.offset_bytes
            );
        }
        let left = it.damaged_chunks.saturating_sub(TOLD_MAX as u64);
        if left > 0 {
            text += &format!("  and {left} more\n");
        }
    }
    match verified.stores.iter().any(Store::is_damaged) {
        _ if verified.stores.is_empty() => "there is no store yet\n".to_owned(),
        true => {
            text + "Damage costs time, never a byte: damaged chunks cross the link again when they are needed.\n\
                    Check the disk. \"longhaul store clear\" empties a store.\n"
        }
        false => text,
    }
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Maximum number of damaged chunks for which the text output has a separate line.
const TOLD_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_reported_with_its_positions_and_its_cost() {
        let damage = |number: u64| Damage {
            segment: "1.segment".to_owned(),
            offset_bytes: number * 64,
        };
        let store = |damage: Vec<Damage>, damaged_segments| Store {
            store: "oslo-0123456789abcdef".to_owned(),
            peer: "oslo".to_owned(),
            tenant: None,
            chunks: 100,
            content_bytes: ByteCount::megabytes(2),
            segments: 3,
            damaged_chunks: damage.len() as u64,
            damaged_segments,
            damage,
        };
        let told = |store| {
            text(&VerifyResult {
                stores: vec![store],
            })
        };
        let damaged = told(store((1..23).map(damage).collect(), 1));
        for words in [
            "100 chunks with 2 MB in 3 segments: 22 chunks and 1 further segment damaged",
            "1.segment at offset 64\n",
            "and 2 more",
            "never a byte",
        ] {
            assert!(damaged.contains(words), "{words}: {damaged}");
        }
        assert!(!damaged.contains(&format!("offset {}", 21 * 64)));
        let intact = told(store(Vec::new(), 0));
        assert!(intact.ends_with("nothing is damaged\n"), "{intact}");
    }
}
