//! The receiving end: answers each segment with what has arrived.

use crate::segment::{Ack, Range, Segment};

/// A TCP receiver that acknowledges every segment at once and reads at once.
#[derive(Debug, Default)]
pub struct Receiver {
    cumulative: u64,
    /// What lies above `cumulative`: disjoint, not adjacent, ascending.
    islands: Vec<Range>,
    /// Starts of the islands that grew last, the newest first.
    recent: [u64; 3],
}

impl Receiver {
    /// Segments that arrived in order.
    pub fn in_order(&self) -> u64 {
        self.cumulative
    }

    /// Takes a segment and answers it.
    pub fn handle_segment(&mut self, segment: Segment) -> Ack {
        let number = segment.number;
        if number == self.cumulative {
            self.cumulative += 1;
            if let Some(first) = self.islands.first().copied()
                && first.start == self.cumulative
            {
                self.cumulative = first.end;
                self.islands.remove(0);
            }
        } else if number > self.cumulative {
            self.insert(number);
        }
        self.ack()
    }

    fn insert(&mut self, number: u64) {
        let after = self.islands.partition_point(|island| island.end < number);
        let start = match self.islands.get(after).copied() {
            Some(island) if island.start <= number && number < island.end => island.start,
            Some(island) if island.end == number => {
                self.islands[after].end += 1;
                // The gap to the next one may be closed.
                if let Some(next) = self.islands.get(after + 1).copied()
                    && next.start == number + 1
                {
                    self.islands[after].end = next.end;
                    self.islands.remove(after + 1);
                }
                island.start
            }
            Some(island) if island.start == number + 1 => {
                self.islands[after].start = number;
                number
            }
            _ => {
                let end = number + 1;
                self.islands.insert(after, Range { start: number, end });
                number
            }
        };
        let [first, second, third] = self.recent;
        self.recent = if start == first {
            self.recent
        } else if start == second {
            [start, first, third]
        } else {
            [start, first, second]
        };
    }

    fn ack(&self) -> Ack {
        let mut ranges = [Range::default(); 3];
        let mut used = 0;
        for start in self.recent {
            let at = self.islands.partition_point(|island| island.end <= start);
            let Some(island) = self.islands.get(at).filter(|island| island.start <= start) else {
                continue;
            };
            if !ranges[..used].contains(island) {
                ranges[used] = *island;
                used += 1;
            }
        }
        Ack {
            cumulative: self.cumulative,
            ranges,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> Range {
        Range { start, end }
    }

    #[test]
    fn gaps_are_told_newest_first_and_close() {
        let mut receiver = Receiver::default();
        let mut take = |number| receiver.handle_segment(Segment { number });
        assert_eq!(take(0).cumulative, 1);
        assert_eq!(take(2).ranges[0], range(2, 3));
        assert_eq!(take(5).ranges[..2], [range(5, 6), range(2, 3)]);
        assert_eq!(take(3).ranges[..2], [range(2, 4), range(5, 6)]);
        assert_eq!(take(4).ranges, [range(2, 6), range(0, 0), range(0, 0)]);
        let all = take(1);
        assert_eq!((all.cumulative, all.ranges[0]), (6, range(0, 0)));
    }

    #[test]
    fn what_comes_twice_changes_nothing() {
        let mut receiver = Receiver::default();
        for number in [0, 2, 3, 2, 0] {
            receiver.handle_segment(Segment { number });
        }
        assert_eq!(receiver.in_order(), 1);
        assert_eq!(
            receiver.handle_segment(Segment { number: 3 }).ranges[0],
            range(2, 4)
        );
    }
}
