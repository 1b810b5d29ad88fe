//! Keys of a connection's data packets, and their update (RFC 9001 section 6).

use rustls::quic::{HeaderProtectionKey, Keys, PacketKey, PacketKeySet, Secrets};

use crate::wire::{Malformed, packet, varint};

/// Packet keys of a connection. The key ring encrypts and decrypts data packets, and updates the
/// keys of both directions together.
pub(crate) struct KeyRing {
    local_mask: Box<dyn HeaderProtectionKey>,
    remote_mask: Box<dyn HeaderProtectionKey>,
    secrets: Secrets,
    phase: bool,
    local: Box<dyn PacketKey>,
    remote: Box<dyn PacketKey>,
    previous_remote: Option<Box<dyn PacketKey>>,
    next: PacketKeySet,
    /// Number of packets encrypted with the present keys.
    sealed: u64,
    /// Lowest packet number decrypted with the present keys. `None` until the peer uses these keys.
    first_opened: Option<u64>,
    /// Number of packets that no available key could decrypt.
    failed: u64,
}

/// Number of packets encrypted before the keys are replaced. The number is half of the limit for
/// AES-GCM in RFC 9001 section 6.6.
const PACKETS_PER_KEY: u64 = 1 << 22;
/// Maximum number of packets encrypted with keys that the peer has not started to use: the limit of
/// RFC 9001 section 6.6.
const PACKETS_PER_KEY_MAX: u64 = 1 << 23;
/// Maximum number of packets that cannot be decrypted: the limit for ChaCha20-Poly1305 in RFC 9001
/// section 6.6. The limit for AES-GCM is higher.
const FAILED_MAX: u64 = 1 << 36;

impl KeyRing {
    pub(crate) fn new(keys: Keys, mut secrets: Secrets) -> Self {
        let next = secrets.next_packet_keys();
        Self {
            local_mask: keys.local.header,
            remote_mask: keys.remote.header,
            secrets,
            phase: false,
            local: keys.local.packet,
            remote: keys.remote.packet,
            previous_remote: None,
            next,
            sealed: 0,
            first_opened: None,
            failed: 0,
        }
    }

    /// Whether the keys have reached a usage limit. The connection must then end.
    pub(crate) fn is_worn_out(&self) -> bool {
        self.sealed >= PACKETS_PER_KEY_MAX || self.failed >= FAILED_MAX
    }

    /// Returns whether the header of the next packet must have the key phase bit set. If the
    /// present keys have encrypted enough packets, the method first replaces them.
    pub(crate) fn phase_for_sealing(&mut self) -> bool {
        if self.sealed >= PACKETS_PER_KEY && self.first_opened.is_some() {
            self.rotate();
        }
        self.phase
    }

    /// Encrypts the packet that starts at offset `start` of `out`.
    pub(crate) fn seal(&mut self, out: &mut Vec<u8>, start: usize, number: u64) {
        self.sealed += 1;
        packet::seal(
            out,
            start,
            number,
            self.local.as_ref(),
            Some(self.local_mask.as_ref()),
        );
    }

    /// Decrypts a data packet. Returns the packet number and the payload, or `Ok(None)` for a
    /// duplicate.
    ///
    /// `expected` is the highest packet number decrypted so far plus one. `is_new` returns whether
    /// a packet number can still be accepted, so that a duplicate is dropped without decryption.
    pub(crate) fn open<'a>(
        &mut self,
        datagram: &'a mut [u8],
        expected: u64,
        is_new: impl Fn(u64) -> bool,
    ) -> Result<Option<(u64, &'a [u8])>, Malformed> {
        let opened = self.try_open(datagram, expected, is_new);
        self.failed += u64::from(opened.is_err());
        opened
    }

    fn try_open<'a>(
        &mut self,
        datagram: &'a mut [u8],
        expected: u64,
        is_new: impl Fn(u64) -> bool,
    ) -> Result<Option<(u64, &'a [u8])>, Malformed> {
        let (truncated, phase) = packet::unmask(datagram, self.remote_mask.as_ref())?;
        let number = packet::expand_number(truncated, expected);
        if number > varint::MAX {
            return Err(Malformed);
        }
        if !is_new(number) {
            return Ok(None);
        }
        if phase == self.phase {
            let payload = packet::open(datagram, number, self.remote.as_ref())?;
            self.first_opened = Some(self.first_opened.map_or(number, |first| first.min(number)));
            return Ok(Some((number, payload)));
        }
        let is_older = self.first_opened.is_none_or(|first| number < first);
        if let Some(previous) = self.previous_remote.as_ref().filter(|_| is_older) {
            return packet::open(datagram, number, previous.as_ref()).map(|p| Some((number, p)));
        }
        let payload = packet::open(datagram, number, self.next.remote.as_ref())?;
        self.rotate();
        self.first_opened = Some(number);
        Ok(Some((number, payload)))
    }

    pub(super) fn rotate(&mut self) {
        let fresh = self.secrets.next_packet_keys();
        let PacketKeySet { local, remote } = std::mem::replace(&mut self.next, fresh);
        self.local = local;
        self.previous_remote = Some(std::mem::replace(&mut self.remote, remote));
        self.phase = !self.phase;
        self.sealed = 0;
        self.first_opened = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{handshake::tests::complete, wire::packet::ConnectionId};

    /// Returns the key rings of both sides of a connection.
    fn rings() -> [KeyRing; 2] {
        complete().map(|(keys, secrets, _)| KeyRing::new(keys, secrets))
    }

    fn seal(ring: &mut KeyRing, number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let phase = ring.phase_for_sealing();
        packet::put_data_header(&mut out, ConnectionId([7; 4]), number, phase);
        out.extend_from_slice(b"sixteen bytes or more");
        ring.seal(&mut out, 0, number);
        out
    }

    fn opens(ring: &mut KeyRing, mut packet: Vec<u8>) -> bool {
        let opened = ring.open(&mut packet, 0, |_| true);
        opened.is_ok_and(|opened| opened.is_some_and(|(_, payload)| payload.starts_with(b"six")))
    }

    #[test]
    fn the_peer_follows_a_key_update_and_opens_what_was_sealed_before_it() {
        let [mut a, mut b] = rings();
        assert!(opens(&mut a, seal(&mut b, 0)));
        let late = seal(&mut a, 0);
        a.sealed = PACKETS_PER_KEY;
        let first = seal(&mut a, 1);
        assert!(a.phase, "the update has begun");
        let crossing = seal(&mut b, 1);
        assert!(opens(&mut b, first) && b.phase, "it follows");
        assert!(opens(&mut b, late), "of the keys before");
        assert!(opens(&mut a, crossing), "of the keys before, too");
        assert!(opens(&mut a, seal(&mut b, 2)));
        for round in 3..10 {
            a.sealed = PACKETS_PER_KEY;
            assert!(opens(&mut b, seal(&mut a, round)), "and so on");
            assert!(opens(&mut a, seal(&mut b, round)));
            assert_eq!(a.phase, b.phase);
        }
    }

    #[test]
    fn a_number_that_no_report_could_tell_is_refused() {
        let [mut a, mut b] = rings();
        for (number, is_told) in [(varint::MAX, true), (varint::MAX + 1, false)] {
            let mut packet = seal(&mut a, number);
            let opened = b.open(&mut packet, varint::MAX, |_| true);
            assert_eq!(opened.is_ok(), is_told);
        }
    }

    #[test]
    fn both_sides_may_begin_an_update_at_once() {
        let [mut a, mut b] = rings();
        assert!(opens(&mut a, seal(&mut b, 0)) && opens(&mut b, seal(&mut a, 0)));
        (a.sealed, b.sealed) = (PACKETS_PER_KEY, PACKETS_PER_KEY);
        let crossing = [seal(&mut a, 1), seal(&mut b, 1)];
        let [from_a, from_b] = crossing;
        assert!(opens(&mut b, from_a) && opens(&mut a, from_b));
        assert!(a.phase && b.phase, "one update, not two");
    }

    #[test]
    fn a_forged_key_phase_moves_nothing() {
        let [mut a, mut b] = rings();
        for bit in 0..40 {
            let mut packet = seal(&mut a, bit as u64);
            packet[bit / 8] ^= 1 << (bit % 8);
            // The connection ID has no header protection, but it is authenticated.
            assert!(!opens(&mut b, packet), "bit {bit}");
        }
        assert!(!b.phase);
        assert!(opens(&mut b, seal(&mut a, 40)));
    }

    #[test]
    fn keys_wear_out_with_forged_packets_and_a_peer_that_does_not_follow() {
        let [mut a, mut b] = rings();
        b.failed = FAILED_MAX - 1;
        let mut forged = seal(&mut a, 0);
        forged[20] ^= 1;
        assert!(!b.is_worn_out());
        assert!(!opens(&mut b, forged) && b.is_worn_out());
        a.sealed = PACKETS_PER_KEY_MAX - 1;
        assert!(!a.is_worn_out());
        seal(&mut a, 1);
        assert!(
            a.is_worn_out(),
            "nothing of the peer was opened under these keys"
        );
    }
}
