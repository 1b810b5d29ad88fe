//! Frames of a stream, and the fields in their bodies.

use bytes::{Bytes, BytesMut};
use sftp::Rope;

use super::WireError;

/// Frame of a stream, or a part of a frame with data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Complete frame.
    Whole {
        /// Type of the frame.
        kind: u8,
        /// Body of the frame.
        body: Rope,
    },
    /// Bytes of a frame with data. One frame consists of one or more pieces.
    Piece {
        /// Type of the frame.
        kind: u8,
        /// Next bytes of the body.
        data: Bytes,
    },
}

impl Frame {
    /// Returns the type of the frame.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Whole { kind, .. } | Self::Piece { kind, .. } => *kind,
        }
    }

    /// Whether the body of a frame of this type arrives in pieces.
    pub(super) fn has_pieces(kind: u8) -> bool {
        matches!(kind, DATA | EXTENDED | CODED)
    }
}

/// Returns the header of a frame. The body follows the header.
pub(crate) fn header(kind: u8, length: usize) -> Bytes {
    let mut header = BytesMut::with_capacity(HEADER_BYTES);
    put_header(&mut header, kind, length);
    header.freeze()
}

/// Appends the header of a frame.
pub(super) fn put_header(out: &mut BytesMut, kind: u8, length: usize) {
    let length = u32::try_from(length).expect("a body is shorter than 4 GiB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&[kind]);
}

/// Returns a complete frame.
pub(super) fn encode(kind: u8, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEADER_BYTES + body.len());
    put_header(&mut frame, kind, body.len());
    frame.extend_from_slice(body);
    frame.freeze()
}

/// Fields of one body, for reading.
#[derive(Debug)]
pub(super) struct Fields {
    kind: u8,
    rest: Bytes,
}

impl Fields {
    pub(super) fn new(kind: u8, body: Bytes) -> Self {
        Self { kind, rest: body }
    }

    pub(super) fn malformed(&self) -> WireError {
        WireError::Malformed(self.kind)
    }

    pub(super) fn take(&mut self, count: usize) -> Result<Bytes, WireError> {
        match self.rest.len() >= count {
            true => Ok(self.rest.split_to(count)),
            false => Err(self.malformed()),
        }
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn flag(&mut self) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed()),
        }
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        let bytes = self.take(8)?;
        Ok(u64::from_be_bytes(
            bytes[..].try_into().expect("eight bytes"),
        ))
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, WireError> {
        let length = usize::try_from(self.u32()?).map_err(|_| self.malformed())?;
        self.take(length)
    }

    pub(super) fn text(&mut self) -> Result<String, WireError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.malformed())
    }

    /// Reads a list. `item` reads one item.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let count = self.u32()?;
        if count > LIST_MAX {
            return Err(self.malformed());
        }
        (0..count).map(|_| item(self)).collect()
    }

    pub(super) fn end<T>(self, value: T) -> Result<T, WireError> {
        match self.rest.is_empty() {
            true => Ok(value),
            false => Err(self.malformed()),
        }
    }
}

/// Appends the length of a field and the field.
pub(super) fn put_bytes(body: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("a field is shorter than 4 GiB");
    body.extend_from_slice(&length.to_be_bytes());
    body.extend_from_slice(bytes);
}

/// Appends a list. `item` appends one item.
pub(super) fn put_list<T>(body: &mut Vec<u8>, items: &[T], item: impl Fn(&mut Vec<u8>, &T)) {
    let count = u32::try_from(items.len()).expect("a list is shorter than 4 GiB");
    body.extend_from_slice(&count.to_be_bytes());
    items.iter().for_each(|it| item(body, it));
}

/// Type of frames with data.
pub(super) const DATA: u8 = 2;

/// Type of frames with data for standard error.
pub(super) const EXTENDED: u8 = 3;

/// Number of bytes of a header.
pub(super) const HEADER_BYTES: usize = 5;

/// Maximum number of items in a list.
const LIST_MAX: u32 = 1024;

/// Type of frames with coded data.
pub(super) const CODED: u8 = 13;

/// Type of frames whose data are in earlier frames.
pub(super) const DETACHED: u8 = 14;
