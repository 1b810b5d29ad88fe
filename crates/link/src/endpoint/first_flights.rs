//! The first flights of one key: distinguishes new ones from replays.

use std::collections::VecDeque;

use crate::{handshake::CRYPTO_PART_MAX, identity::PublicKey, wire::packet::ConnectionId};

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
/// only by what TLS vouches for; what led nowhere is taken once, and keeps nobody out.
pub(crate) struct FirstFlights {
    newest: Newest,
    /// The greatest timestamp seen of that handshake. Anyone may have made it.
    newest_seen: u64,
    taken: VecDeque<Flight>,
}

/// One sending of a first flight.
#[derive(Debug)]
struct Flight {
    source: ConnectionId,
    timestamp: u64,
    /// Which of its datagrams have come, by their place in the crypto bytes.
    parts: u16,
}

/// The verdict on a first flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may begin a handshake.
    New,
    /// It came for the first time, but more of its flight has come before, or its handshake has led to a
    /// connection: its way was long.
    Late,
    /// It was seen before, or is older than one that has led to a connection.
    Replay,
}

/// First flights remembered as taken in: those of ten attempts, each of which repeats its own 25 times.
const TAKEN_MAX: usize = 256;

impl FirstFlights {
    /// `newest` led to a connection of an earlier run.
    pub(crate) fn new(newest: Newest) -> Self {
        Self {
            newest,
            newest_seen: u64::MAX,
            taken: VecDeque::new(),
        }
    }

    pub(crate) fn newest(&self) -> Newest {
        self.newest
    }

    /// Judges a datagram that belongs to no handshake in progress, and takes it in.
    pub(crate) fn judge(
        &mut self,
        source: ConnectionId,
        timestamp: u64,
        crypto_offset: u16,
    ) -> Verdict {
        if timestamp <= self.newest.began_unix_ns {
            return Verdict::Replay;
        }
        if source.0 == self.newest.source {
            if timestamp <= self.newest_seen {
                return Verdict::Replay;
            }
            self.newest_seen = timestamp;
            return Verdict::Late;
        }
        self.take(source, timestamp, crypto_offset)
    }

    /// Accepts a datagram of a first flight. Anybody may have sent a repeated one.
    pub(crate) fn take(
        &mut self,
        source: ConnectionId,
        timestamp: u64,
        crypto_offset: u16,
    ) -> Verdict {
        let part = 1 << (usize::from(crypto_offset) / CRYPTO_PART_MAX).min(15);
        let mut taken = self.taken.iter_mut().rev();
        let known = taken.find(|flight| (flight.source, flight.timestamp) == (source, timestamp));
        if let Some(flight) = known {
            let is_new = flight.parts & part == 0;
            flight.parts |= part;
            return if is_new {
                Verdict::Late
            } else {
                Verdict::Replay
            };
        }
        if self.taken.len() == TAKEN_MAX {
            self.taken.pop_front();
        }
        self.taken.push_back(Flight {
            source,
            timestamp,
            parts: part,
        });
        Verdict::New
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
    fn each_datagram_is_taken_once_and_keeps_nobody_out() {
        let mut flights = FirstFlights::new(Newest::default());
        assert_eq!(flights.judge(SOURCE, 1_000, 0), Verdict::New);
        assert_eq!(flights.judge(SOURCE, 1_000, 1150), Verdict::Late);
        assert_eq!(flights.judge(SOURCE, 1_000, 0), Verdict::Replay);
        assert_eq!(flights.judge(SOURCE, 1_000, 1150), Verdict::Replay);
        assert_eq!(flights.judge(SOURCE, 900, 0), Verdict::New);
        assert_eq!(flights.judge(OTHER, 1_000, 0), Verdict::New);
        for flight in 0..2 * TAKEN_MAX as u64 {
            flights.judge(OTHER, 2_000 + flight, 0);
        }
        assert_eq!(flights.taken.len(), TAKEN_MAX);
    }

    #[test]
    fn flights_of_the_newest_handshake_and_of_older_ones_begin_nothing() {
        let mut flights = FirstFlights::new(Newest::default());
        flights.on_connected(SOURCE, 900, 1_100);
        assert_eq!(flights.judge(OTHER, 900, 0), Verdict::Replay);
        assert_eq!(flights.judge(OTHER, 901, 0), Verdict::New);
        assert_eq!(flights.judge(SOURCE, 1_100, 0), Verdict::Replay);
        assert_eq!(flights.judge(SOURCE, 1_200, 0), Verdict::Late);
        assert_eq!(flights.judge(SOURCE, 1_200, 0), Verdict::Replay);
        let mut restarted = FirstFlights::new(flights.newest());
        assert_eq!(restarted.judge(SOURCE, 5_000, 0), Verdict::Replay);
        assert_eq!(restarted.judge(OTHER, 901, 0), Verdict::New);
    }
}
