//! Ranges of large files that lanes fetch side by side.
//!
//! A lane begins with the whole file. Others join where that makes the transfer faster, and take half of the longest rest.
//! One connection may be many times slower than its neighbour: under CUBIC, one that begins while another fills the path
//! takes ten seconds and more to come to its share. So a lane that has fetched its own piece takes from the rest of
//! another one that would take longest, by how fast the two have been: both are to end at the same time.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::Notify, time::sleep_until};

use super::joining::{Joining, Load};
use crate::{plan::Piece, server::Facts};

/// All ranges under way, and those that a lane has given up.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    state: Mutex<State>,
    /// Wakes the lanes that wait to join, when a lane ends.
    ended: Notify,
    /// Has the lanes that wait to join do other work.
    needed_elsewhere: Notify,
}

#[derive(Debug, Default)]
struct State {
    begun: u64,
    running: Vec<Running>,
    /// Ranges of files that are named by their parts.
    left: Vec<(Vec<u8>, Piece)>,
    /// Files that come in pieces, by their parts.
    files: HashMap<Vec<u8>, Fetching>,
}

/// A file that comes in pieces.
#[derive(Debug)]
struct Fetching {
    /// Pieces that no lane has begun with.
    waiting: usize,
    /// Lanes that fetch.
    active: usize,
    /// A lane has left a piece before its end, and another attempt follows.
    is_interrupted: bool,
    joining: Joining,
    /// A range has begun.
    has_begun: bool,
    /// Another one has begun since.
    is_shared: bool,
    /// Facts of the file after its last byte, from the server.
    facts: Option<Facts>,
    /// When the last lane ended.
    idle_since: Instant,
}

/// The end of a lane's wait to join.
#[derive(Debug)]
pub(super) enum Joined<'a> {
    /// It fetches this range.
    Range(Range<'a>, Active<'a>),
    /// Nothing is left to fetch.
    Over,
    /// Other work waits for a lane.
    NeededElsewhere,
}

/// A lane that fetches a file, until it is dropped.
#[derive(Debug)]
pub(super) struct Active<'a> {
    ranges: &'a Ranges,
    part: Vec<u8>,
}

#[derive(Debug)]
struct Running {
    id: u64,
    part: Vec<u8>,
    range: Piece,
    /// What is in front of this byte has been read, or is about to be.
    at: u64,
    begun: Instant,
    /// Bytes have come.
    is_open: bool,
}

/// How fast a lane fetches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    bytes_per_s: f64,
    /// Over this time.
    span: Duration,
}

/// A range that a lane fetches. It ends earlier once another lane has taken the rest.
#[derive(Debug)]
pub(super) struct Range<'a> {
    ranges: &'a Ranges,
    id: u64,
    begin: u64,
    /// It was another lane's, so nobody else knows that it is missing.
    is_taken: bool,
}

impl Ranges {
    /// A file is to be fetched in so many pieces. Until lanes have begun with all of them, none takes from another one.
    pub(super) fn expect(&self, part: &[u8], pieces: usize, now: Instant) {
        let fetching = Fetching {
            waiting: pieces,
            active: 0,
            is_interrupted: false,
            joining: Joining::new(now),
            has_begun: false,
            is_shared: false,
            facts: None,
            idle_since: now,
        };
        self.state().files.insert(part.to_vec(), fetching);
    }

    /// A lane begins with a piece.
    pub(super) fn begin_piece(&self, part: &[u8]) -> Active<'_> {
        if let Some(fetching) = self.state().files.get_mut(part) {
            fetching.waiting = fetching.waiting.saturating_sub(1);
            fetching.is_interrupted = false;
            fetching.active += 1;
        }
        Active {
            ranges: self,
            part: part.to_vec(),
        }
    }

    /// Waits until a further lane makes the transfer faster, or is needed elsewhere.
    pub(super) async fn join(&self, part: &[u8]) -> Joined<'_> {
        let mut needed = std::pin::pin!(self.needed_elsewhere.notified());
        needed.as_mut().enable();
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            let now = Instant::now();
            match self.try_join(part, now) {
                Join::Range(id, begin) => {
                    let range = Range {
                        ranges: self,
                        id,
                        begin,
                        is_taken: true,
                    };
                    return Joined::Range(range, self.begin_piece(part));
                }
                Join::Over => return Joined::Over,
                Join::Later => {
                    tokio::select! {
                        () = &mut needed => return Joined::NeededElsewhere,
                        () = ended => {}
                        () = sleep_until((now + JOIN_EVERY).into()) => {}
                    }
                }
            }
        }
    }

    /// Has the lanes that wait to join end their wait: other work waits for a lane.
    pub(super) fn release_waiting(&self) {
        self.needed_elsewhere.notify_waiters();
    }

    fn try_join(&self, part: &[u8], now: Instant) -> Join {
        let mut state = self.state();
        if let Some(at) = state.left.iter().position(|(of, _)| of == part) {
            let (_, range) = state.left.swap_remove(at);
            return Join::Range(state.run(part, range, now), range.begin);
        }
        let running = state.running.iter().filter(|it| it.part == part);
        let load = Load {
            connections: running.clone().count(),
            is_any_opening: running.clone().any(|it| !it.is_open),
            rest_bytes: running.map(|it| it.range.end.saturating_sub(it.at)).sum(),
        };
        let Some(fetching) = state.files.get_mut(part) else {
            return Join::Over;
        };
        if fetching.active == 0 {
            let is_expected = fetching.waiting > 0 || fetching.is_interrupted;
            let idle = now.saturating_duration_since(fetching.idle_since);
            return match is_expected && idle < IDLE_MAX {
                true => Join::Later,
                false => Join::Over,
            };
        }
        if load.connections > 0 && fetching.waiting == 0 {
            fetching.joining.decide(load, now);
            if fetching.joining.take_permit()
                && let Some(range) = state.halve(part)
            {
                return Join::Range(state.run(part, range, now), range.begin);
            }
        }
        Join::Later
    }

    /// A lane begins with a range of its own piece.
    pub(super) fn begin(&self, part: &[u8], range: Piece, now: Instant) -> Range<'_> {
        let id = self.state().run(part, range, now);
        Range {
            ranges: self,
            id,
            begin: range.begin,
            is_taken: false,
        }
    }

    /// What a lane fetches that has nothing left of its own piece: what another one has given up, or the end of the rest that
    /// would take longest. Without a pace it takes half of that.
    pub(super) fn take(&self, part: &[u8], pace: Option<Pace>, now: Instant) -> Option<Range<'_>> {
        let mut state = self.state();
        let range = match state.left.iter().position(|(of, _)| of == part) {
            Some(at) => state.left.swap_remove(at).1,
            None => state.split(part, pace, now)?,
        };
        let id = state.run(part, range, now);
        drop(state);
        Some(Range {
            ranges: self,
            id,
            begin: range.begin,
            is_taken: true,
        })
    }

    /// Notes the facts of a file that its server has sent behind the last byte. They hold for the whole file if one lane
    /// has fetched it.
    pub(super) fn note_facts(&self, part: &[u8], facts: Facts) {
        if let Some(fetching) = self.state().files.get_mut(part) {
            fetching.facts = Some(facts).filter(|_| !fetching.is_shared);
        }
    }

    /// Takes the facts of a file behind its last byte, where they are known.
    pub(super) fn take_facts(&self, part: &[u8]) -> Option<Facts> {
        let mut state = self.state();
        state.files.get_mut(part)?.facts.take()
    }

    /// The ranges of a file that lanes fetch, or have given up.
    pub(super) fn of(&self, part: &[u8]) -> Vec<Piece> {
        let state = self.state();
        let running = state.running.iter().map(|it| (&it.part, it.range));
        let left = state.left.iter().map(|(of, range)| (of, *range));
        let all = running.chain(left).filter(|(of, _)| *of == part);
        all.map(|(_, range)| range).collect()
    }

    /// A file begins anew.
    pub(super) fn forget(&self, part: &[u8]) {
        let mut state = self.state();
        state.left.retain(|(of, _)| of != part);
        state.files.remove(part);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer to a lane that would join.
enum Join {
    /// It fetches this range from this byte on.
    Range(u64, u64),
    /// Not now.
    Later,
    /// Nothing is left to fetch.
    Over,
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        if let Some(fetching) = self.ranges.state().files.get_mut(&self.part) {
            fetching.active = fetching.active.saturating_sub(1);
            fetching.idle_since = Instant::now();
        }
        self.ranges.ended.notify_waiters();
    }
}

impl State {
    fn run(&mut self, part: &[u8], range: Piece, now: Instant) -> u64 {
        self.begun += 1;
        if let Some(fetching) = self.files.get_mut(part) {
            fetching.is_shared |= fetching.has_begun;
            fetching.has_begun = true;
            fetching.facts = None;
        }
        self.running.push(Running {
            id: self.begun,
            part: part.to_vec(),
            range,
            at: range.begin,
            begun: now,
            is_open: false,
        });
        self.begun
    }

    /// Takes half of the longest rest from the lane that has it.
    fn halve(&mut self, part: &[u8]) -> Option<Piece> {
        let running = self.running.iter_mut().filter(|it| it.part == part);
        let longest = running.max_by_key(|it| it.range.end.saturating_sub(it.at))?;
        let end = longest.range.end;
        let taken = end.saturating_sub(longest.at) / 2;
        if taken < TAKEN_LEAST_BYTES {
            return None;
        }
        longest.range.end -= taken;
        Some(Piece {
            begin: end - taken,
            end,
        })
    }

    /// Takes the end of the rest that would take longest from the lane that has it.
    fn split(&mut self, part: &[u8], pace: Option<Pace>, now: Instant) -> Option<Piece> {
        if self.files.get(part).is_some_and(|it| it.waiting > 0) {
            return None;
        }
        // A range that is much younger than that of the lane counts as equally fast: how fast it is does not show yet.
        let age_least = pace.map_or(AGE_LEAST, |it| it.span / 2);
        let running = self.running.iter_mut().filter(|it| it.part == part);
        let (_, taken, last) = running
            .filter_map(|it| {
                let theirs = Some(it.pace(now))
                    .filter(|it| it.span >= age_least)
                    .or(pace);
                let rest = (it.range.end - it.at) as f64;
                let rest_s = theirs.map_or(f64::INFINITY, |theirs| theirs.time_s(rest));
                let share = match (pace, theirs) {
                    (Some(ours), Some(theirs)) => ours.share_beside(theirs),
                    _ => 0.5,
                };
                let taken = (rest * share).round() as u64;
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

impl Running {
    fn pace(&self, now: Instant) -> Pace {
        Pace::of(self.at - self.range.begin, self.begun, now)
    }
}

impl Pace {
    /// That of a lane which has fetched so many bytes since `begun`.
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

    /// The share of common work that ends both lanes at the same time.
    fn share_beside(self, other: Self) -> f64 {
        let both = self.bytes_per_s + other.bytes_per_s;
        (self.bytes_per_s / both.max(1.0)).clamp(1.0 - SHARE_MAX, SHARE_MAX)
    }
}

/// A lane without a pace judges no younger range.
const AGE_LEAST: Duration = Duration::from_secs(2);

/// What ends sooner is left to its lane: to begin with a range takes several round trips.
const REST_LEAST_S: f64 = 2.0;

const TAKEN_LEAST_BYTES: u64 = 1 << 20;

/// How often a lane that waits looks whether it may join.
const JOIN_EVERY: Duration = Duration::from_millis(25);

/// How long lanes wait for another attempt at a piece.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// The other lane goes on, too: it may have begun a moment ago.
const SHARE_MAX: f64 = 15.0 / 16.0;

impl Range<'_> {
    /// Where the range begins and, for now, ends.
    pub(super) fn now(&self) -> Piece {
        let state = self.ranges.state();
        let running = state.running.iter().find(|it| it.id == self.id);
        running.expect("a range runs until it is dropped").range
    }

    /// Bytes that may be read at `at`, `most` at most. None: the range ends there.
    pub(super) fn room(&self, at: u64, most: usize) -> usize {
        let mut state = self.ranges.state();
        let running = state.running.iter_mut().find(|it| it.id == self.id);
        let running = running.expect("a range runs until it is dropped");
        let left = running.range.end.saturating_sub(at);
        let room = most.min(usize::try_from(left).unwrap_or(usize::MAX));
        running.at = at + room as u64;
        room
    }

    /// Notes bytes that have come after a wait, the first of them so long after they were asked for.
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
            true => fetching.joining.received(bytes as u64, waited),
            false => {
                let opening = now.saturating_duration_since(running.begun);
                fetching.joining.opened(opening, now);
            }
        }
    }

    /// What is in front of `at` is there, also if the rest is given up.
    pub(super) fn has_come_to(&mut self, at: u64) {
        self.begin = at;
    }
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        let mut state = self.ranges.state();
        let Some(at) = state.running.iter().position(|it| it.id == self.id) else {
            return;
        };
        let Running { part, range, .. } = state.running.swap_remove(at);
        let missing = Piece {
            begin: self.begin,
            ..range
        };
        if missing.begin >= missing.end {
            return;
        }
        if self.is_taken {
            state.left.push((part, missing));
        } else if let Some(fetching) = state.files.get_mut(&part) {
            fetching.is_interrupted = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: &[u8] = b"film.part";

    fn piece(begin: u64, end: u64) -> Piece {
        Piece { begin, end }
    }

    const MIB: u64 = 1 << 20;

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
        let taken = ranges.take(PART, None, now).expect("there is enough");
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
        let fast = Pace::of(3 * MIB, begun, now);
        let taken = ranges.take(PART, Some(fast), now).expect("enough");
        assert_eq!(taken.now(), piece(11 * MIB, 41 * MIB));
        let endless = Pace::of(u64::MAX, begun, now);
        assert!(ranges.take(PART, Some(endless), now).is_some());
        assert!(slow.now().end > MIB, "the slow one goes on");
    }

    /// It may be the one that has taken last.
    #[test]
    fn a_young_range_is_no_slow_one() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let now = after(begun, 10);
        let slow = ranges.begin(PART, piece(0, 41 * MIB), begun);
        assert_eq!(slow.room(0, 1 << 20), 1 << 20);
        let _young = ranges.begin(PART, piece(50 * MIB, 90 * MIB), now);
        let _tiny = ranges.begin(PART, piece(99 * MIB, 99 * MIB + 5), now);
        let pace = Pace::of(300 * MIB, begun, now);
        let taken = ranges.take(PART, Some(pace), now).expect("enough");
        assert_eq!(taken.now().end, 41 * MIB, "of the slow one");
    }

    #[test]
    fn none_takes_while_a_piece_waits() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let now = after(begun, 10);
        ranges.expect(PART, 2, begun);
        let _first = ranges.begin_piece(PART);
        let _own = ranges.begin(PART, piece(0, 50 * MIB), begun);
        assert!(ranges.take(PART, None, now).is_none());
        let _second = ranges.begin_piece(PART);
        assert!(ranges.take(PART, None, now).is_some());
    }

    #[test]
    fn how_fast_one_is_shows_as_soon_as_the_other_is_done() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let now = begun + Duration::from_millis(100);
        let slow = ranges.begin(PART, piece(0, 41 * MIB), begun);
        assert_eq!(slow.room(0, 1 << 20), 1 << 20);
        let pace = Pace::of(41 * MIB, begun, now);
        assert!(ranges.take(PART, Some(pace), now).is_some());
    }

    #[test]
    fn what_ends_soon_is_left_to_its_lane() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let own = ranges.begin(PART, piece(0, 100 * MIB), begun);
        assert_eq!(own.room(0, 90 << 20), 90 << 20);
        assert!(ranges.take(PART, None, after(begun, 9)).is_none(), "1 s");
        assert!(ranges.take(PART, None, after(begun, 90)).is_some(), "10 s");
    }

    #[test]
    fn what_a_lane_gives_up_of_another_ones_piece_is_taken_first() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let now = after(begun, 10);
        let _own = ranges.begin(PART, piece(0, 10 * MIB), begun);
        let mut taken = ranges.take(PART, None, now).expect("there is enough");
        taken.has_come_to(7 * MIB);
        drop(taken);
        assert_eq!(
            ranges.of(PART),
            [piece(0, 5 * MIB), piece(7 * MIB, 10 * MIB)]
        );
        let again = ranges.take(PART, None, now).expect("it is left");
        assert_eq!(again.now(), piece(7 * MIB, 10 * MIB));
    }

    #[test]
    fn a_range_of_ones_own_piece_is_begun_anew_by_its_task() {
        let (ranges, begun) = (Ranges::default(), Instant::now());
        let now = after(begun, 10);
        drop(ranges.begin(PART, piece(0, 10 * MIB), begun));
        assert_eq!(ranges.of(PART), []);
        let own = ranges.begin(PART, piece(0, 10 * MIB), begun);
        let mut taken = ranges.take(PART, None, now).expect("there is enough");
        taken.has_come_to(10 * MIB);
        drop((own, taken));
        assert_eq!(ranges.of(PART), [], "all is there");
    }
}
