//! Spools. A spool is a file that crosses the WAN once and is uploaded to several servers behind
//! this gateway.
//!
//! Each upload that names the spool reads the bytes of the spool, at the rate of its own server. On
//! the disk, a spool is a file without a name, so it disappears when the process ends.
#![allow(
    clippy::disallowed_methods,
    reason = "owns files, and the clock that ends them"
)]

mod byte_source;
mod contents;
mod disk_space;
mod ring_file;

use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use ftp::spool::{SpoolAnswer, SpoolRequest};
use link::PeerId;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep_until},
};
use tracing::{info, warn};
use units::ByteCount;

pub(crate) use self::byte_source::{ByteSource, SourceError, SpoolSource};
use self::{contents::SpoolContents, disk_space::DiskSpace, ring_file::RingFile};

/// Folder of the spools, and the maximum size of all spools together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolSettings {
    /// Folder in which the spools are created.
    pub folder: PathBuf,
    /// Maximum size of all spools together.
    pub size_max: ByteCount,
}

/// All spools of a gateway.
#[derive(Debug)]
pub(crate) struct Spools {
    settings: SpoolSettings,
    disk_space: Arc<DiskSpace>,
    /// Spools by peer and identifier. A peer cannot use the spools of another peer.
    spools: Mutex<HashMap<SpoolKey, Arc<SpoolContents>>>,
}

type SpoolKey = (PeerId, u128);

/// Position at which the next upload starts to read a spool.
#[derive(Debug)]
pub(crate) struct SpoolPosition {
    contents: Arc<SpoolContents>,
    reader: contents::SpoolReader,
}

/// Reason why a spool is refused. The error text is the reply to the client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolRefusal {
    #[error("452 gateway: the spool has no room for another file")]
    Full,
    #[error("452 gateway: the spool cannot be written: {0}")]
    Disk(#[from] io::Error),
    #[error("550 gateway: another file has this spool")]
    OtherFile,
    #[error("550 gateway: the spool no longer has the beginning of the upload")]
    Gone,
}

impl Spools {
    pub(crate) fn new(settings: SpoolSettings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            disk_space: Arc::default(),
            spools: Mutex::default(),
        })
    }

    /// Finds or creates the spool that `peer` requests. Returns the position of the upload, and the
    /// reply to the client.
    ///
    /// # Errors
    /// [`SpoolRefusal`]. The error text is the reply to the client.
    pub(crate) async fn open_position(
        self: &Arc<Self>,
        peer: PeerId,
        request: &SpoolRequest,
    ) -> Result<(SpoolPosition, SpoolAnswer), SpoolRefusal> {
        let name = (peer, request.id);
        let known = self.lock().get(&name).cloned();
        let contents = match known {
            Some(contents) => contents,
            None => self.create(name, request).await?,
        };
        if contents.size_bytes() != request.size_bytes {
            return Err(SpoolRefusal::OtherFile);
        }
        let reader = contents.reader(request.offset_bytes);
        let reader = reader.ok_or(SpoolRefusal::Gone)?;
        let answer = SpoolAnswer {
            have_bytes: contents.have_bytes(),
            instance: contents.instance(),
        };
        Ok((SpoolPosition { contents, reader }, answer))
    }

    async fn create(
        self: &Arc<Self>,
        name: SpoolKey,
        request: &SpoolRequest,
    ) -> Result<Arc<SpoolContents>, SpoolRefusal> {
        let size_max = self.settings.size_max.bytes();
        let room_bytes = request.size_bytes.min(size_max / SPOOLS_LEAST).max(1);
        let room = self.disk_space.reserve(name.0, room_bytes, size_max);
        let room = room.ok_or(SpoolRefusal::Full)?;
        let folder = self.settings.folder.clone();
        let made = spawn_blocking(move || RingFile::new(&folder, room_bytes)).await;
        let made = made.map_err(io::Error::other).flatten();
        let ring = made.inspect_err(|error| {
            let folder = self.settings.folder.display();
            warn!(%folder, %error, "no spool");
        })?;
        let fresh = SpoolContents::new(ring, room, request);
        let mut spools = self.lock();
        // Another session may have created the same spool meanwhile.
        let contents = spools.entry(name).or_insert_with(|| fresh.clone()).clone();
        if Arc::ptr_eq(&contents, &fresh) {
            let removal = remove_when_done(contents.clone(), Arc::downgrade(self), name);
            tokio::spawn(removal);
        }
        Ok(contents)
    }

    fn remove(&self, name: SpoolKey) {
        self.lock().remove(&name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SpoolKey, Arc<SpoolContents>>> {
        self.spools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a spool when all uploads have read the file, or when no upload has used the spool for
/// two minutes.
async fn remove_when_done(contents: Arc<SpoolContents>, spools: Weak<Spools>, name: SpoolKey) {
    let mut changes = contents.changes();
    loop {
        if changes.borrow_and_update().is_done() {
            break;
        }
        let is_used = changes.borrow().is_used();
        let until = Instant::now() + UNUSED_MAX;
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { break },
            () = sleep_until(until), if !is_used => {
                let have_bytes = contents.have_bytes();
                info!(have_bytes, "unused spool removed");
                break;
            }
        }
    }
    if let Some(spools) = spools.upgrade() {
        spools.remove(name);
    }
}

/// Divisor of the disk space: one file may use at most one eighth. At least eight files therefore
/// fit.
const SPOOLS_LEAST: u64 = 8;

/// Timeout: the gateway removes a spool that no upload has used for this time. An interrupted
/// upload must resume within this time.
const UNUSED_MAX: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests;
