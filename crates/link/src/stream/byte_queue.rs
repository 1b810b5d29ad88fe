//! Queue of waiting bytes. Its memory is in proportion to the number of bytes, even if they were
//! written in very small pieces.
//!
//! Input: byte slices of any size. Output: the same bytes in the same order, possibly merged into
//! fewer pieces. The owner of the queue limits the number of bytes.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Waiting bytes, stored as a list of pieces.
///
/// [`push`](Self::push) merges adjacent small pieces. Two adjacent pieces therefore have more than
/// [`JOINED_MAX`] bytes together. Hence `n` bytes form at most `2 n / JOINED_MAX + 1` pieces.
///
/// Each piece needs a table entry of 32 bytes, or 64 bytes just after the table has grown. The
/// spare capacity of a merged piece is smaller than the piece itself. The total memory is less than
/// `2 n` + 8 KiB. A piece that was not merged keeps its original buffer alive, even if the piece is
/// only a part of that buffer.
///
/// Large pieces are never copied. A piece that is pushed to an empty queue is not copied either.
#[derive(Debug, Default)]
pub(crate) struct ByteQueue {
    whole: VecDeque<Bytes>,
    /// Last piece of the queue if it is a merged piece; otherwise empty.
    joined: Vec<u8>,
}

/// Maximum number of bytes of a merged piece. The table entry of such a piece is smaller than a
/// hundredth of the piece. Copying the bytes costs less than passing one more piece to the link.
const JOINED_MAX: usize = 4096;

impl ByteQueue {
    /// Appends bytes to the queue. An empty `data` changes nothing.
    pub(crate) fn push(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        let last_len = match self.joined.len() {
            0 => self.whole.back().map_or(0, Bytes::len),
            len => len,
        };
        let len = last_len + data.len();
        if last_len == 0 || len > JOINED_MAX {
            if !self.joined.is_empty() {
                self.whole
                    .push_back(std::mem::take(&mut self.joined).into());
            }
            self.whole.push_back(data);
            return;
        }
        if self.joined.capacity() < len {
            let capacity = (2 * len).min(JOINED_MAX);
            self.joined.reserve_exact(capacity - self.joined.len());
        }
        if self.joined.is_empty() {
            let last = self.whole.pop_back().expect("a last piece has a length");
            self.joined.extend_from_slice(&last);
        }
        self.joined.extend_from_slice(&data);
    }

    /// Removes the first pieces and returns them as one buffer of at most `len_max` bytes. If the
    /// first piece is larger than `len_max`, the function returns only this piece.
    pub(crate) fn pop_joined(&mut self, len_max: usize) -> Option<Bytes> {
        let (mut queue, mut len) = (0, 0);
        for piece in &self.whole {
            if len + piece.len() > len_max {
                break;
            }
            len += piece.len();
            queue += 1;
        }
        if queue <= 1 {
            return self.pop_front();
        }
        let mut joined = BytesMut::with_capacity(len);
        for piece in self.whole.drain(..queue) {
            joined.extend_from_slice(&piece);
        }
        Some(joined.freeze())
    }

    /// Removes and returns the first piece.
    pub(crate) fn pop_front(&mut self) -> Option<Bytes> {
        self.whole.pop_front().or_else(|| {
            let joined = std::mem::take(&mut self.joined);
            (!joined.is_empty()).then(|| joined.into())
        })
    }

    /// Returns the bytes of the piece at index `place`, or an empty slice behind the last piece.
    /// Only the last piece may still grow.
    pub(crate) fn get(&self, place: usize) -> &[u8] {
        self.whole.get(place).map_or_else(
            || {
                debug_assert_eq!(place, self.whole.len(), "behind the last piece");
                &self.joined[..]
            },
            |piece| &piece[..],
        )
    }

    /// Returns the number of pieces.
    pub(crate) fn len(&self) -> usize {
        self.whole.len() + usize::from(!self.joined.is_empty())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_of_any_size_come_out_as_the_same_bytes_and_are_few(
            turns in prop::collection::vec((0usize..10_000, 0u32..14, 0u8..8), 1..200),
        ) {
            let mut queue = ByteQueue::default();
            let mut written = Vec::new();
            let mut read = Vec::new();
            for (size, shift, turn) in turns {
                // Sizes of all magnitudes.
                let data: Vec<u8> = (0..size >> shift).map(|at| (written.len() + at) as u8).collect();
                written.extend_from_slice(&data);
                queue.push(data.into());
                match turn {
                    0 => read.extend(queue.pop_front().into_iter().flatten()),
                    1 => read.extend(queue.pop_joined(2 * JOINED_MAX).into_iter().flatten()),
                    _ => {}
                }
                let waiting = written.len() - read.len();
                prop_assert!(queue.len() <= 2 * waiting / JOINED_MAX + 1);
                prop_assert_eq!(queue.is_empty(), waiting == 0);
                prop_assert!(queue.joined.capacity() <= JOINED_MAX.min(2 * queue.joined.len()));
            }
            let seen: Vec<u8> = (0..queue.len()).flat_map(|place| queue.get(place)).copied().collect();
            prop_assert_eq!(&seen, &written[read.len()..]);
            while let Some(piece) = queue.pop_front() {
                read.extend_from_slice(&piece);
            }
            prop_assert_eq!(read, written);
        }
    }

    #[test]
    fn several_pieces_are_taken_at_once_if_they_are_small_together() {
        let mut queue = ByteQueue::default();
        for byte in 0..5 {
            queue.push(vec![byte; JOINED_MAX].into());
        }
        let mut lens = Vec::new();
        while let Some(taken) = queue.pop_joined(2 * JOINED_MAX) {
            lens.push(taken.len());
        }
        assert_eq!(lens, [2 * JOINED_MAX, 2 * JOINED_MAX, JOINED_MAX]);
        queue.push(vec![0; 3 * JOINED_MAX].into());
        let large = queue.pop_joined(2 * JOINED_MAX);
        assert_eq!(large.map(|piece| piece.len()), Some(3 * JOINED_MAX));
    }

    #[test]
    fn a_piece_alone_and_a_large_piece_are_not_copied() {
        let mut queue = ByteQueue::default();
        let small = Bytes::copy_from_slice(b"small");
        queue.push(small.clone());
        assert_eq!(
            queue.pop_front().map(|piece| piece.as_ptr()),
            Some(small.as_ptr())
        );
        let large = Bytes::from(vec![0; JOINED_MAX]);
        queue.push(small.clone());
        queue.push(large.clone());
        queue.push(small);
        queue.pop_front();
        assert_eq!(
            queue.pop_front().map(|piece| piece.as_ptr()),
            Some(large.as_ptr())
        );
    }
}
