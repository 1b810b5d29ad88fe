//! READs of one file at the near half, and the bytes that the far half has read ahead.
//!
//! The far half reads ahead in order. The client's READs may overtake each other a little. The near
//! half returns each byte once. If a client reads at another offset, the near half passes on its
//! READs until they are in sequence again.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use bytes::Bytes;

use super::{
    AHEAD_AGE_MAX, END_AGE_MAX,
    first_credit::{FIRST_CREDIT_MAX, first_credit_bytes},
    outbox::{Outbox, PendingRequest},
    ranged_files::PathHash,
    shared_files::ReadRegistration,
};
use crate::{
    Rope, SftpError, ToFar,
    packet::{Status, kind, put_string},
};

/// READs of one file, and the bytes that the far half has read ahead.
#[derive(Debug)]
pub(super) struct FileReadAhead {
    /// Number of the handle.
    handle: u64,
    /// Handle of the server.
    name: Bytes,
    /// Registration of the handle. `None` if the server had opened the file before the client's
    /// request. Also `None` after CLOSE.
    registration: Option<ReadRegistration>,
    /// Expected length of the range that the client reads, in bytes. `None` if the client may read
    /// the whole file.
    range_bytes: Option<u64>,
    /// Offset of the first READ.
    first_offset: u64,
    state: ReadAheadState,
    /// Number of the newest read-ahead.
    run: u32,
    /// Offset at which the newest read-ahead starts.
    run_start: u64,
    /// Whether the client has sent a READ.
    has_read: bool,
    /// Time of OPEN or of the last READ.
    used_at: Duration,
    /// Time at which the end of the file arrived.
    ended_at: Duration,
    /// Whether the read-ahead stopped because of its age. The next READ in sequence restarts it.
    has_expired: bool,
    /// Bytes that no READ has taken yet, by their offset.
    pieces: BTreeMap<u64, Bytes>,
    /// Offset of the next byte from the far half.
    arrived_end: u64,
    /// Offset at which the credit of the far half ends.
    granted_end: u64,
    /// Expected end of the range that the client reads. The far half gets no credit beyond this
    /// offset until the client reads there.
    range_end: u64,
    /// Length by which the range grows when the client reads beyond its expected end, in bytes.
    extension_bytes: u64,
    /// Whether the client has read beyond an expected end. Other handles then no longer determine
    /// the end.
    has_passed_range: bool,
    /// Free bytes of the window for which the far half has received no credit.
    ungranted_bytes: u64,
    /// READs that wait for bytes, by the offset of their end and by their order.
    waiting: BTreeMap<(u64, u64), WaitingRead>,
    next_order: u64,
    /// Highest offset at which a READ of the client has ended.
    requested_end: u64,
    /// Offsets of READs that the near half has answered with the end of the file. A client that
    /// repeats such a READ waits for the file to grow.
    ends_given: HashSet<u64>,
    /// Number of READs in sequence since the read-ahead stopped.
    sequential: u32,
    /// Number of times that the read-ahead has stopped. Each stop doubles the number of sequential
    /// READs that the next start requires.
    stops: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadAheadState {
    /// No read-ahead: READs are passed on.
    Stopped,
    /// The far half reads ahead, with a window of this many bytes.
    Running { window_bytes: u64 },
    /// All bytes up to the end of the file have arrived.
    AtEnd,
    /// All bytes up to a failure have arrived.
    AtFailure,
}

/// Part of a file that the client has read with one handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadPart {
    /// Some bytes behind the start of the file.
    Range { bytes: u64 },
    /// Some bytes from the start of the file.
    Start { bytes: u64 },
}

#[derive(Debug, Clone, Copy)]
struct WaitingRead {
    id: u32,
    offset: u64,
    /// Length as the client sent it. The answer may be shorter.
    length: u32,
}

impl FileReadAhead {
    /// Creates the state of a file that the server has just opened. The far half reads ahead if
    /// `window_bytes` is not zero.
    pub(super) fn new(handle: u64, name: Bytes, window_bytes: u64, now: Duration) -> Self {
        let granted_end = first_credit_bytes(window_bytes, false);
        Self {
            handle,
            name,
            registration: None,
            range_bytes: None,
            first_offset: 0,
            state: match window_bytes {
                0 => ReadAheadState::Stopped,
                window_bytes => ReadAheadState::Running { window_bytes },
            },
            run: 0,
            run_start: 0,
            has_read: false,
            used_at: now,
            ended_at: now,
            has_expired: false,
            pieces: BTreeMap::new(),
            arrived_end: 0,
            granted_end,
            range_end: u64::MAX,
            extension_bytes: EXTENSION_FIRST,
            has_passed_range: false,
            ungranted_bytes: window_bytes - granted_end,
            waiting: BTreeMap::new(),
            next_order: 0,
            requested_end: 0,
            ends_given: HashSet::new(),
            sequential: 0,
            stops: 0,
        }
    }

    /// Sets the registration of the handle, and the length of the range that the client will
    /// probably read.
    pub(super) fn set_registration(
        &mut self,
        registration: ReadRegistration,
        range_bytes: Option<u64>,
    ) {
        if let ReadAheadState::Running { window_bytes } = self.state {
            self.granted_end = first_credit_bytes(window_bytes, registration.had_siblings());
            self.ungranted_bytes = window_bytes - self.granted_end;
        }
        self.registration = Some(registration);
        self.range_bytes = range_bytes;
    }

    /// Accepts that the client closes the handle. Returns the path of the file, and the part that
    /// the client has read. Returns `None` for a short range, or if the path is unknown.
    pub(super) fn close(&mut self) -> Option<(PathHash, ReadPart)> {
        // The far half gets no further credit behind the READs that wait.
        self.range_end = self.requested_end;
        let registration = self.registration.take();
        let path = registration.filter(|_| self.has_read)?.path();
        let bytes = self.requested_end.saturating_sub(self.first_offset);
        match self.first_offset > REORDERED_MAX {
            true if bytes >= WINDOW_MIN => Some((path, ReadPart::Range { bytes })),
            true => None,
            false => Some((path, ReadPart::Start { bytes })),
        }
    }

    /// Returns the number of READs that wait for bytes.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Answers a READ of the client, or lets it wait, or passes it on. If a new read-ahead starts,
    /// its window is `free_window_bytes`. If this value is zero, no read-ahead starts.
    pub(super) fn read(
        &mut self,
        id: u32,
        offset: u64,
        length: u32,
        free_window_bytes: u64,
        now: Duration,
        outbox: &mut Outbox,
    ) {
        let read = WaitingRead { id, offset, length };
        let end = offset.saturating_add(length.min(READ_MAX).into());
        let is_first = !std::mem::replace(&mut self.has_read, true);
        let has_expired = std::mem::take(&mut self.has_expired);
        self.used_at = now;
        if is_first {
            self.first_offset = offset;
            if let Some(registration) = &mut self.registration {
                registration.start_at(offset);
            }
        }
        if length == 0 || end == u64::MAX {
            return self.pass_on(read, outbox);
        }
        let range_bytes = self.range_bytes.filter(|_| is_first);
        if self.state == ReadAheadState::Stopped {
            let is_next = offset == self.requested_end && (!is_first || has_expired);
            self.sequential = if is_next { self.sequential + 1 } else { 0 };
            self.requested_end = end;
            let needed = SEQUENTIAL_MIN << self.stops.min(10);
            let is_sequential = self.sequential >= needed || (has_expired && is_next);
            if !is_sequential && range_bytes.is_none() || free_window_bytes == 0 {
                return self.pass_on(read, outbox);
            }
            self.start(offset, free_window_bytes, range_bytes, outbox);
        } else if let (true, ReadAheadState::Running { window_bytes }) = (is_first, self.state)
            && offset > REORDERED_MAX
        {
            // The client resumes a download.
            self.start(offset, window_bytes, range_bytes, outbox);
        }
        let is_beyond_end = self.state == ReadAheadState::AtEnd && offset >= self.arrived_end;
        let is_old = is_beyond_end && now.saturating_sub(self.ended_at) > END_AGE_MAX;
        let is_repeated = is_beyond_end
            && (self.ends_given.contains(&offset) || self.ends_given.len() >= ENDS_GIVEN_MAX);
        let is_gone = offset < self.arrived_end && !self.has_byte(offset);
        let is_far = !is_beyond_end && offset > self.requested_end.saturating_add(REORDERED_MAX);
        if is_old || is_repeated || is_gone || is_far {
            self.stop(outbox);
            self.requested_end = end;
            return self.pass_on(read, outbox);
        }
        if !is_beyond_end {
            self.requested_end = self.requested_end.max(end);
        }
        self.waiting.insert((end, self.next_order), read);
        self.next_order += 1;
        self.serve(outbox);
    }

    /// Accepts bytes from the far half.
    pub(super) fn arrived(
        &mut self,
        run: u32,
        data: Rope,
        outbox: &mut Outbox,
    ) -> Result<(), SftpError> {
        if !self.is_running(run) {
            return Ok(());
        }
        if data.len() as u64 > self.granted_end - self.arrived_end {
            return Err(SftpError::LimitExceeded("read-ahead"));
        }
        for piece in data {
            let length = piece.len() as u64;
            self.pieces.insert(self.arrived_end, piece);
            self.arrived_end += length;
        }
        self.serve(outbox);
        Ok(())
    }

    /// Accepts the end of the read-ahead.
    pub(super) fn ended(
        &mut self,
        run: u32,
        is_end_of_file: bool,
        now: Duration,
        outbox: &mut Outbox,
    ) {
        if self.is_running(run) {
            #[cfg(fuzz_canary)]
            assert!(self.arrived_end == 0, "canary: behind the end of a file");
            self.ended_at = now;
            self.state = if is_end_of_file {
                ReadAheadState::AtEnd
            } else {
                ReadAheadState::AtFailure
            };
            self.serve(outbox);
        }
    }

    /// Returns the bytes of memory that the read-ahead may take.
    pub(super) fn reserved_bytes(&self) -> u64 {
        match self.state {
            ReadAheadState::Stopped => 0,
            ReadAheadState::Running { window_bytes } => window_bytes,
            // The far half reads no more, so only the bytes that have arrived need memory.
            ReadAheadState::AtEnd | ReadAheadState::AtFailure => {
                let first = self.pieces.first_key_value();
                first.map_or(0, |(offset, _)| self.arrived_end - offset)
            }
        }
    }

    /// Returns the bytes of read-ahead that no READ has taken.
    pub(super) fn held_bytes(&self) -> u64 {
        self.pieces.values().map(|piece| piece.len() as u64).sum()
    }

    /// Returns whether READs are passed on.
    pub(super) fn is_stopped(&self) -> bool {
        self.state == ReadAheadState::Stopped
    }

    /// Drops the read-ahead if the client has sent no READ for a while, because the file may have
    /// changed.
    pub(super) fn expire(&mut self, now: Duration, outbox: &mut Outbox) {
        let is_idle = now.saturating_sub(self.used_at) > AHEAD_AGE_MAX;
        if is_idle && !self.is_stopped() && self.waiting.is_empty() {
            self.drop_bytes(outbox);
            self.has_expired = true;
        }
    }

    /// Stops the read-ahead, and passes on all READs that wait.
    pub(super) fn stop(&mut self, outbox: &mut Outbox) {
        self.drop_bytes(outbox);
        self.stops += 1;
        let waiting = std::mem::take(&mut self.waiting);
        let mut in_order: Vec<_> = waiting.into_iter().collect();
        in_order.sort_by_key(|((_, order), _)| *order);
        for (_, read) in in_order {
            self.pass_on(read, outbox);
        }
    }

    /// Stops the read-ahead, and drops its bytes.
    fn drop_bytes(&mut self, outbox: &mut Outbox) {
        if let ReadAheadState::Running { .. } = self.state {
            outbox.send(ToFar::StopReadAhead {
                handle: self.handle,
                run: self.run,
            });
        }
        self.state = ReadAheadState::Stopped;
        self.sequential = 0;
        self.pieces.clear();
        self.ends_given.clear();
    }

    fn is_running(&self, run: u32) -> bool {
        run == self.run && matches!(self.state, ReadAheadState::Running { .. })
    }

    fn start(
        &mut self,
        offset: u64,
        window_bytes: u64,
        range_bytes: Option<u64>,
        outbox: &mut Outbox,
    ) {
        self.state = ReadAheadState::Running { window_bytes };
        self.run += 1;
        self.pieces.clear();
        self.ends_given.clear();
        self.arrived_end = offset;
        self.requested_end = offset;
        self.run_start = offset;
        self.granted_end = offset;
        self.has_passed_range = false;
        let range_bytes = range_bytes.map(|bytes| bytes.max(WINDOW_MIN));
        self.range_end = offset.saturating_add(range_bytes.unwrap_or(u64::MAX));
        self.extension_bytes = range_bytes.unwrap_or(EXTENSION_FIRST);
        self.limit_range_by_siblings();
        let first_bytes = match self.limits_first_credit() {
            true => window_bytes.min(RUN_CREDIT_FIRST),
            false => window_bytes,
        };
        self.granted_end = offset.saturating_add(first_bytes).min(self.range_end);
        self.ungranted_bytes = window_bytes - (self.granted_end - offset);
        outbox.send(ToFar::ReadAhead {
            handle: self.handle,
            run: self.run,
            offset,
            credit_bytes: self.granted_end - offset,
        });
    }

    /// Ends the expected range behind the lowest offset at which a sibling has started. Ignores
    /// offsets within [`WINDOW_MIN`] of the start of this read-ahead, and offsets that the client
    /// has passed.
    fn limit_range_by_siblings(&mut self) {
        let Some(registration) = &self.registration else {
            return;
        };
        if self.has_passed_range {
            return;
        }
        let near_end = self.run_start.saturating_add(WINDOW_MIN);
        let passed_end = self.requested_end.saturating_sub(EXTENSION_FIRST);
        if let Some(start) = registration.next_start(near_end.max(passed_end)) {
            // The last READ of the range may end behind the start of the sibling.
            let end = start.saturating_add(READ_MAX.into());
            if end < self.range_end {
                self.range_end = end;
                self.extension_bytes = EXTENSION_FIRST;
            }
        }
    }

    /// Returns whether the first READ of a sibling may still shorten the range.
    fn limits_first_credit(&self) -> bool {
        let registration = self.registration.as_ref();
        self.granted_end.saturating_sub(self.run_start) < FIRST_CREDIT_MAX
            && !self.has_passed_range
            && registration.is_some_and(ReadRegistration::has_unread_siblings)
    }

    /// Passes on a READ to the server.
    fn pass_on(&self, read: WaitingRead, outbox: &mut Outbox) {
        let mut packet = Vec::with_capacity(self.name.len() + 17);
        packet.push(kind::READ);
        put_string(&mut packet, &self.name);
        packet.extend_from_slice(&read.offset.to_be_bytes());
        packet.extend_from_slice(&read.length.to_be_bytes());
        let pending = PendingRequest::Read {
            id: read.id,
            handle: self.handle,
        };
        outbox.request(pending, packet.into());
    }

    /// Returns whether the byte at `offset` has arrived, and no READ has taken it.
    fn has_byte(&self, offset: u64) -> bool {
        let before = self.pieces.range(..=offset).next_back();
        before.is_some_and(|(start, piece)| offset - start < piece.len() as u64)
    }

    /// Answers all READs whose bytes have arrived.
    fn serve(&mut self, outbox: &mut Outbox) {
        loop {
            let is_over = matches!(
                self.state,
                ReadAheadState::AtEnd | ReadAheadState::AtFailure
            );
            let Some((&(end, order), &read)) = self.waiting.first_key_value() else {
                break;
            };
            if end > self.arrived_end && !is_over {
                break;
            }
            if read.offset >= self.arrived_end {
                if self.state == ReadAheadState::AtFailure {
                    // The READ is passed on, so that the server itself reports the failure.
                    return self.stop(outbox);
                }
                self.waiting.remove(&(end, order));
                self.ends_given.insert(read.offset);
                outbox.reply_status(read.id, &Status::eof());
                continue;
            }
            let Some(data) = self.take(read.offset, end.min(self.arrived_end)) else {
                // Another READ has taken some of these bytes.
                return self.stop(outbox);
            };
            self.waiting.remove(&(end, order));
            self.ungranted_bytes += data.len() as u64;
            outbox.reply_data(read.id, self.handle, data);
        }
        self.grant(outbox);
    }

    /// Gives credit for the bytes that READs have taken.
    fn grant(&mut self, outbox: &mut Outbox) {
        let ReadAheadState::Running { window_bytes } = self.state else {
            return;
        };
        if !self.has_read {
            return;
        }
        let is_exhausted = self.arrived_end == self.granted_end && !self.waiting.is_empty();
        // The client has skipped the bytes before this offset.
        let skipped_max = REORDERED_MAX.min(window_bytes / 2);
        self.skip(self.requested_end.saturating_sub(skipped_max));
        if is_exhausted && self.ungranted_bytes == 0 {
            // The window is full of bytes that the client does not read.
            let first = self.waiting.values().map(|read| read.offset).min();
            self.skip(first.unwrap_or(0));
            if self.ungranted_bytes == 0 {
                return self.stop(outbox);
            }
        }
        let is_much = self.ungranted_bytes >= window_bytes / GRANTS_PER_WINDOW;
        let limits_credit = self.limits_first_credit();
        if !is_exhausted && (!is_much || limits_credit) {
            return;
        }
        self.limit_range_by_siblings();
        if self.requested_end > self.range_end {
            // The range is longer than expected, or the client requests bytes that it will not use.
            self.has_passed_range = true;
            let extended_end = self.range_end.saturating_add(self.extension_bytes);
            self.range_end = extended_end.max(self.requested_end);
            self.extension_bytes = self.extension_bytes.saturating_mul(2);
        }
        let mut room_bytes = self.range_end.saturating_sub(self.granted_end);
        if limits_credit {
            let run_bytes = self.granted_end - self.run_start;
            let run_bytes = run_bytes.saturating_mul(2).max(RUN_CREDIT_FIRST);
            let run_end = self.run_start.saturating_add(run_bytes);
            let limit_end = run_end.max(self.requested_end);
            room_bytes = room_bytes.min(limit_end.saturating_sub(self.granted_end));
        }
        let credit_bytes = self.ungranted_bytes.min(room_bytes);
        if credit_bytes > 0 {
            self.ungranted_bytes -= credit_bytes;
            self.granted_end += credit_bytes;
            outbox.send(ToFar::Credit {
                handle: self.handle,
                run: self.run,
                credit_bytes,
            });
        }
    }

    /// Drops the pieces that end before `offset`, so that their memory is free.
    fn skip(&mut self, offset: u64) {
        while let Some(first) = self.pieces.first_entry() {
            let end = first.key() + first.get().len() as u64;
            // A waiting READ ends after the last byte that has arrived. The READ may still need up
            // to `READ_MAX` bytes before that byte.
            if end > offset || end > self.arrived_end.saturating_sub(READ_MAX.into()) {
                break;
            }
            self.ungranted_bytes += first.remove().len() as u64;
        }
    }

    /// Removes and returns the bytes from `start` to `end`. Returns `None` if some of them have not
    /// arrived or have been taken.
    fn take(&mut self, start: u64, end: u64) -> Option<Rope> {
        let first = *self.pieces.range(..=start).next_back()?.0;
        let mut covered_end = start;
        for (&offset, piece) in self.pieces.range(first..end) {
            if offset > covered_end {
                return None;
            }
            covered_end = offset + piece.len() as u64;
        }
        if covered_end < end {
            return None;
        }
        let mut taken = Rope::new();
        let mut next = first;
        while next < end {
            let offset = next;
            let mut piece = self.pieces.remove(&offset).expect("the bytes are there");
            next = offset + piece.len() as u64;
            if next > end {
                let rest = piece.split_off((end - offset) as usize);
                self.pieces.insert(end, rest);
            }
            if offset < start {
                let before = piece.split_to((start - offset) as usize);
                self.pieces.insert(offset, before);
            }
            taken.push(piece);
        }
        Some(taken)
    }
}

/// Maximum number of bytes in an answer: OpenSSH's limit. A client may request more.
const READ_MAX: u32 = 255 * 1024;

/// Maximum first credit of a read-ahead in bytes, while a sibling has not sent a READ yet. The
/// range of the handle may end where the sibling starts.
const RUN_CREDIT_FIRST: u64 = 4 << 20;

/// First extension of a range whose end a sibling determined, in bytes. rclone 1.60 sends READs for
/// 2 MiB behind its range.
const EXTENSION_FIRST: u64 = 2 << 20;

/// Minimum window of a read-ahead in bytes. It has room for the longest answer, so the first READ
/// that waits can always be answered.
pub(super) const WINDOW_MIN: u64 = 1 << 20;

/// Maximum distance of a READ ahead of the earlier READs, in bytes: 16 READs of 255 KiB.
const REORDERED_MAX: u64 = 16 * READ_MAX as u64;

/// Number of READs in sequence before a stopped read-ahead starts again.
const SEQUENTIAL_MIN: u32 = 4;

/// Number of messages that together give credit for one window. The far half waits for the last
/// part of a window.
const GRANTS_PER_WINDOW: u64 = 16;

/// Maximum number of READs that the near half itself answers with the end of the file.
const ENDS_GIVEN_MAX: usize = 1024;
