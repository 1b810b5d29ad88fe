//! Ranges of large files that lanes fetch side by side.
//!
//! One connection may be many times slower than its neighbour: under CUBIC, one that begins while another fills the path
//! takes ten seconds and more to come to its share. So a lane that has fetched its own piece takes half of what is left of
//! another one's.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::plan::Piece;

/// All ranges under way, and those that a lane has given up.
#[derive(Debug, Default)]
pub(super) struct Ranges(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    begun: u64,
    running: Vec<Running>,
    /// Ranges of files that are named by their parts.
    left: Vec<(Vec<u8>, Piece)>,
}

#[derive(Debug)]
struct Running {
    id: u64,
    part: Vec<u8>,
    range: Piece,
    /// What is in front of this byte has been read, or is about to be.
    at: u64,
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
    /// A lane begins with a range of its own piece.
    pub(super) fn begin(&self, part: &[u8], range: Piece) -> Range<'_> {
        let id = self.state().run(part, range);
        Range {
            ranges: self,
            id,
            begin: range.begin,
            is_taken: false,
        }
    }

    /// What a lane fetches that has nothing left of its own piece: what another one has given up, or half of the largest
    /// rest, if that half has `least_bytes`.
    pub(super) fn take(&self, part: &[u8], least_bytes: u64) -> Option<Range<'_>> {
        let mut state = self.state();
        let range = match state.left.iter().position(|(of, _)| of == part) {
            Some(at) => state.left.swap_remove(at).1,
            None => state.halve(part, least_bytes)?,
        };
        let id = state.run(part, range);
        drop(state);
        Some(Range {
            ranges: self,
            id,
            begin: range.begin,
            is_taken: true,
        })
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
        self.state().left.retain(|(of, _)| of != part);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn run(&mut self, part: &[u8], range: Piece) -> u64 {
        self.begun += 1;
        self.running.push(Running {
            id: self.begun,
            part: part.to_vec(),
            range,
            at: range.begin,
        });
        self.begun
    }

    /// Takes the second half of the largest rest from the lane that has it.
    fn halve(&mut self, part: &[u8], least_bytes: u64) -> Option<Piece> {
        let running = self.running.iter_mut().filter(|it| it.part == part);
        let largest = running.max_by_key(|it| it.range.end - it.at)?;
        let half = (largest.range.end - largest.at) / 2;
        if half < least_bytes.max(1) {
            return None;
        }
        let end = largest.range.end;
        largest.range.end -= half;
        Some(Piece {
            begin: end - half,
            end,
        })
    }
}

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

    /// All of it is there, up to `at`: dropped, nothing in front of that is missing.
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
        if self.is_taken && missing.begin < missing.end {
            state.left.push((part, missing));
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

    #[test]
    fn half_of_the_largest_rest_is_taken() {
        let ranges = Ranges::default();
        let small = ranges.begin(PART, piece(0, 100));
        let large = ranges.begin(PART, piece(100, 300));
        let _other = ranges.begin(b"other.part", piece(0, 9000));
        assert_eq!(small.room(0, 10), 10);
        assert_eq!(large.room(100, 40), 40);
        let taken = ranges.take(PART, 8).expect("there is enough");
        assert_eq!(taken.now(), piece(220, 300));
        assert_eq!(large.now(), piece(100, 220));
        assert_eq!(large.room(140, 1000), 80, "up to what was taken");
        assert_eq!(large.room(220, 1000), 0);
    }

    #[test]
    fn what_is_about_to_be_read_is_not_taken() {
        let ranges = Ranges::default();
        let own = ranges.begin(PART, piece(0, 100));
        assert_eq!(own.room(0, 90), 90);
        assert!(ranges.take(PART, 6).is_none(), "10 bytes are left");
        assert_eq!(
            ranges.take(PART, 5).expect("two halves").now(),
            piece(95, 100)
        );
    }

    #[test]
    fn what_a_lane_gives_up_of_another_ones_piece_is_taken_first() {
        let ranges = Ranges::default();
        let _own = ranges.begin(PART, piece(0, 100));
        let mut taken = ranges.take(PART, 1).expect("there is enough");
        taken.has_come_to(70);
        drop(taken);
        assert_eq!(ranges.of(PART), [piece(0, 50), piece(70, 100)]);
        let again = ranges.take(PART, 1).expect("it is left");
        assert_eq!(again.now(), piece(70, 100));
    }

    #[test]
    fn a_range_of_ones_own_piece_is_begun_anew_by_its_task() {
        let ranges = Ranges::default();
        drop(ranges.begin(PART, piece(0, 100)));
        assert_eq!(ranges.of(PART), []);
        let own = ranges.begin(PART, piece(0, 100));
        let mut taken = ranges.take(PART, 1).expect("there is enough");
        taken.has_come_to(100);
        drop((own, taken));
        assert_eq!(ranges.of(PART), [], "all is there");
    }
}
