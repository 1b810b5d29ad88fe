//! A large file that several connections fetch from a server, a piece each.
//!
//! A connection over a lossy path is slow, whatever the path could carry; several are as many times as fast. Through a
//! gateway one is enough.

use std::{
    io::SeekFrom,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::{
    fs::{File as OpenFile, OpenOptions},
    io::{AsyncSeekExt as _, AsyncWriteExt as _},
};

use super::{Copied, End, Facts, Mover, Names, TaskError, known, on_journal};
use crate::{
    disk,
    job::Site,
    journal::{Journal, Origin},
    names::{local, shown},
    plan::{File, Outcome, Piece},
    run::ranges::{Pace, Range},
};

impl Mover<'_> {
    /// The pieces in which a file is to be moved, of those that are missing; `None` for a file that is moved as one.
    pub(in crate::run) async fn split(
        &mut self,
        file: &File,
    ) -> Result<Option<Vec<Piece>>, TaskError> {
        let Some((names, journal)) = self.of_pieces(file) else {
            return Ok(None);
        };
        let lanes = self.shared.job.plan.lanes_max;
        let is_large = file.size_bytes.is_some_and(|it| it >= SPLIT_LEAST_BYTES);
        let begun = on_journal(&journal, &names.part, |journal, part| journal.pieces(part)).await;
        let begun = begun.flatten();
        let gives_ranges = !self.shared.gives_no_ranges.load(Ordering::Relaxed);
        let is_worth_it = gives_ranges && lanes > 1 && self.is_worth_splitting();
        if begun.is_none() && !(is_large && is_worth_it) {
            // Of a file that begins anew there are pieces of what it was.
            if file.size_bytes.is_none() && disk::stamp(&local(&names.part)).is_some() {
                self.destination.remove(&names.part).await?;
            }
            return Ok(None);
        }
        let facts = self.facts_now(&names).await?;
        let Some(origin) = facts.origin() else {
            return Ok(None);
        };
        if begun.is_none() && !self.is_worth_splitting() {
            // What has just been asked shows that.
            return Ok(None);
        }
        let whole = self.names(file).part;
        if begun.is_none()
            && known(&journal, &whole)
                .await
                .is_some_and(|it| it.origin == origin)
        {
            // It is gone on with as one.
            return Ok(None);
        }
        let is_there = disk::stamp(&local(&names.part)).map(|it| it.size_bytes);
        let done = match begun {
            Some((of, done)) if of == origin && is_there == Some(origin.size_bytes) => done,
            _ => {
                if !self.make_room(&names, &journal, origin).await? {
                    return Ok(None);
                }
                Vec::new()
            }
        };
        let size = origin.size_bytes;
        let pieces = Piece::missing(size, &done, lanes, PIECE_LEAST_BYTES);
        self.shared.ranges.expect(&names.part, pieces.len());
        Ok(Some(pieces))
    }

    /// Moves a piece, or what an earlier attempt has left of it.
    pub(in crate::run) async fn move_piece(
        &mut self,
        file: &File,
        piece: Piece,
    ) -> Result<(), TaskError> {
        let Some((names, journal)) = self.of_pieces(file) else {
            return Err(TaskError::Changed);
        };
        let ranges = &self.shared.ranges;
        ranges.begin_piece(&names.part);
        // Other lanes may have taken a part of it at an earlier attempt. What they end meanwhile is in the journal.
        let of_others = ranges.of(&names.part);
        let begun = on_journal(&journal, &names.part, |journal, part| journal.pieces(part)).await;
        let Some((origin, done)) = begun.flatten() else {
            return Err(TaskError::Changed);
        };
        let path = local(&names.part);
        let what = || format!("writing {}", shown(&path));
        let opened = OpenOptions::new().write(true).open(&path).await;
        let mut part = opened.map_err(TaskError::disk(what()))?;
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
        let mut pace = None;
        for gap in Piece::missing(origin.size_bytes, &there, 1, u64::MAX) {
            self.mend_source().await?;
            let range = ranges.begin(&names.part, gap, Instant::now());
            pace = Some(
                self.fetch_range((&names, &journal), &mut part, origin, range)
                    .await?,
            );
        }
        while let Some(range) = ranges.take(&names.part, pace, Instant::now()) {
            self.mend_source().await?;
            pace = Some(
                self.fetch_range((&names, &journal), &mut part, origin, range)
                    .await?,
            );
        }
        Ok(())
    }

    /// Fetches a range, and notes what has come of it. Returns how fast that was.
    async fn fetch_range(
        &mut self,
        (names, journal): (&Names, &Arc<Journal>),
        part: &mut OpenFile,
        origin: Origin,
        mut range: Range<'_>,
    ) -> Result<Pace, TaskError> {
        let what = || format!("writing {}", shown(&local(&names.part)));
        let begin = range.now().begin;
        let mut at = begin;
        let fetched = self.fetch(names, part, origin, &range, &mut at).await;
        match fetched {
            // Nobody knows how much the disk has taken.
            Err(error @ TaskError::Disk { .. }) => return Err(error),
            // Nothing of what is there is of use, also to lanes that have not begun.
            Err(error) if error.is_anew() => {
                self.shared
                    .gives_no_ranges
                    .fetch_or(matches!(error, TaskError::NoRanges), Ordering::Relaxed);
                on_journal(journal, &names.part, |journal, part| {
                    journal.end_pieces(part)
                })
                .await;
                return Err(error);
            }
            _ => {}
        }
        // What has come is not fetched again.
        part.flush().await.map_err(TaskError::disk(what()))?;
        part.sync_data().await.map_err(TaskError::disk(what()))?;
        if at > begin {
            note(journal, &names.part, Piece { begin, end: at }).await;
        }
        range.has_come_to(at);
        fetched
    }

    /// Connects again where the server has left after a transfer that was not read to its end, or does not say that it has
    /// ended.
    pub(super) async fn mend_source(&mut self) -> Result<(), TaskError> {
        if !self.source.is_ready().await {
            *self.source = End::open(&self.shared.job.source, None).await?;
        }
        Ok(())
    }

    /// All pieces are there: compares, and gives the file its name.
    pub(in crate::run) async fn join(&mut self, file: &File) -> Result<Outcome, TaskError> {
        let Some((names, journal)) = self.of_pieces(file) else {
            return Err(TaskError::Changed);
        };
        let begun = on_journal(&journal, &names.part, |journal, part| journal.pieces(part)).await;
        let is_whole = |done: &[Piece], origin: Origin| {
            let missing = Piece::missing(origin.size_bytes, done, 1, u64::MAX);
            missing.is_empty()
        };
        let begun = begun.flatten();
        let origin = begun.and_then(|(origin, done)| is_whole(&done, origin).then_some(origin));
        let facts = self.facts_now(&names).await?;
        let joined = match (origin, facts.origin()) {
            (Some(then), Some(now)) if then == now => {
                self.give_name(&names, &facts, then.size_bytes).await
            }
            _ => Err(TaskError::Changed),
        };
        if matches!(joined, Ok(_) | Err(TaskError::Changed | TaskError::Differs)) {
            on_journal(&journal, &names.part, |journal, part| {
                journal.end_pieces(part)
            })
            .await;
        }
        joined
    }

    /// Whether several connections are of use: to a server at a distance, and not to one behind a gateway.
    fn is_worth_splitting(&self) -> bool {
        let is_direct = match &self.shared.job.source {
            Site::Server(dial) => !dial.is_behind_gateway(),
            Site::Web(_) => true,
            Site::Local => false,
        };
        match &*self.source {
            End::Remote(session) => is_direct && session.restarts(),
            End::Web(session) => session.may_take_ranges(),
            End::Local => false,
        }
    }

    /// The names of a file that comes in pieces, and the journal, without which no piece is known.
    fn of_pieces(&self, file: &File) -> Option<(Names, Arc<Journal>)> {
        let job = &self.shared.job;
        let journal = self.shared.journal.clone().filter(|_| job.moving.resumes)?;
        let is_download = matches!(
            (&*self.source, &*self.destination),
            (End::Remote(_) | End::Web(_), End::Local)
        );
        let suffix = job.moving.partial_suffix.as_ref().filter(|_| is_download)?;
        let mut moving = job.moving.clone();
        // Nothing in a part shows whether it was another command that began it.
        let mark = format!(".{:08x}.pieces", journal.mark());
        moving.partial_suffix = Some([mark.as_bytes(), suffix.as_slice()].concat());
        let names = self.names(file);
        let part = moving.partial(&names.source, &names.destination);
        Some((Names { part, ..names }, journal))
    }

    /// Makes a part that is as long as the file, with nothing in it. Returns whether the journal knows of it.
    async fn make_room(
        &mut self,
        names: &Names,
        journal: &Arc<Journal>,
        origin: Origin,
    ) -> Result<bool, TaskError> {
        let path = local(&names.part);
        let what = || format!("writing {}", shown(&path));
        // What was there is none any more.
        self.shared.ranges.forget(&names.part);
        on_journal(journal, &names.part, |journal, part| {
            journal.end_pieces(part)
        })
        .await;
        let made = async {
            let part = OpenFile::create(&path).await?;
            part.set_len(origin.size_bytes).await?;
            part.sync_all().await
        };
        made.await.map_err(TaskError::disk(what()))?;
        let begin = move |journal: &Journal, part: &[u8]| journal.begin_pieces(part, origin);
        let is_known = on_journal(journal, &names.part, begin).await.is_some();
        if !is_known {
            self.destination.remove(&names.part).await?;
        }
        Ok(is_known)
    }

    /// Fetches a range; returns how fast. `at` says how far it has come, also if it fails.
    async fn fetch(
        &mut self,
        names: &Names,
        part: &mut OpenFile,
        origin: Origin,
        range: &Range<'_>,
        at: &mut u64,
    ) -> Result<Pace, TaskError> {
        let (begin, begun) = (*at, Instant::now());
        let path = local(&names.part);
        let what = || format!("writing {}", shown(&path));
        let journal = self.shared.journal.clone();
        let sought = part.seek(SeekFrom::Start(begin)).await;
        sought.map_err(TaskError::disk(what()))?;
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
            if room == 0 {
                break;
            }
            let count = reader.read(&mut bytes[..room]).await?;
            if count == 0 {
                reader.finish().await?;
                return Err(TaskError::Changed);
            }
            let written = part.write_all(&bytes[..count]).await;
            written.map_err(TaskError::disk(what()))?;
            *at += count as u64;
            *self.moved_bytes += count as u64;
            self.shared.progress.moved(count).await;
            if noted.elapsed() >= NOTED_EVERY
                && let Some(journal) = &journal
            {
                noted = Instant::now();
                part.flush().await.map_err(TaskError::disk(what()))?;
                part.sync_data().await.map_err(TaskError::disk(what()))?;
                note(journal, &names.part, Piece { begin, end: *at }).await;
            }
        }
        let pace = Pace::of(*at - begin, begun, Instant::now());
        if *at < origin.size_bytes {
            reader.abandon().await;
            return Ok(pace);
        }
        if reader.read(&mut bytes).await? > 0 {
            return Err(TaskError::Changed);
        }
        reader.finish().await?;
        Ok(pace)
    }

    async fn give_name(
        &mut self,
        names: &Names,
        facts: &Facts,
        bytes: u64,
    ) -> Result<Outcome, TaskError> {
        let copied = Copied {
            bytes,
            is_spooled: false,
            source_now: None,
            there: None,
            is_grown: false,
            read: None,
        };
        let (proof, _) = self.check(names, facts, &copied).await?;
        let named = self
            .destination
            .name(&names.part, &names.destination, facts.modified_unix_s);
        named.await?;
        Ok(Outcome::Moved {
            bytes,
            modified_unix_s: facts.modified_unix_s,
            proof,
        })
    }
}

/// Enters what is there of a file, and on the disk.
async fn note(journal: &Arc<Journal>, part: &[u8], piece: Piece) {
    on_journal(journal, part, move |journal, part| {
        journal.add_piece(part, piece)
    })
    .await;
}

/// A smaller file is moved as one.
const SPLIT_LEAST_BYTES: u64 = 64 << 20;

/// What has come is on the disk, and the journal says so, after such a time.
const NOTED_EVERY: Duration = Duration::from_secs(5);

/// No piece is shorter only to have more of them: each begins slowly.
const PIECE_LEAST_BYTES: u64 = 8 << 20;
