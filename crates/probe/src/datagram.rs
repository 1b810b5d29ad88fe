//! The probe's datagrams: a header of fixed length, then padding.

/// The purpose of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramPurpose {
    /// Part of a numbered stream.
    Data,
    /// Shows the peer a client's address and port as they are after address translation.
    Open,
    /// The peer sends this datagram back.
    Echo,
    /// An echo from the peer.
    Answer,
}

/// The header of each datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Purpose of the datagram.
    pub kind: DatagramPurpose,
    /// Identifies the test.
    pub id: u64,
    /// Counts from 0.
    pub number: u64,
    /// Time of sending by the sender's clock, in nanoseconds since 1970.
    pub sent_ns: u64,
}

/// Length of a header, and shortest datagram of the probe.
pub const HEADER_BYTES: usize = 32;

impl Header {
    /// Reads a header; `None` if the datagram is not one of the probe's.
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

    /// Writes the header over the beginning of `into`.
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

/// Marks the probe's datagrams; the last byte is the version.
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
