//! First flights (hellos) from one key, and the detection of replays.

use std::collections::VecDeque;

use crate::{handshake::CRYPTO_PART_MAX, identity::PublicKey, wire::packet::ConnectionId};

/// State that an endpoint keeps across a restart. With this state, the endpoint detects a first
/// flight that was recorded before the restart and is replayed later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayMemory {
    /// Lower limit of this endpoint's own timestamps, in nanoseconds since the Unix epoch. Without
    /// this limit, the hellos of this machine could count as replays if its clock is behind after a
    /// restart.
    pub clock_unix_ns: u64,
    /// Newest handshake that led to a connection, for each initiator's key.
    pub newest: Vec<(PublicKey, NewestHandshake)>,
}

/// Newest handshake of one initiator's key. Only handshakes that led to a connection count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewestHandshake {
    /// Start of the handshake by the initiator's clock, in nanoseconds since the Unix epoch. TLS
    /// has authenticated this value.
    pub began_unix_ns: u64,
    /// Connection ID of the initiator. All flights of that handshake contain this ID.
    pub source: [u8; 4],
}

/// First flights from one key.
///
/// Anyone who has both public keys can create a first flight. Therefore only a completed handshake
/// changes `newest`, and only with values that TLS has authenticated. Other first flights are
/// accepted once each, and cannot block the real initiator.
pub(crate) struct FirstFlights {
    newest: NewestHandshake,
    /// Highest timestamp in a first flight of the handshake `newest`. This value is not
    /// authenticated.
    newest_seen: u64,
    accepted: VecDeque<FlightRecord>,
}

/// One transmission of a first flight, which may consist of several datagrams.
#[derive(Debug)]
struct FlightRecord {
    source: ConnectionId,
    timestamp: u64,
    /// Bit mask of the received datagrams of this transmission. The bit number follows from the
    /// offset of the datagram in the crypto bytes.
    parts: u16,
}

/// Result of checking a datagram of a first flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlightVerdict {
    /// The datagram may begin a handshake.
    New,
    /// The datagram is new but must not begin a handshake. Another datagram of the same flight has
    /// arrived, or the handshake has already led to a connection.
    Late,
    /// The datagram has already arrived, or is older than a handshake that led to a connection.
    Replay,
}

/// Maximum number of accepted first flights that are stored. It covers ten attempts with 25
/// repetitions each.
const ACCEPTED_MAX: usize = 256;

impl FirstFlights {
    /// Creates the state. `newest` is the newest handshake that led to a connection in an earlier
    /// run.
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

    /// Checks a datagram that belongs to no handshake in progress, and records it.
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

    /// Records a datagram of a first flight, and returns whether it is new. A replayed datagram may
    /// come from anyone.
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

    /// Records a completed handshake, which began at `began_unix_ns` by the initiator's clock.
    /// `seen` is the highest timestamp in its first flights so far.
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
