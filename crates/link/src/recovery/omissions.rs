//! Packet numbers that are never sent.
//!
//! A peer that reports packets which it did not receive can make a sender go on at a rate that the path does not
//! carry (RFC 9000 section 21.4). The sender leaves out a number now and then. A report of such a number
//! is a lie.

use crate::{
    secret::{Purpose, Secret},
    wire::packet::ConnectionId,
};

/// Chooses the numbers to leave out.
#[derive(Debug)]
pub(crate) struct Omissions {
    secret: Secret,
    connection: ConnectionId,
    count: u64,
    next: u64,
}

/// Two numbers left out are this far apart at least. Each costs a few bytes in some reports.
const APART_MIN: u64 = 64;
/// ... and less than this.
const APART_MAX: u64 = 1024;

impl Omissions {
    pub(crate) fn new(secret: Secret, connection: ConnectionId) -> Self {
        let mut omissions = Self {
            secret,
            connection,
            count: 0,
            next: 0,
        };
        omissions.draw(0);
        omissions
    }

    /// Whether `number`, which is the next one, is to be left out.
    pub(crate) fn take(&mut self, number: u64) -> bool {
        let is_due = number >= self.next;
        if is_due {
            self.draw(number);
        }
        is_due
    }

    /// From now on no number is left out.
    #[cfg(test)]
    pub(super) fn never(&mut self) {
        self.next = u64::MAX;
    }

    fn draw(&mut self, after: u64) {
        let drawn = self
            .secret
            .number(Purpose::Omission, self.connection, self.count);
        self.count += 1;
        self.next = after + APART_MIN + drawn % (APART_MAX - APART_MIN);
    }
}
