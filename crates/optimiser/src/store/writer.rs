//! The side of a store that changes files: appends chunks, seals and removes segments, and rebuilds the index.
//!
//! One thread at a time has it. After an error nothing is written for a while: what comes meanwhile is dropped.
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
    files::{self, File, Lock},
    format::{
        self, Entry, HEADER_BYTES, RECORD_HEADER_BYTES, RECORDS_MAX, SEGMENT_MAX_BYTES,
        footer_bytes, record_bytes,
    },
    identity::{self, Identity, StoreId},
    index::Location,
    live,
    reader::{self, Reader},
    segment::{self, Contents},
};
use crate::chunk::Name;

pub(super) struct Writer {
    reader: Arc<Reader>,
    limits: Limits,
    id: StoreId,
    /// `None` when another process may have the folder.
    lock: Option<Box<dyn Lock>>,
    /// Whether the segments of earlier runs are known.
    is_listed: bool,
    /// Segments whose chunks are not in the index yet, by their numbers.
    unread: VecDeque<u64>,
    next_number: u64,
    current: Option<Current>,
    paused_until: Option<Instant>,
}

/// The segment that is being written.
struct Current {
    number: u64,
    file: Box<dyn File>,
    entries: Vec<Entry>,
    /// Where the next record begins.
    end: u64,
}

/// The bounds that follow from the size of a store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    size_max_bytes: u64,
    segment_max_bytes: u64,
    records_max: usize,
    entries_max: u64,
    pause: Duration,
}

impl Limits {
    pub(super) fn new(size_max_bytes: u64, pause: Duration) -> Self {
        // A sixteenth of a store goes at once when it is full, and at least some large chunks.
        let segment_max_bytes = (size_max_bytes / 16).clamp(SEGMENT_LEAST_BYTES, SEGMENT_MAX_BYTES);
        Self {
            size_max_bytes,
            segment_max_bytes,
            records_max: (segment_max_bytes / CHUNK_LEAST_BYTES) as usize,
            entries_max: size_max_bytes / CHUNK_LEAST_BYTES,
            pause,
        }
    }

    /// Whether a chunk has room in a segment with so many records up to `end`.
    fn has_room(&self, end: u64, records: usize, length: usize) -> bool {
        records < self.records_max
            && end + record_bytes(length) + footer_bytes(records + 1) <= self.segment_max_bytes
    }
}

impl Writer {
    pub(super) fn new(
        reader: Arc<Reader>,
        limits: Limits,
        id: StoreId,
        lock: Box<dyn Lock>,
    ) -> Self {
        Self {
            reader,
            limits,
            id,
            lock: Some(lock),
            is_listed: false,
            unread: VecDeque::new(),
            next_number: 0,
            current: None,
            paused_until: None,
        }
    }

    /// Whether the rebuild of the index has something to do. If the segments could not be found, the next write that is
    /// not too soon tries again.
    pub(super) fn has_unread(&self) -> bool {
        let is_new = !self.is_listed && self.paused_until.is_none();
        self.lock.is_some() && (is_new || !self.unread.is_empty())
    }

    /// Does a piece of the rebuild: finds the segments, or reads one of them, the newest first.
    pub(super) fn rebuild_some(&mut self) {
        if self.lock.is_none() {
            return;
        }
        let done = match self.unread.pop_back() {
            None if self.is_listed || self.is_paused() => Ok(()),
            None => self.list(),
            Some(number) => self.read(number),
        };
        if done.and_then(|()| self.make_room(0, 0)).is_err() {
            self.pause();
        }
    }

    /// Writes chunks one behind the other; drops those that cannot be written.
    pub(super) fn write(&mut self, batch: &[(Name, Bytes)]) {
        let mut left = batch;
        while !left.is_empty() && self.lock.is_some() && !self.is_paused() {
            match self.write_some(left) {
                Ok(count) => left = &left[count..],
                Err(_) => {
                    self.pause();
                    self.abandon();
                    break;
                }
            }
        }
        self.reader.tallies.dropped.add(left.len());
    }

    /// Gives the segment that is being written its footer. The next chunk begins another.
    pub(super) fn seal(&mut self) {
        if self.lock.is_some() && self.try_seal().is_err() {
            self.pause();
        }
    }

    /// Removes everything, and goes on as another store.
    ///
    /// # Errors
    /// If the identity cannot be written: nothing has changed then, or another start finds the new one.
    pub(super) fn restart(&mut self, identity: &Identity) -> io::Result<()> {
        if self.lock.is_none() {
            return Err(io::Error::other("the store is retired"));
        }
        if !self.is_listed {
            self.list()?;
        }
        let reader = &self.reader;
        identity::write(&*reader.files, &reader.folder, identity)?;
        self.id = identity.id;
        self.current = None;
        self.unread.clear();
        for number in reader.live.numbers() {
            // What cannot be removed belongs to another store from now on, and the next start tries again.
            if self.remove_file(number).is_err() {
                reader.tallies.write_errors.add(1);
            }
        }
        reader.live.clear();
        reader.index.clear();
        Ok(())
    }

    /// Seals what is being written, and lets the lock go. Writes nothing any more.
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

    fn pause(&mut self) {
        self.reader.tallies.write_errors.add(1);
        self.paused_until = Some(Instant::now() + self.limits.pause);
    }

    /// Finds the segments that are there.
    fn list(&mut self) -> io::Result<()> {
        let reader = self.reader.clone();
        let mut numbers = Vec::new();
        for listed in reader.files.list(&reader.folder)? {
            let Some(number) = live::number_of(&listed.name) else {
                continue;
            };
            // One that is too large is found foreign. It counts as none until then, so that it moves no other one out.
            let is_one = listed.size_bytes <= SEGMENT_MAX_BYTES;
            let size_bytes = if is_one { listed.size_bytes } else { 0 };
            reader.live.set(number, size_bytes);
            numbers.push(number);
        }
        numbers.sort_unstable();
        self.next_number = numbers.last().map_or(1, |last| last + 1);
        self.unread = numbers.into();
        self.is_listed = true;
        Ok(())
    }

    /// Takes the chunks of a segment into the index. One that was not sealed is now.
    fn read(&mut self, number: u64) -> io::Result<()> {
        let reader = self.reader.clone();
        let path = live::path(&reader.folder, number);
        let contents = reader
            .files
            .open(&path)
            .and_then(|file| segment::contents(&*file, self.id, number));
        let (entries, is_sealed) = match contents {
            Ok(Contents::Sealed(entries)) => (entries, true),
            Ok(Contents::Unsealed(entries)) => (entries, false),
            Ok(Contents::Foreign) => {
                reader.tallies.damaged.add(1);
                (Vec::new(), false)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), false),
            // It stays unknown, and is removed when it is the oldest.
            Err(error) if reader::is_passing(&error) => return Ok(()),
            Err(_) => {
                reader.tallies.damaged.add(1);
                (Vec::new(), false)
            }
        };
        let Some(last) = entries.last() else {
            self.remove_file(number)?;
            reader.live.remove(number);
            return Ok(());
        };
        for entry in &entries {
            reader.index.insert(&entry.name, location(number, entry));
        }
        if !is_sealed {
            let file = reader.files.open_to_write(&path)?;
            let size_bytes = seal(&*file, number, &entries, last.end())?;
            reader.live.set(number, size_bytes);
        }
        Ok(())
    }

    /// Writes the first ones of some chunks, and tells how many it wrote or dropped.
    fn write_some(&mut self, batch: &[(Name, Bytes)]) -> io::Result<usize> {
        if !self.is_listed {
            self.list()?;
        }
        let limits = self.limits;
        let has_room =
            |current: &Current, length| limits.has_room(current.end, current.entries.len(), length);
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
            // The store is so small that this one segment fills it.
            self.try_seal()?;
            return Ok(0);
        }
        self.reader.tallies.dropped.add(batch.len());
        Ok(batch.len())
    }

    /// Writes chunks for which there is room.
    fn append(&mut self, chunks: &[(Name, Bytes)]) -> io::Result<()> {
        let reader = self.reader.clone();
        let mut bytes = Vec::new();
        let current = match &mut self.current {
            Some(current) => current,
            none => {
                let number = self.next_number;
                self.next_number += 1;
                let file = reader.files.create(&live::path(&reader.folder, number))?;
                bytes.extend_from_slice(&format::header(self.id, number));
                none.insert(Current {
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
            let entry = Entry {
                name: *name,
                offset: (begin + bytes.len() as u64) as u32,
                length: content.len() as u32,
            };
            bytes.extend_from_slice(&format::record_header(number, &entry));
            bytes.extend_from_slice(content);
            let zeros = record_bytes(content.len()) as usize - RECORD_HEADER_BYTES - content.len();
            bytes.extend(iter::repeat_n(0, zeros));
            entries.push(entry);
        }
        // Counted before it is written, since some of it may be when it fails.
        let end = begin + bytes.len() as u64;
        let size_bytes = end + footer_bytes(known + entries.len());
        reader.live.set(number, size_bytes);
        files::write_all_at(&*current.file, &bytes, begin)?;
        current.end = end;
        for entry in &entries {
            reader.index.insert(&entry.name, location(number, entry));
            reader.tallies.written_bytes.add(entry.length as usize);
        }
        reader.tallies.written.add(entries.len());
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
        self.reader.live.set(current.number, size_bytes);
        Ok(())
    }

    /// After an error: what was written before it stays, if it can be sealed or not.
    fn abandon(&mut self) {
        let Some(current) = &self.current else { return };
        let number = current.number;
        if current.entries.is_empty() {
            self.current = None;
            if self.remove_file(number).is_ok() {
                self.reader.live.remove(number);
            }
        } else if self.try_seal().is_err() {
            self.reader.tallies.write_errors.add(1);
        }
    }

    /// Removes the oldest segments until there is room for more, in bytes and entries. False if there cannot be.
    fn make_room(&mut self, more_bytes: u64, more_entries: u64) -> io::Result<bool> {
        let reader = self.reader.clone();
        loop {
            let Some(oldest) = reader.live.oldest() else {
                return Ok(more_bytes <= self.limits.size_max_bytes);
            };
            let has_room = reader.live.total_bytes() + more_bytes <= self.limits.size_max_bytes
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

    /// Removes the oldest segment and what the index has of it.
    fn evict(&mut self, number: u64) -> io::Result<()> {
        let reader = self.reader.clone();
        let read = || {
            let file = reader.files.open(&live::path(&reader.folder, number))?;
            segment::contents(&*file, self.id, number)
        };
        // The oldest of all is the oldest of the unread ones, if it is one of them.
        let is_unread = self.unread.front() == Some(&number);
        let contents = if is_unread { None } else { Some(read()) };
        self.remove_file(number)?;
        if is_unread {
            self.unread.pop_front();
        }
        reader.live.remove(number);
        reader.tallies.evicted.add(1);
        match contents {
            None => {}
            Some(Ok(Contents::Sealed(entries))) => {
                for entry in &entries {
                    reader.index.remove(&entry.name, location(number, entry));
                }
            }
            // Its table is not known, or may be another than the one that the index was made from.
            Some(_) => reader.index.remove_segment(number as u16),
        }
        Ok(())
    }

    /// Removes a segment's file, if it is there.
    fn remove_file(&self, number: u64) -> io::Result<()> {
        let reader = &self.reader;
        match reader.files.remove(&live::path(&reader.folder, number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

fn location(number: u64, entry: &Entry) -> Location {
    Location {
        segment: number as u16,
        offset: entry.offset,
    }
}

/// Cuts a segment off behind its records, and writes the footer. Returns its size in bytes.
fn seal(file: &dyn File, number: u64, entries: &[Entry], end: u64) -> io::Result<u64> {
    let footer = format::footer(number, entries);
    file.truncate(end)?;
    files::write_all_at(file, &footer, end)?;
    Ok(end + footer.len() as u64)
}

/// Least size of the segments of a small store.
const SEGMENT_LEAST_BYTES: u64 = 256 * 1024;

/// For so many bytes of a store there is a chunk at most, a quarter of the usual size: 8 bytes of memory for each.
const CHUNK_LEAST_BYTES: u64 = 4096;

/// Most numbers from the oldest segment to the next one. The last 16 bits of a number say which one is meant.
const NUMBERS_MAX: u64 = 60_000;

const _: () = assert!(SEGMENT_MAX_BYTES / CHUNK_LEAST_BYTES == RECORDS_MAX as u64);
