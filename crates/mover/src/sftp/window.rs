//! Window of a transfer: the number of bytes that may be in flight. The window is a multiple of the
//! bandwidth-delay product.
//!
//! This module uses no clock. Its caller passes the times.

use std::time::Duration;

use tokio::time::Instant;

/// Estimate of the number of bytes that may be in flight.
///
/// The estimate multiplies the best recent rate by the shortest round trip. While the window limits
/// the rate, one window arrives in each round trip. The window then grows by the factor `GAIN` in
/// each round trip. Once the path limits the rate, the window stays constant.
#[derive(Debug)]
pub(super) struct Window {
    round_trip: Option<Duration>,
    /// Bytes whose answers have arrived.
    done_bytes: u64,
    /// Time of the last answer, or of the first request.
    done_at: Option<Instant>,
    /// Best rates of the last rounds in bytes per second. A round lasts one round trip.
    best_rates: [f64; ROUNDS],
    round: usize,
    /// Value of `done_bytes` at the start of the round.
    round_start_bytes: u64,
    window_bytes: u64,
}

/// State of the transfer when a request was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentMark {
    at: Instant,
    done_bytes: u64,
    done_at: Instant,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            round_trip: None,
            done_bytes: 0,
            done_at: None,
            best_rates: [0.0; ROUNDS],
            round: 0,
            round_start_bytes: 0,
            window_bytes: WINDOW_MIN_BYTES,
        }
    }
}

impl Window {
    /// Returns the number of bytes that may be in flight.
    pub(super) fn bytes(&self) -> u64 {
        self.window_bytes
    }

    /// Records that a request is sent at `now`.
    pub(super) fn sent(&mut self, now: Instant) -> SentMark {
        SentMark {
            at: now,
            done_bytes: self.done_bytes,
            done_at: *self.done_at.get_or_insert(now),
        }
    }

    /// Records an answer for `bytes` of the transfer. The answer has arrived at `arrived`, and the
    /// transfer takes it at `now`.
    pub(super) fn answered(
        &mut self,
        sent: SentMark,
        bytes: u64,
        (arrived, now): (Instant, Instant),
    ) {
        let trip = arrived.saturating_duration_since(sent.at).max(TRIP_MIN);
        self.round_trip = Some(self.round_trip.map_or(trip, |it| it.min(trip)));
        self.done_bytes += bytes;
        self.done_at = Some(now);
        let count = (self.done_bytes - sent.done_bytes) as f64;
        let time = now.saturating_duration_since(sent.done_at).max(TRIP_MIN);
        if sent.done_bytes >= self.round_start_bytes {
            self.round_start_bytes = self.done_bytes;
            self.round = (self.round + 1) % ROUNDS;
            self.best_rates[self.round] = 0.0;
        }
        let best = &mut self.best_rates[self.round];
        *best = best.max(count / time.as_secs_f64());
        let rate = self.best_rates.iter().copied().fold(0.0, f64::max);
        let product = rate * self.round_trip.unwrap_or_default().as_secs_f64();
        self.window_bytes = ((product * GAIN) as u64).clamp(WINDOW_MIN_BYTES, WINDOW_MAX_BYTES);
    }
}

/// Window divided by the bandwidth-delay product. It exceeds 1, because a lost packet delays all
/// answers by a round trip or more.
const GAIN: f64 = 3.0;

/// Number of recent rounds whose best rates the window uses.
const ROUNDS: usize = 10;

/// Lower bound of measured times.
const TRIP_MIN: Duration = Duration::from_micros(50);

/// Smallest window in bytes. It is the window of OpenSSH's client.
pub(super) const WINDOW_MIN_BYTES: u64 = 2 * 1024 * 1024;

/// Largest window of one file in bytes.
pub(super) const WINDOW_MAX_BYTES: u64 = 64 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// Moves bytes over a simulated path. Returns the largest window, and the rate of the second
    /// half in bytes per second.
    fn simulate(rate: f64, round_trip: Duration, total_bytes: u64) -> (u64, f64) {
        let start = Instant::now();
        let mut window = Window::default();
        let (mut now, mut free_at) = (start, start);
        let (mut sent_bytes, mut done_bytes, mut largest) = (0, 0, 0);
        let mut on_the_way = VecDeque::new();
        let mut half_at = None;
        let chunk: u64 = 255 * 1024;
        while done_bytes < total_bytes {
            while sent_bytes < total_bytes && sent_bytes - done_bytes < window.bytes() {
                free_at = free_at.max(now) + Duration::from_secs_f64(chunk as f64 / rate);
                on_the_way.push_back((window.sent(now), free_at + round_trip));
                sent_bytes += chunk;
            }
            let (mark, arrival) = on_the_way.pop_front().expect("a request is on the way");
            now = now.max(arrival);
            window.answered(mark, chunk, (arrival, now));
            done_bytes += chunk;
            largest = largest.max(window.bytes());
            if done_bytes >= total_bytes / 2 {
                half_at.get_or_insert((now, done_bytes));
            }
        }
        let (at, bytes) = half_at.expect("the half was reached");
        (
            largest,
            (done_bytes - bytes) as f64 / (now - at).as_secs_f64(),
        )
    }

    #[test]
    fn a_fast_path_is_filled_and_a_slow_one_gets_no_large_window() {
        let trip = Duration::from_millis(200);
        let (_, rate) = simulate(37.5e6, trip, 1_000_000_000);
        assert!(rate > 0.98 * 37.5e6, "{rate}");
        let (largest, rate) = simulate(1.25e6, trip, 50_000_000);
        assert_eq!(largest, WINDOW_MIN_BYTES);
        assert!(rate > 0.98 * 1.25e6, "{rate}");
    }

    proptest! {
        #[test]
        fn the_window_stays_within_its_limits(
            times in prop::collection::vec((0..2_000_000u64, 0..2_000_000u64, 0..300_000u64), 1..50),
        ) {
            let mut window = Window::default();
            let mut now = Instant::now();
            for (sent_us, arrived_us, bytes) in times {
                let mark = window.sent(now);
                now += Duration::from_micros(sent_us);
                let arrived = now;
                now += Duration::from_micros(arrived_us);
                window.answered(mark, bytes, (arrived, now));
                let range = WINDOW_MIN_BYTES..=WINDOW_MAX_BYTES;
                prop_assert!(range.contains(&window.bytes()));
            }
        }
    }
}
