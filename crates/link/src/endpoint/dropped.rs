//! Counters of datagrams that were dropped without an answer.

/// Datagrams dropped unanswered, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropCounters {
    /// First flights of a key that no peer has.
    pub unknown_key: u64,
    /// First flights and answers whose MAC is wrong.
    pub bad_mac: u64,
    /// First flights that had arrived before.
    pub replayed: u64,
    /// First flights that came while others of their peer were in progress, and were asked for a cookie or
    /// dropped.
    pub crowded: u64,
    /// Packets seen before, or older than anything remembered. Paths duplicate, too.
    pub duplicates: u64,
    /// Datagrams of no known shape.
    pub malformed: u64,
    /// Packets for a connection that does not exist.
    pub unknown_connection: u64,
    /// Packets that no key of this endpoint opens.
    pub undecryptable: u64,
}

impl DropCounters {
    /// All datagrams except those that a path itself can damage or repeat.
    pub(crate) fn of_strangers(&self) -> u64 {
        self.unknown_key
            + self.bad_mac
            + self.replayed
            + self.crowded
            + self.malformed
            + self.unknown_connection
            + self.undecryptable
    }
}
