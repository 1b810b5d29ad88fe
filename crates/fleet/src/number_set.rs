//! A compact set of numbers. It needs few bytes if the numbers arrive mostly in order.

use serde::{Deserialize, Serialize};

/// A set of numbers, stored as ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NumberSet {
    /// First and last number of each range, sorted. Adjacent ranges are always merged.
    runs: Vec<(u32, u32)>,
}

impl NumberSet {
    /// Adds a number. Returns true if the set did not contain the number.
    pub fn insert(&mut self, number: u32) -> bool {
        let at = self.runs.partition_point(|(_, last)| *last < number);
        if self.runs.get(at).is_some_and(|(first, _)| *first <= number) {
            return false;
        }
        let joins_next = self
            .runs
            .get(at)
            .is_some_and(|(first, _)| *first == number + 1);
        let joins_before = at > 0 && self.runs[at - 1].1 + 1 == number;
        match (joins_before, joins_next) {
            (true, true) => {
                self.runs[at - 1].1 = self.runs[at].1;
                self.runs.remove(at);
            }
            (true, false) => self.runs[at - 1].1 = number,
            (false, true) => self.runs[at].0 = number,
            (false, false) => self.runs.insert(at, (number, number)),
        }
        true
    }

    /// Removes a number. Returns true if the set contained the number.
    pub fn remove(&mut self, number: u32) -> bool {
        let at = self.runs.partition_point(|(_, last)| *last < number);
        let Some((first, last)) = self.runs.get(at).copied() else {
            return false;
        };
        if first > number {
            return false;
        }
        let mut left = Vec::new();
        if first < number {
            left.push((first, number - 1));
        }
        if number < last {
            left.push((number + 1, last));
        }
        self.runs.splice(at..=at, left);
        true
    }

    /// Whether the set contains a number.
    pub fn contains(&self, number: u32) -> bool {
        let at = self.runs.partition_point(|(_, last)| *last < number);
        self.runs.get(at).is_some_and(|(first, _)| *first <= number)
    }

    /// Returns the number of elements of the set.
    pub fn len(&self) -> u64 {
        let counts = self.runs.iter();
        let counts = counts.map(|(first, last)| u64::from(last - first) + 1);
        counts.sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_is_a_set(steps in prop::collection::vec((any::<bool>(), 0u32..40), 0..200)) {
            let (mut spans, mut set) = (NumberSet::default(), BTreeSet::new());
            for (adds, number) in steps {
                match adds {
                    true => prop_assert_eq!(spans.insert(number), set.insert(number)),
                    false => prop_assert_eq!(spans.remove(number), set.remove(&number)),
                }
                prop_assert_eq!(spans.len(), set.len() as u64);
                let apart = spans.runs.windows(2).all(|it| it[0].1 + 1 < it[1].0);
                prop_assert!(apart, "{spans:?}");
            }
            for number in 0..40 {
                prop_assert_eq!(spans.contains(number), set.contains(&number));
            }
        }
    }

    #[test]
    fn numbers_in_order_take_one_run() {
        let mut spans = NumberSet::default();
        for number in 0..100_000 {
            spans.insert(number);
        }
        let text = serde_json::to_string(&spans).expect("plain numbers");
        assert_eq!(text, "[[0,99999]]");
    }
}
