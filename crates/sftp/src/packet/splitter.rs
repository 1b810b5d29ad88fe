//! Packets in a stream of bytes.

use bytes::{Bytes, BytesMut};

use super::PACKET_MAX;
use crate::{Rope, SftpError};

/// Splitter of a byte stream into packets.
///
/// The splitter does not limit the bytes that the caller pushes at once. The caller must take all
/// packets after each push. The splitter then holds less than one packet of at most [`PACKET_MAX`]
/// bytes.
#[derive(Debug, Default)]
pub struct PacketSplitter {
    pieces: Rope,
    /// Small pieces, joined into one. If each byte were a separate piece, the pieces would use much
    /// memory.
    joined: BytesMut,
}

impl PacketSplitter {
    /// Appends bytes of the stream. The cuts between calls do not matter.
    pub fn push(&mut self, bytes: Bytes) {
        if bytes.len() < JOINED_MAX {
            self.joined.extend_from_slice(&bytes);
        } else {
            self.flush();
            self.pieces.push(bytes);
        }
    }

    fn flush(&mut self) {
        if !self.joined.is_empty() {
            self.pieces.push(self.joined.split().freeze());
        }
    }

    /// Returns the number of bytes that no packet contains yet.
    pub fn buffered_bytes(&self) -> usize {
        self.pieces.len() + self.joined.len()
    }

    /// Removes and returns the next packet without its length. The packet begins with its type.
    ///
    /// # Errors
    /// [`SftpError::PacketLength`] if the length is zero or exceeds [`PACKET_MAX`]. The stream
    /// cannot continue then.
    pub fn next_packet(&mut self) -> Result<Option<Rope>, SftpError> {
        let mut length = [0; 4];
        if !self.pieces.peek(&mut length) {
            if self.buffered_bytes() < length.len() {
                return Ok(None);
            }
            self.flush();
            self.pieces.peek(&mut length);
        }
        let length = u32::from_be_bytes(length);
        if length == 0 || length as usize > PACKET_MAX {
            return Err(SftpError::PacketLength(length));
        }
        let whole = 4 + length as usize;
        if self.buffered_bytes() < whole {
            return Ok(None);
        }
        if self.pieces.len() < whole {
            self.flush();
        }
        self.pieces.advance(4);
        Ok(Some(self.pieces.split_to(length as usize)))
    }
}

/// Length in bytes below which a piece is copied.
const JOINED_MAX: usize = 512;
