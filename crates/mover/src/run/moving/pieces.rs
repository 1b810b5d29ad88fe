//! Downloads of a large file over several connections. Each connection downloads one piece (byte
//! range).
//!
//! On a lossy path, a connection is slow even if the path has a high capacity. Several connections
//! multiply the rate. On a path without loss, or through a gateway, one connection is sufficient.

use std::{
    io::ErrorKind,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{
    Backend, FinishedCopy, Mover, PartNaming, SourceStat, TaskError, TransferNames, known,
    on_journal,
};
use crate::{
    journal::{Journal, PartOrigin, PiecesRecord},
    part_name::{PIECES, digits_of, part_path, random_digits},
    plan::{File, Piece, TaskResult},
    run::{
        local::{LocalEnd, LocalWriter},
        ranges::{FetchRange, LaneRate},
    },
    server,
};

impl Mover<'_> {
    /// Returns the missing pieces of a file. Returns `None` if the file is moved over one
    /// connection.
    pub(in crate::run) async fn split(
        &mut self,
        file: &File,
    ) -> Result<Option<Vec<Piece>>, TaskError> {
        if let Some(key) = self.pieces_key(file) {
            self.shared.ranges.settle(&key).await;
        }
        let Some((names, journal, begun)) = self.of_pieces(file).await else {
            return Ok(None);
        };
        let lanes = self.shared.job.plan.lanes_max;
        let is_large = file.size_bytes.is_some_and(|it| it >= SPLIT_LEAST_BYTES);
        let gives_ranges = !self.shared.gives_no_ranges.load(Ordering::Relaxed);
        let is_worth_it = gives_ranges && lanes > 1 && self.is_worth_splitting();
        if begun.is_none() && !(is_large && is_worth_it) {
            // If a file starts again, its existing pieces belong to an older version.
            if file.modified.is_none() {
                self.destination.remove(&names.part).await?;
            }
            return Ok(None);
        }
        let stat = match self.found_stat() {
            Some(stat) => stat,
            // If the server does not report size and time now, the attempt fails and keeps the
            // fetched pieces.
            None if begun.is_some() => {
                SourceStat::of(self.source.recorded_stat(&names.source).await?)
            }
            None => self.current_stat(&names).await?,
        };
        let Some(origin) = stat.origin() else {
            return Ok(None);
        };
        if begun.is_none() && !self.is_worth_splitting() {
            // The query of the attributes has shown that pieces are not useful.
            return Ok(None);
        }
        let whole = self.names(file, PartNaming::default()).await.key;
        if begun.is_none()
            && known(&journal, &whole)
                .await
                .is_some_and(|it| it.origin == origin)
        {
            // An earlier run began the file without pieces, so it is resumed without pieces.
            return Ok(None);
        }
        let there = self.destination.stamp(&names.part).await;
        let is_there = there.map(|it| it.size_bytes) == Some(origin.size_bytes);
        let done = match begun {
            Some(begun) if begun.origin == origin && is_there => begun.done,
            begun => {
                let is_recorded = begun.is_some();
                let has_room = self.make_room((&names, &journal), origin, is_recorded);
                if !has_room.await? {
                    return Ok(None);
                }
                Vec::new()
            }
        };
        let pieces = Piece::missing(origin.size_bytes, &done, 1, u64::MAX);
        let connections_max = if gives_ranges { lanes } else { 1 };
        self.shared.ranges.expect(
            &names.key,
            file,
            pieces.len(),
            connections_max,
            Instant::now(),
        );
        Ok(Some(pieces))
    }

    /// Moves a piece. After an earlier attempt, moves only the bytes of the piece that are still
    /// missing.
    pub(in crate::run) async fn move_piece(
        &mut self,
        file: &File,
        piece: Piece,
    ) -> Result<TaskResult, TaskError> {
        let ranges = &self.shared.ranges;
        let Some(key) = self.pieces_key(file) else {
            return Err(TaskError::Changed);
        };
        ranges.begin_piece(&key, Instant::now());
        // During an earlier attempt, other lanes may have taken over ranges of this piece. If such
        // a lane has finished its range before this call, the journal contains the range.
        let of_others = ranges.of(&key);
        let Some((names, journal, Some(begun))) = self.of_pieces(file).await else {
            return Err(TaskError::Changed);
        };
        let PiecesRecord { origin, done, .. } = begun;
        let mut part = self.open_pieces(&names, &journal).await?;
        let within = |it: &Piece| it.begin.max(piece.begin) < it.end.min(piece.end);
        let outside = [
            Piece {
                begin: 0,
                end: piece.begin,
            },
            Piece {
                begin: piece.end,
                end: origin.size_bytes,
            },
        ];
        let done = done.into_iter().chain(of_others);
        let there: Vec<Piece> = done.filter(within).chain(outside).collect();
        let mut rate = None;
        for gap in Piece::missing(origin.size_bytes, &there, 1, u64::MAX) {
            self.mend_source().await?;
            let range = ranges.begin(&names.key, gap, Instant::now());
            rate = Some(
                self.fetch_range((&names, &journal), &mut part, origin, range, false)
                    .await?,
            );
        }
        while let Some(range) = ranges.take(&names.key, rate).await {
            self.mend_source().await?;
            rate = Some(
                self.fetch_range((&names, &journal), &mut part, origin, range, false)
                    .await?,
            );
        }
        Ok(TaskResult::Arrived)
    }

    /// Downloads ranges from the pieces of other lanes. If this lane fails, the other lanes
    /// continue.
    pub(in crate::run) async fn help(&mut self, file: &File) -> Result<TaskResult, TaskError> {
        let ranges = &self.shared.ranges;
        let Some(key) = self.pieces_key(file) else {
            return Ok(TaskResult::HelperEnded);
        };
        let mut rate = None;
        while let Some(range) = ranges.join(&key, rate, Instant::now()) {
            match self.help_with(file, range).await {
                Ok(fetched) => rate = Some(fetched),
                Err(error) => {
                    ranges.help_failed(&key, Instant::now());
                    return Err(error);
                }
            }
        }
        Ok(TaskResult::HelperEnded)
    }

    /// Downloads one range into the common part file. The file's transfer cannot start again during
    /// the call, so the part stays valid.
    async fn help_with(
        &mut self,
        file: &File,
        range: FetchRange<'_>,
    ) -> Result<LaneRate, TaskError> {
        let Some((names, journal, Some(begun))) = self.of_pieces(file).await else {
            return Err(TaskError::Changed);
        };
        let mut part = self.open_pieces(&names, &journal).await?;
        self.mend_source().await?;
        self.fetch_range((&names, &journal), &mut part, begun.origin, range, true)
            .await
    }

    /// Opens the part file that contains the pieces.
    async fn open_pieces(
        &mut self,
        names: &TransferNames,
        journal: &Arc<Journal>,
    ) -> Result<LocalWriter, TaskError> {
        match self.local_destination()?.open_part(&names.part).await {
            // Another process has removed or replaced the part, so the fetched bytes are lost.
            Err(TaskError::Disk { source, .. })
                if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::Other) =>
            {
                self.shared.ranges.spoil(&names.key);
                self.discard(names, Some(journal)).await;
                Err(TaskError::Changed)
            }
            Err(error) if error.is_taken() => Err(TaskError::PartTaken),
            part => part,
        }
    }

    /// Downloads a range, and records the downloaded bytes in the journal. Returns the download
    /// rate of the lane.
    async fn fetch_range(
        &mut self,
        (names, journal): (&TransferNames, &Arc<Journal>),
        part: &mut LocalWriter,
        origin: PartOrigin,
        mut range: FetchRange<'_>,
        is_helper: bool,
    ) -> Result<LaneRate, TaskError> {
        let begin = range.now().begin;
        let mut at = begin;
        let fetched = self.fetch(names, part, origin, &range, &mut at).await;
        match fetched {
            // After a disk error the number of written bytes is unknown.
            Err(error @ TaskError::Disk { .. }) => return Err(error),
            Err(error) if error.is_anew() => {
                let ranges = &self.shared.ranges;
                let is_refused = matches!(error, TaskError::NoRanges);
                let gives_no_ranges = is_refused || matches!(error, TaskError::IgnoredRange);
                self.shared
                    .gives_no_ranges
                    .fetch_or(gives_no_ranges, Ordering::Relaxed);
                if is_refused && is_helper {
                    // The lane with the piece continues.
                    ranges.refuse_help(&names.key);
                } else {
                    // All fetched bytes are useless, and lanes that begin later must know this.
                    ranges.spoil(&names.key);
                    self.discard(names, Some(journal)).await;
                }
                return Err(error);
            }
            _ => {}
        }
        // With the record in the journal, the next attempt does not fetch these bytes again.
        part.sync().await?;
        if at > begin {
            note(journal, &names.key, Piece { begin, end: at }).await;
        }
        range.has_come_to(at);
        fetched
    }

    /// Reconnects to the source if its server has disconnected after an aborted transfer. Also
    /// reconnects if the server does not report the end of that transfer.
    pub(super) async fn mend_source(&mut self) -> Result<(), TaskError> {
        if !self.source.is_ready().await {
            let shared = &self.shared;
            let reopened = self
                .source
                .reopen(&shared.job.source, &shared.source_files)
                .await;
            reopened.map_err(TaskError::Reconnection)?;
        }
        Ok(())
    }

    /// Verifies a file whose pieces have all arrived, and renames it to its final name.
    pub(in crate::run) async fn join(&mut self, file: &File) -> Result<TaskResult, TaskError> {
        let Some((names, journal, begun)) = self.of_pieces(file).await else {
            return Err(TaskError::Changed);
        };
        let is_whole = |done: &[Piece], origin: PartOrigin| {
            let missing = Piece::missing(origin.size_bytes, done, 1, u64::MAX);
            missing.is_empty()
        };
        let origin = begun.and_then(|it| is_whole(&it.done, it.origin).then_some(it.origin));
        let known = self.shared.ranges.take_stat(&names.key);
        let stat = match known.filter(|it| it.size_bytes.is_some() && it.modified.is_some()) {
            Some(stat) => stat,
            // If this query fails, the server may still report the attributes later, so the fetched
            // bytes stay.
            None => self.source.recorded_stat(&names.source).await?,
        };
        // Another process may have removed the part.
        let is_there = self.destination.stamp(&names.part).await.is_some();
        let origin = origin.filter(|_| is_there);
        let joined = match (origin, SourceStat::of(stat).origin()) {
            (Some(then), Some(now)) if then == now => {
                self.give_pieces_name(&names, stat, then.size_bytes).await
            }
            _ => Err(TaskError::Changed),
        };
        // If this attempt fails, the next one queries the server again.
        self.shared.ranges.forget(&names.key);
        if let (Err(_), Backend::Local(disk)) = (&joined, &mut *self.destination) {
            disk.release_part();
        }
        match &joined {
            Ok(_) => self.end_named(&names, Some(&journal)).await,
            Err(TaskError::Changed | TaskError::Differs) => {
                self.discard(&names, Some(&journal)).await;
            }
            Err(_) => {}
        }
        joined
    }

    /// Returns whether several connections are useful: the server is remote, and no gateway is on
    /// the route.
    fn is_worth_splitting(&self) -> bool {
        let is_direct = !self.shared.job.source.is_behind_gateway();
        match &*self.source {
            Backend::Remote(session) => is_direct && session.restarts(),
            Backend::Web(session) => session.may_take_ranges(),
            Backend::Sftp(_) => is_direct,
            Backend::Local(_) => false,
        }
    }

    /// Returns the key of a file's pieces in the journal and in the table of ranges. Returns `None`
    /// if the file cannot be moved in pieces.
    fn pieces_key(&self, file: &File) -> Option<Vec<u8>> {
        let job = &self.shared.job;
        let journal = self
            .shared
            .journal
            .as_ref()
            .filter(|_| job.moving.resumes)?;
        let is_download = matches!(
            (&*self.source, &*self.destination),
            (
                Backend::Remote(_) | Backend::Web(_) | Backend::Sftp(_),
                Backend::Local(_)
            )
        );
        let suffix = job.moving.partial_suffix.as_ref().filter(|_| is_download)?;
        let mut moving = job.moving.clone();
        // The name must contain a mark of the journal, because the part itself does not show which
        // command began it.
        let mark = format!(".{:08x}", journal.mark());
        moving.partial_suffix = Some([mark.as_bytes(), PIECES, suffix.as_slice()].concat());
        let source = job.source_path(file.root, &file.path);
        let destination = job.destination_path(file.root, &file.path);
        Some(moving.partial(&source, &destination))
    }

    /// Returns three values for a file that is moved in pieces: its paths, the journal, and its
    /// record in the journal. Returns `None` if the file cannot be moved in pieces.
    async fn of_pieces(
        &self,
        file: &File,
    ) -> Option<(TransferNames, Arc<Journal>, Option<PiecesRecord>)> {
        let key = self.pieces_key(file)?;
        let job = &self.shared.job;
        let (journal, suffix) = (
            self.shared.journal.clone()?,
            job.moving.partial_suffix.as_ref()?,
        );
        let begun = on_journal(&journal, &key, |journal, key| journal.pieces(key)).await;
        let begun = begun.flatten();
        let source = job.source_path(file.root, &file.path);
        let destination = job.destination_path(file.root, &file.path);
        let digits = match &begun {
            // If the record has no digits, an earlier version derived the part's name from the
            // source.
            Some(begun) => begun.digits,
            None => Some(match job.moving.has_random_parts {
                true => random_digits(),
                false => digits_of(&source),
            }),
        };
        let added = [PIECES, suffix.as_slice()].concat();
        let part = match digits {
            Some(digits) => part_path(&destination, digits, &added),
            None => key.clone(),
        };
        let names = TransferNames {
            source,
            key,
            digits,
            part,
            destination,
        };
        Some((names, journal, begun))
    }

    fn local_destination(&self) -> Result<&LocalEnd, TaskError> {
        match &*self.destination {
            Backend::Local(disk) => Ok(disk),
            Backend::Remote(_) | Backend::Web(_) | Backend::Sftp(_) => Err(TaskError::Changed),
        }
    }

    /// Creates a part file that has the file's length, but no content yet. Returns whether the
    /// journal has recorded the part.
    async fn make_room(
        &mut self,
        (names, journal): (&TransferNames, &Arc<Journal>),
        origin: PartOrigin,
        is_recorded: bool,
    ) -> Result<bool, TaskError> {
        let digits = names.digits;
        let begin =
            move |journal: &Journal, part: &[u8]| journal.begin_pieces(part, origin, digits);
        // The record is written before the part is created. Therefore an interrupted run leaves no
        // part without a record.
        if on_journal(journal, &names.key, begin).await.is_none() {
            return Ok(false);
        }
        let making =
            self.local_destination()?
                .make_part(&names.part, origin.size_bytes, is_recorded);
        if let Err(error) = making.await {
            self.discard(names, Some(journal)).await;
            return Err(error);
        }
        Ok(true)
    }

    /// Downloads a range, and returns the download rate. `at` receives the offset that was reached,
    /// even if the download fails.
    async fn fetch(
        &mut self,
        names: &TransferNames,
        part: &mut LocalWriter,
        origin: PartOrigin,
        range: &FetchRange<'_>,
        at: &mut u64,
    ) -> Result<LaneRate, TaskError> {
        let (begin, begun) = (*at, Instant::now());
        let journal = self.shared.journal.clone();
        part.flush().await?;
        part.seek(begin);
        let mut reader = match self.source.read(&names.source, begin).await {
            Err(TaskError::Server(error)) if error.is_of_ranges() => {
                return Err(TaskError::NoRanges);
            }
            reader => reader?,
        };
        if !reader.is_of(Some(origin.size_bytes), Some(origin.modified_unix_s)) {
            return Err(TaskError::Changed);
        }
        let mut bytes = vec![0; self.shared.progress.step_bytes()];
        let mut noted = Instant::now();
        loop {
            let room = range.room(*at, bytes.len());
            if room == 0 && range.is_spoiled() {
                return Err(TaskError::Changed);
            }
            if room == 0 {
                break;
            }
            let asked = Instant::now();
            let count = reader.read(&mut bytes[..room]).await?;
            if count == 0 {
                reader.finish().await?;
                return Err(TaskError::Changed);
            }
            let now = Instant::now();
            range.received(count, now.saturating_duration_since(asked), now);
            part.write(&bytes[..count]).await?;
            *at += count as u64;
            *self.moved_bytes += count as u64;
            self.shared.progress.moved(count).await;
            // The last bytes of the file are recorded only after the check that the server sends no
            // further byte.
            if *at < origin.size_bytes
                && noted.elapsed() >= NOTED_EVERY
                && let Some(journal) = &journal
            {
                noted = Instant::now();
                part.sync().await?;
                note(journal, &names.key, Piece { begin, end: *at }).await;
            }
        }
        let rate = LaneRate::of(*at - begin, begun, Instant::now());
        if *at < origin.size_bytes {
            reader.abandon().await;
            return Ok(rate);
        }
        if reader.read(&mut bytes).await? > 0 {
            reader.abandon().await;
            return Err(self.cause_of_surplus(names, origin, begin).await);
        }
        if let Some(stat) = reader.finish().await?.stat {
            self.shared.ranges.note_stat(&names.key, stat);
        }
        Ok(rate)
    }

    /// Returns the error for a server that has sent too many bytes after the offset `begin`. Either
    /// the file has grown, or the server has ignored the offset.
    async fn cause_of_surplus(
        &mut self,
        names: &TransferNames,
        origin: PartOrigin,
        begin: u64,
    ) -> TaskError {
        let is_same = async {
            self.mend_source().await?;
            let now = self.current_stat(names).await?;
            Ok::<_, TaskError>(now.origin() == Some(origin))
        };
        match begin > 0 && is_same.await.unwrap_or(false) {
            true => TaskError::IgnoredRange,
            false => TaskError::Changed,
        }
    }

    async fn give_pieces_name(
        &mut self,
        names: &TransferNames,
        stat: server::Stat,
        bytes: u64,
    ) -> Result<TaskResult, TaskError> {
        let copied = FinishedCopy {
            bytes,
            is_spooled: false,
            source_now: Some(stat),
            there: None,
            is_grown: false,
            read: None,
        };
        let stat = SourceStat::of(stat);
        let (proof, _) = self.check(names, &stat, &copied).await?;
        self.give_name(names, stat.modified_unix_s).await?;
        Ok(TaskResult::Moved {
            bytes,
            modified_unix_s: stat.modified_unix_s,
            proof,
        })
    }
}

/// Records in the journal that a piece of a file is synced to the disk.
async fn note(journal: &Arc<Journal>, part: &[u8], piece: Piece) {
    on_journal(journal, part, move |journal, part| {
        journal.add_piece(part, piece)
    })
    .await;
}

/// Size in bytes below which a file is moved over one connection.
const SPLIT_LEAST_BYTES: u64 = 64 << 20;

/// Interval at which downloaded bytes are synced and recorded in the journal.
const NOTED_EVERY: Duration = Duration::from_secs(5);
