//! First flights of one key: which are new, and which were seen before.

use std::collections::VecDeque;

use crate::{identity::PublicKey, wire::packet::ConnectionId};

/// What an endpoint keeps over a restart, so that a first flight recorded before it stays unanswered
/// after it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayMemory {
    /// Our own timestamps go on from here, in nanoseconds since the Unix epoch: a machine that
    /// starts with a clock that is behind would otherwise be taken for a replay.
    pub clock_unix_ns: u64,
    /// The newest handshake that led to a connection, by the initiator's key.
    pub newest: Vec<(PublicKey, Newest)>,
}

/// The newest handshake of a key that led to a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Newest {
    /// When it began, in nanoseconds since the Unix epoch by the initiator's clock, as the
    /// initiator said under the protection of TLS.
    pub began_unix_ns: u64,
    /// The initiator's connection ID. Later flights of that handshake have it, too.
    pub source: [u8; 4],
}

/// The first flights of one key.
///
/// Anyone who knows both public keys can form one. So only a complete handshake moves `newest`, and
/// only by what TLS vouches for; what led nowhere is answered once, and keeps nobody out.
pub(crate) struct FirstFlights {
    newest: Newest,
    /// The greatest timestamp seen of that handshake. Anyone may have made it.
    newest_seen: u64,
    answered: VecDeque<(ConnectionId, u64)>,
}

/// What to do with a first flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may begin a handshake.
    New,
    /// A repetition, seen for the first time, of one that has led to a connection: its way was long.
    Late,
    /// It was seen before, or is older than one that has led to a connection.
    Replay,
}

/// First flights remembered as answered.
const ANSWERED_MAX: usize = 64;

impl FirstFlights {
    /// `newest` led to a connection of an earlier run.
    pub(crate) fn new(newest: Newest) -> Self {
        Self {
            newest,
            newest_seen: u64::MAX,
            answered: VecDeque::new(),
        }
    }

    pub(crate) fn newest(&self) -> Newest {
        self.newest
    }

    pub(crate) fn judge(&mut self, source: ConnectionId, timestamp: u64) -> Verdict {
        let is_known =
            timestamp <= self.newest.began_unix_ns || self.answered.contains(&(source, timestamp));
        let is_of_newest = source.0 == self.newest.source;
        if !is_known && !is_of_newest {
            Verdict::New
        } else if is_known || timestamp <= self.newest_seen {
            Verdict::Replay
        } else {
            self.newest_seen = timestamp;
            Verdict::Late
        }
    }

    pub(crate) fn on_answered(&mut self, source: ConnectionId, timestamp: u64) {
        self.answered.push_back((source, timestamp));
        if self.answered.len() > ANSWERED_MAX {
            self.answered.pop_front();
        }
    }

    /// A handshake is complete that the initiator says it began then; `seen` is the greatest
    /// timestamp of its flights so far.
    pub(crate) fn on_connected(&mut self, source: ConnectionId, began_unix_ns: u64, seen: u64) {
        if began_unix_ns > self.newest.began_unix_ns {
            self.newest = Newest {
                began_unix_ns,
                source: source.0,
            };
            self.newest_seen = seen;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: ConnectionId = ConnectionId([1, 2, 3, 4]);
    const OTHER: ConnectionId = ConnectionId([9; 4]);

    #[test]
    fn what_led_nowhere_is_answered_once_and_keeps_nobody_out() {
        let mut flights = FirstFlights::new(Newest::default());
        flights.on_answered(SOURCE, 1_000);
        assert_eq!(flights.judge(SOURCE, 1_000), Verdict::Replay);
        assert_eq!(flights.judge(SOURCE, 900), Verdict::New);
        assert_eq!(flights.judge(OTHER, 1_000), Verdict::New);
    }

    #[test]
    fn flights_of_the_newest_handshake_and_of_older_ones_begin_nothing() {
        let mut flights = FirstFlights::new(Newest::default());
        flights.on_connected(SOURCE, 900, 1_100);
        assert_eq!(flights.judge(OTHER, 900), Verdict::Replay);
        assert_eq!(flights.judge(OTHER, 901), Verdict::New);
        assert_eq!(flights.judge(SOURCE, 1_100), Verdict::Replay);
        assert_eq!(flights.judge(SOURCE, 1_200), Verdict::Late);
        assert_eq!(flights.judge(SOURCE, 1_200), Verdict::Replay);
        let mut restarted = FirstFlights::new(flights.newest());
        assert_eq!(restarted.judge(SOURCE, 5_000), Verdict::Replay);
        assert_eq!(restarted.judge(OTHER, 901), Verdict::New);
    }
}
