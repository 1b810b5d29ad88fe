//! Queue of packets as bytes, for the client or for the server.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::Rope;

/// Queue of bytes for a peer. Small pieces are joined, and large pieces are not copied.
#[derive(Debug, Default)]
pub(crate) struct PacketQueue {
    pieces: VecDeque<Bytes>,
    /// Small pieces, joined into one. They follow all other pieces of the queue.
    joined: BytesMut,
    len: usize,
}

impl PacketQueue {
    /// Returns the number of bytes in the queue.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends the start of a packet: its length, type and request id.
    ///
    /// The caller appends the `body_len` bytes of its body next.
    pub(crate) fn put_head(&mut self, kind: u8, id: u32, body_len: usize) {
        self.put(&((5 + body_len) as u32).to_be_bytes());
        self.put(&[kind]);
        self.put(&id.to_be_bytes());
    }

    /// Appends a copy of a few bytes.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.joined.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends a string after its length.
    pub(crate) fn put_string(&mut self, string: &[u8]) {
        self.put(&(string.len() as u32).to_be_bytes());
        self.put(string);
    }

    /// Appends the bytes of a rope.
    pub(crate) fn put_rope(&mut self, rope: Rope) {
        for piece in rope {
            if piece.len() < COPIED_MAX {
                self.put(&piece);
            } else {
                self.flush();
                self.len += piece.len();
                self.pieces.push_back(piece);
            }
        }
    }

    fn flush(&mut self) {
        if !self.joined.is_empty() {
            self.pieces.push_back(self.joined.split().freeze());
        }
    }

    /// Removes and returns the next bytes.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        if self.pieces.is_empty() {
            self.flush();
        }
        let piece = self.pieces.pop_front()?;
        self.len -= piece.len();
        Some(piece)
    }
}

/// Length in bytes below which a piece is copied.
const COPIED_MAX: usize = 512;
