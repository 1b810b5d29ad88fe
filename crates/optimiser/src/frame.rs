//! Encoding of the frames of a coded stream as bytes.
//!
//! A frame consists of a type byte, fields in big-endian order, and a body that the fields
//! describe. All lengths are limited. A receiver needs at most [`BLOCK_MAX`] bytes of memory for
//! the content of a frame.
//!
//! | type | fields | body |
//! |---|---|---|
//! | 0, end | count of all bytes (8), XXH3-128 of all bytes (16) | none: stream or part ends |
//! | 1, stored | length (3) | bytes |
//! | 2, compressed | length (3), coded length (3) | coded bytes, a Zstandard frame |
//! | 3, cuts | count (2) | for each chunk in later blocks: length minus one (2) |
//! | 4, references | count (2) | for each chunk: length minus one (2), name (32) |
//! | 5, lists | count (2) | for each list of chunks: length minus one (2), name (32) |

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::{
    chunk::{CHUNK_MAX, ChunkName, NAME_BYTES},
    zstd_block::BLOCK_MAX,
};

/// The type and the fields of a frame, without its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameHead {
    /// Last frame of a stream, or of a part of a stream.
    End {
        /// Number of all bytes so far before coding.
        total_bytes: u64,
        /// XXH3-128 of all bytes so far before coding.
        hash: u128,
    },
    /// A block of uncompressed bytes.
    Stored {
        /// Number of bytes, from one to [`BLOCK_MAX`].
        bytes: usize,
    },
    /// A block of compressed bytes.
    Compressed {
        /// Number of bytes before compression, from one to [`BLOCK_MAX`].
        bytes: usize,
        /// Number of compressed bytes. It is less than `bytes`.
        coded_bytes: usize,
    },
    /// Lengths of chunks whose bytes follow in later frames.
    Cuts {
        /// Number of lengths, from one to [`CUTS_MAX`].
        count: usize,
    },
    /// References to chunks, which replace the bytes of the chunks.
    References {
        /// Number of references, from one to [`REFERENCES_MAX`].
        count: usize,
    },
    /// References to lists, which replace the bytes of all chunks in the lists.
    Lists {
        /// Number of references, from one to [`REFERENCES_MAX`].
        count: usize,
    },
}

/// Reference to a chunk that the receiver may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkReference {
    /// Number of bytes of the chunk.
    pub bytes: usize,
    /// Name of the chunk.
    pub name: ChunkName,
}

/// Error for bytes that are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The type byte is unknown.
    #[error("a frame of unknown type {0}")]
    UnknownType(u8),
    /// A length in a frame of this type exceeds its limits.
    #[error("a frame of type {0} with a length out of bounds")]
    OutOfBounds(u8),
}

impl FrameHead {
    /// Appends the encoded head to `out`.
    pub fn encode(self, out: &mut BytesMut) {
        match self {
            Self::End { total_bytes, hash } => {
                out.put_u8(END);
                out.put_u64(total_bytes);
                out.put_u128(hash);
            }
            Self::Stored { bytes } => {
                out.put_u8(STORED);
                out.put_uint(bytes as u64, 3);
            }
            Self::Compressed { bytes, coded_bytes } => {
                out.put_u8(COMPRESSED);
                out.put_uint(bytes as u64, 3);
                out.put_uint(coded_bytes as u64, 3);
            }
            Self::Cuts { count } => {
                out.put_u8(CUTS);
                out.put_u16(count as u16);
            }
            Self::References { count } => {
                out.put_u8(REFERENCES);
                out.put_u16(count as u16);
            }
            Self::Lists { count } => {
                out.put_u8(LISTS);
                out.put_u16(count as u16);
            }
        }
    }

    /// Decodes the head at the start of `bytes`. Returns the head and its encoded length, or `None`
    /// if the head is incomplete.
    ///
    /// # Errors
    /// [`FrameError`] if the bytes cannot be the start of a frame.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((&kind, fields)) = bytes.split_first() else {
            return Ok(None);
        };
        let length = match kind {
            END => 24,
            STORED => 3,
            COMPRESSED => 6,
            CUTS | REFERENCES | LISTS => 2,
            other => return Err(FrameError::UnknownType(other)),
        };
        let Some(fields) = fields.get(..length) else {
            return Ok(None);
        };
        let number = |from: usize, count: usize| -> u128 {
            let field = &fields[from..from + count];
            field.iter().fold(0, |n, &byte| n << 8 | u128::from(byte))
        };
        let within = |value: usize, max: usize| match (1..=max).contains(&value) {
            true => Ok(value),
            false => Err(FrameError::OutOfBounds(kind)),
        };
        let head = match kind {
            END => Self::End {
                total_bytes: number(0, 8) as u64,
                hash: number(8, 16),
            },
            STORED => Self::Stored {
                bytes: within(number(0, 3) as usize, BLOCK_MAX)?,
            },
            COMPRESSED => {
                let bytes = within(number(0, 3) as usize, BLOCK_MAX)?;
                Self::Compressed {
                    bytes,
                    coded_bytes: within(number(3, 3) as usize, bytes - 1)?,
                }
            }
            CUTS => Self::Cuts {
                count: within(number(0, 2) as usize, CUTS_MAX)?,
            },
            REFERENCES => Self::References {
                count: within(number(0, 2) as usize, REFERENCES_MAX)?,
            },
            _ => Self::Lists {
                count: within(number(0, 2) as usize, REFERENCES_MAX)?,
            },
        };
        #[cfg(fuzz_canary)]
        if let Self::Cuts { count } = head {
            assert!(count % 64 != 37, "canary: in the decoder of frames");
        }
        Ok(Some((head, 1 + length)))
    }

    /// Returns the number of bytes of the body.
    pub fn body_bytes(self) -> usize {
        match self {
            Self::End { .. } => 0,
            Self::Stored { bytes } => bytes,
            Self::Compressed { coded_bytes, .. } => coded_bytes,
            Self::Cuts { count } => count * LENGTH_BYTES,
            Self::References { count } | Self::Lists { count } => count * REFERENCE_BYTES,
        }
    }
}

/// Appends the encoded length of a chunk.
pub fn put_length(out: &mut BytesMut, bytes: usize) {
    assert!((1..=CHUNK_MAX).contains(&bytes), "chunks are bounded");
    #[cfg(fuzz_canary)]
    assert!(
        bytes >= 4096 || bytes % 64 != 45,
        "canary: in the encoder of lengths"
    );
    out.put_u16((bytes - 1) as u16);
}

/// Decodes the lengths of chunks in the body of a frame of cuts.
pub fn lengths(body: &[u8]) -> impl Iterator<Item = usize> + '_ {
    body.chunks_exact(LENGTH_BYTES).map(length)
}

/// Appends an encoded reference.
pub fn put_reference(out: &mut BytesMut, reference: &ChunkReference) {
    put_length(out, reference.bytes);
    out.put_slice(&reference.name.0);
}

/// Decodes the references in the body of a frame of references or lists.
pub fn references(body: &[u8]) -> impl Iterator<Item = ChunkReference> + '_ {
    body.chunks_exact(REFERENCE_BYTES).map(|field| {
        let (bytes, name) = field.split_at(LENGTH_BYTES);
        let mut of = [0; NAME_BYTES];
        of.copy_from_slice(name);
        ChunkReference {
            bytes: length(bytes),
            name: ChunkName(of),
        }
    })
}

fn length(field: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([field[0], field[1]])) + 1
}

/// Encodes a frame without a body.
pub fn encode_head(head: FrameHead) -> Bytes {
    let mut out = BytesMut::with_capacity(HEAD_MAX);
    head.encode(&mut out);
    out.freeze()
}

/// Maximum number of lengths in one frame of cuts.
pub const CUTS_MAX: usize = 1024;

/// Maximum number of references in one frame.
pub const REFERENCES_MAX: usize = 1024;

/// Maximum number of bytes of an encoded head.
pub const HEAD_MAX: usize = 25;

/// Number of bytes of an encoded chunk length. The encoded value is the length less one, so two
/// bytes suffice for 64 KiB.
const LENGTH_BYTES: usize = 2;

/// Number of bytes of one encoded reference.
pub const REFERENCE_BYTES: usize = LENGTH_BYTES + NAME_BYTES;

const END: u8 = 0;
const STORED: u8 = 1;
const COMPRESSED: u8 = 2;
const CUTS: u8 = 3;
const REFERENCES: u8 = 4;
const LISTS: u8 = 5;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn heads_come_back_and_wait_for_their_last_byte() {
        for head in [
            FrameHead::End {
                total_bytes: u64::MAX,
                hash: 1 << 127 | 3,
            },
            FrameHead::Stored { bytes: BLOCK_MAX },
            FrameHead::Compressed {
                bytes: BLOCK_MAX,
                coded_bytes: 17,
            },
            FrameHead::Cuts { count: CUTS_MAX },
            FrameHead::References { count: 1 },
            FrameHead::Lists { count: 2 },
        ] {
            let bytes = encode_head(head);
            assert_eq!(FrameHead::decode(&bytes), Ok(Some((head, bytes.len()))));
            for end in 0..bytes.len() {
                assert_eq!(
                    FrameHead::decode(&bytes[..end]),
                    Ok(None),
                    "{head:?} at {end}"
                );
            }
        }
    }

    #[test]
    fn lengths_out_of_bounds_are_refused() {
        for bytes in [
            &[STORED, 0, 0, 0][..],
            &[STORED, 4, 0, 1],
            &[COMPRESSED, 0, 0, 9, 0, 0, 9],
            &[COMPRESSED, 0, 0, 9, 0, 0, 0],
            &[CUTS, 0, 0],
            &[CUTS, 4, 1],
            &[REFERENCES, 255, 255],
        ] {
            assert_eq!(
                FrameHead::decode(bytes),
                Err(FrameError::OutOfBounds(bytes[0]))
            );
        }
        assert_eq!(FrameHead::decode(&[6]), Err(FrameError::UnknownType(6)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_head_or_an_error(bytes: Vec<u8>) {
            if let Ok(Some((head, length))) = FrameHead::decode(&bytes) {
                prop_assert_eq!(&encode_head(head)[..], &bytes[..length]);
            }
        }
    }
}
