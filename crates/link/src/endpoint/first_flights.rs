//! First flights of one key: which are new, and which were seen before.

use std::collections::VecDeque;

use super::attempt::ATTEMPT_MAX;
use crate::{identity::PublicKey, wire::packet::ConnectionId};

/// What an endpoint keeps over a restart, so that a first flight recorded before it stays unanswered
/// after it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayMemory {
    /// Our own timestamps go on from here, in nanoseconds since the Unix epoch: a machine that
    /// starts with a clock that is behind would otherwise be taken for a replay.
    pub clock_unix_ns: u64,
    /// Timestamp of the newest first flight that led to a connection, by the initiator's key.
    pub newest: Vec<(PublicKey, u64)>,
}

/// The first flights of one key.
pub(crate) struct FirstFlights {
    newest: u64,
    /// Anyone who knows both public keys can form a first flight. One that leads nowhere must not
    /// keep out the peer, so it does not count as the newest; but each is answered once.
    answered: VecDeque<(ConnectionId, u64)>,
}

/// First flights remembered as answered.
const ANSWERED_MAX: usize = 64;

impl FirstFlights {
    /// `newest` led to a connection of an earlier run.
    pub(crate) fn new(newest: u64) -> Self {
        Self {
            newest,
            answered: VecDeque::new(),
        }
    }

    /// Timestamp of the newest that led to a connection.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    pub(crate) fn is_replay(&self, source: ConnectionId, timestamp: u64) -> bool {
        timestamp <= self.newest || self.answered.contains(&(source, timestamp))
    }

    pub(crate) fn on_answered(&mut self, source: ConnectionId, timestamp: u64) {
        self.answered.push_back((source, timestamp));
        if self.answered.len() > ANSWERED_MAX {
            self.answered.pop_front();
        }
    }

    /// The handshake is complete: only now is it sure who sent that first flight.
    pub(crate) fn on_connected(&mut self, timestamp: u64) {
        self.newest = self.newest.max(timestamp);
    }

    /// A first flight was repeated on its way and came after its connection stood. Whether that is
    /// news. The bound keeps a forged one from locking out the peer.
    pub(crate) fn on_late_repetition(&mut self, timestamp: u64) -> bool {
        let latest = self.newest + ATTEMPT_MAX.as_nanos() as u64;
        let is_news = timestamp > self.newest && timestamp <= latest;
        if is_news {
            self.newest = timestamp;
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: ConnectionId = ConnectionId([1, 2, 3, 4]);

    #[test]
    fn what_led_nowhere_is_answered_once_and_keeps_nobody_out() {
        let mut flights = FirstFlights::new(0);
        flights.on_answered(SOURCE, 1_000);
        assert!(flights.is_replay(SOURCE, 1_000));
        assert!(!flights.is_replay(SOURCE, 900));
        flights.on_connected(900);
        assert!(flights.is_replay(ConnectionId([9; 4]), 900));
        assert!(!flights.is_replay(ConnectionId([9; 4]), 901));
    }

    #[test]
    fn a_late_repetition_counts_within_the_length_of_an_attempt() {
        let mut flights = FirstFlights::new(0);
        let newest = 50_000_000_000;
        flights.on_connected(newest);
        assert!(flights.on_late_repetition(newest + 1_000_000_000));
        assert_eq!(flights.newest(), newest + 1_000_000_000);
        assert!(!flights.on_late_repetition(newest));
        assert!(!flights.on_late_repetition(newest + 3_600_000_000_000));
        assert_eq!(flights.newest(), newest + 1_000_000_000);
    }

    #[test]
    fn a_first_flight_of_before_the_restart_is_a_replay() {
        assert!(FirstFlights::new(77).is_replay(SOURCE, 77));
        assert!(!FirstFlights::new(77).is_replay(SOURCE, 78));
    }
}
