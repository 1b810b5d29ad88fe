//! The keys of a connection's data packets, and their update (RFC 9001 section 6).

use rustls::quic::{HeaderProtectionKey, Keys, PacketKey, PacketKeySet, Secrets};

use crate::wire::{
    Malformed,
    packet::{self},
};

/// Seals and opens data packets, and moves both directions to fresh keys together.
pub(crate) struct KeyRing {
    local_mask: Box<dyn HeaderProtectionKey>,
    remote_mask: Box<dyn HeaderProtectionKey>,
    secrets: Secrets,
    phase: bool,
    local: Box<dyn PacketKey>,
    remote: Box<dyn PacketKey>,
    previous_remote: Option<Box<dyn PacketKey>>,
    next: PacketKeySet,
    /// Packets sealed under the present keys.
    sealed: u64,
    /// Lowest packet number opened under the present keys; `None` before the peer uses them.
    first_opened: Option<u64>,
}

/// Packets sealed before the keys are replaced: half of what RFC 9001 section 6.6 allows AES-GCM.
const PACKETS_PER_KEY: u64 = 1 << 22;

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
        }
    }

    /// Whether the next packet's header must show the odd key phase. Replaces the keys first, when
    /// they have sealed enough packets.
    pub(crate) fn phase_for_sealing(&mut self) -> bool {
        if self.sealed >= PACKETS_PER_KEY && self.first_opened.is_some() {
            self.rotate();
        }
        self.phase
    }

    /// Seals the packet that starts at `start` of `out`.
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

    /// Opens a data packet. `expected` is one past the highest number opened so far; `is_new` says
    /// whether a number can still be accepted, so that a duplicate costs no decryption. Returns the
    /// number and the payload, or `Ok(None)` for a duplicate.
    pub(crate) fn open<'a>(
        &mut self,
        datagram: &'a mut [u8],
        expected: u64,
        is_new: impl Fn(u64) -> bool,
    ) -> Result<Option<(u64, &'a [u8])>, Malformed> {
        let (truncated, phase) = packet::unmask(datagram, self.remote_mask.as_ref())?;
        let number = packet::expand_number(truncated, expected);
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

    fn rotate(&mut self) {
        let fresh = self.secrets.next_packet_keys();
        let PacketKeySet { local, remote } = std::mem::replace(&mut self.next, fresh);
        self.local = local;
        self.previous_remote = Some(std::mem::replace(&mut self.remote, remote));
        self.phase = !self.phase;
        self.sealed = 0;
        self.first_opened = None;
    }
}
