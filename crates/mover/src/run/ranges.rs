//! Byte ranges of large files that lanes download in parallel.
//!
//! One lane begins with the whole file. Further lanes join if they make the transfer faster. A
//! joining lane receives half of the largest range that remains.
//!
//! One connection may be many times slower than another connection on the same path. Under CUBIC, a
//! connection that begins on a full path needs ten seconds or more to reach its fair share.
//! Therefore a lane that has finished its own piece takes over bytes from the slowest remaining
//! range. The range is split in proportion to the rates of both lanes, so that both lanes end at
//! the same time.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::Notify, time::sleep_until};

use super::join_controller::{DownloadLoad, JoinController};
use crate::{
    plan::{File, Piece},
    server::Stat,
};

/// All ranges that lanes are downloading, and the ranges that lanes have abandoned.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    state: Mutex<RangesState>,
    /// Notification that a range has ended. The functions `settle` and `take` wait for this
    /// notification.
    ended: Notify,
    /// Notification that a file needs further lanes.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct RangesState {
    begun: u64,
    running: Vec<RunningRange>,
    /// Abandoned ranges. Each entry has the journal key of the file's part file.
    left: Vec<(Vec<u8>, Piece)>,
    /// Files that are moved in pieces, by the journal keys of their part files.
    files: HashMap<Vec<u8>, PiecewiseFile>,
    /// Files that need further lanes. Each entry contains the number of further lanes.
    wanted: Vec<(File, usize)>,
}

/// A file that is moved in pieces (byte ranges).
#[derive(Debug)]
struct PiecewiseFile {
    file: File,
    /// Number of pieces that no lane has begun.
    waiting: usize,
    /// Maximum number of connections that may download the file.
    connections_max: usize,
    /// Whether the downloaded bytes are useless.
    is_spoiled: bool,
    joins: JoinController,
    /// Whether a lane has begun a range of the file.
    has_begun: bool,
    /// Whether more than one range of the file has begun.
    is_shared: bool,
    /// Attributes that the server has sent after the last byte of the file.
    stat: Option<Stat>,
}

#[derive(Debug)]
struct RunningRange {
    id: u64,
    part: Vec<u8>,
    range: Piece,
    /// Offset up to which bytes have been read or are being read.
    at: u64,
    begun: Instant,
    /// Whether bytes of the range have arrived.
    is_open: bool,
    /// Whether the lane has taken over the range from another lane's piece.
    is_taken: bool,
}

/// Download rate of a lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneRate {
    bytes_per_s: f64,
    /// Time over which the rate was measured.
    span: Duration,
}

/// A range that a lane is downloading. The range becomes shorter if another lane takes over its
/// last bytes.
#[derive(Debug)]
pub(super) struct FetchRange<'a> {
    ranges: &'a Ranges,
    id: u64,
    begin: u64,
    /// Whether the range was taken over from another lane's piece. If so, the range must be
    /// recorded as abandoned when the lane fails.
    is_taken: bool,
}

impl Ranges {
    /// Registers a file with `pieces` pieces. At most `connections_max` connections may download
    /// it. Until all pieces have been begun, no lane takes over bytes from another lane.
    pub(super) fn expect(
        &self,
        part: &[u8],
        file: &File,
        pieces: usize,
        connections_max: usize,
        now: Instant,
    ) {
        let fetching = PiecewiseFile {
            file: file.clone(),
            waiting: pieces,
            connections_max,
            is_spoiled: false,
            joins: JoinController::new(now),
            has_begun: false,
            is_shared: false,
            stat: None,
        };
        self.state().files.insert(part.to_vec(), fetching);
    }

    /// Records that a lane has begun a piece.
    pub(super) fn begin_piece(&self, part: &[u8], now: Instant) {
        let mut state = self.state();
        let is_alone = !state.running.iter().any(|it| it.part == part);
        if let Some(fetching) = state.files.get_mut(part) {
            fetching.waiting = fetching.waiting.saturating_sub(1);
            if is_alone {
                fetching.joins.begin_again(now);
            }
        }
    }

    /// Returns a range for a helping lane. An abandoned range is returned first, and the lane needs
    /// no permit for it.
    ///
    /// If `rate` is given, the lane has already helped with this file. It then receives the last
    /// bytes of the range whose download would take longest. A new lane needs a permit, and
    /// receives about half of the largest remaining range.
    pub(super) fn join(
        &self,
        part: &[u8],
        rate: Option<LaneRate>,
        now: Instant,
    ) -> Option<FetchRange<'_>> {
        let mut state = self.state();
        let fetching = state.files.get_mut(part)?;
        if fetching.is_spoiled || fetching.connections_max < 2 {
            return None;
        }
        let may_join = rate.is_some() || fetching.joins.has_permit(now);
        let range = match state.take_left(part) {
            Some(range) => range,
            None if !may_join => return None,
            None if rate.is_some() => state.split(part, rate, now)?,
            None => {
                let range = state.halve(part, now)?;
                if let Some(fetching) = state.files.get_mut(part) {
                    fetching.joins.take_permit(now);
                }
                range
            }
        };
        let id = state.run(part, range, true, now);
        drop(state);
        Some(self.taken(id, range))
    }

    /// Records that a helping lane has failed.
    pub(super) fn help_failed(&self, part: &[u8], now: Instant) {
        if let Some(fetching) = self.state().files.get_mut(part) {
            fetching.joins.failed(now);
        }
    }

    /// Records that the server does not support ranges. Running lanes continue, and no further lane
    /// joins.
    pub(super) fn refuse_help(&self, part: &[u8]) {
        if let Some(fetching) = self.state().files.get_mut(part) {
            fetching.connections_max = 1;
        }
    }

    /// Marks the downloaded bytes of a file as useless, so that its lanes stop.
    pub(super) fn spoil(&self, part: &[u8]) {
        if let Some(fetching) = self.state().files.get_mut(part) {
            fetching.is_spoiled = true;
        }
    }

    /// Waits until no lane is downloading a file, and then removes the file from the table.
    /// Afterwards, no lane records bytes of an earlier part file.
    pub(super) async fn settle(&self, part: &[u8]) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            {
                let mut state = self.state();
                if !state.running.iter().any(|it| it.part == part) {
                    state.left.retain(|(of, _)| of != part);
                    state.files.remove(part);
                    return;
                }
            }
            self.spoil(part);
            ended.await;
        }
    }

    /// Waits until a file needs further lanes. Returns the file and the number of lanes.
    pub(super) async fn wanted(&self) -> (File, usize) {
        loop {
            if let Some(wanted) = self.state().wanted.pop() {
                return wanted;
            }
            self.wanted.notified().await;
        }
    }

    fn taken(&self, id: u64, range: Piece) -> FetchRange<'_> {
        FetchRange {
            ranges: self,
            id,
            begin: range.begin,
            is_taken: true,
        }
    }

    /// Records that a lane has begun a range of its own piece.
    pub(super) fn begin(&self, part: &[u8], range: Piece, now: Instant) -> FetchRange<'_> {
        let id = self.state().run(part, range, false, now);
        FetchRange {
            ranges: self,
            id,
            begin: range.begin,
            is_taken: false,
        }
    }

    /// Returns another range for a lane that has finished its own piece.
    ///
    /// The result is an abandoned range, or the last bytes of the range whose download would take
    /// longest. If the lane has no measured rate, it receives half of that range. If a helping lane
    /// may still abandon its range, the function waits. The function returns `None` once no range
    /// remains for this lane.
    pub(super) async fn take(&self, part: &[u8], rate: Option<LaneRate>) -> Option<FetchRange<'_>> {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            let now = Instant::now();
            match self.try_take(part, rate, now) {
                PieceOffer::Range(range) => return Some(range),
                PieceOffer::Nothing => return None,
                PieceOffer::Later => tokio::select! {
                    () = ended => {}
                    () = sleep_until((now + LOOK_EVERY).into()) => {}
                },
            }
        }
    }

    fn try_take(&self, part: &[u8], rate: Option<LaneRate>, now: Instant) -> PieceOffer<'_> {
        let mut state = self.state();
        let found = state.take_left(part);
        let Some(range) = found.or_else(|| state.split(part, rate, now)) else {
            let mut running = state.running.iter();
            return match running.any(|it| it.is_taken && it.part == part) {
                true => PieceOffer::Later,
                false => PieceOffer::Nothing,
            };
        };
        let id = state.run(part, range, true, now);
        drop(state);
        PieceOffer::Range(self.taken(id, range))
    }

    /// Records the attributes that the server has sent after the last byte. The attributes are
    /// stored only if one lane has downloaded the whole file. Otherwise some bytes may belong to
    /// another version.
    pub(super) fn note_stat(&self, part: &[u8], stat: Stat) {
        if let Some(fetching) = self.state().files.get_mut(part) {
            fetching.stat = Some(stat).filter(|_| !fetching.is_shared);
        }
    }

    /// Removes and returns the attributes that the server has sent after the last byte.
    pub(super) fn take_stat(&self, part: &[u8]) -> Option<Stat> {
        let mut state = self.state();
        state.files.get_mut(part)?.stat.take()
    }

    /// Returns the ranges of a file that lanes are downloading or have abandoned.
    pub(super) fn of(&self, part: &[u8]) -> Vec<Piece> {
        let state = self.state();
        let running = state.running.iter().map(|it| (&it.part, it.range));
        let left = state.left.iter().map(|(of, range)| (of, *range));
        let all = running.chain(left).filter(|(of, _)| *of == part);
        all.map(|(_, range)| range).collect()
    }

    /// Removes a file from the table after the file has arrived completely.
    pub(super) fn forget(&self, part: &[u8]) {
        let mut state = self.state();
        state.left.retain(|(of, _)| of != part);
        state.files.remove(part);
    }

    fn state(&self) -> MutexGuard<'_, RangesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Result for a lane that has finished its own piece.
#[derive(Debug)]
enum PieceOffer<'a> {
    /// The lane is to download this range.
    Range(FetchRange<'a>),
    /// No range is available now. Other lanes may still abandon their ranges.
    Later,
    /// No range remains.
    Nothing,
}

impl RangesState {
    fn run(&mut self, part: &[u8], range: Piece, is_taken: bool, now: Instant) -> u64 {
        self.begun += 1;
        if let Some(fetching) = self.files.get_mut(part) {
            fetching.is_shared |= fetching.has_begun;
            fetching.has_begun = true;
            fetching.stat = None;
        }
        self.running.push(RunningRange {
            id: self.begun,
            part: part.to_vec(),
            range,
            at: range.begin,
            begun: now,
            is_open: false,
            is_taken,
        });
        self.begun
    }

    fn take_left(&mut self, part: &[u8]) -> Option<Piece> {
        let at = self.left.iter().position(|(of, _)| of == part)?;
        Some(self.left.swap_remove(at).1)
    }

    /// Requests further lanes for a file, if the file's [`JoinController`] permits. Returns whether
    /// any lanes were requested.
    fn want(&mut self, part: &[u8], now: Instant) -> bool {
        let running = self.running.iter().filter(|it| it.part == part);
        let Some(fetching) = self.files.get_mut(part) else {
            return false;
        };
        if fetching.waiting > 0 || fetching.is_spoiled || fetching.connections_max < 2 {
            return false;
        }
        let load = DownloadLoad {
            connections: running.clone().count(),
            connections_max: fetching.connections_max,
            is_any_opening: running.clone().any(|it| !it.is_open),
            rest_bytes: running.map(|it| it.range.end.saturating_sub(it.at)).sum(),
        };
        let count = fetching.joins.decide(load, now);
        if count > 0 {
            self.wanted.push((fetching.file.clone(), count));
        }
        count > 0
    }

    /// Removes about half of the largest remaining range from its lane, and returns the removed
    /// bytes as a new range. The new range is shorter than half, because the old lane continues to
    /// download until the new lane has started.
    fn halve(&mut self, part: &[u8], now: Instant) -> Option<Piece> {
        let round = self.files.get(part).and_then(|it| it.joins.round());
        let running = self.running.iter_mut().filter(|it| it.part == part);
        let longest = running.max_by_key(|it| it.range.end.saturating_sub(it.at))?;
        let rate = longest.rate(now);
        let start_s = rate.start_s(round.unwrap_or_default());
        let meanwhile = (rate.bytes_per_s * start_s) as u64;
        let end = longest.range.end;
        let taken = end.saturating_sub(longest.at).saturating_sub(meanwhile) / 2;
        if taken < TAKEN_LEAST_BYTES {
            return None;
        }
        longest.range.end -= taken;
        Some(Piece {
            begin: end - taken,
            end,
        })
    }

    /// Selects the range whose download would take longest. Removes the last bytes of this range
    /// from its lane, and returns these bytes as a new range.
    fn split(&mut self, part: &[u8], rate: Option<LaneRate>, now: Instant) -> Option<Piece> {
        if self.files.get(part).is_some_and(|it| it.waiting > 0) {
            return None;
        }
        // If a range is much younger than this lane's measurement, the range has no measurable rate
        // yet. In this case, its rate counts as equal to the rate of this lane.
        let age_least = rate.map_or(AGE_LEAST, |it| it.span / 2);
        let round = self.files.get(part).and_then(|it| it.joins.round());
        let start_s = rate.map_or(0.0, |it| it.start_s(round.unwrap_or_default()));
        let running = self.running.iter_mut().filter(|it| it.part == part);
        let (_, taken, last) = running
            .filter_map(|it| {
                let theirs = Some(it.rate(now))
                    .filter(|it| it.span >= age_least)
                    .or(rate);
                let rest = (it.range.end - it.at) as f64;
                let rest_s = theirs.map_or(f64::INFINITY, |theirs| theirs.time_s(rest));
                let share = match (rate, theirs) {
                    (Some(ours), Some(theirs)) => ours.share_beside(theirs),
                    _ => 0.5,
                };
                let taken = (rest * share * (1.0 - start_s / rest_s).max(0.0)).round() as u64;
                let is_worth_it = rest_s >= REST_LEAST_S && taken >= TAKEN_LEAST_BYTES;
                is_worth_it.then_some((rest_s, taken, it))
            })
            .max_by(|a, b| a.0.total_cmp(&b.0))?;
        let end = last.range.end;
        last.range.end -= taken;
        Some(Piece {
            begin: end - taken,
            end,
        })
    }
}

impl RunningRange {
    fn rate(&self, now: Instant) -> LaneRate {
        LaneRate::of(self.at - self.range.begin, self.begun, now)
    }
}

impl LaneRate {
    /// Computes the rate of a lane that has downloaded `bytes` bytes since `begun`.
    pub(super) fn of(bytes: u64, begun: Instant, now: Instant) -> Self {
        let span = now.saturating_duration_since(begun);
        Self {
            bytes_per_s: bytes as f64 / span.as_secs_f64().max(1e-3),
            span,
        }
    }

    fn time_s(self, bytes: f64) -> f64 {
        bytes / self.bytes_per_s.max(1.0)
    }

    /// Returns this lane's fraction of the common work. With this fraction, both lanes end at the
    /// same time.
    fn share_beside(self, other: Self) -> f64 {
        let both = self.bytes_per_s + other.bytes_per_s;
        (self.bytes_per_s / both.max(1.0)).clamp(1.0 - SHARE_MAX, SHARE_MAX)
    }

    /// Returns the time in seconds that a lane of this rate loses when it starts another range. The
    /// request and slow start cause this loss.
    fn start_s(self, round: Duration) -> f64 {
        let round_s = round.as_secs_f64();
        let doublings = (self.bytes_per_s * round_s / INITIAL_WINDOW_BYTES).log2();
        let start_s = round_s * (REQUEST_ROUNDS + doublings.max(0.0));
        start_s.min(START_MAX_S)
    }
}

/// Smallest age of a range whose rate is considered. The limit applies if the lane that takes over
/// bytes has no measured rate.
const AGE_LEAST: Duration = Duration::from_secs(2);

/// Shortest remaining time, in seconds, of a range that is split. Starting another range takes
/// several round trips.
const REST_LEAST_S: f64 = 2.0;

const TAKEN_LEAST_BYTES: u64 = 1 << 20;

/// Initial congestion window of TCP in bytes: ten segments.
const INITIAL_WINDOW_BYTES: f64 = 14_600.0;

/// Upper limit, in seconds, on the estimated time to start a range. The limit is necessary because
/// a server may need long to open a file although round trips are short.
const START_MAX_S: f64 = 10.0;

/// Approximate number of round trips from the end of a range to the first bytes of the next range.
const REQUEST_ROUNDS: f64 = 2.0;

/// Interval at which a waiting lane checks whether it may take over bytes from other lanes.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Largest fraction of a remaining range that a lane takes over. The rest stays with the other
/// lane, because that lane continues to download and may have started only shortly before.
const SHARE_MAX: f64 = 15.0 / 16.0;

impl FetchRange<'_> {
    /// Returns the present begin and end offsets of the range.
    pub(super) fn now(&self) -> Piece {
        let state = self.ranges.state();
        let running = state.running.iter().find(|it| it.id == self.id);
        running.expect("a range runs until it is dropped").range
    }

    /// Returns whether the downloaded bytes of the file are useless.
    pub(super) fn is_spoiled(&self) -> bool {
        let state = self.ranges.state();
        let running = state.running.iter().find(|it| it.id == self.id);
        let fetching = running.and_then(|it| state.files.get(&it.part));
        fetching.is_some_and(|it| it.is_spoiled)
    }

    /// Returns the number of bytes that the lane may read at `at`, limited by `most`. Returns 0 if
    /// the range ends at `at`, or if the file's bytes are useless.
    pub(super) fn room(&self, at: u64, most: usize) -> usize {
        if self.is_spoiled() {
            return 0;
        }
        let mut state = self.ranges.state();
        let running = state.running.iter_mut().find(|it| it.id == self.id);
        let running = running.expect("a range runs until it is dropped");
        let left = running.range.end.saturating_sub(at);
        let room = most.min(usize::try_from(left).unwrap_or(usize::MAX));
        running.at = at + room as u64;
        room
    }

    /// Records that the lane has received `bytes` bytes. `waited` is the time for which the lane
    /// waited for these bytes.
    pub(super) fn received(&self, bytes: usize, waited: Duration, now: Instant) {
        let mut state = self.ranges.state();
        let state = &mut *state;
        let Some(running) = state.running.iter_mut().find(|it| it.id == self.id) else {
            return;
        };
        let Some(fetching) = state.files.get_mut(&running.part) else {
            return;
        };
        match std::mem::replace(&mut running.is_open, true) {
            true => fetching.joins.received(bytes as u64, waited),
            false => {
                let opening = now.saturating_duration_since(running.begun);
                fetching.joins.opened(opening, now);
                if self.is_taken {
                    fetching.joins.succeeded();
                }
            }
        }
        let part = running.part.clone();
        if state.want(&part, now) {
            self.ranges.wanted.notify_one();
        }
    }

    /// Records that all bytes before the offset `at` are stored. These bytes stay valid if the lane
    /// abandons the remaining bytes.
    pub(super) fn has_come_to(&mut self, at: u64) {
        self.begin = at;
    }
}

impl Drop for FetchRange<'_> {
    fn drop(&mut self) {
        let mut state = self.ranges.state();
        let Some(at) = state.running.iter().position(|it| it.id == self.id) else {
            return;
        };
        let RunningRange { part, range, .. } = state.running.swap_remove(at);
        let missing = Piece {
            begin: self.begin,
            ..range
        };
        if self.is_taken && missing.begin < missing.end {
            // The lane that downloads the preceding bytes continues with the abandoned bytes,
            // unless it has already reached the end of its own range.
            let mut running = state.running.iter_mut();
            let in_front = running.find(|it| {
                it.part == part && it.range.end == missing.begin && it.at < it.range.end
            });
            match in_front {
                Some(running) => running.range.end = missing.end,
                None => state.left.push((part, missing)),
            }
        }
        drop(state);
        self.ranges.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::RelativePath;

    const PART: &[u8] = b"film.part";

    fn piece(begin: u64, end: u64) -> Piece {
        Piece { begin, end }
    }

    const MIB: u64 = 1 << 20;

    fn film() -> File {
        File {
            root: 0,
            path: RelativePath::default(),
            size_bytes: None,
            modified: None,
            link: None,
        }
    }

    fn take<'a>(
        ranges: &'a Ranges,
        part: &[u8],
        rate: Option<LaneRate>,
        now: Instant,
    ) -> Option<FetchRange<'a>> {
        match ranges.try_take(part, rate, now) {
            PieceOffer::Range(range) => Some(range),
            PieceOffer::Later | PieceOffer::Nothing => None,
        }
    }

    /// Simulates a lane that downloads a file of 100 MiB in bursts, until further lanes are
    /// requested. Returns the time of that request.
    fn fetch_in_bursts(ranges: &Ranges, own: &FetchRange<'_>, begun: Instant) -> Instant {
        let round = Duration::from_millis(100);
        let mut now = begun + 2 * round;
        own.received(1, 2 * round, now);
        while ranges.state().wanted.is_empty() {
            now += round;
            assert!(now < after(begun, 5), "none is wanted");
            own.received(400_000, round * 9 / 10, now);
        }
        now
    }

    fn after(begun: Instant, seconds: u64) -> Instant {
        begun + Duration::from_secs(seconds)
    }

    #[test]
    fn half_of_the_longest_rest_is_taken_by_a_lane_without_a_pace() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let now = after(begun, 10);
        let fast = ranges.begin(PART, piece(0, 100 * MIB), begun);
        let slow = ranges.begin(PART, piece(100 * MIB, 140 * MIB), begun);
        let _other = ranges.begin(b"other.part", piece(0, 9000 * MIB), begun);
        assert_eq!(fast.room(0, 50 << 20), 50 << 20);
        assert_eq!(slow.room(100 * MIB, 4 << 20), 4 << 20);
        let taken = take(&ranges, PART, None, now).expect("there is enough");
        assert_eq!(taken.now(), piece(122 * MIB, 140 * MIB));
        assert_eq!(slow.now(), piece(100 * MIB, 122 * MIB));
        assert_eq!(slow.room(104 * MIB, 1 << 30), 18 << 20, "up to that");
        assert_eq!(slow.room(122 * MIB, 1 << 30), 0);
    }

    #[test]
    fn the_rest_is_shared_by_how_fast_both_are() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let now = after(begun, 10);
        let slow = ranges.begin(PART, piece(0, 41 * MIB), begun);
        assert_eq!(slow.room(0, 1 << 20), 1 << 20);
        let fast = LaneRate::of(3 * MIB, begun, now);
        let taken = take(&ranges, PART, Some(fast), now).expect("enough");
        assert_eq!(taken.now(), piece(11 * MIB, 41 * MIB));
        let endless = LaneRate::of(u64::MAX, begun, now);
        assert!(take(&ranges, PART, Some(endless), now).is_some());
        assert!(slow.now().end > MIB, "the slow one goes on");
    }

    /// In this test, the other lane continues while the new range starts.
    #[test]
    fn a_lane_takes_less_where_the_beginning_of_a_range_takes_long() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let now = after(begun, 10);
        ranges.expect(PART, &film(), 1, 4, begun);
        ranges.begin_piece(PART, begun);
        let slow = ranges.begin(PART, piece(0, 96 * MIB), begun);
        let opening = Duration::from_millis(400);
        slow.received(1, opening, begun + opening);
        assert_eq!(slow.room(0, 64 << 20), 64 << 20);
        let equal = LaneRate::of(64 * MIB, begun, now);
        let taken = take(&ranges, PART, Some(equal), now).expect("enough");
        let (theirs, ours) = (slow.now().end - 64 * MIB, 96 * MIB - taken.now().begin);
        let [theirs_s, ours_s] = [theirs, ours].map(|it| it as f64 / equal.bytes_per_s);
        // The start takes two round trips for the request, and six and a half round trips for the
        // doublings of slow start.
        let start_s = theirs_s - ours_s;
        assert!((1.6..1.9).contains(&start_s), "{start_s}");
    }

    /// In this test, a range has just begun. Its low rate must not make it the slowest range.
    #[test]
    fn a_young_range_is_no_slow_one() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let now = after(begun, 10);
        let slow = ranges.begin(PART, piece(0, 41 * MIB), begun);
        assert_eq!(slow.room(0, 1 << 20), 1 << 20);
        let _young = ranges.begin(PART, piece(50 * MIB, 90 * MIB), now);
        let _tiny = ranges.begin(PART, piece(99 * MIB, 99 * MIB + 5), now);
        let rate = LaneRate::of(300 * MIB, begun, now);
        let taken = take(&ranges, PART, Some(rate), now).expect("enough");
        assert_eq!(taken.now().end, 41 * MIB, "of the slow one");
    }

    #[test]
    fn none_takes_while_a_piece_waits() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let now = after(begun, 10);
        ranges.expect(PART, &film(), 2, 4, begun);
        ranges.begin_piece(PART, begun);
        let _own = ranges.begin(PART, piece(0, 50 * MIB), begun);
        assert!(take(&ranges, PART, None, now).is_none());
        ranges.begin_piece(PART, begun);
        assert!(take(&ranges, PART, None, now).is_some());
    }

    #[test]
    fn how_fast_one_is_shows_as_soon_as_the_other_is_done() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let now = begun + Duration::from_millis(100);
        let slow = ranges.begin(PART, piece(0, 41 * MIB), begun);
        assert_eq!(slow.room(0, 1 << 20), 1 << 20);
        let rate = LaneRate::of(41 * MIB, begun, now);
        assert!(take(&ranges, PART, Some(rate), now).is_some());
    }

    #[test]
    fn what_ends_soon_is_left_to_its_lane() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let own = ranges.begin(PART, piece(0, 100 * MIB), begun);
        assert_eq!(own.room(0, 90 << 20), 90 << 20);
        assert!(take(&ranges, PART, None, after(begun, 9)).is_none(), "1 s");
        assert!(
            take(&ranges, PART, None, after(begun, 90)).is_some(),
            "10 s"
        );
    }

    #[test]
    fn what_a_lane_gives_up_of_another_ones_piece_is_taken_first() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let now = after(begun, 10);
        let _own = ranges.begin(PART, piece(0, 10 * MIB), begun);
        let mut taken = take(&ranges, PART, None, now).expect("there is enough");
        taken.has_come_to(7 * MIB);
        drop(taken);
        assert_eq!(
            ranges.of(PART),
            [piece(0, 5 * MIB), piece(7 * MIB, 10 * MIB)]
        );
        let again = take(&ranges, PART, None, now).expect("it is left");
        assert_eq!(again.now(), piece(7 * MIB, 10 * MIB));
    }

    #[test]
    fn a_range_of_ones_own_piece_is_begun_anew_by_its_task() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let now = after(begun, 10);
        drop(ranges.begin(PART, piece(0, 10 * MIB), begun));
        assert_eq!(ranges.of(PART), []);
        let own = ranges.begin(PART, piece(0, 10 * MIB), begun);
        let mut taken = take(&ranges, PART, None, now).expect("there is enough");
        taken.has_come_to(10 * MIB);
        drop((own, taken));
        assert_eq!(ranges.of(PART), [], "all is there");
    }

    #[tokio::test]
    async fn a_lane_joins_once_it_is_wanted() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        ranges.expect(PART, &film(), 1, 4, begun);
        ranges.begin_piece(PART, begun);
        let own = ranges.begin(PART, piece(0, 100 * MIB), begun);
        assert!(ranges.join(PART, None, begun).is_none(), "no sign of room");
        let now = fetch_in_bursts(&ranges, &own, begun);
        assert_eq!(ranges.wanted().await, (film(), 1));
        let joined = ranges.join(PART, None, now).expect("it is wanted");
        assert_eq!(joined.now(), piece(50 * MIB, 100 * MIB));
        assert!(ranges.join(PART, None, now).is_none(), "one is enough");
    }

    /// In this test, the lane of the preceding range continues while the new range starts.
    #[test]
    fn a_lane_that_joins_takes_less_where_the_beginning_of_a_range_takes_long() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        ranges.expect(PART, &film(), 1, 4, begun);
        ranges.begin_piece(PART, begun);
        let own = ranges.begin(PART, piece(0, 112 * MIB), begun);
        let now = fetch_in_bursts(&ranges, &own, begun);
        assert_eq!(own.room(0, 12 << 20), 12 << 20);
        let rate = LaneRate::of(12 * MIB, begun, now);
        let joined = ranges.join(PART, None, now).expect("it is wanted");
        let more = (own.now().end - 12 * MIB) - (112 * MIB - joined.now().begin);
        let start_s = more as f64 / rate.bytes_per_s;
        assert!((0.6..1.2).contains(&start_s), "{start_s}");
    }

    #[test]
    fn a_permit_is_kept_while_nothing_can_be_taken() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        ranges.expect(PART, &film(), 1, 4, begun);
        ranges.begin_piece(PART, begun);
        let own = ranges.begin(PART, piece(0, 100 * MIB), begun);
        let now = fetch_in_bursts(&ranges, &own, begun);
        assert_eq!(own.room(0, 99 << 20), 99 << 20);
        assert!(ranges.join(PART, None, now).is_none(), "half of 1 MiB");
        own.room(0, 1);
        assert!(ranges.join(PART, None, now).is_some());
    }

    #[test]
    fn a_range_that_is_given_up_goes_back_to_the_lane_in_front() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let now = after(begun, 10);
        let own = ranges.begin(PART, piece(0, 100 * MIB), begun);
        let taken = take(&ranges, PART, None, now).expect("there is enough");
        assert_eq!(own.now(), piece(0, 50 * MIB));
        drop(taken);
        assert_eq!(own.now(), piece(0, 100 * MIB));
        assert_eq!(ranges.of(PART), [piece(0, 100 * MIB)]);
    }

    #[test]
    fn a_range_that_is_given_up_too_late_is_left_to_any_lane() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let now = after(begun, 10);
        let own = ranges.begin(PART, piece(0, 100 * MIB), begun);
        let taken = take(&ranges, PART, None, now).expect("there is enough");
        assert_eq!(own.room(0, 50 << 20), 50 << 20);
        drop(taken);
        assert_eq!(own.room(50 * MIB, 1), 0);
        drop(own);
        let rest = take(&ranges, PART, None, now).expect("it is left");
        assert_eq!(rest.now(), piece(50 * MIB, 100 * MIB));
    }

    #[tokio::test]
    async fn a_lane_with_a_piece_waits_for_those_that_help() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let own = ranges.begin(PART, piece(0, 100 * MIB), begun);
        let taken = take(&ranges, PART, None, after(begun, 10)).expect("there is enough");
        assert_eq!(taken.room(50 * MIB, 50 << 20), 50 << 20);
        drop(own);
        let waiting = async {
            let rest = ranges.take(PART, None).await.expect("it was given up");
            assert_eq!(rest.now(), piece(50 * MIB, 100 * MIB));
            drop(rest);
        };
        let failing = async {
            tokio::task::yield_now().await;
            drop(taken);
        };
        tokio::join!(waiting, failing);
        let mut rest = take(&ranges, PART, None, after(begun, 10)).expect("left again");
        rest.has_come_to(100 * MIB);
        drop(rest);
        assert!(ranges.take(PART, None).await.is_none(), "all is there");
    }

    #[tokio::test]
    async fn a_file_that_is_spoiled_ends_for_all_lanes_before_it_begins_anew() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        ranges.expect(PART, &film(), 1, 4, begun);
        ranges.begin_piece(PART, begun);
        let own = ranges.begin(PART, piece(0, 100 * MIB), begun);
        let taken = take(&ranges, PART, None, after(begun, 10)).expect("there is enough");
        ranges.spoil(PART);
        assert_eq!((own.room(0, 9), taken.room(50 * MIB, 9)), (0, 0));
        assert!(own.is_spoiled() && ranges.join(PART, None, begun).is_none());
        drop(own);
        let mut settling = std::pin::pin!(ranges.settle(PART));
        let pause = Duration::from_millis(20);
        let early = tokio::time::timeout(pause, &mut settling).await;
        assert!(early.is_err(), "a lane still fetches");
        drop(taken);
        settling.await;
        assert_eq!(ranges.of(PART), []);
    }

    #[test]
    fn none_joins_where_the_server_gives_no_ranges() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        ranges.expect(PART, &film(), 1, 4, begun);
        ranges.begin_piece(PART, begun);
        let own = ranges.begin(PART, piece(0, 100 * MIB), begun);
        let now = fetch_in_bursts(&ranges, &own, begun);
        ranges.refuse_help(PART);
        assert!(ranges.join(PART, None, now).is_none());
        assert_eq!(own.room(0, 9), 9, "the first lane goes on");
    }
}
