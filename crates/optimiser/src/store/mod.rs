//! Chunks that two gateways both have, on the disk of each: a store for each peer and tenant, in a folder of its own.
//!
//! A sender whose store has a chunk sends its name instead of its bytes; the receiver takes the bytes from its own store,
//! or asks for them. Two stores are never assumed to agree. A store may lose anything at any time, and so may its disk:
//! that costs a round trip, never a byte, since what is read is compared with its name, which is its BLAKE3. So in doubt
//! things are discarded: segments that cannot be read, records that are torn, all of it when the identity is damaged, and
//! what comes while the disk cannot be written or is too slow.
//!
//! Chunks are appended to segments (`format`), by one thread. Nothing of them is synced: after a power cut some of what
//! was written last is missing or garbage, which checksums and names tell, and to wait for the disk would cost more than to
//! send that again. When the store or its disk is full the oldest segment goes. The index is in memory only, eight bytes for each chunk
//! (`index`). After a start the same thread rebuilds it, from the footers of segments; a segment without one, which is
//! at most the last one unless there was an error, is read from record to record, and gets its footer then.
//!
//! The caller says which folder, how large, and gives all randomness. Which streams are cut into chunks, and what gateways
//! tell each other, is theirs. The module has a thread, and reads the clock after write errors. A folder that is deleted
//! while a store has it is made again by the next write, and the store is empty then.

mod counts;
mod files;
mod format;
pub mod fuzzing;
mod identity;
pub mod index;
mod live;
mod queue;
mod reader;
mod removal;
mod segment;
mod verify;
mod writer;

use std::{
    fmt, io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;

pub use counts::Counts;
pub use files::{File, Files, Listed, Lock, RealFiles};
pub use identity::{Fresh, StoreId};
pub use removal::{is_in_use, remove};
pub use verify::{Damage, Listing, ReadError, Verification, list, verify};

use crate::chunk::{CHUNK_MAX, KEPT_LEAST, Name};
use counts::Tallies;
use identity::Identity;
use index::Index;
use live::Live;
use queue::{Queue, Work};
use reader::Reader;
use writer::{Limits, Writer};

/// How a store is kept.
#[derive(Clone)]
pub struct Settings {
    /// The folder that it has for itself. It is made, with mode 0700, if it is not there; so is the one above it.
    pub folder: PathBuf,
    /// Most bytes of all segments on the disk. Less than some MiB are of little use; beyond 3.6 TiB it makes no difference.
    pub size_max_bytes: u64,
    /// Most bytes that wait to be written. 16 MiB last for a tenth of a second at 1 Gbit/s.
    pub queue_max_bytes: usize,
    /// How long nothing is written after a write failed; what comes meanwhile is dropped. 30 s, say.
    pub pause: Duration,
    /// Random bytes, new for each start: peers must not know which names are neighbours in the index.
    pub seed: [u8; 16],
}

impl fmt::Debug for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Settings")
            .field("folder", &self.folder)
            .field("size_max_bytes", &self.size_max_bytes)
            .field("queue_max_bytes", &self.queue_max_bytes)
            .field("pause", &self.pause)
            .field("seed", &"***")
            .finish()
    }
}

/// Why there is no store. The gateway does without it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another store of this one, has the folder.
    #[error("the chunk store {folder:?} is in use")]
    InUse { folder: PathBuf },
    /// The folder cannot be made, read or written.
    #[error("the folder {folder:?} of the chunk store")]
    Folder {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The system gives no more threads.
    #[error("a thread for the chunk store {folder:?}")]
    Thread {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Why a store could not begin anew.
#[derive(Debug, thiserror::Error)]
#[error("the chunk store {folder:?} could not be cleared")]
pub struct ClearError {
    pub folder: PathBuf,
    #[source]
    pub source: io::Error,
}

/// A store of chunks. Clones are the same store; when the last one is dropped, what waits is written first.
#[derive(Clone)]
pub struct Store(Arc<Owner>);

impl fmt::Debug for Store {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Store({:?})", self.0.shared.reader.folder)
    }
}

struct Owner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    reader: Arc<Reader>,
    queue: Queue,
    writer: Mutex<Writer>,
    identity: Mutex<Identity>,
}

impl Store {
    /// Opens the store in a folder, or makes one. Its chunks of earlier runs become known one segment after the other,
    /// the newest ones first.
    ///
    /// # Errors
    /// [`OpenError`]. A damaged identity is none: the store begins anew, with `fresh`.
    pub fn open(settings: Settings, fresh: Fresh) -> Result<Self, OpenError> {
        Self::open_with(settings, fresh, Arc::new(RealFiles))
    }

    /// [`Store::open`] over other files than those of this machine.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(
        settings: Settings,
        fresh: Fresh,
        files: Arc<dyn Files>,
    ) -> Result<Self, OpenError> {
        let folder = settings.folder;
        let in_use = || OpenError::InUse {
            folder: folder.clone(),
        };
        let failed = |source| OpenError::Folder {
            folder: folder.clone(),
            source,
        };
        files.make_folder(&folder).map_err(failed)?;
        let lock = files.lock(&folder.join(LOCK_FILE)).map_err(failed)?;
        let lock = lock.ok_or_else(in_use)?;
        let identity = match identity::read(&*files, &folder).map_err(failed)? {
            Some(identity) => identity,
            None => {
                let identity = fresh.into();
                identity::write(&*files, &folder, &identity).map_err(failed)?;
                identity
            }
        };
        let reader = Arc::new(Reader {
            files,
            folder: folder.clone(),
            index: Index::new(&settings.seed, settings.size_max_bytes / CHUNK_USUAL_BYTES),
            live: Live::default(),
            tallies: Tallies::default(),
            trouble: Mutex::default(),
        });
        let limits = Limits::new(settings.size_max_bytes, settings.pause);
        let writer = Writer::new(reader.clone(), limits, identity, lock);
        let shared = Arc::new(Shared {
            reader,
            queue: Queue::new(settings.queue_max_bytes),
            writer: Mutex::new(writer),
            identity: Mutex::new(identity),
        });
        let its = shared.clone();
        let thread = thread::Builder::new()
            .name("chunk-store".into())
            .spawn(move || its.work())
            .map_err(|source| OpenError::Thread { folder, source })?;
        let thread = Some(thread);
        Ok(Self(Arc::new(Owner { shared, thread })))
    }

    /// Which store this is. Another after [`Store::clear`].
    pub fn id(&self) -> StoreId {
        lock(&self.0.shared.identity).id
    }

    /// The secret that is kept with the store, for whoever cuts its chunks.
    pub fn secret(&self) -> [u8; 32] {
        lock(&self.0.shared.identity).secret
    }

    /// Whether the store seems to have a chunk. Memory only. Wrong once in 500,000 names that it does not have; and what
    /// it has may turn out damaged when it is read.
    pub fn has(&self, name: &Name) -> bool {
        let Shared { reader, queue, .. } = &*self.0.shared;
        // In this order: a chunk is in the index before it leaves the queue.
        queue.contains(name) || reader.index.contains(name)
    }

    /// Reads a chunk of `length` bytes: these have this name, or there is none. Blocks while the disk is read.
    pub fn get(&self, name: &Name, length: usize) -> Option<Bytes> {
        let Shared { reader, queue, .. } = &*self.0.shared;
        let find = || {
            if length > CHUNK_MAX {
                return None;
            }
            // Whoever put it may have given it a wrong name.
            let is_right = |content: &Bytes| content.len() == length && Name::of(content) == *name;
            let waiting = queue.get(name).filter(is_right);
            waiting.or_else(|| reader.get(name, length))
        };
        let found = find();
        let tally = if found.is_some() {
            &reader.tallies.hits
        } else {
            &reader.tallies.misses
        };
        tally.add(1);
        found
    }

    /// Keeps a chunk, unless it is known, smaller than [`KEPT_LEAST`] or larger than [`CHUNK_MAX`], or the queue is full.
    /// Never waits for the disk. `has` and `get` know it at once, from the queue.
    ///
    /// The queue counts the bytes of `content` only: it should not be a small part of a large buffer that it keeps in
    /// memory.
    pub fn put(&self, name: Name, content: Bytes) {
        let Shared { reader, queue, .. } = &*self.0.shared;
        if self.has(&name) {
            reader.tallies.known.add(1);
        } else if !(KEPT_LEAST..=CHUNK_MAX).contains(&content.len()) || !queue.push(name, content) {
            reader.tallies.dropped.add(1);
        }
    }

    /// Makes a chunk unknown. It may be known again after the next start.
    pub fn forget(&self, name: &Name) {
        let Shared { reader, queue, .. } = &*self.0.shared;
        queue.remove(name);
        reader.forget(name);
    }

    /// Removes everything, and goes on as another store. Blocks while a write that is under way ends and files are
    /// removed.
    ///
    /// # Errors
    /// [`ClearError`] if the new identity cannot be written, or the store is retired: it is as it was then.
    pub fn clear(&self, fresh: Fresh) -> Result<(), ClearError> {
        let Shared { reader, queue, .. } = &*self.0.shared;
        queue.hold();
        let mut writer = lock(&self.0.shared.writer);
        let identity = Identity::from(fresh);
        let restarted = writer.restart(&identity);
        if restarted.is_ok() {
            *lock(&self.0.shared.identity) = identity;
            reader.tallies.dropped.add(queue.clear());
        }
        drop(writer);
        queue.release();
        restarted.map_err(|source| ClearError {
            folder: reader.folder.clone(),
            source,
        })
    }

    /// Lets another process have the folder: nothing is written any more, what waits is dropped, and a rebuild of the index
    /// ends where it is. What is known can still be read until the other one removes it. Blocks while a write that is
    /// under way ends.
    pub fn retire(&self) {
        let Shared { reader, queue, .. } = &*self.0.shared;
        queue.close();
        reader.tallies.dropped.add(queue.clear());
        queue.hold();
        lock(&self.0.shared.writer).retire();
        queue.release();
    }

    /// Returns when all that was put is written or dropped, and the index is rebuilt.
    pub fn settle(&self) {
        self.0.shared.queue.wait_until_idle();
    }

    /// Why nothing new is kept at the moment; `None` while the folder can be written.
    pub fn trouble(&self) -> Option<String> {
        lock(&self.0.shared.reader.trouble).clone()
    }

    /// Where the store stands.
    pub fn counts(&self) -> Counts {
        let Shared { reader, queue, .. } = &*self.0.shared;
        let tallies = &reader.tallies;
        Counts {
            entries: reader.index.entries(),
            segments: reader.live.count() as u64,
            disk_bytes: reader.live.total_bytes(),
            index_bytes: reader.index.memory_bytes(),
            queue_bytes: queue.size_bytes() as u64,
            written: tallies.written.get(),
            written_bytes: tallies.written_bytes.get(),
            known: tallies.known.get(),
            dropped: tallies.dropped.get(),
            hits: tallies.hits.get(),
            misses: tallies.misses.get(),
            damaged: tallies.damaged.get(),
            evicted: tallies.evicted.get(),
            write_errors: tallies.write_errors.get(),
            is_rebuilding: queue.is_busy(),
        }
    }
}

impl Shared {
    /// What the thread does: writes what waits, and rebuilds the index in between.
    fn work(&self) {
        let _ended = Ended(&self.queue);
        loop {
            let has_unread = lock(&self.writer).has_unread();
            match self.queue.next(has_unread) {
                Work::Write(batch) => {
                    let mut writer = lock(&self.writer);
                    writer.write(&batch);
                    self.queue.done(&batch);
                    // In turns, so that neither waits for the end of the other.
                    writer.rebuild_some();
                }
                Work::Other => lock(&self.writer).rebuild_some(),
                Work::End => break,
            }
        }
        lock(&self.writer).seal();
    }
}

/// Tells those who wait for the thread when it ends, however it does.
struct Ended<'a>(&'a Queue);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Locks, whether or not a thread ended by a panic while it had the lock: at worst a chunk is unknown.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The mean size of chunks, for which the index is laid out.
const CHUNK_USUAL_BYTES: u64 = 16 * 1024;

const LOCK_FILE: &str = "lock";
