//! Transfer of one file from the source to the destination. The file receives its final name only
//! when it is complete.

mod growing;
mod pieces;
mod spooled;
mod whole;

use std::{
    io::ErrorKind,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ftp::listing::{ListingEntry, TimePrecision};
use tokio::time::sleep;

use self::growing::{FOLLOW_EVERY, FOLLOW_QUIET, ReadRange};
use super::{
    backend::{Backend, FileReader, compare_hashes},
    failure::TaskError,
    job_context::JobContext,
};
use crate::{
    disk::{self, Stamp},
    job::{CopyVerification, RESUME_LEAST},
    journal::{Journal, PartOrigin, PartRecord},
    names::local,
    part_name::{digits_of, is_long, part_path, random_digits, short_part_path},
    plan::{ContentProof, File, TaskResult},
    server::{self, ServerError, TransferResult},
};

/// Mover of one file at a time.
pub(super) struct Mover<'a> {
    pub(super) shared: &'a JobContext,
    pub(super) source: &'a mut Backend,
    pub(super) destination: &'a mut Backend,
    /// Number of moved bytes. Bytes of a failed attempt are included.
    pub(super) moved_bytes: &'a mut u64,
    /// Whether a server has confirmed that it resumes a part file, or that it reads the file from a
    /// spool at the gateway.
    pub(super) has_begun: bool,
    /// Attributes of the source file, if they were queried immediately before the transfer.
    pub(super) found: Option<ListingEntry>,
}

/// Reasons why a part file's name differs from the usual name.
#[derive(Debug, Clone, Copy, Default)]
struct PartNaming {
    /// Whether the name is short, because the destination has refused the long name.
    is_short: bool,
    /// Whether another part file already has the usual name.
    is_taken: bool,
}

/// Paths of a file during its transfer.
struct TransferNames {
    source: Vec<u8>,
    /// Key of the part file in the journal.
    key: Vec<u8>,
    /// Digits in the part file's name, for its journal record. `None` if no later attempt needs the
    /// record.
    digits: Option<u32>,
    part: Vec<u8>,
    destination: Vec<u8>,
}

impl Mover<'_> {
    /// Moves a file. If the destination refuses the long name of the part file, the mover tries a
    /// shorter name.
    pub(super) async fn run(mut self, file: &File) -> Result<TaskResult, TaskError> {
        let mut naming = PartNaming {
            is_short: self.shared.takes_short_names.load(Ordering::Relaxed),
            is_taken: false,
        };
        loop {
            let names = self.names(file, naming).await;
            let is_long =
                !naming.is_short && names.part != names.destination && is_long(&names.part);
            let moved = match self.move_whole(file, &names).await {
                Ok(None) => self.move_as(file, names, naming).await,
                Ok(Some(outcome)) => Ok(outcome),
                Err(error) => Err(error),
            };
            if let (Err(_), Backend::Local(disk)) = (&moved, &mut *self.destination) {
                // This lane releases the part, because another lane may make the next attempt.
                disk.release_part();
            }
            match &moved {
                Err(error) if is_long && !self.has_begun && error.is_of_name() => {
                    naming.is_short = true;
                }
                Err(error) if !naming.is_taken && error.is_taken() => naming.is_taken = true,
                _ => {
                    // If the short name fails too, other names in the path are too long. The flag
                    // is therefore set only after success.
                    self.shared
                        .takes_short_names
                        .fetch_or(naming.is_short && moved.is_ok(), Ordering::Relaxed);
                    return moved;
                }
            }
        }
    }

    async fn move_as(
        &mut self,
        file: &File,
        mut names: TransferNames,
        naming: PartNaming,
    ) -> Result<TaskResult, TaskError> {
        let mut stat = self.stat(file, &names).await?;
        let origin = stat.origin();
        let journal = self.journal_for(origin);
        if journal.is_none() && names.digits.is_some() && !naming.is_taken {
            // The source has proved too small for a record.
            names.digits = None;
            let digits = digits_of(&names.source);
            self.name_part(&mut names, digits, naming);
        }
        if naming.is_taken {
            // The journal's record belongs to another part.
            end(journal.as_ref(), &names.key).await;
        }
        let overlap = match (&journal, origin) {
            (Some(journal), Some(origin)) => self.begin(journal, &names, origin).await?,
            _ => Overlap::default(),
        };
        let is_resumable = journal.is_some();
        let copied = match self.copy(&names, &overlap, &stat, journal.as_ref()).await {
            // If the server refuses an offset, it receives the whole file.
            Err(error)
                if (error.is_refusal()
                    || matches!(error, TaskError::Server(ServerError::NoRange)))
                    && overlap.length > 0
                    && !self.has_begun =>
            {
                let mut anew = Overlap::default();
                if let Backend::Local(_) = self.destination {
                    anew.new = self.new_part(journal.as_ref(), origin);
                }
                self.copy(&names, &anew, &stat, journal.as_ref()).await
            }
            copied => copied,
        };
        if !is_resumable {
            // The bytes moved so far are not kept for another attempt.
            *self.moved_bytes = 0;
        }
        let copied = match copied {
            Err(error @ TaskError::Overlap) => {
                match names.digits {
                    // No later attempt could find the part.
                    Some(_) => self.discard(&names, journal.as_ref()).await,
                    None => end(journal.as_ref(), &names.key).await,
                }
                return Err(error);
            }
            Err(error) => {
                if error.is_taken() {
                    return Err(error);
                }
                let is_full = matches!(&error, TaskError::Disk { source, .. }
                    if source.kind() == ErrorKind::StorageFull);
                let size_bytes = stat.size_bytes.filter(|_| is_full).unwrap_or(0);
                let is_hopeless = disk::never_fits(&local(&names.part), size_bytes);
                self.leave(&names, journal.as_ref(), is_hopeless).await;
                return Err(error);
            }
            Ok(copied) => copied,
        };
        let bytes = copied.bytes;
        if self.follows() {
            // The file no longer changes, so its present modification time is also the time in
            // later listings.
            stat.modified_unix_s = self.current_stat(&names).await?.modified_unix_s;
        }
        let (proof, is_grown) = self.check(&names, &stat, &copied).await?;
        let proof = match proof {
            // If the bytes passed through a spool, the hash of the stream proves nothing about the
            // copy at the server.
            ContentProof::Link if copied.is_spooled => ContentProof::Size,
            proof => proof,
        };
        self.give_name(&names, stat.modified_unix_s).await?;
        self.end_named(&names, journal.as_ref()).await;
        let modified_unix_s = stat.modified_unix_s;
        Ok(match is_grown {
            true => TaskResult::Grown {
                bytes,
                modified_unix_s,
                proof,
            },
            false => TaskResult::Moved {
                bytes,
                modified_unix_s,
                proof,
            },
        })
    }

    /// Removes a local part file that no later attempt can resume. The function is called after a
    /// failed transfer.
    async fn leave(
        &mut self,
        names: &TransferNames,
        journal: Option<&Arc<Journal>>,
        is_hopeless: bool,
    ) {
        if !matches!(self.destination, Backend::Local(_)) || names.part == names.destination {
            return;
        }
        let there = self.destination.look_for_file(&names.part).await;
        let length = there.ok().flatten().and_then(|it| it.size_bytes);
        // Without a record, the part is removed when it is closed.
        if journal.is_some() && (length == Some(0) || is_hopeless) {
            self.discard(names, journal).await;
        }
    }

    /// Removes a useless part file, and then its journal record. If the record were removed first,
    /// an interruption could leave a part that no run finds again.
    async fn discard(&mut self, names: &TransferNames, journal: Option<&Arc<Journal>>) {
        // The next attempt ignores a part that could not be removed.
        let removed = self.destination.remove(&names.part).await;
        if let (Ok(()), Backend::Local(disk)) = (removed, &*self.destination) {
            let _ = disk.files.named(&names.part).await;
        }
        end(journal, &names.key).await;
    }

    /// Renames a complete file to its final name. Before that, checks that no other process has
    /// taken over the job.
    async fn give_name(
        &mut self,
        names: &TransferNames,
        modified_unix_s: Option<i64>,
    ) -> Result<(), TaskError> {
        let (part, path) = (&names.part[..], &names.destination[..]);
        self.destination
            .complete(part, path, modified_unix_s)
            .await?;
        self.shared.pass_fence().await?;
        self.destination.name(part, path, modified_unix_s).await?;
        Ok(())
    }

    /// Removes the journal record of a part file after its file has its final name. A local file's
    /// name must first survive a power cut.
    async fn end_named(&self, names: &TransferNames, journal: Option<&Arc<Journal>>) {
        match (&*self.destination, journal) {
            (Backend::Local(_), Some(_)) => self.shared.end_later(&names.destination, &names.key),
            _ => end(journal, &names.key).await,
        }
    }

    /// Returns the paths that a file uses during its transfer.
    ///
    /// A local part file with a journal record has unpredictable digits in its name. The name of a
    /// part without a record contains the hash of its source, so that the next run finds the part.
    /// If that name is in use, the part receives unpredictable digits.
    async fn names(&self, file: &File, naming: PartNaming) -> TransferNames {
        let job = &self.shared.job;
        let source = job.source_path(file.root, &file.path);
        let destination = job.destination_path(file.root, &file.path);
        let key = job.moving.partial(&source, &destination);
        let mut names = TransferNames {
            digits: None,
            part: key.clone(),
            key,
            source,
            destination,
        };
        let mut digits = digits_of(&names.source);
        if matches!(self.destination, Backend::Local(_)) && job.moving.has_random_parts {
            // A small file starts again in any case.
            let is_large = file.size_bytes.is_none_or(|it| it >= RESUME_LEAST.bytes());
            let journal = self.shared.journal.as_ref();
            let journal = journal.filter(|_| job.moving.resumes && is_large);
            let known = match journal.filter(|_| !naming.is_taken) {
                Some(journal) => known(journal, &names.key).await,
                None => None,
            };
            match known {
                // If the record has no digits, an earlier version derived the part's name from the
                // source.
                Some(part) => names.digits = part.digits,
                None => names.digits = (journal.is_some() || naming.is_taken).then(random_digits),
            }
            digits = names.digits.unwrap_or(digits);
        } else if naming.is_taken {
            digits = random_digits();
        }
        self.name_part(&mut names, digits, naming);
        names
    }

    /// Sets the name of the part file. The name contains these digits.
    fn name_part(&self, names: &mut TransferNames, digits: u32, naming: PartNaming) {
        if let Some(suffix) = &self.shared.job.moving.partial_suffix {
            names.part = match naming.is_short {
                true => short_part_path(&names.destination, digits, suffix),
                false => part_path(&names.destination, digits, suffix),
            };
        }
    }

    /// Returns the present attributes of the source file. For a small file, the attributes in the
    /// listing are used.
    async fn stat(&mut self, file: &File, names: &TransferNames) -> Result<SourceStat, TaskError> {
        let is_small = file.size_bytes.is_some_and(|it| it < RESUME_LEAST.bytes());
        let known = match self.found.take() {
            Some(found) => server::Stat::of(&found),
            None if is_small => server::Stat {
                size_bytes: file.size_bytes,
                modified: file.modified,
            },
            None => server::Stat::default(),
        };
        match (&*self.source, is_exact(known)) {
            (Backend::Remote(_) | Backend::Web(_) | Backend::Sftp(_), true) => {
                Ok(SourceStat::of(known))
            }
            _ => {
                self.source.prepare_read()?;
                let now = self.current_stat(names).await?;
                Ok(SourceStat {
                    bytes_max: now.size_bytes.or(file.size_bytes),
                    ..now
                })
            }
        }
    }

    /// Returns the attributes that the source's server has just reported, if they are precise.
    fn found_stat(&self) -> Option<SourceStat> {
        let known = server::Stat::of(self.found.as_ref()?);
        let is_local = matches!(self.source, Backend::Local(_));
        (!is_local && is_exact(known)).then(|| SourceStat::of(known))
    }

    async fn current_stat(&mut self, names: &TransferNames) -> Result<SourceStat, TaskError> {
        if let Backend::Local(_) = self.source {
            let stamp = self.source.stamp(&names.source).await;
            let size_bytes = stamp.map(|it| it.size_bytes);
            return Ok(SourceStat {
                size_bytes,
                bytes_max: size_bytes,
                modified_unix_s: stamp.map(|it| it.modified_unix_s),
                stamp,
            });
        }
        let now = self.source.look_for_file(&names.source).await?;
        let size_bytes = now.as_ref().and_then(|it| it.size_bytes);
        Ok(SourceStat {
            size_bytes,
            bytes_max: size_bytes,
            modified_unix_s: now.and_then(|it| it.modified).map(|it| it.unix_s),
            stamp: None,
        })
    }

    /// Returns the journal, if the file is resumable and large enough for a record.
    fn journal_for(&self, origin: Option<PartOrigin>) -> Option<Arc<Journal>> {
        let moving = &self.shared.job.moving;
        let is_large = origin.is_some_and(|it| it.size_bytes >= RESUME_LEAST.bytes());
        let is_resumable = moving.resumes && moving.partial_suffix.is_some() && is_large;
        self.shared.journal.clone().filter(|_| is_resumable)
    }

    /// Starts a new part file, or returns the end of the part that an earlier attempt has left.
    async fn begin(
        &mut self,
        journal: &Arc<Journal>,
        names: &TransferNames,
        origin: PartOrigin,
    ) -> Result<Overlap, TaskError> {
        let known = known(journal, &names.key).await;
        if let Some(part) = &known
            && part.origin == origin
        {
            let is_local = matches!(self.destination, Backend::Local(_));
            // After a power cut, bytes that were not yet on the disk may read as zeros.
            let certain_bytes = match !is_local || part.boot == self.shared.destination_files.boot()
            {
                true => u64::MAX,
                false => part.synced_bytes,
            };
            let mut overlap = self.overlap(names, origin, certain_bytes).await?;
            if let Backend::Local(local_end) = &*self.destination {
                if overlap.length == 0 {
                    // Without locks, another process could be writing to the part unnoticed.
                    local_end.remove_left(&names.part, true).await?;
                    overlap.new = self.new_part(Some(journal), Some(origin));
                } else if overlap.length < part.synced_bytes {
                    // The part is shorter than its record states, so some synced bytes are lost.
                    overlap.new = Some(NewPart {
                        journal: journal.clone(),
                        origin,
                        boot: part.boot,
                        synced_bytes: overlap.length,
                    });
                }
            }
            return Ok(overlap);
        }
        // An earlier job may have left a part with the same name. The record must not describe that
        // part.
        if known.is_some() {
            match &*self.destination {
                Backend::Local(_) => self.discard(names, Some(journal)).await,
                _ => end(Some(journal), &names.key).await,
            }
        }
        let new = self.new_part(Some(journal), Some(origin));
        if let Backend::Remote(_) | Backend::Sftp(_) = self.destination {
            // The start of the upload shows whether the server has removed the old part.
            return Ok(Overlap {
                new,
                ..Overlap::default()
            });
        }
        if let (Backend::Local(local_end), true) = (&*self.destination, names.part != names.key) {
            // A run without a journal gave the part this name.
            local_end.remove_left(&names.key, false).await?;
        }
        self.destination.remove(&names.part).await?;
        if let Some(new) = new
            && self.destination.look_for_file(&names.part).await?.is_none()
        {
            new.note(names).await;
        }
        Ok(Overlap::default())
    }

    /// Returns the journal record of a new part file. Returns `None` if the part needs no record.
    fn new_part(
        &self,
        journal: Option<&Arc<Journal>>,
        origin: Option<PartOrigin>,
    ) -> Option<NewPart> {
        Some(NewPart {
            journal: journal?.clone(),
            origin: origin?,
            boot: self.shared.destination_files.boot(),
            synced_bytes: 0,
        })
    }

    /// Returns the end of the part file that an earlier attempt has left. Only the first
    /// `certain_bytes` bytes of the part are used, because later bytes may be damaged.
    async fn overlap(
        &mut self,
        names: &TransferNames,
        origin: PartOrigin,
        certain_bytes: u64,
    ) -> Result<Overlap, TaskError> {
        let Some(part) = self.destination.look_for_file(&names.part).await? else {
            return Ok(Overlap::default());
        };
        let length = part.size_bytes.map(|it| it.min(certain_bytes));
        let Some(length) = length.filter(|it| *it >= OVERLAP_BYTES && *it <= origin.size_bytes)
        else {
            return Ok(Overlap::default());
        };
        match self.end_of_part(names, length).await {
            Ok(bytes) => Ok(Overlap {
                length,
                bytes,
                new: None,
            }),
            // Some servers accept files and permit no downloads.
            Err(error) if error.is_refusal() => Ok(Overlap::default()),
            Err(error) => Err(error),
        }
    }

    /// Returns the last bytes of a part file that has the length `length`.
    async fn end_of_part(
        &mut self,
        names: &TransferNames,
        length: u64,
    ) -> Result<Vec<u8>, TaskError> {
        let is_local = matches!(self.destination, Backend::Local(_));
        let begin = length - OVERLAP_BYTES;
        let mut reader = self.destination.read(&names.part, begin).await?;
        let mut bytes = vec![0; OVERLAP_BYTES as usize];
        let is_whole = read_exactly(&mut reader, &mut bytes, self.shared).await?;
        // A server sends all bytes up to the end of the file. If the part is longer than the server
        // reported, it also contains bytes that this job has not written.
        let is_end = is_local || reader.read(&mut [0]).await? == 0;
        if !is_whole || !is_end {
            return Err(TaskError::Overlap);
        }
        reader.finish().await?;
        Ok(bytes)
    }

    /// Copies the bytes that the part file does not have yet.
    async fn copy(
        &mut self,
        names: &TransferNames,
        overlap: &Overlap,
        stat: &SourceStat,
        journal: Option<&Arc<Journal>>,
    ) -> Result<FinishedCopy, TaskError> {
        if let Some(copied) = self.copy_by_spool(names, overlap, stat, journal).await? {
            return Ok(copied);
        }
        let (follows, is_local) = (self.follows(), matches!(self.source, Backend::Local(_)));
        let mut read = (is_local && !follows).then(|| ReadRange::from(overlap.length));
        let mut reader = self.source.read(&names.source, overlap.begin()).await?;
        if !reader.is_of(stat.size_bytes, stat.modified_unix_s) {
            return Err(TaskError::Changed);
        }
        if !overlap.bytes.is_empty() {
            let mut bytes = vec![0; overlap.bytes.len()];
            let is_whole = read_exactly(&mut reader, &mut bytes, self.shared).await?;
            if !is_whole || bytes != overlap.bytes {
                return Err(TaskError::Overlap);
            }
        }
        let mut new = overlap.new.as_ref();
        let (offset, is_kept) = (overlap.length, overlap.clears(journal));
        let (part, path) = (&names.part[..], &names.destination[..]);
        if let Backend::Local(_) = self.destination
            && let Some(new) = new.take()
        {
            // The old record must be replaced first, because the new part does not contain the
            // synced bytes of the older part.
            new.note(names).await;
        }
        let writing = self.destination.write((part, path), offset, is_kept);
        let mut writer = writing.await?;
        if offset > 0 {
            // No byte is sent before the server has accepted the offset. If the server refuses to
            // resume, the existing part stays intact.
            writer.begun().await?;
            self.has_begun = true;
        }
        let mut bytes = vec![0; self.shared.progress.step_bytes()];
        let (mut length, mut synced_bytes) = (overlap.length, overlap.length);
        let size_max_bytes = stat.bytes_max.filter(|_| !follows).unwrap_or(u64::MAX);
        let mut quiet = Duration::ZERO;
        loop {
            let room = usize::try_from(size_max_bytes.saturating_sub(length));
            let room = room.unwrap_or(usize::MAX).min(bytes.len());
            if room == 0 {
                break;
            }
            let count = reader.read(&mut bytes[..room]).await?;
            if count == 0 {
                if follows && quiet < FOLLOW_QUIET {
                    sleep(FOLLOW_EVERY).await;
                    quiet += FOLLOW_EVERY;
                    continue;
                }
                break;
            }
            quiet = Duration::ZERO;
            if let Some(read) = &mut read {
                read.add(&bytes[..count]);
            }
            writer.write(&bytes[..count]).await?;
            length += count as u64;
            *self.moved_bytes += count as u64;
            self.shared.progress.moved(count).await;
            if writer.has_begun()
                && let Some(new) = new.take()
                && writer.is_on_clear_ground().await?
            {
                new.note(names).await;
            }
            if length - synced_bytes >= SYNC_BYTES
                && let (Some(journal), Some(origin)) = (journal, stat.origin())
                && writer.sync().await?
            {
                synced_bytes = length;
                let part = PartRecord {
                    synced_bytes,
                    digits: names.digits,
                    ..PartRecord::new(origin, self.shared.destination_files.boot())
                };
                note(journal, &names.key, part).await;
            }
        }
        // If a file at a server has grown meanwhile, the mover does not read it to its end.
        let is_grown = !is_local && length == size_max_bytes && reader.read(&mut bytes).await? > 0;
        let ended = match is_grown {
            true => {
                reader.abandon().await;
                TransferResult {
                    is_sure: true,
                    stat: None,
                }
            }
            false => reader.finish().await?,
        };
        if !ended.is_sure && stat.size_bytes != Some(length) {
            return Err(ServerError::Cut.into());
        }
        if let Some(new) = new
            && writer.end().await?
            && writer.is_on_clear_ground().await?
        {
            // The mover sent all bytes before the server confirmed the start of the upload.
            // Therefore the record is written only now.
            new.note(names).await;
        }
        Ok(FinishedCopy {
            bytes: length,
            is_spooled: false,
            source_now: ended.stat,
            there: writer.finish().await?,
            is_grown,
            read,
        })
    }

    /// Checks that the source has not changed and that the destination has all bytes. Also returns
    /// whether the source has grown.
    async fn check(
        &mut self,
        names: &TransferNames,
        stat: &SourceStat,
        copied: &FinishedCopy,
    ) -> Result<(ContentProof, bool), TaskError> {
        let bytes = copied.bytes;
        let follows = self.follows();
        if !follows && stat.size_bytes.is_some_and(|it| it != bytes) {
            return Err(TaskError::Changed);
        }
        let verify = self.shared.job.moving.verify;
        if verify == CopyVerification::None && !copied.is_grown {
            return Ok((ContentProof::None, false));
        }
        if copied.is_grown {
            self.mend_source().await?;
        }
        let now = match copied.source_now {
            Some(stat) => SourceStat::of(stat),
            None => self.current_stat(names).await?,
        };
        let is_same_size = match now.size_bytes {
            Some(size_bytes) => size_bytes == bytes,
            None => !self.source.tells_size(),
        };
        let is_same_time = match (stat.modified_unix_s, now.modified_unix_s) {
            (Some(before), Some(now)) => before == now,
            _ => true,
        };
        let is_same_stamp = follows || stat.stamp.is_none() || stat.stamp == now.stamp;
        let is_same = is_same_size && is_same_time && is_same_stamp && !copied.is_grown;
        let is_grown = !is_same && self.has_grown(names, stat, &now, copied).await?;
        if copied.is_grown && !is_grown {
            return Err(TaskError::Endless(bytes));
        }
        if verify == CopyVerification::None {
            return Ok((ContentProof::None, true));
        }
        if !is_same && !is_grown {
            return Err(TaskError::Changed);
        }
        let got = match copied.there {
            Some(stat) => stat.size_bytes,
            None => {
                let there = self.destination.look_for_file(&names.part).await?;
                there.and_then(|it| it.size_bytes)
            }
        };
        let is_whole = match got {
            Some(got) => got == bytes,
            None => !self.destination.tells_size(),
        };
        if !is_whole {
            let expected = bytes;
            return Err(ServerError::Short { got, expected }.into());
        }
        if verify == CopyVerification::Hash && !is_grown {
            let ends = (&mut *self.source, &mut *self.destination);
            match compare_hashes(ends, (&names.source, &names.part)).await? {
                Some(true) => return Ok((ContentProof::Hash, false)),
                Some(false) => return Err(TaskError::Differs),
                None => {}
            }
        }
        if verify == CopyVerification::Size || copied.is_grown {
            return Ok((self.shared.proof_by_size(), is_grown));
        }
        self.read_back(names, bytes).await?;
        Ok((ContentProof::Content, is_grown))
    }

    /// Reads the first `left_bytes` bytes of source and destination again, and compares them.
    async fn read_back(
        &mut self,
        names: &TransferNames,
        mut left_bytes: u64,
    ) -> Result<(), TaskError> {
        let mut source = self.source.read(&names.source, 0).await?;
        let mut destination = self.destination.read(&names.part, 0).await?;
        let (mut ours, mut theirs) = (vec![0; STEP_BYTES], vec![0; STEP_BYTES]);
        loop {
            let room = usize::try_from(left_bytes).unwrap_or(usize::MAX);
            let room = room.min(ours.len());
            let count = source.read(&mut ours[..room]).await?;
            if count == 0 {
                break;
            }
            left_bytes -= count as u64;
            let is_whole =
                read_exactly(&mut destination, &mut theirs[..count], self.shared).await?;
            if !is_whole || ours[..count] != theirs[..count] {
                return Err(TaskError::Differs);
            }
        }
        if destination.read(&mut theirs).await? > 0 {
            return Err(TaskError::Differs);
        }
        source.finish().await?;
        destination.finish().await?;
        Ok(())
    }
}

/// Returns whether the time is known to the second. A time in a listing may lack seconds or be in
/// another time zone.
fn is_exact(stat: server::Stat) -> bool {
    let modified = stat.modified;
    modified.is_some_and(|it| it.precision == TimePrecision::Second)
}

/// Result of copying all bytes of a file.
struct FinishedCopy {
    /// Size of the file in bytes.
    bytes: u64,
    /// Whether the bytes passed through a spool at the gateway (a file with one upload for several
    /// servers).
    is_spooled: bool,
    /// Attributes that the source's server has reported after the copy.
    source_now: Option<server::Stat>,
    /// Attributes that the destination's server has reported after the copy.
    there: Option<server::Stat>,
    /// Whether a file at a server now has further bytes that were not copied.
    is_grown: bool,
    /// Byte range that was read from a local file, with the hash of its bytes.
    read: Option<ReadRange>,
}

/// Attributes of the source file.
struct SourceStat {
    size_bytes: Option<u64>,
    /// Maximum number of bytes to copy: the present size of the source, or else its size in the
    /// listing.
    bytes_max: Option<u64>,
    modified_unix_s: Option<i64>,
    /// Version of a local file.
    stamp: Option<Stamp>,
}

impl SourceStat {
    /// Converts a file's attributes, as a server has reported them.
    fn of(stat: server::Stat) -> Self {
        Self {
            size_bytes: stat.size_bytes,
            bytes_max: stat.size_bytes,
            modified_unix_s: stat.modified.map(|it| it.unix_s),
            stamp: None,
        }
    }

    fn origin(&self) -> Option<PartOrigin> {
        Some(PartOrigin {
            size_bytes: self.size_bytes?,
            modified_unix_s: self.modified_unix_s?,
            modified_ns: self.stamp.map_or(0, |it| it.modified_ns),
        })
    }
}

/// The end of a part file that an earlier attempt has left: the length of the file, and its last
/// bytes.
#[derive(Default)]
struct Overlap {
    length: u64,
    bytes: Vec<u8>,
    /// New record of a part file, if the part starts again or has lost bytes.
    ///
    /// For a local part, the record is written before the first byte. For a part at a server, the
    /// record is written once the upload has begun.
    new: Option<NewPart>,
}

/// New record of a part file that starts again. The record is written once the older part is gone.
struct NewPart {
    journal: Arc<Journal>,
    origin: PartOrigin,
    /// Identifier of the machine's present boot.
    boot: Option<u64>,
    /// Number of bytes of the part file that survive a power cut.
    synced_bytes: u64,
}

impl NewPart {
    async fn note(&self, names: &TransferNames) {
        let part = PartRecord {
            digits: names.digits,
            synced_bytes: self.synced_bytes,
            ..PartRecord::new(self.origin, self.boot)
        };
        note(&self.journal, &names.key, part).await;
    }
}

impl Overlap {
    /// Returns whether the existing part file is useless and must be removed before the upload.
    fn clears(&self, journal: Option<&Arc<Journal>>) -> bool {
        self.length == 0 && journal.is_some()
    }

    /// Returns the offset in the file at which `bytes` begin.
    fn begin(&self) -> u64 {
        self.length - self.bytes.len() as u64
    }
}

/// Fills `bytes` from the reader. Returns false if the file ends earlier.
pub(super) async fn read_exactly(
    reader: &mut FileReader<'_>,
    bytes: &mut [u8],
    shared: &JobContext,
) -> Result<bool, TaskError> {
    let mut filled = 0;
    while filled < bytes.len() {
        let count = reader.read(&mut bytes[filled..]).await?;
        if count == 0 {
            return Ok(false);
        }
        filled += count;
        shared.progress.pace(count).await;
    }
    Ok(true)
}

/// Returns the journal record of a part file. If the record cannot be read, returns `None`, and the
/// file starts from its beginning.
async fn known(journal: &Arc<Journal>, part: &[u8]) -> Option<PartRecord> {
    on_journal(journal, part, |journal, part| journal.part(part))
        .await
        .flatten()
}

/// Writes the journal record of a part file. If the record cannot be written, an interrupted
/// transfer starts again from the beginning.
async fn note(journal: &Arc<Journal>, name: &[u8], part: PartRecord) {
    on_journal(journal, name, move |journal, name| {
        journal.begin(name, part)
    })
    .await;
}

pub(super) async fn end(journal: Option<&Arc<Journal>>, part: &[u8]) {
    if let Some(journal) = journal {
        on_journal(journal, part, |journal, part| journal.end(part)).await;
    }
}

async fn on_journal<T: Send + 'static>(
    journal: &Arc<Journal>,
    part: &[u8],
    work: impl FnOnce(&Journal, &[u8]) -> Result<T, redb::Error> + Send + 'static,
) -> Option<T> {
    let (journal, part) = (journal.clone(), part.to_vec());
    let done = tokio::task::spawn_blocking(move || work(&journal, &part)).await;
    let done = done.expect("the journal does not panic");
    done.inspect_err(|error| tracing::warn!(%error, "the journal cannot be used"))
        .ok()
}

/// Number of bytes at the end of a part file. These bytes are compared with the source before the
/// part is resumed.
const OVERLAP_BYTES: u64 = 64 * 1024;

/// Number of bytes after which a local part file is synced and its journal record is updated.
const SYNC_BYTES: u64 = 256 * 1024 * 1024;

/// Size of the buffer for one read, in bytes.
const STEP_BYTES: usize = 256 * 1024;
