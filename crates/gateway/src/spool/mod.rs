//! Spools: files that cross the WAN once, for several servers behind this gateway.
//!
//! The uploads that name a spool are given its bytes, each at the pace of its own server. A spool is a file that has no
//! name and is gone with the process.
#![allow(
    clippy::disallowed_methods,
    reason = "owns files, and the clock that ends them"
)]

mod contents;
mod ring;
mod tap;

use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use ftp::spool::{SpoolAnswer, SpoolRequest};
use link::PeerId;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};
use units::ByteCount;

pub(crate) use self::tap::{Source, SourceError, Tap};
use self::{contents::Contents, ring::Ring};

/// Where spools are, and how large they may be together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The folder.
    pub folder: PathBuf,
    /// Most bytes in all of them.
    pub size_max: ByteCount,
}

/// All spools of a gateway.
#[derive(Debug)]
pub(crate) struct Spools {
    settings: Settings,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// No peer sees those of another.
    spools: HashMap<(PeerId, u128), Spool>,
    /// Of all of them.
    used_bytes: u64,
}

#[derive(Debug)]
struct Spool {
    contents: Arc<Contents>,
    room_bytes: u64,
}

/// A place in a spool, from which the next upload takes its bytes.
#[derive(Debug)]
pub(crate) struct Place {
    contents: Arc<Contents>,
    reader: contents::Reader,
}

/// Why there is none, as a reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoSpool {
    #[error("452 gateway: the spool has no room for another file")]
    Full,
    #[error("452 gateway: the spool cannot be written: {0}")]
    Disk(#[from] io::Error),
    #[error("550 gateway: another file has this spool")]
    OtherFile,
    #[error("550 gateway: the spool has no longer what the upload begins with")]
    Gone,
}

impl Spools {
    pub(crate) fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            state: Mutex::default(),
        })
    }

    /// Finds or makes the spool that `peer` asks for. Returns what to answer, too.
    ///
    /// # Errors
    /// [`NoSpool`] with what to answer.
    pub(crate) fn place(
        self: &Arc<Self>,
        peer: PeerId,
        request: &SpoolRequest,
    ) -> Result<(Place, SpoolAnswer), NoSpool> {
        let mut state = self.lock();
        let name = (peer, request.id);
        let contents = match state.spools.get(&name) {
            Some(spool) => spool.contents.clone(),
            None => self.make(&mut state, name, request)?,
        };
        if contents.size_bytes() != request.size_bytes {
            return Err(NoSpool::OtherFile);
        }
        let reader = contents.reader(request.offset_bytes);
        let reader = reader.ok_or(NoSpool::Gone)?;
        let answer = SpoolAnswer {
            have_bytes: contents.have_bytes(),
        };
        Ok((Place { contents, reader }, answer))
    }

    fn make(
        self: &Arc<Self>,
        state: &mut State,
        name: (PeerId, u128),
        request: &SpoolRequest,
    ) -> Result<Arc<Contents>, NoSpool> {
        let size_max = self.settings.size_max.bytes();
        let room_bytes = request.size_bytes.min(size_max / SPOOLS_LEAST).max(1);
        if room_bytes > size_max.saturating_sub(state.used_bytes) {
            return Err(NoSpool::Full);
        }
        let ring = Ring::new(&self.settings.folder, room_bytes).inspect_err(|error| {
            let folder = self.settings.folder.display();
            warn!(%folder, %error, "no spool");
        })?;
        let contents = Contents::new(ring, request);
        let spool = Spool {
            contents: contents.clone(),
            room_bytes,
        };
        state.used_bytes += room_bytes;
        state.spools.insert(name, spool);
        let lives = live(contents.clone(), Arc::downgrade(self), name);
        tokio::spawn(lives);
        Ok(contents)
    }

    fn remove(&self, name: (PeerId, u128)) {
        let mut state = self.lock();
        if let Some(spool) = state.spools.remove(&name) {
            state.used_bytes -= spool.room_bytes;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives a spool up once all uploads have had it, or none has been there for a while.
async fn live(contents: Arc<Contents>, spools: Weak<Spools>, name: (PeerId, u128)) {
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
                info!(have_bytes, "a spool that nobody uses any more");
                break;
            }
        }
    }
    if let Some(spools) = spools.upgrade() {
        spools.remove(name);
    }
}

/// A file gets such a part of the room at most, so that so many fit at least.
const SPOOLS_LEAST: u64 = 4;

/// Time in which an upload that broke off comes again.
const UNUSED_MAX: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests;
