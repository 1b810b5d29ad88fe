//! Counters of datagrams that were dropped without an answer.

/// Datagrams dropped without an answer, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropCounters {
    /// First flights of a key that no peer has.
    pub unknown_key: u64,
    /// First flights and answers whose MAC is wrong.
    pub bad_mac: u64,
    /// First flights that had arrived before.
    pub replayed: u64,
    /// First flights that arrived while others of their peer were in progress, and that were
    /// dropped or answered with a request for a cookie.
    pub crowded: u64,
    /// Packets received before, or older than all remembered ones. Paths duplicate, too.
    pub duplicates: u64,
    /// Datagrams of no known shape.
    pub malformed: u64,
    /// Packets for a connection that does not exist.
    pub unknown_connection: u64,
    /// Packets that no key of this endpoint opens.
    pub undecryptable: u64,
}

impl DropCounters {
    /// Returns the number of dropped datagrams except duplicates, which a path itself can cause.
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
