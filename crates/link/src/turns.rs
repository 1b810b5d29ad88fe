//! Schedule of an endpoint. The endpoint handles each datagram at once, or collects arriving
//! datagrams and handles them together in a turn.
//!
//! The input is the traffic in both directions, and the round-trip time. The output is the length
//! of turns. Turns are used only if the traffic is so dense that they cost less than a wake-up for
//! each packet.
//!
//! A wake-up costs as much as the handling of tens of packets. Turns are therefore as long as
//! possible without a noticeable delay. The driver and the simulator use the same schedule, so that
//! virtual time predicts real time.

use std::time::Duration;

use crate::time::Time;

/// Density of the traffic of an endpoint.
///
/// The density is measured with a virtual queue of bytes. Sent and received bytes lengthen the
/// queue, and elapsed time shortens it.
///
/// Commands and replies leave the queue short, so they are handled without a turn. This matters
/// because each command and reply passes four endpoints between client and server.
#[derive(Debug)]
pub(crate) struct Turns {
    line_bytes: f64,
    updated: Time,
    /// Length of a turn: the time for which the endpoint collects arriving datagrams.
    length: Duration,
}

/// Number of bytes that leave the virtual queue in a turn. If full packets arrive more often than
/// once per turn, turns save wake-ups.
const TURN_BYTES: f64 = 1500.0;
/// Cost in bytes of a wake-up for a datagram, or of sending a batch. The virtual queue grows by
/// this number in addition to the actual bytes.
const WAKE_BYTES: f64 = 150.0;
/// Length of the virtual queue above which traffic counts as dense. The traffic of a small file
/// stays below this limit.
const SPARSE_MAX_BYTES: f64 = 16.0 * TURN_BYTES;
/// Maximum length of the virtual queue in bytes. With this limit, traffic stops counting as dense
/// at most four turns after the last packet.
const LINE_MAX_BYTES: f64 = SPARSE_MAX_BYTES + 4.0 * TURN_BYTES;

/// Divisor of the round-trip time. The quotient is the length of a turn, within [`TURN_MIN`] and
/// [`TURN_MAX`].
///
/// A datagram waits half a turn on average. That is short in comparison with the delay of reports.
const TURNS_PER_RTT: u32 = 32;
const TURN_MIN: Duration = Duration::from_micros(500);
const TURN_MAX: Duration = Duration::from_millis(4);

impl Turns {
    pub(crate) fn new() -> Self {
        Self {
            line_bytes: 0.0,
            updated: Time::default(),
            length: TURN_MIN,
        }
    }

    /// Sets the length of turns for a path with the base round-trip time `base_rtt`.
    pub(crate) fn fit(&mut self, base_rtt: Duration, now: Time) {
        self.drain(now);
        self.length = (base_rtt / TURNS_PER_RTT).clamp(TURN_MIN, TURN_MAX);
    }

    /// Adds a received datagram or a sent batch of `bytes` bytes to the virtual queue.
    pub(crate) fn moved(&mut self, bytes: usize, now: Time) {
        self.drain(now);
        self.line_bytes = (self.line_bytes + WAKE_BYTES + bytes as f64).min(LINE_MAX_BYTES);
    }

    /// Returns the time for which the endpoint should collect arriving datagrams. Returns `None` if
    /// it should handle each datagram at once.
    pub(crate) fn length(&mut self, now: Time) -> Option<Duration> {
        self.drain(now);
        (self.line_bytes > SPARSE_MAX_BYTES).then_some(self.length)
    }

    fn drain(&mut self, now: Time) {
        let turns = now.seconds_since(self.updated) / self.length.as_secs_f64();
        self.line_bytes = (self.line_bytes - turns * TURN_BYTES).max(0.0);
        self.updated = self.updated.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    fn turns(base_rtt: Duration) -> Turns {
        let mut turns = Turns::new();
        turns.fit(base_rtt, Time::default());
        turns
    }

    /// Whether traffic counts as dense in the end. Datagrams of `bytes` bytes arrive at the
    /// interval `apart`.
    fn are_dense(bytes: usize, apart: Duration, rtt: Duration) -> bool {
        let mut now = Time::default();
        let mut turns = turns(rtt);
        for _ in 0..10_000 {
            now = now + apart;
            turns.moved(bytes, now);
        }
        turns.length(now).is_some()
    }

    #[test]
    fn commands_are_sparse_and_bulk_data_is_dense() {
        // In each millisecond, a command or a reply and the reports about it: four packets.
        assert!(!are_dense(100, Duration::from_micros(250), RTT));
        // At 15 Mbit/s, packets are further apart than turns. At 50 Mbit/s, packets are closer
        // together.
        assert!(!are_dense(1500, Duration::from_micros(800), RTT));
        assert!(are_dense(1500, Duration::from_micros(240), RTT));
        // On a long path turns are longer, and fewer packets justify them.
        assert!(are_dense(1500, Duration::from_micros(1200), 5 * RTT));
    }

    #[test]
    fn a_small_file_is_sparse() {
        let mut turns = turns(RTT);
        for _ in 0..14 {
            turns.moved(1500, Time::default());
        }
        assert_eq!(turns.length(Time::default()), None);
    }

    #[test]
    fn what_was_dense_is_sparse_four_turns_later() {
        let mut now = Time::default();
        let mut turns = turns(RTT);
        let length = RTT / TURNS_PER_RTT;
        for _ in 0..1000 {
            now = now + length;
            turns.moved(64 * 1024, now);
        }
        assert_eq!(turns.length(now + 3 * length), Some(length));
        assert_eq!(turns.length(now + 5 * length), None);
    }

    #[test]
    fn turns_are_small_beside_the_round_trip() {
        for (rtt_ms, turn_us) in [(0, 500), (64, 2000), (1000, 4000)] {
            let turn = Duration::from_micros(turn_us);
            assert_eq!(turns(Duration::from_millis(rtt_ms)).length, turn);
        }
    }
}
