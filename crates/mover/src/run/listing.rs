//! Listings of one directory, on this machine or at a server.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use ftp::listing::{EntryKind, ListingEntry, TimePrecision};
use tokio::{sync::mpsc, task::spawn_blocking};
use units::ByteCount;

use super::{backend::Backend, failure::TaskError};
use crate::{
    disk::LocalFiles,
    names::{local, shown},
    plan::{NAME_BYTES_MAX, NAMES_BYTES_MAX},
    server::{ServerError, Session},
    sftp::SftpSession,
};

/// Lists a directory, and passes entries to `take` as they arrive.
///
/// With `follows_links`, a symbolic link is listed as its target, if the target is known. Returns
/// the number of lines that could not be parsed.
pub(super) async fn list(
    backend: &mut Backend,
    path: &[u8],
    follows_links: bool,
    take: impl FnMut(Vec<ListingEntry>),
) -> Result<u64, TaskError> {
    match backend {
        Backend::Remote(session) => list_by_ftp(session, path, follows_links, take).await,
        Backend::Sftp(session) => {
            list_by_sftp(session, path, follows_links, take).await?;
            Ok(0)
        }
        Backend::Local(disk) => {
            list_locally(disk.files.clone(), path, follows_links, take).await?;
            Ok(0)
        }
        Backend::Web(_) => Err(ServerError::SourceAlone.into()),
    }
}

async fn list_by_ftp(
    session: &mut Session,
    path: &[u8],
    follows_links: bool,
    mut take: impl FnMut(Vec<ListingEntry>),
) -> Result<u64, TaskError> {
    let mut lister = session.list(path, now_unix_s()).await?;
    let (mut imprecise, mut links) = (Vec::new(), Vec::new());
    let mut names = ListedNames::default();
    loop {
        let mut entries = lister.next().await?;
        if entries.is_empty() {
            break;
        }
        names.add(&entries)?;
        if follows_links {
            links.extend(entries.extract_if(.., is_link));
        }
        let is_imprecise = |it: &ListingEntry| {
            let precision = it.modified.map(|it| it.precision);
            it.kind == EntryKind::File && precision.is_some_and(|it| it > TimePrecision::Second)
        };
        let (later, now): (Vec<ListingEntry>, Vec<ListingEntry>) =
            entries.into_iter().partition(is_imprecise);
        imprecise.extend(later);
        if !now.is_empty() {
            take(now);
        }
    }
    let not_understood = lister.finish().await?;
    for mut link in links {
        session.follow(path, &mut link).await?;
        take(vec![link]);
    }
    for entries in imprecise.chunks_mut(QUESTIONS_AT_ONCE) {
        session.refine_times(path, entries).await?;
        take(entries.to_vec());
    }
    Ok(not_understood)
}

async fn list_by_sftp(
    session: &SftpSession,
    path: &[u8],
    follows_links: bool,
    mut take: impl FnMut(Vec<ListingEntry>),
) -> Result<(), TaskError> {
    let mut listing = session.list(path).await?;
    let mut links = Vec::new();
    let mut names = ListedNames::default();
    loop {
        let mut entries = listing.next().await?;
        if entries.is_empty() {
            break;
        }
        names.add(&entries)?;
        if follows_links {
            links.extend(entries.extract_if(.., is_link));
        }
        if !entries.is_empty() {
            take(entries);
        }
    }
    for mut link in links {
        session.follow(path, &mut link).await?;
        take(vec![link]);
    }
    Ok(())
}

async fn list_locally(
    files: Arc<LocalFiles>,
    path: &[u8],
    follows_links: bool,
    mut take: impl FnMut(Vec<ListingEntry>),
) -> Result<(), TaskError> {
    let what = format!("listing {}", shown(&local(path)));
    let path = path.to_vec();
    let (batches, mut arrived) = mpsc::channel(BATCHES_WAITING);
    let hand_over = move |entries| batches.blocking_send(entries).is_ok();
    let listing = spawn_blocking(move || files.list(&path, follows_links, hand_over));
    while let Some(entries) = arrived.recv().await {
        take(entries);
    }
    let listed = listing.await.expect("listing does not panic");
    listed.map_err(TaskError::disk(what))
}

/// Total length of the names that a server has listed in a directory.
#[derive(Default)]
struct ListedNames {
    bytes: usize,
}

impl ListedNames {
    /// Counts the names of entries.
    ///
    /// # Errors
    /// [`TaskError::Listing`] if a name is too long, or if all names together are too long.
    fn add(&mut self, entries: &[ListingEntry]) -> Result<(), TaskError> {
        let lengths = entries.iter().map(|it| it.name.len());
        self.bytes += lengths.clone().sum::<usize>();
        if lengths.max().is_some_and(|it| it > NAME_BYTES_MAX) {
            return Err(TaskError::Listing(format!(
                "the server lists a name of more than {NAME_BYTES_MAX} bytes"
            )));
        }
        if self.bytes > NAMES_BYTES_MAX {
            return Err(TaskError::Listing(format!(
                "the server lists names of more than {} in a directory",
                ByteCount::new(NAMES_BYTES_MAX as u64).measured()
            )));
        }
        Ok(())
    }
}

fn is_link(entry: &mut ListingEntry) -> bool {
    matches!(entry.kind, EntryKind::Symlink { .. })
}

pub(super) fn now_unix_s() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Maximum number of modification times that are requested in one round trip.
const QUESTIONS_AT_ONCE: usize = 200;

/// Maximum number of batches of entries that wait for the plan.
const BATCHES_WAITING: usize = 4;
