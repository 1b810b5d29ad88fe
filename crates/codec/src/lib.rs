//! Encoding of the messages between two gateways as bytes.
//!
//! The body of a message consists of fields. A field is a big-endian integer, a set of flags, or
//! bytes after a two-byte length. The fields of a message depend on the protocol [`Version`]. Each
//! service defines its own messages. The messages of FTP sessions are in the crate `ftp`, and the
//! messages of all other services are in `relay`.

/// Version of the messages between two gateways.
///
/// The gateway that opens the stream of a session states the version in its hello message. Both
/// gateways then use this version. A gateway supports the latest version and the previous version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Version {
    /// Version with reports of delivered bytes instead of grants. This version has no initial drain
    /// budgets for uploads.
    V5,
    /// The latest version.
    #[default]
    V6,
}

impl Version {
    /// The latest supported version.
    pub const LATEST: Self = Self::V6;

    /// The oldest supported version.
    pub const OLDEST: Self = Self::V5;

    /// Returns the version that a byte denotes. Returns `None` if this gateway does not support the
    /// version.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            5 => Some(Self::V5),
            6 => Some(Self::V6),
            _ => None,
        }
    }

    /// Returns the byte that denotes the version.
    pub fn byte(self) -> u8 {
        match self {
            Self::V5 => 5,
            Self::V6 => 6,
        }
    }
}

/// Reason why a body is not a valid message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The message type is unknown.
    #[error("unknown message type {0}")]
    UnknownType(u8),
    /// The body is not valid for its message type.
    #[error("malformed message of type {0}")]
    Malformed(u8),
}

/// Reader of the fields in one message body.
#[derive(Debug)]
pub struct Reader<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader for `body`, the body of a message of type `kind`.
    pub fn new(kind: u8, body: &'a [u8]) -> Self {
        Self { kind, rest: body }
    }

    /// Returns the error for a field with an invalid value.
    pub fn malformed(&self) -> BodyError {
        BodyError::Malformed(self.kind)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], BodyError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(self.malformed())?;
        self.rest = rest;
        Ok(taken)
    }

    /// Returns the next `N` bytes.
    ///
    /// # Errors
    /// [`BodyError::Malformed`] if fewer bytes remain.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], BodyError> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("the slice has N bytes"))
    }

    /// Returns the next byte.
    ///
    /// # Errors
    /// [`BodyError::Malformed`] if no byte remains.
    pub fn u8(&mut self) -> Result<u8, BodyError> {
        Ok(self.take(1)?[0])
    }

    /// Returns an integer of two bytes.
    ///
    /// # Errors
    /// [`BodyError::Malformed`] if fewer bytes remain.
    pub fn u16(&mut self) -> Result<u16, BodyError> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Returns an integer of four bytes.
    ///
    /// # Errors
    /// [`BodyError::Malformed`] if fewer bytes remain.
    pub fn u32(&mut self) -> Result<u32, BodyError> {
        Ok(u32::from(self.u16()?) << 16 | u32::from(self.u16()?))
    }

    /// Returns an integer of eight bytes.
    ///
    /// # Errors
    /// [`BodyError::Malformed`] if fewer bytes remain.
    pub fn u64(&mut self) -> Result<u64, BodyError> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// Returns a flag that occupies a whole byte.
    ///
    /// # Errors
    /// [`BodyError::Malformed`] if the byte is neither 0 nor 1, or no byte remains.
    pub fn flag(&mut self) -> Result<bool, BodyError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed()),
        }
    }

    /// Returns `N` flags that share one byte. The first flag is the lowest bit.
    ///
    /// # Errors
    /// [`BodyError::Malformed`] if a higher bit is set, or no byte remains.
    pub fn flags<const N: usize>(&mut self) -> Result<[bool; N], BodyError> {
        let bits = self.u8()?;
        if u32::from(bits) >> N != 0 {
            return Err(self.malformed());
        }
        Ok(std::array::from_fn(|at| bits >> at & 1 == 1))
    }

    /// Returns the bytes of a field that starts with its length.
    ///
    /// # Errors
    /// [`BodyError::Malformed`] if the body ends before the end of the field.
    pub fn bytes(&mut self) -> Result<&'a [u8], BodyError> {
        let length = self.u16()?;
        self.take(length.into())
    }

    /// Returns the text of a field that starts with its length.
    ///
    /// # Errors
    /// [`BodyError::Malformed`] if the text is not UTF-8, or the body ends before the end of the
    /// field.
    pub fn text(&mut self) -> Result<String, BodyError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.malformed())
    }

    /// Removes and returns all remaining bytes.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest).to_vec()
    }

    /// Returns `value` if no bytes remain.
    ///
    /// # Errors
    /// [`BodyError::Malformed`] if bytes remain.
    pub fn end<T>(self, value: T) -> Result<T, BodyError> {
        if self.rest.is_empty() {
            Ok(value)
        } else {
            Err(self.malformed())
        }
    }
}

/// Appends a byte with one bit for each flag. The first flag is the lowest bit.
pub fn put_flags<const N: usize>(body: &mut Vec<u8>, flags: [bool; N]) {
    let bits = flags.iter().enumerate();
    body.push(bits.fold(0, |byte, (at, &flag)| byte | u8::from(flag) << at));
}

/// Appends the length of a text and the text. A text of more than 512 bytes is truncated.
pub fn put_text(body: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    body.extend_from_slice(&(end as u16).to_be_bytes());
    body.extend_from_slice(&text.as_bytes()[..end]);
}

/// Maximum length in bytes of a text in a message, such as a host name or a sentence.
const TEXT_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_read_back(flags: [bool; 3], text in "[a-zé]{0,300}", number: u64) {
            let mut body = number.to_be_bytes().to_vec();
            put_flags(&mut body, flags);
            put_text(&mut body, &text);
            let mut reader = Reader::new(1, &body);
            prop_assert_eq!(reader.u64(), Ok(number));
            prop_assert_eq!(reader.flags(), Ok(flags));
            let read = reader.text().expect("well formed");
            prop_assert!(text.starts_with(&read) && read.len() >= text.len().min(TEXT_MAX - 1));
            prop_assert_eq!(reader.end(()), Ok(()));
        }
    }

    #[test]
    fn versions_read_back() {
        for version in [Version::OLDEST, Version::LATEST] {
            assert_eq!(Version::from_byte(version.byte()), Some(version));
        }
        let next = Version::LATEST.byte() + 1;
        assert_eq!(Version::from_byte(next), None);
        assert_eq!(Version::from_byte(Version::OLDEST.byte() - 1), None);
    }

    #[test]
    fn a_body_that_ends_early_is_malformed() {
        let mut reader = Reader::new(7, &[0, 9, 1]);
        assert_eq!(reader.text(), Err(BodyError::Malformed(7)));
        assert_eq!(Reader::new(7, &[2]).flag(), Err(BodyError::Malformed(7)));
        assert_eq!(Reader::new(7, &[2]).end(()), Err(BodyError::Malformed(7)));
    }
}
