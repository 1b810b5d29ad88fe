//! Cells of the bench: a path, the size of its transfer, and the required result.

use std::{fmt, time::Duration};

use units::{BitRate, ByteCount};
use wansim::PathConfig;

/// A path with the same properties in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathCell {
    pub rate: BitRate,
    pub rtt: Duration,
    /// Fraction of packets that each direction loses.
    pub loss: f64,
}

/// Returns all cells, in the order of the table.
pub fn all() -> Vec<PathCell> {
    let mut cells = Vec::new();
    for rtt_ms in [20, 200, 1000] {
        for loss in [0.0, 0.001, 0.1, 0.5] {
            cells.push(PathCell::new(BitRate::mbit(300), rtt_ms, loss));
        }
    }
    for rtt_ms in [200, 1000] {
        cells.push(PathCell::new(BitRate::gbit(1), rtt_ms, 0.001));
    }
    cells
}

/// Returns the few cells of the option `--quick`.
pub fn quick() -> Vec<PathCell> {
    [(20, 0.0), (200, 0.001), (200, 0.1)]
        .map(|(rtt_ms, loss)| PathCell::new(BitRate::mbit(300), rtt_ms, loss))
        .into()
}

impl PathCell {
    pub fn new(rate: BitRate, rtt_ms: u64, loss: f64) -> Self {
        let rtt = Duration::from_millis(rtt_ms);
        Self { rate, rtt, loss }
    }

    /// Returns the goodput of a perfect sender, as defined in `docs/measuring.md`.
    pub fn goodput_bytes_per_s(&self) -> f64 {
        self.rate.as_bytes_per_s() * PAYLOAD_SHARE * (1.0 - self.loss)
    }

    /// Returns the size of the transfer.
    ///
    /// A perfect sender needs at least 20 round trips for this size, as the definition of goodput
    /// requires. It also needs at least the time for `least` bytes over a path without loss. Short
    /// pauses of a busy machine then have little effect. At 1 Gbit/s the rule of 20 round trips
    /// does not apply, because a longer transfer would measure the machine.
    pub fn size(&self, least: ByteCount) -> ByteCount {
        let mut sending_s = least.bytes() as f64 / (self.rate.as_bytes_per_s() * PAYLOAD_SHARE);
        if self.rate < FAST {
            sending_s = sending_s.max(20.0 * self.rtt.as_secs_f64());
        }
        ByteCount::new((sending_s * self.goodput_bytes_per_s()) as u64)
    }

    /// Returns the size of the transfer that warms up a link: four bandwidth-delay products.
    pub fn warm_up(&self) -> ByteCount {
        let bdp = self.rate.bytes_in(self.rtt);
        ByteCount::new(4 * bdp.bytes()).max(ByteCount::megabytes(4))
    }

    /// Returns the time that a perfect sender needs.
    pub fn ideal(&self, size: ByteCount) -> Duration {
        let trips = if self.loss > 0.0 { 2 } else { 1 };
        let sending = size.bytes() as f64 / self.goodput_bytes_per_s();
        Duration::from_secs_f64(sending) + trips * self.rtt
    }

    /// Returns the bytes that a perfect sender transmits for a transfer, including headers and
    /// retransmissions.
    pub fn ideal_wire_bytes(&self, size: ByteCount) -> f64 {
        size.bytes() as f64 / PAYLOAD_SHARE / (1.0 - self.loss)
    }

    /// Returns the required goodput as a fraction of the ideal.
    pub fn required(&self) -> f64 {
        // On such a path, a transfer of 500 MB takes four round trips, so each round trip weighs
        // more.
        let is_short = self.rate >= FAST && self.rtt >= Duration::from_secs(1);
        match self.loss {
            loss if is_short && loss > 0.001 => 0.8,
            _ if is_short => 0.85,
            loss => required(loss),
        }
    }

    /// Returns the emulator's parameters for one direction of the path.
    pub fn path(&self) -> PathConfig {
        PathConfig {
            rate: Some(self.rate),
            queue: PathConfig::default_queue(self.rate, self.rtt),
            delay: self.rtt / 2,
            loss: self.loss,
            ..PathConfig::default()
        }
    }
}

impl fmt::Display for PathCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rtt_ms, percent) = (self.rtt.as_millis(), self.loss * 100.0);
        write!(f, "{}, {rtt_ms} ms, {percent} %", self.rate)
    }
}

/// Returns the required goodput, as a fraction of the ideal, on a path with independent loss.
pub fn required(loss: f64) -> f64 {
    match loss {
        0.0 => 0.97,
        _ if loss <= 0.01 => 0.96,
        _ if loss <= 0.1 => 0.95,
        _ if loss <= 0.3 => 0.92,
        _ if loss <= 0.5 => 0.88,
        _ => 0.82,
    }
}

/// Largest possible share of payload in the transmitted bytes, from `docs/measuring.md`.
pub const PAYLOAD_SHARE: f64 = 0.94;
const FAST: BitRate = BitRate::gbit(1);
