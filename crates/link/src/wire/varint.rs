//! Variable-length integers according to RFC 9000 section 16.
//!
//! They have 1, 2, 4 or 8 bytes. The two most significant bits of the first byte encode the length.

/// Error: bytes could not be decoded, because they end too early or contain an invalid value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed packet")]
pub(crate) struct Malformed;

/// Largest value of a variable-length integer.
pub(crate) const MAX: u64 = (1 << 62) - 1;

/// Returns the encoded size of `value` in bytes.
pub(crate) const fn size(value: u64) -> usize {
    if value < 1 << 6 {
        1
    } else if value < 1 << 14 {
        2
    } else if value < 1 << 30 {
        4
    } else {
        8
    }
}

/// Appends the encoding of `value`.
pub(crate) fn put(out: &mut Vec<u8>, value: u64) {
    assert!(value <= MAX, "a varint holds at most 62 bits");
    match size(value) {
        1 => out.push(value as u8),
        2 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        4 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Appends the encoding of a signed number. Numbers near zero have a short encoding.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Reader of bytes from the start of a slice. Each read checks the remaining length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByteReader<'a>(pub(crate) &'a [u8]);

impl<'a> ByteReader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = tail;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = tail;
        Ok(*head)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let first = *self.0.first().ok_or(Malformed)?;
        Ok(match first >> 6 {
            0 => u64::from(self.byte()?),
            1 => u64::from(u16::from_be_bytes(self.array()?) & 0x3fff),
            2 => u64::from(u32::from_be_bytes(self.array()?) & 0x3fff_ffff),
            _ => u64::from_be_bytes(self.array()?) & MAX,
        })
    }

    /// Reads a variable-length integer that must fit into 32 bits.
    pub(crate) fn varint_u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.varint()?).map_err(|_| Malformed)
    }

    /// Reads a signed number that [`put_signed`] wrote.
    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Checks the sample encodings of RFC 9000 appendix A.1.
    #[test]
    fn samples_of_rfc_9000_decode() {
        for (bytes, value) in [
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..],
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d][..], 494_878_333),
            (&[0x7b, 0xbd][..], 15_293),
            (&[0x25][..], 37),
        ] {
            assert_eq!(ByteReader(bytes).varint(), Ok(value));
        }
    }

    proptest! {
        #[test]
        fn what_is_put_reads_back(value in 0..=MAX) {
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(out.len(), size(value));
            let mut reader = ByteReader(&out);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn what_is_put_with_a_sign_reads_back(value in -(1i64 << 61)..1 << 61) {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            prop_assert_eq!(ByteReader(&out).signed(), Ok(value));
        }
    }
}
