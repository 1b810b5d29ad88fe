//! Handshake in progress. It repeats its flight of datagrams until the peer replies.

use std::{net::SocketAddr, time::Duration};

use crate::{
    AMPLIFICATION_MAX,
    connection::Transmit,
    handshake::{
        CRYPTO_PART_MAX, EncryptionLevel, Handshake,
        cookie::Cookie,
        envelope::{EnvelopeKey, Hello, HelloSender, KeyId},
    },
    time::Time,
    wire::packet::ConnectionId,
};

/// State of one handshake in progress, begun by this endpoint or by a peer.
pub(crate) struct Attempt {
    pub(crate) peer: usize,
    /// Index of the expected key among the keys of the peer.
    pub(crate) key: usize,
    pub(crate) we_initiate: bool,
    /// ID of this endpoint's key. An initiator writes it in its hellos.
    pub(crate) our_key: KeyId,
    pub(crate) our_id: ConnectionId,
    pub(crate) peer_id: Option<ConnectionId>,
    pub(crate) remote: SocketAddr,
    pub(crate) handshake: Handshake,
    /// Timestamp of the newest hello. An initiator has sent that hello, and a responder has
    /// received it.
    pub(crate) timestamp: u64,
    pub(crate) began: Time,
    pub(crate) flights: FlightProgress,
    /// Responder only: number of bytes that may still be sent to the source of the newest datagram.
    pub(crate) allowance: usize,
    /// Initiator only: the cookie from the responder, which must accompany each hello.
    pub(crate) cookie: Option<Cookie>,
    /// Responder only: address at which the initiator receives packets. A returned cookie has
    /// proved the address.
    pub(crate) proven: Option<SocketAddr>,
    /// Responder only: addresses to which this endpoint has sent flights of this handshake.
    pub(crate) answered: AnsweredAddresses,
    /// Highest packet number of a decrypted handshake packet, plus one.
    pub(crate) next_number: u32,
}

/// Addresses to which a responder has sent its flights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnsweredAddresses {
    None,
    Only(SocketAddr),
    /// More than one address. This endpoint does not know at which address the initiator received
    /// the flights.
    Several,
}

/// Progress of the current flight: number of transmissions so far, and datagrams still to send.
pub(crate) struct FlightProgress {
    pub(crate) count: u32,
    next: Time,
    /// Encryption level and crypto offset of each datagram that is still to be sent.
    unsent: Vec<(EncryptionLevel, usize)>,
}

/// Maximum size of a handshake datagram in bytes, rounded up.
const DATAGRAM_MAX: usize = 1280;
/// Time after which an unfinished handshake is dropped. A new handshake begins instead.
pub(crate) const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// Time until the first repetition of a flight.
///
/// On a path with 50 % loss and 200 ms round-trip time, the sender transmits five copies of each
/// datagram before a reply could arrive.
const FLIGHT_INTERVAL_MIN: Duration = Duration::from_millis(30);
/// Ratio of each interval between two repetitions to the previous interval.
const FLIGHT_INTERVAL_GROWTH: f64 = 1.2;
/// Maximum interval between two repetitions of a flight.
const FLIGHT_INTERVAL_MAX: Duration = Duration::from_secs(1);

impl FlightProgress {
    /// Creates the state of a first flight. Its first transmission is due at once.
    pub(crate) fn new(now: Time) -> Self {
        Self {
            count: 0,
            next: now,
            unsent: Vec::new(),
        }
    }
}

impl Attempt {
    /// Returns the time at which the flight must be sent again or the attempt must end.
    pub(crate) fn next_timeout(&self) -> Time {
        let over = self.began + ATTEMPT_MAX;
        self.flight_due().map_or(over, |due| due.min(over))
    }

    /// Returns the time of the next datagram. Returns `None` if the allowance permits no datagram,
    /// or if there is no flight to send. A responder has no flight while the peer's first flight is
    /// incomplete.
    fn flight_due(&self) -> Option<Time> {
        let levels = [EncryptionLevel::Initial, EncryptionLevel::Handshake];
        let mut flight = levels
            .map(|level| self.handshake.outgoing(level))
            .into_iter();
        if self.is_held_back() || flight.all(<[u8]>::is_empty) {
            return None;
        }
        Some(if self.flights.unsent.is_empty() {
            self.flights.next
        } else {
            Time::default()
        })
    }

    /// Handles a new datagram of the peer's first flight. The size of the datagram increases the
    /// number of bytes that may be sent in reply. If the datagram comes from a new address, the
    /// sizes of earlier datagrams no longer count.
    pub(crate) fn on_hello(&mut self, len: usize, from: SocketAddr) {
        if self.next_number == 0 {
            self.turn_to(from, len);
        }
    }

    /// Handles a handshake packet after decryption. If the packet is the newest handshake packet so
    /// far, a responder sends to the packet's source address from now on.
    ///
    /// An attacker can copy a hello and send it from another address. But only the peer can create
    /// a handshake packet, so the peer uses the source address of the newest handshake packet.
    pub(crate) fn on_opened(&mut self, number: u32, len: usize, from: SocketAddr) {
        if number >= self.next_number {
            self.next_number = number.saturating_add(1);
            self.turn_to(from, len);
        }
    }

    /// Changes the address of the peer and increases the allowance. An initiator has the
    /// responder's address from the start, so the method has no effect for an initiator.
    fn turn_to(&mut self, from: SocketAddr, len: usize) {
        if self.we_initiate {
            return;
        }
        if from != self.remote {
            self.remote = from;
            self.allowance = 0;
        }
        self.allowance += AMPLIFICATION_MAX * len;
    }

    /// Whether the peer has proved that it receives packets at the source address of its newest
    /// packet. A peer that has the handshake keys must have received a flight from this endpoint.
    pub(crate) fn is_remote_proven(&self) -> bool {
        self.we_initiate
            || self.proven == Some(self.remote)
            || self.answered == AnsweredAddresses::Only(self.remote)
    }

    fn is_held_back(&self) -> bool {
        !self.we_initiate && self.allowance < DATAGRAM_MAX
    }

    /// Makes this endpoint's next flight due at once, because TLS has processed new bytes of the
    /// peer.
    pub(crate) fn on_progress(&mut self, now: Time) {
        self.flights.next = now;
    }

    /// Appends the next datagram of the present flight to `out`, if one is due.
    pub(crate) fn poll_transmit(
        &mut self,
        out: &mut Vec<u8>,
        key: &EnvelopeKey,
        unix_ns: u64,
        now: Time,
    ) -> Option<Transmit> {
        if self.flight_due()? > now {
            return None;
        }
        if self.flights.unsent.is_empty() {
            self.begin_flight(unix_ns, now);
        }
        let (level, offset) = self.flights.unsent.pop()?;
        let start = out.len();
        match level {
            EncryptionLevel::Initial => {
                let bytes = &self.handshake.outgoing(level)[offset..];
                let from = match self.peer_id {
                    Some(id) if !self.we_initiate => HelloSender::Responder(id),
                    _ => HelloSender::Initiator(self.our_key),
                };
                let hello = Hello {
                    from,
                    timestamp: self.timestamp,
                    source: self.our_id,
                    cookie: self.cookie,
                    crypto_offset: offset as u16,
                    crypto: &bytes[..bytes.len().min(CRYPTO_PART_MAX)],
                };
                hello.put(out, key);
            }
            EncryptionLevel::Handshake => {
                let to = self
                    .peer_id
                    .expect("handshake keys come after the peer's first flight");
                self.handshake.put_packet(out, to, level, offset);
            }
        }
        let len = out.len() - start;
        self.allowance = self.allowance.saturating_sub(len);
        self.answered = match self.answered {
            AnsweredAddresses::None => AnsweredAddresses::Only(self.remote),
            AnsweredAddresses::Only(address) if address == self.remote => {
                AnsweredAddresses::Only(address)
            }
            AnsweredAddresses::Only(_) | AnsweredAddresses::Several => AnsweredAddresses::Several,
        };
        Some(Transmit {
            to: self.remote,
            segment_bytes: len,
        })
    }

    fn begin_flight(&mut self, unix_ns: u64, now: Time) {
        let factor = FLIGHT_INTERVAL_GROWTH.powi(self.flights.count.min(30) as i32);
        let interval = FLIGHT_INTERVAL_MIN.mul_f64(factor).min(FLIGHT_INTERVAL_MAX);
        self.flights.next = now + interval;
        self.flights.count += 1;
        if self.we_initiate {
            self.timestamp = unix_ns.max(self.timestamp + 1);
        }
        // The last level is added first, since datagrams are taken from the end of the list.
        for level in [EncryptionLevel::Handshake, EncryptionLevel::Initial] {
            let len = self.handshake.outgoing(level).len();
            let parts = (0..len).step_by(CRYPTO_PART_MAX);
            self.flights
                .unsent
                .extend(parts.rev().map(|offset| (level, offset)));
        }
    }
}
