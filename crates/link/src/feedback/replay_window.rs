//! Window of the newest packets that have arrived.
//!
//! The input is packet numbers. The output is whether a number is new, and which other packets have
//! arrived. The window works like the replay window of IPsec and DTLS (RFC 9147 section 4.5.1). It
//! is a ring of words, as RFC 6479 describes.
//!
//! The window is longer than in IPsec and DTLS, because reports are written from the window. The
//! [log](super::received) decides the content of a report.

use crate::wire::report::WINDOW;

/// Ring of words with a bit for each of the last [`WINDOW`] packet numbers.
#[derive(Debug)]
pub(super) struct ReplayWindow {
    words: Box<[u64]>,
    /// Highest packet number that has arrived, plus one.
    next: u64,
}

impl ReplayWindow {
    pub(super) fn new() -> Self {
        Self {
            words: vec![0; (WINDOW / 64) as usize].into_boxed_slice(),
            next: 0,
        }
    }

    /// Returns the highest packet number that has arrived, plus one.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether packet `number` is new: it has not arrived, and is recent enough for the window.
    pub(super) fn is_new(&self, number: u64) -> bool {
        number >= self.next || (number + WINDOW >= self.next && !self.has(number))
    }

    /// Adds a packet. The caller has checked with [`is_new`](Self::is_new) that the packet is not a
    /// duplicate.
    pub(super) fn insert(&mut self, number: u64) {
        if number >= self.next {
            self.advance(number);
        }
        self.words[word(number)] |= bit(number);
    }

    /// Whether packet `number` has arrived. The result is valid only for numbers within the window.
    pub(super) fn has(&self, number: u64) -> bool {
        number < self.next && self.words[word(number)] & bit(number) != 0
    }

    /// Returns the first number at or after `at` whose state differs from `received`. Returns
    /// `high` if there is none below `high`.
    ///
    /// The result is valid only for numbers within the window.
    pub(super) fn run_end(&self, at: u64, high: u64, received: bool) -> u64 {
        let mut at = at;
        while at < high {
            let state = self.words[word(at)] >> (at % 64);
            let same = if received {
                state.trailing_ones()
            } else {
                state.trailing_zeros()
            };
            let left = 64 - (at % 64) as u32;
            if same < left {
                return (at + u64::from(same)).min(high);
            }
            at += u64::from(left);
        }
        high
    }

    /// Returns the number of packets from `low` to below `high` that have arrived. The result is
    /// valid only for numbers within the window.
    pub(super) fn arrived_among(&self, low: u64, high: u64) -> u32 {
        let mut count = 0;
        let mut at = low;
        while at < high {
            let end = high.min(at - at % 64 + 64);
            let mask = u64::MAX >> (64 - (end - at)) << (at % 64);
            let arrived = self.words[word(at)] & mask;
            // In most words, all packets have arrived. Counting the bits takes longer than this
            // comparison.
            count += match arrived == mask {
                true => (end - at) as u32,
                false => arrived.count_ones(),
            };
            at = end;
        }
        count
    }

    /// Makes `number` the highest number. Clears the entries of numbers that enter the window.
    fn advance(&mut self, number: u64) {
        if number - self.next >= WINDOW {
            self.words.fill(0);
        } else {
            let mut at = self.next;
            while at <= number {
                if at.is_multiple_of(64) && number - at >= 63 {
                    // All whole words up to the number, or to the end of the ring.
                    let first = word(at);
                    let count = ((number + 1 - at) / 64).min((self.words.len() - first) as u64);
                    self.words[first..first + count as usize].fill(0);
                    at += 64 * count;
                } else {
                    self.words[word(at)] &= !bit(at);
                    at += 1;
                }
            }
        }
        self.next = number + 1;
    }
}

fn word(number: u64) -> usize {
    ((number % WINDOW) / 64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_packet_far_behind_the_newest_still_differs_from_a_duplicate() {
        let mut window = ReplayWindow::new();
        window.insert(0);
        window.insert(WINDOW - 1);
        assert!(window.is_new(1) && !window.is_new(0));
        window.insert(WINDOW + 5);
        assert!(!window.is_new(5), "it left the window");
        assert!(window.is_new(6));
    }

    /// Returns the difference between the next packet number and the highest number. The difference
    /// is usually small, and sometimes about a whole window.
    fn steps() -> impl Strategy<Value = i64> {
        let window = WINDOW as i64;
        prop_oneof![
            6 => -200i64..200,
            1 => window / 2 - 200..window / 2 + 200,
            1 => window - 200..window + 200,
            1 => -window..window,
        ]
    }

    proptest! {
        #[test]
        fn it_answers_as_a_set_of_all_that_arrived(steps in prop::collection::vec(steps(), 1..100)) {
            let mut window = ReplayWindow::new();
            let mut arrived = BTreeSet::new();
            for step in steps {
                let number = window.next().saturating_add_signed(step);
                let is_within = number + WINDOW >= window.next();
                prop_assert_eq!(window.is_new(number), is_within && !arrived.contains(&number));
                if window.is_new(number) {
                    window.insert(number);
                    arrived.insert(number);
                }
                let next = arrived.last().map_or(0, |highest| highest + 1);
                prop_assert_eq!(window.next(), next);

                let oldest = next.saturating_sub(WINDOW);
                let near = number.saturating_sub(150).max(oldest)..next.min(number + 150);
                for (low, high) in [(near.start, near.end), (oldest, next)] {
                    let count = arrived.range(low..high.max(low)).count();
                    prop_assert_eq!(window.arrived_among(low, high) as usize, count);
                }
                let (mut at, mut received) = (near.start, true);
                while at < near.end {
                    let end = window.run_end(at, near.end, received);
                    for number in at..end {
                        prop_assert_eq!(arrived.contains(&number), received);
                        prop_assert_eq!(window.has(number), received);
                    }
                    prop_assert!(end == near.end || arrived.contains(&end) != received);
                    (at, received) = (end, !received);
                }
            }
        }
    }
}
