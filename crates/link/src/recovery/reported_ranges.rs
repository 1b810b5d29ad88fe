//! Packet numbers that reports have covered, either as received or as missing.

use std::{collections::VecDeque, ops::Range};

/// Ranges of packet numbers in ascending order. The ranges do not touch each other.
#[derive(Debug, Default)]
pub(super) struct ReportedRanges {
    ranges: VecDeque<Range<u64>>,
}

/// Maximum number of stored ranges. If a peer's reports leave more gaps, the lowest ranges are
/// removed.
const RANGES_MAX: usize = 64;

impl ReportedRanges {
    pub(super) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let at = self.ranges.partition_point(|r| r.end < range.start);
        let mut joined = range;
        while let Some(next) = self.ranges.get(at).filter(|r| r.start <= joined.end) {
            joined = joined.start.min(next.start)..joined.end.max(next.end);
            self.ranges.remove(at);
        }
        self.ranges.insert(at, joined);
        if self.ranges.len() > RANGES_MAX {
            self.ranges.pop_front();
        }
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        let at = self.ranges.partition_point(|r| r.end <= number);
        self.ranges.get(at).is_some_and(|r| r.contains(&number))
    }

    /// Removes ranges below `number`. The caller does not need them any more.
    pub(super) fn forget_below(&mut self, number: u64) {
        while self.ranges.front().is_some_and(|r| r.end <= number) {
            self.ranges.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_behave_as_a_set_of_numbers(ranges in prop::collection::vec((0u64..200, 0u64..20), 0..40)) {
            let (mut reported, mut expected) = (ReportedRanges::default(), BTreeSet::new());
            for (low, count) in ranges {
                reported.insert(low..low + count);
                expected.extend(low..low + count);
                for number in 0..230 {
                    prop_assert_eq!(reported.contains(number), expected.contains(&number));
                }
            }
        }
    }

    #[test]
    fn endless_holes_take_bounded_memory() {
        let mut reported = ReportedRanges::default();
        for number in 0..10_000 {
            reported.insert(2 * number..2 * number + 1);
        }
        assert_eq!(reported.ranges.len(), RANGES_MAX);
        reported.forget_below(20_000);
        assert!(reported.ranges.is_empty());
    }
}
