//! The fields of message bodies: big-endian integers, and bytes after a two-byte length.

use super::WireError;

/// Reads the fields of one body.
pub(super) struct Reader<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(kind: u8, body: &'a [u8]) -> Self {
        Self { kind, rest: body }
    }

    pub(super) fn malformed(&self) -> WireError {
        WireError::Malformed(self.kind)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(self.malformed())?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("so many were taken"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from(self.u16()?) << 16 | u32::from(self.u16()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// A byte that must be 0 or 1.
    pub(super) fn flag(&mut self) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed()),
        }
    }

    /// One bit for each flag, the lowest first.
    pub(super) fn flags<const N: usize>(&mut self) -> Result<[bool; N], WireError> {
        let bits = self.u8()?;
        if u32::from(bits) >> N != 0 {
            return Err(self.malformed());
        }
        Ok(std::array::from_fn(|at| bits >> at & 1 == 1))
    }

    /// Bytes after their length.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.u16()?;
        self.take(length.into())
    }

    /// A text after its length.
    pub(super) fn text(&mut self) -> Result<String, WireError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.malformed())
    }

    /// All remaining bytes.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest).to_vec()
    }

    /// Checks that no bytes remain.
    pub(super) fn end<T>(self, value: T) -> Result<T, WireError> {
        if self.rest.is_empty() {
            Ok(value)
        } else {
            Err(self.malformed())
        }
    }
}

/// Appends one bit for each flag, the lowest first.
pub(super) fn put_flags<const N: usize>(body: &mut Vec<u8>, flags: [bool; N]) {
    let bits = flags.iter().enumerate();
    body.push(bits.fold(0, |byte, (at, &flag)| byte | u8::from(flag) << at));
}

/// Appends a text behind its length, cut at [`TEXT_MAX`].
pub(super) fn put_text(body: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    body.extend_from_slice(&(end as u16).to_be_bytes());
    body.extend_from_slice(&text.as_bytes()[..end]);
}

/// Longest text in a message: a host name or a sentence.
const TEXT_MAX: usize = 512;
