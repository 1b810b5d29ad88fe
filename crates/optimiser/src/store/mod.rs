//! Store of the chunks that two gateways share. Each gateway has a store on its disk for each peer
//! and tenant, in its own folder.
//!
//! If a sender's store has a chunk, the sender may send the chunk's name instead of the chunk's
//! bytes. The receiver reads the bytes from its own store, or requests them from the sender. The
//! stores need not agree, and a store or its disk may lose any content at any time. A lost chunk
//! costs a round trip, but never corrupts data. The receiver compares each chunk with its name, a
//! BLAKE3 hash.
//!
//! If the store finds damage, it discards the damaged content: unreadable segments and incomplete
//! records. If the identity is damaged, the store discards everything. The store also discards new
//! chunks while the disk is full, failing or too slow.
//!
//! One thread appends chunks to segments (`format`), without a sync. After a power cut the last
//! chunks may be missing or damaged, which checksums and names reveal. Waiting for the disk would
//! cost more than sending these chunks again. When the store or its disk is full, the thread
//! removes the oldest segment.
//!
//! The index is in memory only, with eight bytes for each chunk (`index`). After a start, the
//! thread that appends chunks rebuilds the index from the footers of segments. Without errors, only
//! the last segment lacks a footer. The thread reads a segment without a footer record by record,
//! and then writes the footer.
//!
//! The caller provides the folder, the size and all randomness. The caller also chooses the streams
//! that are cut into chunks, and defines the messages between gateways. The module starts a thread,
//! and reads the clock after write errors. If the folder is deleted while the store is open, the
//! next write creates an empty store in the same folder.

mod counts;
mod files;
mod format;
pub mod fuzzing;
mod identity;
pub mod index;
mod live_segments;
mod reader;
mod removal;
mod segment;
mod verify;
mod write_queue;
mod writer;

use std::{
    fmt, io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;

pub use counts::StoreCounts;
pub use files::{FileLock, FolderEntry, RealFileSystem, StoreFile, StoreFileSystem};
pub use identity::{IdentitySeed, StoreId};
pub use removal::{is_in_use, remove};
pub use verify::{DamagedChunk, StoreContent, StoreReadError, Verification, list, verify};

use crate::chunk::{CHUNK_MAX, ChunkName, KEPT_LEAST};
use counts::EventCounters;
use identity::StoreIdentity;
use index::ChunkIndex;
use live_segments::LiveSegments;
use reader::StoreReader;
use write_queue::{WriteQueue, WriterTask};
use writer::{StoreLimits, StoreWriter};

/// Settings of a store.
#[derive(Clone)]
pub struct StoreSettings {
    /// Folder that contains only this store. If the folder or its parent is missing, the store
    /// creates it with mode 0700.
    pub folder: PathBuf,
    /// Maximum number of bytes of all segments on the disk. A store of a few MiB is of little
    /// benefit. A limit above 3.6 TiB has no effect.
    pub size_max_bytes: u64,
    /// Maximum number of bytes in the write queue. At 1 Gbit/s, a queue of 16 MiB fills in about a
    /// tenth of a second.
    pub queue_max_bytes: usize,
    /// Pause after a failed write, such as 30 s. The store drops new chunks during the pause.
    pub pause: Duration,
    /// Random bytes for the index, new for each start. They prevent peers from finding names that
    /// are adjacent in the index.
    pub seed: [u8; 16],
}

impl fmt::Debug for StoreSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("StoreSettings")
            .field("folder", &self.folder)
            .field("size_max_bytes", &self.size_max_bytes)
            .field("queue_max_bytes", &self.queue_max_bytes)
            .field("pause", &self.pause)
            .field("seed", &"***")
            .finish()
    }
}

/// Reason why a store cannot be opened. The gateway then works without the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreOpenError {
    /// Another process, or another store of this process, uses the folder.
    #[error("the chunk store {folder:?} is in use")]
    InUse {
        /// Folder of the store.
        folder: PathBuf,
    },
    /// The folder cannot be created, read or written.
    #[error("the folder {folder:?} of the chunk store")]
    Folder {
        /// Folder of the store.
        folder: PathBuf,
        /// Error of the file system.
        #[source]
        source: io::Error,
    },
    /// The system cannot start another thread.
    #[error("a thread for the chunk store {folder:?}")]
    Thread {
        /// Folder of the store.
        folder: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
}

/// Reason why a store could not be cleared.
#[derive(Debug, thiserror::Error)]
#[error("the chunk store {folder:?} could not be cleared")]
pub struct ClearError {
    /// Folder of the store.
    pub folder: PathBuf,
    /// Error of the file system.
    #[source]
    pub source: io::Error,
}

/// Handle of a chunk store. All clones refer to the same store. When the last clone is dropped, the
/// store first writes all queued chunks.
#[derive(Clone)]
pub struct Store(Arc<StoreOwner>);

impl fmt::Debug for Store {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Store({:?})", self.0.shared.reader.folder)
    }
}

struct StoreOwner {
    shared: Arc<StoreParts>,
    thread: Option<JoinHandle<()>>,
}

struct StoreParts {
    reader: Arc<StoreReader>,
    queue: WriteQueue,
    writer: Mutex<StoreWriter>,
    identity: Mutex<StoreIdentity>,
}

impl Store {
    /// Opens the store in a folder, or creates a store. Chunks of earlier runs become available
    /// segment by segment, starting with the newest segment.
    ///
    /// # Errors
    /// [`StoreOpenError`]. A damaged identity is not an error. The store then starts empty, with
    /// the identity `fresh`.
    pub fn open(settings: StoreSettings, fresh: IdentitySeed) -> Result<Self, StoreOpenError> {
        Self::open_with(settings, fresh, Arc::new(RealFileSystem))
    }

    /// Opens a store on the file system `files`, which tests provide.
    ///
    /// # Errors
    /// The errors of [`Store::open`].
    pub fn open_with(
        settings: StoreSettings,
        fresh: IdentitySeed,
        files: Arc<dyn StoreFileSystem>,
    ) -> Result<Self, StoreOpenError> {
        let folder = settings.folder;
        let in_use = || StoreOpenError::InUse {
            folder: folder.clone(),
        };
        let failed = |source| StoreOpenError::Folder {
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
        let reader = Arc::new(StoreReader {
            files,
            folder: folder.clone(),
            index: ChunkIndex::new(&settings.seed, settings.size_max_bytes / CHUNK_USUAL_BYTES),
            segments: LiveSegments::default(),
            counters: EventCounters::default(),
            trouble: Mutex::default(),
        });
        let limits = StoreLimits::new(settings.size_max_bytes, settings.pause);
        let writer = StoreWriter::new(reader.clone(), limits, identity, lock);
        let shared = Arc::new(StoreParts {
            reader,
            queue: WriteQueue::new(settings.queue_max_bytes),
            writer: Mutex::new(writer),
            identity: Mutex::new(identity),
        });
        let its = shared.clone();
        let thread = thread::Builder::new()
            .name("chunk-store".into())
            .spawn(move || its.work())
            .map_err(|source| StoreOpenError::Thread { folder, source })?;
        let thread = Some(thread);
        Ok(Self(Arc::new(StoreOwner { shared, thread })))
    }

    /// Returns the id of the store. [`Store::clear`] changes the id.
    pub fn id(&self) -> StoreId {
        lock(&self.0.shared.identity).id
    }

    /// Returns the secret for cutting the chunks of this store.
    pub fn secret(&self) -> [u8; 32] {
        lock(&self.0.shared.identity).secret
    }

    /// Returns whether the store probably has a chunk, without accessing the disk.
    ///
    /// The result is wrong for one in 500,000 absent names. A chunk in the index may also turn out
    /// to be damaged when it is read.
    pub fn has(&self, name: &ChunkName) -> bool {
        let StoreParts { reader, queue, .. } = &*self.0.shared;
        // The order of the checks matters: a chunk is added to the index before it leaves the
        // queue.
        queue.contains(name) || reader.index.contains(name)
    }

    /// Returns the chunk with this name and a length of `length` bytes, or `None` if the store
    /// cannot read it. Blocks during the disk access.
    pub fn get(&self, name: &ChunkName, length: usize) -> Option<Bytes> {
        let StoreParts { reader, queue, .. } = &*self.0.shared;
        let find = || {
            if length > CHUNK_MAX {
                return None;
            }
            // The caller of `put` may have passed a wrong name.
            let is_right =
                |content: &Bytes| content.len() == length && ChunkName::of(content) == *name;
            let waiting = queue.get(name).filter(is_right);
            waiting.or_else(|| reader.get(name, length))
        };
        let found = find();
        let counter = if found.is_some() {
            &reader.counters.hits
        } else {
            &reader.counters.misses
        };
        counter.add(1);
        found
    }

    /// Stores a chunk. Drops the chunk if the store already has it, if it is smaller than
    /// [`KEPT_LEAST`] or larger than [`CHUNK_MAX`], or if the queue is full.
    ///
    /// Never waits for the disk. `has` and `get` find the chunk in the queue from now on. The queue
    /// counts only the bytes of `content`. `content` should therefore not be a small slice of a
    /// large buffer.
    pub fn put(&self, name: ChunkName, content: Bytes) {
        let StoreParts { reader, queue, .. } = &*self.0.shared;
        if self.has(&name) {
            reader.counters.known.add(1);
        } else if !(KEPT_LEAST..=CHUNK_MAX).contains(&content.len()) || !queue.push(name, content) {
            reader.counters.dropped.add(1);
        }
    }

    /// Removes a chunk from the index. After the next start, the index may contain the chunk again.
    pub fn forget(&self, name: &ChunkName) {
        let StoreParts { reader, queue, .. } = &*self.0.shared;
        queue.remove(name);
        reader.forget(name);
    }

    /// Removes all chunks, and gives the store a new identity. Blocks until a running write ends
    /// and the files are removed.
    ///
    /// # Errors
    /// [`ClearError`] if the new identity cannot be written, or the store is retired. The store is
    /// then unchanged.
    pub fn clear(&self, fresh: IdentitySeed) -> Result<(), ClearError> {
        let StoreParts { reader, queue, .. } = &*self.0.shared;
        queue.hold();
        let mut writer = lock(&self.0.shared.writer);
        let identity = StoreIdentity::from(fresh);
        let restarted = writer.restart(&identity);
        if restarted.is_ok() {
            *lock(&self.0.shared.identity) = identity;
            reader.counters.dropped.add(queue.clear());
        }
        drop(writer);
        queue.release();
        restarted.map_err(|source| ClearError {
            folder: reader.folder.clone(),
            source,
        })
    }

    /// Releases the folder for another process. Drops all queued chunks, stops a rebuild of the
    /// index, and prevents further writes. Blocks until a running write ends.
    ///
    /// Indexed chunks stay readable until the other process removes them.
    pub fn retire(&self) {
        let StoreParts { reader, queue, .. } = &*self.0.shared;
        queue.close();
        reader.counters.dropped.add(queue.clear());
        queue.hold();
        lock(&self.0.shared.writer).retire();
        queue.release();
    }

    /// Waits until all queued chunks are written or dropped, and until the index is rebuilt.
    pub fn settle(&self) {
        self.0.shared.queue.wait_until_idle();
    }

    /// Returns the reason why the store currently drops new chunks. Returns `None` while the folder
    /// can be written.
    pub fn trouble(&self) -> Option<String> {
        lock(&self.0.shared.reader.trouble).clone()
    }

    /// Returns the state and the event counts of the store.
    pub fn counts(&self) -> StoreCounts {
        let StoreParts { reader, queue, .. } = &*self.0.shared;
        let counters = &reader.counters;
        StoreCounts {
            entries: reader.index.entries(),
            segments: reader.segments.count() as u64,
            disk_bytes: reader.segments.total_bytes(),
            index_bytes: reader.index.memory_bytes(),
            queue_bytes: queue.size_bytes() as u64,
            written: counters.written.get(),
            written_bytes: counters.written_bytes.get(),
            known: counters.known.get(),
            dropped: counters.dropped.get(),
            hits: counters.hits.get(),
            misses: counters.misses.get(),
            damaged: counters.damaged.get(),
            evicted: counters.evicted.get(),
            write_errors: counters.write_errors.get(),
            is_rebuilding: queue.is_busy(),
        }
    }
}

impl StoreParts {
    /// Runs the store's thread. The thread writes queued chunks, and rebuilds the index in between.
    fn work(&self) {
        let _ended = EndNotifier(&self.queue);
        loop {
            let has_unread = lock(&self.writer).has_unread();
            match self.queue.next(has_unread) {
                WriterTask::Write(batch) => {
                    let mut writer = lock(&self.writer);
                    writer.write(&batch);
                    self.queue.done(&batch);
                    // Both kinds of work alternate, so that neither delays the other.
                    writer.rebuild_some();
                }
                WriterTask::Other => lock(&self.writer).rebuild_some(),
                WriterTask::End => break,
            }
        }
        lock(&self.writer).seal();
    }
}

/// Guard that is dropped at the end of the store's thread, even after a panic. The drop reports the
/// end to waiting threads.
struct EndNotifier<'a>(&'a WriteQueue);

impl Drop for EndNotifier<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Drop for StoreOwner {
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Locks a mutex, even if a thread panicked while it held the lock. In the worst case a chunk is
/// missing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Assumed average chunk size. It determines the number of shards in the index.
const CHUNK_USUAL_BYTES: u64 = 16 * 1024;

const LOCK_FILE: &str = "lock";
