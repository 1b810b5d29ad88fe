//! Datagrams of the probe. Each datagram has a header of fixed length and padding.

/// The purpose of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramPurpose {
    /// One datagram of a numbered stream.
    Data,
    /// Datagram from which the peer learns the client's address and port after address translation.
    Open,
    /// Datagram that the peer is to send back.
    Echo,
    /// Datagram that the peer has sent back.
    Answer,
}

/// The header of each datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Purpose of the datagram.
    pub kind: DatagramPurpose,
    /// Number of the test.
    pub id: u64,
    /// Number of the datagram, counted from 0.
    pub number: u64,
    /// Time at which the sender sent the datagram, in nanoseconds since 1970, according to the
    /// sender's clock.
    pub sent_ns: u64,
}

/// Length of a header in bytes, and length of the shortest datagram.
pub const HEADER_BYTES: usize = 32;

impl Header {
    /// Parses a header. Returns `None` if the datagram does not belong to the probe.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = bytes.get(..HEADER_BYTES)?.try_into().ok()?;
        if header[..4] != MAGIC {
            return None;
        }
        let kind = match header[4] {
            1 => DatagramPurpose::Data,
            2 => DatagramPurpose::Open,
            3 => DatagramPurpose::Echo,
            4 => DatagramPurpose::Answer,
            _ => return None,
        };
        let number = |at: usize| {
            let bytes = header[at..at + 8].try_into().expect("eight bytes");
            u64::from_be_bytes(bytes)
        };
        Some(Self {
            kind,
            id: number(8),
            number: number(16),
            sent_ns: number(24),
        })
    }

    /// Writes the header to the first bytes of `into`.
    ///
    /// # Panics
    /// If `into` is shorter than [`HEADER_BYTES`].
    pub fn write(&self, into: &mut [u8]) {
        into[..4].copy_from_slice(&MAGIC);
        into[4] = match self.kind {
            DatagramPurpose::Data => 1,
            DatagramPurpose::Open => 2,
            DatagramPurpose::Echo => 3,
            DatagramPurpose::Answer => 4,
        };
        into[5..8].fill(0);
        into[8..16].copy_from_slice(&self.id.to_be_bytes());
        into[16..24].copy_from_slice(&self.number.to_be_bytes());
        into[24..32].copy_from_slice(&self.sent_ns.to_be_bytes());
    }
}

/// First bytes of each datagram of the probe. The last byte is the version.
const MAGIC: [u8; 4] = *b"LHP\x01";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_reads_back(id: u64, number: u64, sent_ns: u64, kind in 0usize..4) {
            let kind = [DatagramPurpose::Data, DatagramPurpose::Open, DatagramPurpose::Echo, DatagramPurpose::Answer][kind];
            let header = Header { kind, id, number, sent_ns };
            let mut bytes = [7; HEADER_BYTES + 3];
            header.write(&mut bytes);
            prop_assert_eq!(Header::parse(&bytes), Some(header));
            prop_assert_eq!(Header::parse(&bytes[..HEADER_BYTES - 1]), None);
        }

        #[test]
        fn any_bytes_can_be_read(
            is_ours: bool,
            mut bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            if is_ours && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&MAGIC);
            }
            let _ = Header::parse(&bytes);
        }
    }
}
