//! Packet numbers that the sender skips and never sends.
//!
//! A peer may report packets that it did not receive. The sender would then continue at a rate
//! above the path's capacity (RFC 9000 section 21.4). The sender therefore skips single packet
//! numbers. If a peer reports a skipped number as received, the report is false.

use crate::{
    secret::{Secret, SecretPurpose},
    wire::packet::ConnectionId,
};

/// Generator of the packet numbers to skip.
#[derive(Debug)]
pub(crate) struct SkippedPacketNumbers {
    secret: Secret,
    connection: ConnectionId,
    count: u64,
    next: u64,
}

/// Least distance between two skipped numbers. Each skipped number adds a few bytes to some
/// reports.
const APART_MIN: u64 = 64;
/// Upper limit of the distance between two skipped numbers. The distance is always smaller.
const APART_MAX: u64 = 1024;

impl SkippedPacketNumbers {
    pub(crate) fn new(secret: Secret, connection: ConnectionId) -> Self {
        let mut skipped_numbers = Self {
            secret,
            connection,
            count: 0,
            next: 0,
        };
        skipped_numbers.draw(0);
        skipped_numbers
    }

    /// Whether the sender must skip `number`, which is the next packet number. If so, the function
    /// also chooses the next number to skip.
    pub(crate) fn take(&mut self, number: u64) -> bool {
        let is_due = number >= self.next;
        if is_due {
            self.draw(number);
        }
        is_due
    }

    /// Stops skipping numbers.
    #[cfg(test)]
    pub(super) fn never(&mut self) {
        self.next = u64::MAX;
    }

    fn draw(&mut self, after: u64) {
        let drawn = self
            .secret
            .number(SecretPurpose::SkippedNumber, self.connection, self.count);
        self.count += 1;
        self.next = after + APART_MIN + drawn % (APART_MAX - APART_MIN);
    }
}
