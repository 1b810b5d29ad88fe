//! Packet numbers that are never sent.
//!
//! A peer that reports packets that it did not receive can make a sender continue at a rate beyond
//! the path's (RFC 9000 section 21.4). The sender therefore skips a number now and then. A report
//! of such a number is false.

use crate::{
    secret::{Secret, SecretPurpose},
    wire::packet::ConnectionId,
};

/// Generator of the numbers to skip.
#[derive(Debug)]
pub(crate) struct SkippedPacketNumbers {
    secret: Secret,
    connection: ConnectionId,
    count: u64,
    next: u64,
}

/// Least distance of two skipped numbers. Each costs a few bytes in some reports.
const APART_MIN: u64 = 64;
/// Upper limit of that distance, which is always less.
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

    /// Whether `number`, which is the next one, is to be skipped.
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
