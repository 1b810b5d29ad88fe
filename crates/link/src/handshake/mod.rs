//! Handshake: TLS 1.3 with `rustls`. Each side repeats its flight of datagrams until the peer
//! replies.
//!
//! TLS bytes are exchanged as crypto bytes with an offset, at two encryption levels. The level
//! `Initial` uses the envelope, and the level `Handshake` uses handshake keys. There are no
//! acknowledgements. A new flight from the peer shows that this side's flight has arrived. Each
//! side therefore repeats its last flight until the next flight of the peer arrives.

pub(crate) mod cookie;
pub(crate) mod envelope;
pub(crate) mod tls;

use rustls::quic::{
    ClientConnection, Connection as Tls, KeyChange, Keys, Secrets, ServerConnection,
    Version as Quic,
};

use self::tls::{TlsConfig, TransportParameters};
use crate::wire::{
    Malformed,
    packet::{self, ConnectionId},
};

/// One side of a handshake.
pub(crate) struct Handshake {
    tls: Tls,
    /// Crypto bytes that this side sends at each level, starting at offset 0.
    outgoing: [Vec<u8>; 2],
    incoming: [CryptoBuffer; 2],
    write_level: usize,
    /// Keys of the level `Handshake`. `None` until TLS has derived them.
    pub(crate) keys: Option<Keys>,
    /// Packet number of the next handshake packet to send.
    pub(crate) next_number: u32,
    /// Keys for data packets. `None` until TLS has derived them.
    data_keys: Option<(Keys, Secrets)>,
    parameters: Option<TransportParameters>,
}

/// Encryption level of crypto bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EncryptionLevel {
    Initial = 0,
    Handshake = 1,
}

/// Reason why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("crypto bytes out of bounds")]
    Malformed(#[from] Malformed),
}

impl Handshake {
    pub(crate) fn client(
        tls: &TlsConfig,
        ours: &TransportParameters,
    ) -> Result<Self, HandshakeError> {
        let name = tls::SERVER_NAME
            .try_into()
            .expect("the name is a valid DNS name");
        let tls = ClientConnection::new(tls.client.clone(), Quic::V1, name, ours.encode())?;
        let mut handshake = Self::new(Tls::Client(tls));
        handshake.write();
        Ok(handshake)
    }

    pub(crate) fn server(
        tls: &TlsConfig,
        ours: &TransportParameters,
    ) -> Result<Self, HandshakeError> {
        let tls = ServerConnection::new(tls.server.clone(), Quic::V1, ours.encode())?;
        Ok(Self::new(Tls::Server(tls)))
    }

    fn new(tls: Tls) -> Self {
        Self {
            tls,
            outgoing: [Vec::new(), Vec::new()],
            incoming: [CryptoBuffer::default(), CryptoBuffer::default()],
            write_level: 0,
            keys: None,
            next_number: 0,
            data_keys: None,
            parameters: None,
        }
    }

    /// Processes crypto bytes from the peer. Returns whether new bytes were passed to TLS.
    pub(crate) fn read(
        &mut self,
        level: EncryptionLevel,
        offset: u16,
        bytes: &[u8],
    ) -> Result<bool, HandshakeError> {
        let buffer = &mut self.incoming[level as usize];
        buffer.insert(usize::from(offset), bytes)?;
        let ready = buffer.take_contiguous();
        if ready.is_empty() {
            return Ok(false);
        }
        self.tls.read_hs(&ready)?;
        if self.parameters.is_none()
            && let Some(bytes) = self.tls.quic_transport_parameters()
        {
            self.parameters = Some(TransportParameters::decode(bytes)?);
        }
        self.write();
        Ok(true)
    }

    /// Returns all crypto bytes that this side sends at `level`.
    pub(crate) fn outgoing(&self, level: EncryptionLevel) -> &[u8] {
        &self.outgoing[level as usize]
    }

    /// Appends one packet encrypted with handshake keys. It contains this side's crypto bytes at
    /// `level`, starting at `offset`.
    pub(crate) fn put_packet(
        &mut self,
        out: &mut Vec<u8>,
        to: ConnectionId,
        level: EncryptionLevel,
        offset: usize,
    ) {
        let keys = self
            .keys
            .as_ref()
            .expect("handshake keys exist before this flight");
        let start = out.len();
        packet::put_handshake_header(out, to, self.next_number);
        out.extend_from_slice(&(offset as u16).to_be_bytes());
        let bytes = &self.outgoing[level as usize][offset..];
        out.extend_from_slice(&bytes[..bytes.len().min(CRYPTO_PART_MAX)]);
        packet::seal(
            out,
            start,
            self.next_number.into(),
            keys.local.packet.as_ref(),
            None,
        );
        self.next_number += 1;
    }

    /// Decrypts a packet with the handshake keys. Returns the packet number, and the crypto bytes
    /// with their offset.
    pub(crate) fn open_packet<'a>(
        &self,
        datagram: &'a mut [u8],
    ) -> Result<(u32, u16, &'a [u8]), Malformed> {
        let keys = self.keys.as_ref().ok_or(Malformed)?;
        let number: [u8; 4] = datagram[5..9]
            .try_into()
            .expect("the header was classified");
        let number = u32::from_be_bytes(number);
        let payload = packet::open(datagram, number.into(), keys.remote.packet.as_ref())?;
        let (offset, bytes) = payload.split_first_chunk::<2>().ok_or(Malformed)?;
        Ok((number, u16::from_be_bytes(*offset), bytes))
    }

    /// Whether the peer has proved its identity and TLS has derived all keys.
    pub(crate) fn is_complete(&self) -> bool {
        let handshaking = match &self.tls {
            Tls::Client(tls) => tls.is_handshaking(),
            Tls::Server(tls) => tls.is_handshaking(),
        };
        !handshaking && self.data_keys.is_some() && self.parameters.is_some()
    }

    /// Returns the keys for data packets and the peer's parameters. Returns `None` before the
    /// handshake is complete, and after the values have been returned once.
    pub(crate) fn take_result(&mut self) -> Option<(Keys, Secrets, TransportParameters)> {
        if !self.is_complete() {
            return None;
        }
        let (keys, secrets) = self.data_keys.take()?;
        Some((keys, secrets, self.parameters?))
    }

    fn write(&mut self) {
        loop {
            let out = &mut self.outgoing[self.write_level.min(1)];
            let before = out.len();
            let mut fresh = Vec::new();
            let change = self.tls.write_hs(&mut fresh);
            // We send no crypto bytes after the handshake: session tickets are disabled.
            if self.write_level < 2 {
                out.extend_from_slice(&fresh);
            }
            let wrote = out.len() > before;
            match change {
                Some(KeyChange::Handshake { keys }) => {
                    self.keys = Some(keys);
                    self.write_level = 1;
                }
                Some(KeyChange::OneRtt { keys, next }) => {
                    self.data_keys = Some((keys, next));
                    self.write_level = 2;
                }
                None if wrote => {}
                None => return,
            }
        }
    }
}

/// Buffer that reassembles the crypto bytes of one level. A handshake has only a few kilobytes, so
/// the buffer stores one flag for each byte.
#[derive(Debug, Default)]
struct CryptoBuffer {
    bytes: Vec<u8>,
    present: Vec<bool>,
    taken: usize,
}

impl CryptoBuffer {
    fn insert(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Malformed> {
        let end = offset + bytes.len();
        if end > CRYPTO_BYTES_MAX {
            return Err(Malformed);
        }
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
            self.present.resize(end, false);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
        self.present[offset..end].fill(true);
        Ok(())
    }

    fn take_contiguous(&mut self) -> Vec<u8> {
        let run = self.present[self.taken..]
            .iter()
            .take_while(|present| **present)
            .count();
        let ready = self.bytes[self.taken..self.taken + run].to_vec();
        self.taken += run;
        ready
    }
}

/// Maximum number of crypto bytes in one datagram. With the largest header and MAC, the datagram
/// still fits into the minimum IPv6 MTU of 1280 bytes.
pub(crate) const CRYPTO_PART_MAX: usize = 1150;
/// Maximum number of crypto bytes of one level. The largest flight is a client hello with a
/// post-quantum key share, and has about 1.5 kB.
const CRYPTO_BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Identity, version::FrameVersion};

    /// Completes a handshake. Returns the results of the client and of the server.
    pub(crate) fn complete() -> [(Keys, Secrets, TransportParameters); 2] {
        complete_with([parameters(1), parameters(2)])
    }

    /// Completes a handshake in which client and server send the given parameters. Returns the
    /// results of both.
    fn complete_with(
        [client, server]: [TransportParameters; 2],
    ) -> [(Keys, Secrets, TransportParameters); 2] {
        let [a, b] = [[1; 32], [2; 32]].map(Identity::from_seed);
        let at_a = TlsConfig::new(&a, &b.public_key()).expect("the keys are valid");
        let at_b = TlsConfig::new(&b, &a.public_key()).expect("the keys are valid");
        let mut client = Handshake::client(&at_a, &client).expect("TLS starts");
        let mut server = Handshake::server(&at_b, &server).expect("TLS starts");
        exchange(&mut client, &mut server).expect("they know each other");
        [client, server].map(|mut side| side.take_result().expect("it is complete"))
    }

    fn parameters(instance: u64) -> TransportParameters {
        TransportParameters {
            version: FrameVersion::LATEST,
            instance,
            initial_window: 1024,
            stream_limit: 100,
            began_unix_ns: 1_700_000_000_000_000_000,
        }
    }

    fn exchange(client: &mut Handshake, server: &mut Handshake) -> Result<(), HandshakeError> {
        for _ in 0..4 {
            for level in [EncryptionLevel::Initial, EncryptionLevel::Handshake] {
                let bytes = client.outgoing(level).to_vec();
                if level == EncryptionLevel::Initial || server.keys.is_some() {
                    server.read(level, 0, &bytes)?;
                }
            }
            for level in [EncryptionLevel::Initial, EncryptionLevel::Handshake] {
                let bytes = server.outgoing(level).to_vec();
                if level == EncryptionLevel::Initial || client.keys.is_some() {
                    client.read(level, 0, &bytes)?;
                }
            }
        }
        Ok(())
    }

    #[test]
    fn two_pinned_identities_agree_on_keys_and_parameters() {
        let [(.., seen_by_client), (.., seen_by_server)] = complete();
        assert_eq!((seen_by_client.instance, seen_by_server.instance), (2, 1));
        assert_eq!(seen_by_client.version, FrameVersion::LATEST);
        assert_eq!(seen_by_server.version, FrameVersion::LATEST);
    }

    #[test]
    fn a_peer_of_the_previous_version_is_met_in_that_version_in_either_role() {
        let previous = TransportParameters {
            version: FrameVersion::V2,
            ..parameters(1)
        };
        let [(.., seen_by_client), _] = complete_with([parameters(2), previous]);
        assert_eq!(seen_by_client, previous);
        let [_, (.., seen_by_server)] = complete_with([previous, parameters(2)]);
        assert_eq!(seen_by_server, previous);
    }

    #[test]
    fn another_key_than_the_pinned_one_fails_on_either_side() {
        let [a, b, c] = [[1; 32], [2; 32], [3; 32]].map(Identity::from_seed);
        for (client_pins, server_pins) in [(&c, &a), (&b, &c)] {
            let at_a = TlsConfig::new(&a, &client_pins.public_key()).expect("the keys are valid");
            let at_b = TlsConfig::new(&b, &server_pins.public_key()).expect("the keys are valid");
            let mut client = Handshake::client(&at_a, &parameters(1)).expect("TLS starts");
            let mut server = Handshake::server(&at_b, &parameters(2)).expect("TLS starts");
            assert!(exchange(&mut client, &mut server).is_err());
        }
    }
}
