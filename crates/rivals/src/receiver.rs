//! A receiver that acknowledges segments, with selective acknowledgements.

use std::time::Duration;

use crate::segment::{Ack, Range, Segment};

/// A TCP receiver whose application reads data at once. [`Self::handle_segment`] acknowledges every
/// segment. [`Self::handle_segment_delayed`] delays acknowledgements, like most receivers.
#[derive(Debug, Default)]
pub struct Receiver {
    cumulative: u64,
    /// Ranges of received segments above `cumulative`. The ranges are disjoint, not adjacent, and
    /// sorted in ascending order.
    islands: Vec<Range>,
    /// Start numbers of the ranges that grew last. The most recent range is first.
    recent: [u64; 3],
    /// Deadline of the delayed acknowledgement. `None` if no acknowledgement is pending.
    ack_by: Option<Duration>,
}

impl Receiver {
    /// Returns the number of segments that have arrived in order.
    pub fn in_order(&self) -> u64 {
        self.cumulative
    }

    /// Accepts a segment, and returns its acknowledgement.
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

    /// Accepts a segment. Returns an acknowledgement at once if the segment is out of order, or if
    /// the previous segment is not acknowledged yet.
    ///
    /// Otherwise the acknowledgement waits for the next segment, or for [`Self::handle_timeout`] at
    /// [`Self::next_timeout`] (RFC 5681 section 4.2).
    pub fn handle_segment_delayed(&mut self, segment: Segment, now: Duration) -> Option<Ack> {
        let is_next = segment.number == self.cumulative && self.islands.is_empty();
        let ack = self.handle_segment(segment);
        if is_next && self.ack_by.is_none() {
            self.ack_by = Some(now + ACK_DELAY_MAX);
            return None;
        }
        self.ack_by = None;
        Some(ack)
    }

    /// Returns the deadline of the delayed acknowledgement, if one is pending.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.ack_by
    }

    /// Returns the delayed acknowledgement if its deadline has passed.
    pub fn handle_timeout(&mut self, now: Duration) -> Option<Ack> {
        self.ack_by.filter(|at| *at <= now)?;
        self.ack_by = None;
        Some(self.ack())
    }

    fn insert(&mut self, number: u64) {
        let after = self.islands.partition_point(|island| island.end < number);
        let start = match self.islands.get(after).copied() {
            Some(island) if island.start <= number && number < island.end => island.start,
            Some(island) if island.end == number => {
                self.islands[after].end += 1;
                // The new segment may have closed the gap to the next range.
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

/// Time after which the receiver sends a delayed acknowledgement. In Linux, this time is 40 ms or
/// more. The standard permits up to 500 ms.
const ACK_DELAY_MAX: Duration = Duration::from_millis(40);

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> Range {
        Range { start, end }
    }

    #[test]
    fn gaps_are_reported_newest_first_and_close() {
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

    #[test]
    fn every_second_segment_in_order_is_answered_and_a_gap_at_once() {
        let mut receiver = Receiver::default();
        let at = Duration::from_secs(1);
        let mut answers = |number| {
            let ack = receiver.handle_segment_delayed(Segment { number }, at);
            ack.map(|ack| ack.cumulative)
        };
        assert_eq!(
            [0, 1, 2, 3].map(&mut answers),
            [None, Some(2), None, Some(4)]
        );
        assert_eq!(
            [5, 6, 4, 7].map(&mut answers),
            [Some(4), Some(4), Some(7), None]
        );
        let due = receiver.next_timeout().expect("one waits");
        assert_eq!(receiver.handle_timeout(due - Duration::from_nanos(1)), None);
        let late = receiver.handle_timeout(due).map(|ack| ack.cumulative);
        assert_eq!((late, receiver.next_timeout()), (Some(8), None));
    }
}
