//! Counters of datagrams that were dropped without a reply.

/// Numbers of datagrams dropped without a reply, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropCounters {
    /// Hellos with a key that belongs to no peer.
    pub unknown_key: u64,
    /// Hellos and replies to hellos with a wrong MAC.
    pub bad_mac: u64,
    /// Hellos that had already arrived.
    pub replayed: u64,
    /// Hellos that began no handshake because other handshakes were in progress. The endpoint
    /// dropped them, or replied with a request for a cookie.
    pub crowded: u64,
    /// Packets that had already arrived, or that are older than the range in which duplicates are
    /// detected. Some paths also duplicate packets.
    pub duplicates: u64,
    /// Datagrams with an unknown format.
    pub malformed: u64,
    /// Packets for a connection that does not exist.
    pub unknown_connection: u64,
    /// Packets that could not be decrypted with any key of this endpoint.
    pub undecryptable: u64,
}

impl DropCounters {
    /// Returns the number of dropped datagrams, excluding duplicates. Duplicates are excluded
    /// because the path itself can cause them.
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
