//! First flights of one key, with the detection of replays.

use std::collections::VecDeque;

use crate::{handshake::CRYPTO_PART_MAX, identity::PublicKey, wire::packet::ConnectionId};

/// State that an endpoint keeps over a restart, so that a first flight recorded before it stays
/// unanswered after it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayMemory {
    /// Start of our own timestamps, in nanoseconds since the Unix epoch. Without it, the hellos of
    /// a machine that starts with a late clock would count as replays.
    pub clock_unix_ns: u64,
    /// Newest handshake that led to a connection, by the initiator's key.
    pub newest: Vec<(PublicKey, NewestHandshake)>,
}

/// Newest handshake of a key that led to a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewestHandshake {
    /// Start of the handshake, in nanoseconds since the Unix epoch by the initiator's clock, as
    /// authenticated by TLS.
    pub began_unix_ns: u64,
    /// The initiator's connection ID. Later flights of that handshake have it, too.
    pub source: [u8; 4],
}

/// First flights of one key.
///
/// Anyone with both public keys can form one. Only a complete handshake therefore changes `newest`,
/// and only by values that TLS authenticates. Other flights are accepted once, and lock no
/// initiator out.
pub(crate) struct FirstFlights {
    newest: NewestHandshake,
    /// Greatest timestamp received of that handshake. Anyone may have made it.
    newest_seen: u64,
    accepted: VecDeque<FlightRecord>,
}

/// One transmission of a first flight.
#[derive(Debug)]
struct FlightRecord {
    source: ConnectionId,
    timestamp: u64,
    /// Received datagrams of it, by their position in the crypto bytes.
    parts: u16,
}

/// Verdict on a first flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlightVerdict {
    /// The datagram may begin a handshake.
    New,
    /// The datagram arrived for the first time, but late: an earlier datagram of its flight has
    /// arrived, or its handshake has led to a connection.
    Late,
    /// The datagram arrived before, or is older than a handshake that has led to a connection.
    Replay,
}

/// Maximum number of first flights stored as accepted: ten attempts, each of which repeats its own
/// 25 times.
const ACCEPTED_MAX: usize = 256;

impl FirstFlights {
    /// Creates the state. `newest` led to a connection of an earlier run.
    pub(crate) fn new(newest: NewestHandshake) -> Self {
        Self {
            newest,
            newest_seen: u64::MAX,
            accepted: VecDeque::new(),
        }
    }

    pub(crate) fn newest(&self) -> NewestHandshake {
        self.newest
    }

    /// Judges a datagram that belongs to no handshake in progress, and stores it.
    pub(crate) fn judge(
        &mut self,
        source: ConnectionId,
        timestamp: u64,
        crypto_offset: u16,
    ) -> FlightVerdict {
        if timestamp <= self.newest.began_unix_ns {
            return FlightVerdict::Replay;
        }
        if source.0 == self.newest.source {
            if timestamp <= self.newest_seen {
                return FlightVerdict::Replay;
            }
            self.newest_seen = timestamp;
            return FlightVerdict::Late;
        }
        self.take(source, timestamp, crypto_offset)
    }

    /// Accepts a datagram of a first flight. Anybody may have sent a repeated one.
    pub(crate) fn take(
        &mut self,
        source: ConnectionId,
        timestamp: u64,
        crypto_offset: u16,
    ) -> FlightVerdict {
        let part = 1 << (usize::from(crypto_offset) / CRYPTO_PART_MAX).min(15);
        let mut taken = self.accepted.iter_mut().rev();
        let known = taken.find(|flight| (flight.source, flight.timestamp) == (source, timestamp));
        if let Some(flight) = known {
            let is_new = flight.parts & part == 0;
            flight.parts |= part;
            return if is_new {
                FlightVerdict::Late
            } else {
                FlightVerdict::Replay
            };
        }
        if self.accepted.len() == ACCEPTED_MAX {
            self.accepted.pop_front();
        }
        self.accepted.push_back(FlightRecord {
            source,
            timestamp,
            parts: part,
        });
        FlightVerdict::New
    }

    /// Records a complete handshake, which began at `began_unix_ns` by the initiator's clock.
    /// `seen` is the greatest timestamp of its flights so far.
    pub(crate) fn on_connected(&mut self, source: ConnectionId, began_unix_ns: u64, seen: u64) {
        if began_unix_ns > self.newest.began_unix_ns {
            self.newest = NewestHandshake {
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
    fn each_datagram_is_taken_once_and_keeps_nobody_out() {
        let mut flights = FirstFlights::new(NewestHandshake::default());
        assert_eq!(flights.judge(SOURCE, 1_000, 0), FlightVerdict::New);
        assert_eq!(flights.judge(SOURCE, 1_000, 1150), FlightVerdict::Late);
        assert_eq!(flights.judge(SOURCE, 1_000, 0), FlightVerdict::Replay);
        assert_eq!(flights.judge(SOURCE, 1_000, 1150), FlightVerdict::Replay);
        assert_eq!(flights.judge(SOURCE, 900, 0), FlightVerdict::New);
        assert_eq!(flights.judge(OTHER, 1_000, 0), FlightVerdict::New);
        for flight in 0..2 * ACCEPTED_MAX as u64 {
            flights.judge(OTHER, 2_000 + flight, 0);
        }
        assert_eq!(flights.accepted.len(), ACCEPTED_MAX);
    }

    #[test]
    fn flights_of_the_newest_handshake_and_of_older_ones_begin_nothing() {
        let mut flights = FirstFlights::new(NewestHandshake::default());
        flights.on_connected(SOURCE, 900, 1_100);
        assert_eq!(flights.judge(OTHER, 900, 0), FlightVerdict::Replay);
        assert_eq!(flights.judge(OTHER, 901, 0), FlightVerdict::New);
        assert_eq!(flights.judge(SOURCE, 1_100, 0), FlightVerdict::Replay);
        assert_eq!(flights.judge(SOURCE, 1_200, 0), FlightVerdict::Late);
        assert_eq!(flights.judge(SOURCE, 1_200, 0), FlightVerdict::Replay);
        let mut restarted = FirstFlights::new(flights.newest());
        assert_eq!(restarted.judge(SOURCE, 5_000, 0), FlightVerdict::Replay);
        assert_eq!(restarted.judge(OTHER, 901, 0), FlightVerdict::New);
    }
}
