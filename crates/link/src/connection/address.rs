//! Which address is the peer's: the one at which it has shown that it receives.
//!
//! In: packets from another address, and answers to challenges. Out: challenges, and the path to the new address.

use std::{net::SocketAddr, time::Duration};

use super::{Connection, Transmit, path::Path};
use crate::{
    AMPLIFICATION_MAX,
    secret::Purpose,
    time::Time,
    wire::{frame::Frame, packet::OVERHEAD},
};

/// Challenges sent to an address before it is given up.
const CHALLENGES_MAX: u32 = 8;
/// Pause behind the first challenge; each pause is twice the one before, and a round trip of the former path at
/// least.
const PAUSE_FIRST: Duration = Duration::from_millis(25);
/// The new path may be longer by far. The token of a challenge counts for this time, and until the pause behind the last
/// challenge is over.
const TOKEN_LIFE: Duration = Duration::from_millis(6400);
/// A packet with a challenge alone.
const CHALLENGE_BYTES: usize = OVERHEAD + 1 + 8;

/// What is asked and answered to find the peer's address. It outlasts the path to any address.
#[derive(Debug, Default)]
pub(super) struct Challenges {
    /// Addresses that have been challenged.
    count: u64,
    candidate: Option<Candidate>,
    /// Echo of the peer's challenge, and where it goes.
    pub(super) response: Option<([u8; 8], SocketAddr)>,
}

/// An address from which the peer's packets came, not yet proved to be the peer's.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    address: SocketAddr,
    token: [u8; 8],
    next: Time,
    tries: u32,
    /// Bytes that may still be sent there: the peer's packets may have been brought from elsewhere.
    allowance: usize,
    /// From then on an answer comes too late: who has left an address must not have it aimed at for ever.
    expires: Time,
}

impl Challenges {
    /// When the candidate is to be challenged next.
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

    /// A challenge leaves; the former path has this round-trip time.
    fn on_challenge(&mut self, rtt: Duration, now: Time) {
        self.next = now + rtt.max(PAUSE_FIRST * 2_u32.pow(self.tries));
        self.expires = self.expires.max(self.next);
        self.tries += 1;
        self.allowance -= CHALLENGE_BYTES;
    }

    /// An answer to any challenge would come too late.
    fn is_over(&self, now: Time) -> bool {
        self.expires <= now
    }
}

impl Connection {
    /// The echo of a challenge.
    pub(super) fn write_response(&mut self, out: &mut Vec<u8>, now: Time) -> Option<Transmit> {
        let (token, to) = self.challenges.response.take()?;
        let transmit = self.write_single(out, to, &Frame::Response(token), now);
        let candidate = self.challenges.candidate.as_mut();
        if let Some(candidate) = candidate.filter(|c| c.address == to) {
            candidate.allowance = candidate.allowance.saturating_sub(transmit.segment_bytes);
        }
        Some(transmit)
    }

    /// A challenge to the candidate.
    pub(super) fn write_challenge(&mut self, out: &mut Vec<u8>, now: Time) -> Option<Transmit> {
        let rtt = self.path.rtt.smoothed();
        let candidate = self.challenges.candidate.as_mut()?;
        candidate.on_challenge(rtt, now);
        let (address, token) = (candidate.address, candidate.token);
        Some(self.write_single(out, address, &Frame::Challenge(token), now))
    }

    /// A challenge came back: if it was the candidate's, the peer has moved there.
    pub(super) fn on_response(&mut self, token: [u8; 8], from: SocketAddr, now: Time) {
        if self
            .challenges
            .candidate
            .is_some_and(|it| it.token == token && it.address == from && !it.is_over(now))
        {
            self.follow(from, now);
        }
    }

    /// The peer receives at `address` from now on. What is known of the path to another host says nothing about
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
        // What is on its way on the old path measures nothing on the new one, and says nothing of its loss.
        self.sent.begin_path(now);
        self.liveness.on_outage_end(now);
        self.liveness.want_ping();
    }

    /// The newest packet came from another address: challenges that address, since the packet may have been
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

    /// Asks at `address` whether the peer receives there, by `allowance` bytes at most.
    pub(super) fn challenge(&mut self, address: SocketAddr, allowance: usize, now: Time) {
        // The peer must not answer for an address at which it does not receive.
        let token = self
            .secret
            .number(Purpose::Challenge, self.our_id, self.challenges.count);
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
