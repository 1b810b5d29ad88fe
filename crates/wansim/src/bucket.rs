//! The token bucket of a policer.

use std::time::Instant;

use crate::config::Policer;

/// State of the token bucket after the last packet.
#[derive(Debug, Default)]
pub(crate) struct TokenBucket {
    filled: Option<BucketLevel>,
}

#[derive(Debug, Clone, Copy)]
struct BucketLevel {
    at: Instant,
    /// Tokens in bytes, multiplied by [`SCALE`] so that rounding errors do not accumulate.
    tokens: u128,
}

impl TokenBucket {
    /// Returns whether a packet that arrives at `now` passes the policer. The bucket is full before
    /// the first packet.
    pub(crate) fn passes(&mut self, policer: &Policer, wire_bytes: usize, now: Instant) -> bool {
        let burst = u128::from(policer.burst.bytes()) * SCALE;
        let tokens = match self.filled {
            Some(BucketLevel { at, tokens }) => {
                let since_ns = now.saturating_duration_since(at).as_nanos();
                let earned = since_ns.saturating_mul(u128::from(policer.rate.as_bits_per_s()));
                tokens.saturating_add(earned).min(burst)
            }
            None => burst,
        };
        let cost = wire_bytes as u128 * SCALE;
        let passes = tokens >= cost;
        self.filled = Some(BucketLevel {
            at: now,
            tokens: if passes { tokens - cost } else { tokens },
        });
        passes
    }
}

/// Token units per byte: 8 x 10^9. At a rate of 1 bit/s, one unit arrives per nanosecond.
const SCALE: u128 = 8_000_000_000;
