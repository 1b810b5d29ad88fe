//! What a spool has, and who reads it.
//!
//! Bytes come in the order of the file, and the newest ones are kept. The file goes on as fast as its fastest reader
//! takes it. A reader that falls behind by more than there is room for has lost its place; nobody waits for it.

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

use super::{ring::Ring, room::Room};

/// What a spool has, and who reads it.
#[derive(Debug)]
pub(super) struct Contents {
    ring: Arc<Ring>,
    size_bytes: u64,
    /// Tells it from others that had its name.
    instance: u64,
    state: watch::Sender<State>,
    /// Held by who writes, until the disk has answered.
    writing: Arc<Mutex<()>>,
    /// Given back once nobody reads and nobody writes any more.
    _room: Room,
}

/// What has come, and how far it has been read.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The bytes from the beginning of the file that have come.
    have_bytes: u64,
    /// The first of them that is still there.
    begin_bytes: u64,
    /// Streams that have begun to bring bytes, and have not ended.
    fillers: u32,
    /// How far each has come.
    readers: BTreeMap<u64, u64>,
    next_reader: u64,
    /// Readers that had everything are wanted in this number, and have been so many.
    readers_due: u32,
    readers_done: u32,
    /// Why nothing more comes.
    broken: Option<String>,
}

/// One that takes bytes out.
#[derive(Debug)]
pub(super) struct Reader {
    contents: Arc<Contents>,
    number: u64,
    at_bytes: u64,
    has_all: bool,
    changes: watch::Receiver<State>,
}

/// One that brings bytes.
#[derive(Debug)]
pub(super) struct Filler {
    contents: Arc<Contents>,
    at_bytes: u64,
}

/// Why a spool does not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    #[error("spool: nobody brings the rest of the file")]
    Unattended,
    #[error("spool: this server is too far behind the others")]
    Behind,
    #[error("spool: {0}")]
    Broken(String),
    #[error("spool: the bytes do not follow those that have come")]
    Gap,
    #[error("spool: more bytes than the file has")]
    TooMany,
}

impl State {
    /// Whether all have had the file.
    pub(super) fn is_done(&self) -> bool {
        self.readers_done >= self.readers_due || self.broken.is_some()
    }

    /// Whether somebody brings bytes or takes some.
    pub(super) fn is_used(&self) -> bool {
        self.fillers > 0 || !self.readers.is_empty()
    }

    /// How far the fastest has come of those that do not have all of a file of `size_bytes`.
    fn fastest_bytes(&self, size_bytes: u64) -> u64 {
        let at = self.readers.values().copied();
        at.filter(|it| *it < size_bytes).max().unwrap_or(size_bytes)
    }
}

impl Contents {
    pub(super) fn new(ring: Ring, room: Room, request: &SpoolRequest) -> Arc<Self> {
        let state = State {
            // Who asks first goes on where it is.
            have_bytes: request.offset_bytes,
            begin_bytes: request.offset_bytes,
            readers_due: request.readers,
            ..State::default()
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

    pub(super) fn changes(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// A reader from `at_bytes` on; `None` if that byte is gone.
    pub(super) fn reader(self: &Arc<Self>, at_bytes: u64) -> Option<Reader> {
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
        Some(Reader {
            contents: self.clone(),
            number: number?,
            at_bytes,
            has_all: false,
            changes: self.changes(),
        })
    }

    /// One that brings bytes from `at_bytes` on.
    ///
    /// # Errors
    /// [`SpoolError::Gap`] if those before have not come.
    pub(super) fn filler(self: &Arc<Self>, at_bytes: u64) -> Result<Filler, SpoolError> {
        if at_bytes > self.have_bytes() {
            return Err(SpoolError::Gap);
        }
        self.state.send_modify(|state| state.fillers += 1);
        Ok(Filler {
            contents: self.clone(),
            at_bytes,
        })
    }
}

impl Filler {
    /// Takes bytes in. Waits until there is room. Bytes that have come before are left out.
    ///
    /// # Errors
    /// [`SpoolError`] if they do not belong here, or the disk does not take them.
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

impl Drop for Filler {
    fn drop(&mut self) {
        let left = |state: &mut State| state.fillers -= 1;
        self.contents.state.send_modify(left);
    }
}

impl Contents {
    /// Waits until bytes from `at` on can be taken. Returns how many.
    async fn room(&self, at: u64) -> Result<u64, SpoolError> {
        let end = |state: &State| state.fastest_bytes(self.size_bytes) + self.ring.room_bytes();
        let has_room = |state: &State| state.broken.is_some() || at < end(state);
        let mut changes = self.changes();
        let state = changes.wait_for(has_room).await;
        let state = state.expect("the sender is here");
        match &state.broken {
            Some(why) => Err(SpoolError::Broken(why.clone())),
            None => Ok(end(&state) - at),
        }
    }

    /// Writes bytes. Cancelled, it lets nobody else write before the disk has answered.
    async fn put(
        &self,
        part: Bytes,
        at: u64,
        alone: OwnedMutexGuard<()>,
    ) -> Result<OwnedMutexGuard<()>, SpoolError> {
        let end = at + part.len() as u64;
        let begin = end.saturating_sub(self.ring.room_bytes());
        // Who reads what is overwritten from now on sees it here.
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

impl Reader {
    /// The next bytes; `None` at the end of the file. Cancelled, it loses nothing.
    ///
    /// # Errors
    /// [`SpoolError`] if they are gone, or do not come.
    pub(super) async fn read(&mut self) -> Result<Option<Bytes>, SpoolError> {
        let at = self.at_bytes;
        if at == self.contents.size_bytes {
            if !self.has_all {
                self.has_all = true;
                let done = |state: &mut State| state.readers_done += 1;
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

    /// Waits for bytes beyond those that have been read. Returns the end of those that have come.
    async fn wait(&mut self) -> Result<u64, SpoolError> {
        let at = self.at_bytes;
        let has_news = |state: &State| {
            state.have_bytes > at || state.begin_bytes > at || state.broken.is_some()
        };
        loop {
            let is_attended = |state: &State| state.fillers > 0;
            let news = self
                .changes
                .wait_for(|it| has_news(it) || !is_attended(it))
                .await;
            if has_news(&news.expect("the sender is here")) {
                break;
            }
            let news = self.changes.wait_for(|it| has_news(it) || is_attended(it));
            match timeout(FILLER_PATIENCE, news).await {
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

impl Drop for Reader {
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

/// The next spool's number. It begins somewhere else in each process: instances of different gateways must differ, too.
static INSTANCES: LazyLock<AtomicU64> =
    LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(())));

/// Bytes of one read.
const READ_BYTES_MAX: u64 = 256 * 1024;

/// Time in which somebody brings what an upload waits for: as long as a sender needs that has been interrupted.
const FILLER_PATIENCE: Duration = Duration::from_secs(20);
