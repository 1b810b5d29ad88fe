//! Validation of the peer's address: the peer must show that it receives there.
//!
//! The input is packets from another address, and answers to challenges. The output is challenges,
//! and the path to the new address.

use std::{net::SocketAddr, time::Duration};

use super::{Connection, Transmit, path::Path};
use crate::{
    AMPLIFICATION_MAX,
    secret::SecretPurpose,
    time::Time,
    wire::{frame::Frame, packet::OVERHEAD},
};

/// Challenges sent to an address before it is abandoned.
const CHALLENGES_MAX: u32 = 8;
/// Pause after the first challenge. Each pause is twice the previous one, and at least a round trip
/// of the former path.
const PAUSE_FIRST: Duration = Duration::from_millis(25);
/// Time for which the token of a challenge is valid, since the new path may be much longer. The
/// token also stays valid until the pause after the last challenge is over.
const TOKEN_LIFE: Duration = Duration::from_millis(6400);
/// A packet with a challenge alone.
const CHALLENGE_BYTES: usize = OVERHEAD + 1 + 8;

/// State of the challenges. It outlasts the path to any address.
#[derive(Debug, Default)]
pub(super) struct Challenges {
    /// Number of addresses that have been challenged.
    count: u64,
    candidate: Option<Candidate>,
    /// Echo of the peer's challenge, and its destination.
    pub(super) response: Option<([u8; 8], SocketAddr)>,
}

/// Address from which the peer's packets came, not yet validated.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    address: SocketAddr,
    token: [u8; 8],
    next: Time,
    tries: u32,
    /// Bytes that may still be sent there: an attacker may have replayed the peer's packets from
    /// that address.
    allowance: usize,
    /// Time from which an answer is too late. A peer that has left an address must not receive its
    /// traffic there forever.
    expires: Time,
}

impl Challenges {
    /// Returns the time of the next challenge to the candidate.
    pub(super) fn due(&self) -> Option<Time> {
        self.candidate.map(|candidate| candidate.next_challenge())
    }
}

impl Candidate {
    fn next_challenge(&self) -> Time {
        if self.allowance < CHALLENGE_BYTES || self.tries == CHALLENGES_MAX {
            return Time::NEVER;
        }
        self.next
    }

    /// Records that a challenge was sent. The former path has the round-trip time `rtt`.
    fn on_challenge(&mut self, rtt: Duration, now: Time) {
        self.next = now + rtt.max(PAUSE_FIRST * 2_u32.pow(self.tries));
        self.expires = self.expires.max(self.next);
        self.tries += 1;
        self.allowance -= CHALLENGE_BYTES;
    }

    /// Whether an answer to any challenge would be too late.
    fn is_over(&self, now: Time) -> bool {
        self.expires <= now
    }
}

impl Connection {
    /// Writes the echo of a challenge.
    pub(super) fn write_response(&mut self, out: &mut Vec<u8>, now: Time) -> Option<Transmit> {
        let (token, to) = self.challenges.response.take()?;
        let transmit = self.write_single(out, to, &Frame::Response(token), now);
        let candidate = self.challenges.candidate.as_mut();
        if let Some(candidate) = candidate.filter(|c| c.address == to) {
            candidate.allowance = candidate.allowance.saturating_sub(transmit.segment_bytes);
        }
        Some(transmit)
    }

    /// Writes a challenge to the candidate.
    pub(super) fn write_challenge(&mut self, out: &mut Vec<u8>, now: Time) -> Option<Transmit> {
        let rtt = self.path.rtt.smoothed();
        let candidate = self.challenges.candidate.as_mut()?;
        candidate.on_challenge(rtt, now);
        let (address, token) = (candidate.address, candidate.token);
        Some(self.write_single(out, address, &Frame::Challenge(token), now))
    }

    /// Handles a returned challenge. If it was the candidate's, the peer has moved there.
    pub(super) fn on_response(&mut self, token: [u8; 8], from: SocketAddr, now: Time) {
        if self
            .challenges
            .candidate
            .is_some_and(|it| it.token == token && it.address == from && !it.is_over(now))
        {
            self.follow(from, now);
        }
    }

    /// Sends to `address` from now on. Measurements of the path to another host do not apply to
    /// this one.
    fn follow(&mut self, address: SocketAddr, now: Time) {
        self.challenges.candidate = None;
        if !self.path.move_to(address) {
            return;
        }
        self.path = Path::new(
            address,
            true,
            self.path.rtt.smoothed(),
            (self.controllers)(None, self.rate_max.ours()),
            now,
        );
        // Packets in flight on the old path measure nothing on the new one, and their loss does not
        // count.
        self.sent.begin_path(now);
        self.liveness.on_outage_end(now);
        self.liveness.want_ping();
    }

    /// Challenges another address from which the newest packet came. The packet may have been
    /// replayed from there.
    pub(super) fn consider_address(&mut self, from: SocketAddr, len: usize, now: Time) {
        let allowance = AMPLIFICATION_MAX * len;
        let candidate = self.challenges.candidate.as_mut();
        if let Some(candidate) = candidate.filter(|c| c.address == from && !c.is_over(now)) {
            candidate.allowance += allowance;
            return;
        }
        self.challenge(from, allowance, now);
    }

    /// Challenges `address`, with at most `allowance` bytes.
    pub(super) fn challenge(&mut self, address: SocketAddr, allowance: usize, now: Time) {
        // The peer must not answer for an address at which it does not receive.
        let token =
            self.secret
                .number(SecretPurpose::Challenge, self.our_id, self.challenges.count);
        self.challenges.count += 1;
        self.challenges.candidate = Some(Candidate {
            address,
            token: token.to_be_bytes(),
            next: now,
            tries: 0,
            allowance,
            expires: now + TOKEN_LIFE,
        });
    }
}
