//! Validation of a peer's new address: the peer must prove that it receives packets at that
//! address.
//!
//! Input: packets from another address, and responses to challenges. Output: challenges, and the
//! path to the new address.

use std::{net::SocketAddr, time::Duration};

use super::{Connection, Transmit, path::Path};
use crate::{
    AMPLIFICATION_MAX,
    secret::SecretPurpose,
    time::Time,
    wire::{frame::Frame, packet::OVERHEAD},
};

/// Maximum number of challenges that are sent to one candidate address.
const CHALLENGES_MAX: u32 = 8;
/// Pause after the first challenge. Each further pause is twice the previous pause. Every pause is
/// at least one round trip of the former path.
const PAUSE_FIRST: Duration = Duration::from_millis(25);
/// Minimum time for which the token of a challenge stays valid. The time is long because the new
/// path may have a much longer round trip. The token stays valid at least until the end of the
/// pause after the last challenge.
const TOKEN_LIFE: Duration = Duration::from_millis(6400);
/// Size in bytes of a packet that contains only a challenge.
const CHALLENGE_BYTES: usize = OVERHEAD + 1 + 8;

/// State of address validation. The state is kept when the connection moves to another path.
#[derive(Debug, Default)]
pub(super) struct Challenges {
    /// Number of addresses that have been challenged so far.
    count: u64,
    candidate: Option<Candidate>,
    /// Response to the peer's challenge: the token to return, and the address to return it to.
    pub(super) response: Option<([u8; 8], SocketAddr)>,
}

/// Unvalidated address from which packets of the peer arrived.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    address: SocketAddr,
    token: [u8; 8],
    next: Time,
    tries: u32,
    /// Number of bytes that may still be sent to the address. An attacker may have replayed the
    /// peer's packets from this address, so the amount of traffic to it is limited.
    allowance: usize,
    /// Time after which a response is ignored. Without this limit, a late response could redirect
    /// the traffic to an address that the peer has left.
    expires: Time,
}

impl Challenges {
    /// Returns the time of the next challenge to the candidate address, or `None` without a
    /// candidate.
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

    /// Records that a challenge was sent. `rtt` is the round-trip time of the former path.
    fn on_challenge(&mut self, rtt: Duration, now: Time) {
        self.next = now + rtt.max(PAUSE_FIRST * 2_u32.pow(self.tries));
        self.expires = self.expires.max(self.next);
        self.tries += 1;
        self.allowance -= CHALLENGE_BYTES;
    }

    /// Whether it is too late for a response to any challenge of this candidate.
    fn is_over(&self, now: Time) -> bool {
        self.expires <= now
    }
}

impl Connection {
    /// Writes a packet that returns the token of the peer's challenge.
    pub(super) fn write_response(&mut self, out: &mut Vec<u8>, now: Time) -> Option<Transmit> {
        let (token, to) = self.challenges.response.take()?;
        let transmit = self.write_single(out, to, &Frame::Response(token), now);
        let candidate = self.challenges.candidate.as_mut();
        if let Some(candidate) = candidate.filter(|c| c.address == to) {
            candidate.allowance = candidate.allowance.saturating_sub(transmit.segment_bytes);
        }
        Some(transmit)
    }

    /// Writes a packet with a challenge to the candidate address.
    pub(super) fn write_challenge(&mut self, out: &mut Vec<u8>, now: Time) -> Option<Transmit> {
        let rtt = self.path.rtt.smoothed();
        let candidate = self.challenges.candidate.as_mut()?;
        candidate.on_challenge(rtt, now);
        let (address, token) = (candidate.address, candidate.token);
        Some(self.write_single(out, address, &Frame::Challenge(token), now))
    }

    /// Handles a returned token. If the token and the source address match the candidate, the
    /// connection moves to that address.
    pub(super) fn on_response(&mut self, token: [u8; 8], from: SocketAddr, now: Time) {
        if self
            .challenges
            .candidate
            .is_some_and(|it| it.token == token && it.address == from && !it.is_over(now))
        {
            self.follow(from, now);
        }
    }

    /// Sends all packets to `address` from now on. If the address belongs to another host, the path
    /// starts without the measurements of the former path.
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
        // Packets in flight on the old path do not measure the new path. Their loss does not count.
        self.sent.begin_path(now);
        self.liveness.on_outage_end(now);
        self.liveness.want_ping();
    }

    /// Starts address validation after the newest packet arrived from another address. Validation
    /// is needed because an attacker may have replayed the packet from that address.
    pub(super) fn consider_address(&mut self, from: SocketAddr, len: usize, now: Time) {
        let allowance = AMPLIFICATION_MAX * len;
        let candidate = self.challenges.candidate.as_mut();
        if let Some(candidate) = candidate.filter(|c| c.address == from && !c.is_over(now)) {
            candidate.allowance += allowance;
            return;
        }
        self.challenge(from, allowance, now);
    }

    /// Starts to challenge `address`. At most `allowance` bytes may be sent to it before it is
    /// validated.
    pub(super) fn challenge(&mut self, address: SocketAddr, allowance: usize, now: Time) {
        // The token is unpredictable, so that a peer cannot respond for an address at which it
        // receives no packets.
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
