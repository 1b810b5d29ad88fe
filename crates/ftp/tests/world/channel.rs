//! Seeded random numbers, and channels that delay their items.

use std::{collections::VecDeque, time::Duration};

/// Random number generator (SplitMix64). Each simulated session has its own generator. The seed
/// determines all random choices of the session.
#[derive(Debug)]
pub(crate) struct Rng {
    state: u64,
    /// Percentage of items whose delivery stalls.
    stalls_percent: u64,
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Self {
            state: seed,
            stalls_percent: 0,
        };
        rng.stalls_percent = rng.pick(&[0, 0, 1, 5]);
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Whether no item stalls in this session.
    pub(crate) fn is_smooth(&self) -> bool {
        self.stalls_percent == 0
    }

    /// Returns a random number below `bound`. `bound` must not be 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns true with a probability of `percent`.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len() as u64) as usize]
    }

    /// Returns a random time from 0 to `max_ms` milliseconds. Short times are more frequent.
    pub(crate) fn time(&mut self, max_ms: u64) -> Duration {
        let bound = 1 + self.below(max_ms + 1);
        Duration::from_millis(self.below(bound))
    }
}

/// A channel that delivers items in order, after a delay. Some items stall.
#[derive(Debug)]
pub(crate) struct Channel<T> {
    items: VecDeque<(Duration, T)>,
    delay_ms: u64,
    last: Duration,
}

impl<T> Channel<T> {
    pub(crate) fn new(delay_ms: u64) -> Self {
        Self {
            items: VecDeque::new(),
            delay_ms,
            last: Duration::ZERO,
        }
    }

    pub(crate) fn push(&mut self, now: Duration, rng: &mut Rng, item: T) {
        let stall_ms = if rng.chance(rng.stalls_percent) {
            2_000
        } else {
            0
        };
        let delay = Duration::from_millis(self.delay_ms / 2) + rng.time(self.delay_ms + stall_ms);
        self.last = self.last.max(now + delay);
        self.items.push_back((self.last, item));
    }

    /// Removes and returns the next item. Returns `None` if it has not arrived.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<T> {
        self.items
            .pop_front_if(|(at, _)| *at <= now)
            .map(|(_, item)| item)
    }

    /// Returns the items that have arrived, without removing them.
    pub(crate) fn arrived(&self, now: Duration) -> impl Iterator<Item = &T> {
        let items = self.items.iter().take_while(move |(at, _)| *at <= now);
        items.map(|(_, item)| item)
    }

    pub(crate) fn clear(&mut self) {
        self.items.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the time of the first arrival after `now`.
    pub(crate) fn next_arrival(&self, now: Duration) -> Option<Duration> {
        self.items.iter().map(|(at, _)| *at).find(|at| *at > now)
    }

    /// Whether all items have arrived.
    pub(crate) fn is_settled(&self, now: Duration) -> bool {
        self.last <= now || self.items.is_empty()
    }
}
