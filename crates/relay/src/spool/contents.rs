//! Contents of a spool (a file for several servers), and its readers.
//!
//! Bytes arrive in the order of the file. The spool keeps only the newest bytes. New bytes are
//! accepted at the rate of the fastest reader. A slower reader fails if the next byte that it needs
//! has been overwritten.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
    io,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use ftp::spool::SpoolRequest;
use tokio::{
    sync::{Mutex, OwnedMutexGuard, watch},
    task::spawn_blocking,
    time::timeout,
};

use super::{disk_space::SpaceReservation, ring_file::RingFile};

/// Contents of a spool, and the state of its readers.
#[derive(Debug)]
pub(super) struct SpoolContents {
    ring: Arc<RingFile>,
    size_bytes: u64,
    /// Number that distinguishes this spool from other spools with the same identifier.
    instance: u64,
    state: watch::Sender<SpoolState>,
    /// Lock that a writer holds until the disk operation is complete.
    writing: Arc<Mutex<()>>,
    /// Reserved disk space. The space is released when the last reader and the last writer are
    /// dropped.
    _room: SpaceReservation,
}

/// Range of available bytes, and the progress of the readers.
#[derive(Debug, Default)]
pub(super) struct SpoolState {
    /// Number of bytes received, counted from the start of the file.
    have_bytes: u64,
    /// Offset of the first byte that is still available.
    begin_bytes: u64,
    /// Number of streams that are writing bytes to the spool.
    writers: u32,
    /// Offset of each reader in the file, by the reader's number.
    readers: BTreeMap<u64, u64>,
    next_reader: u64,
    /// Number of uploads that must read the complete file.
    readers_due: u32,
    readers_done: u32,
    /// Reason why no further bytes arrive.
    broken: Option<String>,
}

/// A reader of the spool, for one upload.
#[derive(Debug)]
pub(super) struct SpoolReader {
    contents: Arc<SpoolContents>,
    number: u64,
    at_bytes: u64,
    has_all: bool,
    changes: watch::Receiver<SpoolState>,
}

/// A writer to the spool, for one stream.
#[derive(Debug)]
pub(super) struct SpoolWriter {
    contents: Arc<SpoolContents>,
    at_bytes: u64,
}

/// Reason why a spool cannot continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    #[error("spool: no upload brings the rest of the file")]
    Unattended,
    #[error("spool: this server is too far behind the others")]
    Behind,
    #[error("spool: {0}")]
    Broken(String),
    #[error("spool: the bytes do not follow the received ones")]
    Gap,
    #[error("spool: more bytes than the file has")]
    TooMany,
}

impl SpoolState {
    /// Whether the spool is no longer needed: all uploads have read the file, or the spool has
    /// failed.
    pub(super) fn is_done(&self) -> bool {
        self.readers_done >= self.readers_due || self.broken.is_some()
    }

    /// Whether the spool has a reader or a writer.
    pub(super) fn is_used(&self) -> bool {
        self.writers > 0 || !self.readers.is_empty()
    }

    /// Returns the offset of the fastest reader that has not read the complete file. `size_bytes`
    /// is the size of the file.
    fn fastest_bytes(&self, size_bytes: u64) -> u64 {
        let at = self.readers.values().copied();
        at.filter(|it| *it < size_bytes).max().unwrap_or(size_bytes)
    }
}

impl SpoolContents {
    pub(super) fn new(ring: RingFile, room: SpaceReservation, request: &SpoolRequest) -> Arc<Self> {
        let state = SpoolState {
            // The first upload continues at its own offset.
            have_bytes: request.offset_bytes,
            begin_bytes: request.offset_bytes,
            readers_due: request.readers,
            ..SpoolState::default()
        };
        Arc::new(Self {
            ring: Arc::new(ring),
            size_bytes: request.size_bytes,
            instance: INSTANCES.fetch_add(1, Ordering::Relaxed),
            state: watch::Sender::new(state),
            writing: Arc::default(),
            _room: room,
        })
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn instance(&self) -> u64 {
        self.instance
    }

    pub(super) fn have_bytes(&self) -> u64 {
        self.state.borrow().have_bytes
    }

    pub(super) fn changes(&self) -> watch::Receiver<SpoolState> {
        self.state.subscribe()
    }

    /// Creates a reader that starts at the offset `at_bytes`. Returns `None` if that byte was
    /// overwritten.
    pub(super) fn reader(self: &Arc<Self>, at_bytes: u64) -> Option<SpoolReader> {
        let mut number = None;
        self.state.send_if_modified(|state| {
            if at_bytes < state.begin_bytes {
                return false;
            }
            number = Some(state.next_reader);
            state.next_reader += 1;
            state.readers.insert(state.next_reader - 1, at_bytes);
            true
        });
        Some(SpoolReader {
            contents: self.clone(),
            number: number?,
            at_bytes,
            has_all: false,
            changes: self.changes(),
        })
    }

    /// Creates a writer that starts at the offset `at_bytes`.
    ///
    /// # Errors
    /// [`SpoolError::Gap`] if bytes before this offset are missing.
    pub(super) fn writer(self: &Arc<Self>, at_bytes: u64) -> Result<SpoolWriter, SpoolError> {
        if at_bytes > self.have_bytes() {
            return Err(SpoolError::Gap);
        }
        self.state.send_modify(|state| state.writers += 1);
        Ok(SpoolWriter {
            contents: self.clone(),
            at_bytes,
        })
    }
}

impl SpoolWriter {
    /// Writes bytes to the spool. Waits for the fastest reader if the spool is full. Skips bytes
    /// that the spool has already received.
    ///
    /// # Errors
    /// [`SpoolError`] if the bytes exceed the size of the file, or if the disk operation fails.
    pub(super) async fn write(&mut self, mut bytes: Bytes) -> Result<(), SpoolError> {
        let contents = self.contents.clone();
        let end_bytes = self.at_bytes + bytes.len() as u64;
        if end_bytes > contents.size_bytes {
            return Err(SpoolError::TooMany);
        }
        let mut alone = contents.writing.clone().lock_owned().await;
        let have_bytes = contents.have_bytes();
        let known = have_bytes.saturating_sub(self.at_bytes);
        bytes.advance(known.min(bytes.len() as u64) as usize);
        self.at_bytes = end_bytes;
        let mut at = have_bytes;
        while !bytes.is_empty() {
            let room = contents.room(at).await?;
            let count = room.min(bytes.len() as u64);
            let part = bytes.split_to(count as usize);
            alone = contents.put(part, at, alone).await?;
            at += count;
        }
        Ok(())
    }
}

impl Drop for SpoolWriter {
    fn drop(&mut self) {
        let left = |state: &mut SpoolState| state.writers -= 1;
        self.contents.state.send_modify(left);
    }
}

impl SpoolContents {
    /// Waits until a byte at the offset `at` may be written. Returns the number of bytes that may
    /// be written.
    async fn room(&self, at: u64) -> Result<u64, SpoolError> {
        let end =
            |state: &SpoolState| state.fastest_bytes(self.size_bytes) + self.ring.room_bytes();
        let has_room = |state: &SpoolState| state.broken.is_some() || at < end(state);
        let mut changes = self.changes();
        let state = changes.wait_for(has_room).await;
        let state = state.expect("the sender is here");
        match &state.broken {
            Some(why) => Err(SpoolError::Broken(why.clone())),
            None => Ok(end(&state) - at),
        }
    }

    /// Writes bytes to the disk. If the future is cancelled, other writers still wait until the
    /// disk operation is complete.
    async fn put(
        &self,
        part: Bytes,
        at: u64,
        alone: OwnedMutexGuard<()>,
    ) -> Result<OwnedMutexGuard<()>, SpoolError> {
        let end = at + part.len() as u64;
        let begin = end.saturating_sub(self.ring.room_bytes());
        // From now on, the oldest bytes are overwritten. A reader that still needs them detects
        // this at `begin_bytes`.
        self.state.send_if_modified(|state| {
            state.begin_bytes = state.begin_bytes.max(begin);
            false
        });
        let ring = self.ring.clone();
        let written = on_disk(move || ring.write(&part, at).map(|()| alone)).await;
        self.state.send_modify(|state| match &written {
            Ok(_) => state.have_bytes = end,
            Err(error) => state.broken = Some(error.to_string()),
        });
        written.map_err(|error| SpoolError::Broken(error.to_string()))
    }
}

impl SpoolReader {
    /// Returns the next bytes. Returns `None` at the end of the file. Cancel safe.
    ///
    /// # Errors
    /// [`SpoolError`] if the bytes were overwritten, or do not arrive.
    pub(super) async fn read(&mut self) -> Result<Option<Bytes>, SpoolError> {
        let at = self.at_bytes;
        if at == self.contents.size_bytes {
            if !self.has_all {
                self.has_all = true;
                let done = |state: &mut SpoolState| state.readers_done += 1;
                self.contents.state.send_modify(done);
            }
            return Ok(None);
        }
        let have_bytes = self.wait().await?;
        let count = (have_bytes - at).min(READ_BYTES_MAX) as usize;
        let ring = self.contents.ring.clone();
        let read = on_disk(move || {
            let mut bytes = vec![0; count];
            ring.read(&mut bytes, at)?;
            Ok(bytes)
        });
        let bytes = read
            .await
            .map_err(|error| SpoolError::Broken(error.to_string()))?;
        if at < self.changes.borrow().begin_bytes {
            return Err(SpoolError::Behind);
        }
        self.at_bytes += count as u64;
        let (number, at_bytes) = (self.number, self.at_bytes);
        self.contents.state.send_modify(|state| {
            state.readers.insert(number, at_bytes);
        });
        Ok(Some(Bytes::from(bytes)))
    }

    /// Waits until bytes after the reader's offset are available. Returns the offset at which the
    /// available bytes end.
    async fn wait(&mut self) -> Result<u64, SpoolError> {
        let at = self.at_bytes;
        let has_news = |state: &SpoolState| {
            state.have_bytes > at || state.begin_bytes > at || state.broken.is_some()
        };
        loop {
            let is_attended = |state: &SpoolState| state.writers > 0;
            let news = self
                .changes
                .wait_for(|it| has_news(it) || !is_attended(it))
                .await;
            if has_news(&news.expect("the sender is here")) {
                break;
            }
            let news = self.changes.wait_for(|it| has_news(it) || is_attended(it));
            match timeout(WRITER_TIMEOUT, news).await {
                Ok(news) => drop(news.expect("the sender is here")),
                Err(_) => return Err(SpoolError::Unattended),
            }
        }
        let state = self.changes.borrow();
        if state.begin_bytes > at {
            Err(SpoolError::Behind)
        } else if state.have_bytes > at {
            Ok(state.have_bytes)
        } else {
            let why = state.broken.clone().unwrap_or_default();
            Err(SpoolError::Broken(why))
        }
    }
}

impl Drop for SpoolReader {
    fn drop(&mut self) {
        let number = self.number;
        self.contents.state.send_modify(|state| {
            state.readers.remove(&number);
        });
    }
}

async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Number of the next spool. Each process starts with a random number, because the numbers of
/// different gateways must differ.
static INSTANCES: LazyLock<AtomicU64> =
    LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(())));

/// Maximum number of bytes of one read.
const READ_BYTES_MAX: u64 = 256 * 1024;

/// Time limit for a stream to start writing the bytes for which an upload waits. An interrupted
/// sender needs some time to reconnect.
const WRITER_TIMEOUT: Duration = Duration::from_secs(20);
