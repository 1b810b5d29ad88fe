//! Fate of a packet after the bottleneck. The fate is random, and depends on the settings and the
//! seed.
//!
//! Each impairment has its own random generator. Enabling one impairment therefore does not change
//! the random values of the other impairments. Two runs that differ in one setting can be compared
//! packet by packet.

use std::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg32;

use crate::config::{GilbertElliott, Jitter, Reordering, Straggler};

#[derive(Debug)]
pub(crate) struct RandomDraws {
    loss: Pcg32,
    bursts: Pcg32,
    corruption: Pcg32,
    reordering: Pcg32,
    duplication: Pcg32,
    jitter: Pcg32,
    in_bad_state: bool,
    reordered_last: bool,
}

/// Delay and order of a packet after it left the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transit {
    /// The packet arrives after this delay, in order with the other packets.
    InOrder(Duration),
    /// The packet arrives after this delay, but waits for all packets that were sent earlier.
    Held(Duration),
    /// The packet arrives after this delay, independently of other packets.
    OutOfOrder(Duration),
}

impl RandomDraws {
    pub(crate) fn new(seed: u64) -> Self {
        let stream = |number| Pcg32::new(seed, number);
        Self {
            loss: stream(1),
            bursts: stream(2),
            corruption: stream(3),
            reordering: stream(4),
            duplication: stream(5),
            jitter: stream(6),
            in_bad_state: false,
            reordered_last: false,
        }
    }

    pub(crate) fn loses(&mut self, probability: f64) -> bool {
        chance(&mut self.loss, probability)
    }

    pub(crate) fn loses_in_burst(&mut self, chain: &GilbertElliott) -> bool {
        let moves = if self.in_bad_state {
            chain.leave
        } else {
            chain.enter
        };
        if chance(&mut self.bursts, moves) {
            self.in_bad_state = !self.in_bad_state;
        }
        let loss = if self.in_bad_state {
            chain.loss_bad
        } else {
            chain.loss_good
        };
        chance(&mut self.bursts, loss)
    }

    /// Returns the number of the bit to flip in a packet of `bytes` bytes. Returns `None` if the
    /// packet is not corrupted.
    pub(crate) fn corrupts(&mut self, probability: f64, bytes: usize) -> Option<usize> {
        if bytes == 0 || !chance(&mut self.corruption, probability) {
            return None;
        }
        Some(self.corruption.random_range(0..bytes * 8))
    }

    pub(crate) fn duplicates(&mut self, probability: f64) -> bool {
        chance(&mut self.duplication, probability)
    }

    pub(crate) fn reorders(&mut self, reordering: &Reordering) -> bool {
        if reordering.probability <= 0.0 {
            return false;
        }
        if !chance(&mut self.reordering, reordering.correlation) {
            self.reordered_last = chance(&mut self.reordering, reordering.probability);
        }
        self.reordered_last
    }

    /// Returns the transit of a packet. `straggler` is the change of delay if [`Self::reorders`]
    /// selected the packet.
    pub(crate) fn transit(
        &mut self,
        delay: Duration,
        jitter: &Jitter,
        straggler: Option<Straggler>,
    ) -> Transit {
        match straggler {
            Some(Straggler::Early) => Transit::OutOfOrder(Duration::ZERO),
            Some(Straggler::Late(extra)) => {
                Transit::OutOfOrder(self.jittered(delay, jitter) + extra)
            }
            None if jitter.spread.is_zero() => Transit::InOrder(delay),
            None if jitter.in_order => Transit::Held(self.jittered(delay, jitter)),
            None => Transit::OutOfOrder(self.jittered(delay, jitter)),
        }
    }

    fn jittered(&mut self, delay: Duration, jitter: &Jitter) -> Duration {
        let spread_ns = u64::try_from(jitter.spread.as_nanos()).unwrap_or(u64::MAX / 2);
        if spread_ns == 0 {
            return delay;
        }
        let offset_ns = self.jitter.random_range(0..=2 * spread_ns);
        (delay + Duration::from_nanos(offset_ns)).saturating_sub(jitter.spread)
    }
}

/// Returns true with the given probability. For a probability of at most 0 it uses no random
/// number. For a probability of at least 1 it always returns true.
fn chance(rng: &mut Pcg32, probability: f64) -> bool {
    probability > 0.0 && rng.random::<f64>() < probability
}
