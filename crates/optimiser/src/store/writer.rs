//! Writer of a store. It appends chunks, seals and removes segments, and rebuilds the index.
//!
//! Only one thread uses the writer at any time. After an error, the writer pauses and drops new
//! chunks. On a full disk, it removes the oldest segments instead, and the store stays smaller for
//! ten minutes.
#![allow(
    clippy::disallowed_methods,
    reason = "reads the clock for how long nothing is written after an error"
)]

use std::{
    collections::VecDeque,
    io, iter,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    LOCK_FILE,
    files::{self, FileLock, StoreFile},
    format::{
        self, HEADER_BYTES, RECORD_HEADER_BYTES, RECORDS_MAX, RecordPosition, SEGMENT_MAX_BYTES,
        footer_bytes, record_bytes,
    },
    identity::{self, StoreIdentity},
    index::RecordLocation,
    live_segments, lock,
    reader::{self, StoreReader},
    segment::{self, SegmentContent},
};
use crate::chunk::ChunkName;

pub(super) struct StoreWriter {
    reader: Arc<StoreReader>,
    limits: StoreLimits,
    /// Time at which a full disk last shrank the store, and the limits before the store first
    /// shrank.
    shrunk: Option<(Instant, StoreLimits)>,
    identity: StoreIdentity,
    /// Lock on the folder. `None` if another process may use the folder.
    lock: Option<Box<dyn FileLock>>,
    /// Whether the segments of earlier runs have been listed.
    is_listed: bool,
    /// Numbers of the segments of earlier runs whose chunks are not in the index yet.
    unread: VecDeque<u64>,
    next_number: u64,
    current: Option<CurrentSegment>,
    paused_until: Option<Instant>,
}

/// Segment to which the writer appends chunks.
struct CurrentSegment {
    number: u64,
    file: Box<dyn StoreFile>,
    entries: Vec<RecordPosition>,
    /// Offset of the next record.
    end: u64,
}

/// Limits that follow from the configured size of a store.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreLimits {
    size_max_bytes: u64,
    segment_max_bytes: u64,
    records_max: usize,
    entries_max: u64,
    pause: Duration,
}

impl StoreLimits {
    pub(super) fn new(size_max_bytes: u64, pause: Duration) -> Self {
        // A full store removes one segment at a time. The size of a segment is a sixteenth of the
        // store, within fixed limits.
        let segment_max_bytes = (size_max_bytes / 16).clamp(SEGMENT_LEAST_BYTES, SEGMENT_MAX_BYTES);
        Self {
            size_max_bytes,
            segment_max_bytes,
            records_max: (segment_max_bytes / CHUNK_LEAST_BYTES) as usize,
            entries_max: size_max_bytes / CHUNK_LEAST_BYTES,
            pause,
        }
    }

    /// Returns whether a chunk of `length` bytes fits a segment that has `records` records and ends
    /// at `end`.
    fn has_room(&self, end: u64, records: usize, length: usize) -> bool {
        records < self.records_max
            && end + record_bytes(length) + footer_bytes(records + 1) <= self.segment_max_bytes
    }
}

impl StoreWriter {
    pub(super) fn new(
        reader: Arc<StoreReader>,
        limits: StoreLimits,
        identity: StoreIdentity,
        lock: Box<dyn FileLock>,
    ) -> Self {
        Self {
            reader,
            limits,
            shrunk: None,
            identity,
            lock: Some(lock),
            is_listed: false,
            unread: VecDeque::new(),
            next_number: 0,
            current: None,
            paused_until: None,
        }
    }

    /// Returns whether the index still lacks chunks of earlier runs. If the segments could not be
    /// listed, the writer pauses. After the pause, the next write lists the segments again.
    pub(super) fn has_unread(&self) -> bool {
        let is_new = !self.is_listed && self.paused_until.is_none();
        self.lock.is_some() && (is_new || !self.unread.is_empty())
    }

    /// Performs one step of the index rebuild. It lists the segments, or reads the newest unread
    /// segment.
    pub(super) fn rebuild_some(&mut self) {
        if self.lock.is_none() {
            return;
        }
        let done = match self.unread.pop_back() {
            None if self.is_listed || self.is_paused() => Ok(()),
            None => self.list(),
            Some(number) => self.read(number),
        };
        if let Err(error) = done.and_then(|()| self.make_room(0, 0)) {
            self.pause(&error);
        }
    }

    /// Writes chunks in order. Drops chunks that cannot be written.
    pub(super) fn write(&mut self, batch: &[(ChunkName, Bytes)]) {
        let mut left = batch;
        let mut evictions = 0;
        while !left.is_empty() && self.lock.is_some() && !self.is_paused() {
            let written = self.keep_folder().and_then(|()| self.write_some(left));
            match written {
                Ok(count) => {
                    left = &left[count..];
                    self.recover();
                }
                Err(error) => {
                    self.abandon();
                    let is_full = files::is_full(&error) && evictions < EVICTIONS_MAX;
                    if is_full && self.shrink() {
                        evictions += 1;
                    } else {
                        self.pause(&error);
                        break;
                    }
                }
            }
        }
        self.reader.counters.dropped.add(left.len());
    }

    /// Writes the footer of the current segment. The next chunk begins a new segment.
    pub(super) fn seal(&mut self) {
        if self.lock.is_none() {
            return;
        }
        if let Err(error) = self.try_seal() {
            self.pause(&error);
        }
    }

    /// Removes all chunks, and gives the store a new identity.
    ///
    /// # Errors
    /// An error if the segments cannot be listed, if the identity cannot be written, or if the
    /// store is retired. The store is then unchanged, but the next start may find the new identity.
    pub(super) fn restart(&mut self, identity: &StoreIdentity) -> io::Result<()> {
        if self.lock.is_none() {
            return Err(io::Error::other("the store is retired"));
        }
        if !self.is_listed {
            self.list()?;
        }
        let reader = &self.reader;
        identity::write(&*reader.files, &reader.folder, identity)?;
        self.identity = *identity;
        self.current = None;
        self.unread.clear();
        for number in reader.segments.numbers() {
            // A segment that cannot be removed has the old identity, so it no longer belongs to
            // this store. The next start tries to remove it again.
            if self.remove_file(number).is_err() {
                reader.counters.write_errors.add(1);
            }
        }
        reader.segments.clear();
        reader.index.clear();
        Ok(())
    }

    /// Seals the current segment, releases the lock, and prevents further writes.
    pub(super) fn retire(&mut self) {
        self.seal();
        self.current = None;
        self.unread.clear();
        self.lock = None;
    }

    fn is_paused(&self) -> bool {
        self.paused_until
            .is_some_and(|until| Instant::now() < until)
    }

    /// Stops writing for the configured pause. Logs the reason if it differs from the previous
    /// reason.
    fn pause(&mut self, error: &io::Error) {
        let reader = &self.reader;
        reader.counters.write_errors.add(1);
        self.paused_until = Some(Instant::now() + self.limits.pause);
        let reason = error.to_string();
        let mut trouble = lock(&reader.trouble);
        if trouble.as_ref() != Some(&reason) {
            let folder = reader.folder.display();
            tracing::warn!(%folder, %error, "the chunk store keeps nothing new until its folder can be written");
            *trouble = Some(reason);
        }
    }

    /// Records a successful write: removes the reason for the last pause. If the last shrinking was
    /// at least [`SHRUNK_TIME`] ago, restores the limits.
    fn recover(&mut self) {
        if lock(&self.reader.trouble).take().is_some() {
            let folder = self.reader.folder.display();
            tracing::info!(%folder, "the chunk store can be written again");
        }
        if let Some((since, limits)) = self.shrunk
            && since.elapsed() >= SHRUNK_TIME
        {
            (self.limits, self.shrunk) = (limits, None);
        }
    }

    /// Creates the folder again if it was removed. The store is then empty.
    ///
    /// # Errors
    /// The error of creating the folder, or an error if another process has the lock.
    fn keep_folder(&mut self) -> io::Result<()> {
        let reader = self.reader.clone();
        if self.lock.as_ref().is_some_and(|it| !it.is_in_place()) {
            reader.segments.clear();
            reader.index.clear();
            self.current = None;
            self.unread.clear();
            self.is_listed = false;
            reader.files.make_folder(&reader.folder)?;
            let lock = reader.files.lock(&reader.folder.join(LOCK_FILE))?;
            let lock = lock.ok_or_else(|| io::Error::other("another process has the folder"))?;
            identity::write(&*reader.files, &reader.folder, &self.identity)?;
            self.lock = Some(lock);
            let folder = reader.folder.display();
            tracing::warn!(%folder, "the folder of the chunk store was removed; it is made again, and empty");
        }
        if let Some(current) = self.current.take_if(|it| !it.file.is_in_place()) {
            reader.segments.remove(current.number);
            reader.index.remove_segment(current.number as u16);
        }
        Ok(())
    }

    /// Removes the oldest segment because the disk is full, and lowers the limits of the store.
    /// Returns whether a segment was removed.
    fn shrink(&mut self) -> bool {
        let reader = self.reader.clone();
        let Some(oldest) = reader.segments.oldest() else {
            return false;
        };
        let size_max_bytes = reader.segments.total_bytes() / 16 * 15;
        let before = self.limits;
        if size_max_bytes < before.size_max_bytes {
            self.limits = StoreLimits::new(size_max_bytes, before.pause);
        }
        if self.shrunk.is_none() {
            let folder = reader.folder.display();
            tracing::warn!(%folder, "the disk of the chunk store is full: its oldest chunks make room for new ones");
        }
        let configured = self.shrunk.map_or(before, |(_, limits)| limits);
        self.shrunk = Some((Instant::now(), configured));
        self.evict(oldest).is_ok()
    }

    /// Finds the segments of earlier runs in the folder.
    fn list(&mut self) -> io::Result<()> {
        let reader = self.reader.clone();
        let mut numbers = Vec::new();
        for listed in reader.files.list(&reader.folder)? {
            let Some(number) = live_segments::number_of(&listed.name) else {
                continue;
            };
            // A file that is too large is not a segment. Its size is recorded as zero, so that the
            // file displaces no segment.
            let is_one = listed.size_bytes <= SEGMENT_MAX_BYTES;
            let size_bytes = if is_one { listed.size_bytes } else { 0 };
            reader.segments.set(number, size_bytes);
            numbers.push(number);
        }
        numbers.sort_unstable();
        self.next_number = numbers.last().map_or(1, |last| last + 1);
        self.unread = numbers.into();
        self.is_listed = true;
        Ok(())
    }

    /// Adds the chunks of a segment to the index. Writes the footer of the segment if it has none.
    fn read(&mut self, number: u64) -> io::Result<()> {
        let reader = self.reader.clone();
        let path = live_segments::path(&reader.folder, number);
        let contents = reader
            .files
            .open(&path)
            .and_then(|file| segment::read_segment(&*file, self.identity.id, number));
        let (entries, is_sealed) = match contents {
            Ok(SegmentContent::Sealed(entries)) => (entries, true),
            Ok(SegmentContent::Unsealed(entries)) => (entries, false),
            Ok(SegmentContent::Foreign) => {
                reader.counters.damaged.add(1);
                (Vec::new(), false)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), false),
            // The segment stays unknown, and is removed when it is the oldest.
            Err(error) if reader::is_passing(&error) => return Ok(()),
            Err(_) => {
                reader.counters.damaged.add(1);
                (Vec::new(), false)
            }
        };
        let Some(last) = entries.last() else {
            self.remove_file(number)?;
            reader.segments.remove(number);
            return Ok(());
        };
        for entry in &entries {
            reader.index.insert(&entry.name, location(number, entry));
        }
        if !is_sealed {
            let file = reader.files.open_to_write(&path)?;
            let size_bytes = seal(&*file, number, &entries, last.end())?;
            reader.segments.set(number, size_bytes);
        }
        Ok(())
    }

    /// Writes the first chunks of a batch. Returns the number of chunks written or dropped.
    fn write_some(&mut self, batch: &[(ChunkName, Bytes)]) -> io::Result<usize> {
        if !self.is_listed {
            self.list()?;
        }
        let limits = self.limits;
        let has_room = |current: &CurrentSegment, length| {
            limits.has_room(current.end, current.entries.len(), length)
        };
        if let (Some(current), Some((_, next))) = (&self.current, batch.first())
            && !has_room(current, next.len())
        {
            self.try_seal()?;
        }
        let current = self.current.as_ref();
        let (mut end, mut records) = current.map_or((HEADER_BYTES as u64, 0), |current| {
            (current.end, current.entries.len())
        });
        let before = current.map_or(0, |_| end + footer_bytes(records));
        let mut count = 0;
        for (_, content) in batch {
            if !limits.has_room(end, records, content.len()) {
                break;
            }
            end += record_bytes(content.len());
            records += 1;
            count += 1;
        }
        if self.make_room(end + footer_bytes(records) - before, count as u64)? {
            self.append(&batch[..count])?;
            return Ok(count);
        }
        if self.current.is_some() {
            // This one segment fills a very small store.
            self.try_seal()?;
            return Ok(0);
        }
        self.reader.counters.dropped.add(batch.len());
        Ok(batch.len())
    }

    /// Appends chunks to the current segment, or to a new segment. The chunks must fit the segment.
    fn append(&mut self, chunks: &[(ChunkName, Bytes)]) -> io::Result<()> {
        let reader = self.reader.clone();
        let mut bytes = Vec::new();
        let current = match &mut self.current {
            Some(current) => current,
            none => {
                let number = self.next_number;
                self.next_number += 1;
                let file = reader
                    .files
                    .create(&live_segments::path(&reader.folder, number))?;
                bytes.extend_from_slice(&format::header(self.identity.id, number));
                none.insert(CurrentSegment {
                    number,
                    file,
                    entries: Vec::new(),
                    end: 0,
                })
            }
        };
        let (number, begin, known) = (current.number, current.end, current.entries.len());
        let sizes = chunks.iter().map(|(_, content)| content.len());
        bytes.reserve_exact(sizes.map(|length| record_bytes(length) as usize).sum());
        let mut entries = Vec::with_capacity(chunks.len());
        for (name, content) in chunks {
            let entry = RecordPosition {
                name: *name,
                offset: (begin + bytes.len() as u64) as u32,
                length_bytes: content.len() as u32,
            };
            bytes.extend_from_slice(&format::record_header(number, &entry));
            bytes.extend_from_slice(content);
            let zeros = record_bytes(content.len()) as usize - RECORD_HEADER_BYTES - content.len();
            bytes.extend(iter::repeat_n(0, zeros));
            entries.push(entry);
        }
        // The bytes are counted before the write, since a failed write may leave some of them in
        // the file.
        let end = begin + bytes.len() as u64;
        let size_bytes = end + footer_bytes(known + entries.len());
        reader.segments.set(number, size_bytes);
        files::write_all_at(&*current.file, &bytes, begin)?;
        current.end = end;
        for entry in &entries {
            reader.index.insert(&entry.name, location(number, entry));
            reader
                .counters
                .written_bytes
                .add(entry.length_bytes as usize);
        }
        reader.counters.written.add(entries.len());
        current.entries.append(&mut entries);
        Ok(())
    }

    fn try_seal(&mut self) -> io::Result<()> {
        let Some(current) = self.current.take() else {
            return Ok(());
        };
        let size_bytes = seal(
            &*current.file,
            current.number,
            &current.entries,
            current.end,
        )?;
        self.reader.segments.set(current.number, size_bytes);
        Ok(())
    }

    /// Closes the current segment after an error. Its earlier chunks stay available, even if its
    /// footer cannot be written.
    fn abandon(&mut self) {
        let Some(current) = &self.current else { return };
        let number = current.number;
        if current.entries.is_empty() {
            self.current = None;
            if self.remove_file(number).is_ok() {
                self.reader.segments.remove(number);
            }
        } else if self.try_seal().is_err() {
            self.reader.counters.write_errors.add(1);
        }
    }

    /// Removes the oldest segments until the store has room for further bytes and entries. Returns
    /// false if the store cannot make enough room.
    fn make_room(&mut self, more_bytes: u64, more_entries: u64) -> io::Result<bool> {
        let reader = self.reader.clone();
        loop {
            let Some(oldest) = reader.segments.oldest() else {
                return Ok(more_bytes <= self.limits.size_max_bytes);
            };
            let has_room = reader.segments.total_bytes() + more_bytes <= self.limits.size_max_bytes
                && reader.index.entries() + more_entries <= self.limits.entries_max
                && self.next_number - oldest < NUMBERS_MAX;
            if has_room {
                return Ok(true);
            }
            if self.current.as_ref().map(|current| current.number) == Some(oldest) {
                return Ok(false);
            }
            self.evict(oldest)?;
        }
    }

    /// Removes a segment and its entries in the index. The segment must be the oldest.
    fn evict(&mut self, number: u64) -> io::Result<()> {
        let reader = self.reader.clone();
        let read = || {
            let file = reader
                .files
                .open(&live_segments::path(&reader.folder, number))?;
            segment::read_segment(&*file, self.identity.id, number)
        };
        // If the oldest segment is unread, it is the first of the unread segments.
        let is_unread = self.unread.front() == Some(&number);
        let contents = if is_unread { None } else { Some(read()) };
        self.remove_file(number)?;
        if is_unread {
            self.unread.pop_front();
        }
        reader.segments.remove(number);
        reader.counters.evicted.add(1);
        match contents {
            None => {}
            Some(Ok(SegmentContent::Sealed(entries))) => {
                for entry in &entries {
                    reader.index.remove(&entry.name, location(number, entry));
                }
            }
            // The table of the segment is unknown, or differs from the entries in the index.
            Some(_) => reader.index.remove_segment(number as u16),
        }
        Ok(())
    }

    /// Removes the file of a segment, if it exists.
    fn remove_file(&self, number: u64) -> io::Result<()> {
        let reader = &self.reader;
        match reader
            .files
            .remove(&live_segments::path(&reader.folder, number))
        {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

fn location(number: u64, entry: &RecordPosition) -> RecordLocation {
    RecordLocation {
        segment: number as u16,
        offset: entry.offset,
    }
}

/// Truncates a segment after its last record, and writes the footer. Returns the size of the
/// segment in bytes.
fn seal(
    file: &dyn StoreFile,
    number: u64,
    entries: &[RecordPosition],
    end: u64,
) -> io::Result<u64> {
    let footer = format::footer(number, entries);
    file.truncate(end)?;
    files::write_all_at(file, &footer, end)?;
    Ok(end + footer.len() as u64)
}

/// Minimum size of a segment in a small store.
const SEGMENT_LEAST_BYTES: u64 = 256 * 1024;

/// Maximum number of segments that the writer removes for one batch on a full disk. If the disk is
/// still full after these removals, files of other programs fill the disk.
const EVICTIONS_MAX: usize = 4;

/// Time for which a store stays smaller after its disk was full.
const SHRUNK_TIME: Duration = Duration::from_secs(600);

/// Number of bytes of the store for each permitted index entry. It is a quarter of the usual chunk
/// size. An entry takes 8 bytes of memory.
const CHUNK_LEAST_BYTES: u64 = 4096;

/// Maximum difference between the number of the oldest segment and the next new number. It is below
/// 2¹⁶, since the last 16 bits of a number identify a segment.
const NUMBERS_MAX: u64 = 60_000;

const _: () = assert!(SEGMENT_MAX_BYTES / CHUNK_LEAST_BYTES == RECORDS_MAX as u64);
