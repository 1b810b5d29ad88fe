//! Bytes in several pieces, so that the bytes of a packet need no copy.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// Bytes in several pieces. Two ropes are equal if they contain the same bytes.
#[derive(Debug, Clone, Default)]
pub struct Rope {
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl Rope {
    /// Creates an empty rope.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the rope is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a piece.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Appends the pieces of another rope.
    pub fn append(&mut self, mut other: Self) {
        self.len += other.len;
        self.pieces.append(&mut other.pieces);
    }

    /// Inserts a piece before all others.
    pub(crate) fn push_front(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push_front(piece);
        }
    }

    /// Returns the pieces in order. No piece is empty.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter()
    }

    /// Removes and returns the first piece.
    pub fn pop(&mut self) -> Option<Bytes> {
        let piece = self.pieces.pop_front()?;
        self.len -= piece.len();
        Some(piece)
    }

    /// Removes and returns the first `count` bytes.
    ///
    /// # Panics
    /// Panics if the rope has fewer bytes.
    pub fn split_to(&mut self, count: usize) -> Self {
        assert!(count <= self.len, "the rope has {} bytes", self.len);
        let mut taken = Self::new();
        while taken.len < count {
            let wanted = count - taken.len;
            let first = self.pieces.front_mut().expect("the rope has more bytes");
            if first.len() > wanted {
                taken.push(first.split_to(wanted));
                self.len -= wanted;
            } else {
                taken.push(self.pop().expect("the rope has a first piece"));
            }
        }
        taken
    }

    /// Removes and returns the first `count` bytes in one piece. The bytes are copied only if they
    /// are in several pieces.
    ///
    /// # Panics
    /// Panics if the rope has fewer bytes.
    pub fn split_to_bytes(&mut self, count: usize) -> Bytes {
        assert!(count <= self.len, "the rope has {} bytes", self.len);
        match self.pieces.front_mut() {
            Some(first) if first.len() > count => {
                self.len -= count;
                first.split_to(count)
            }
            Some(first) if first.len() == count => self.pop().expect("the rope has a first piece"),
            _ => self.split_to(count).into_bytes(),
        }
    }

    /// Returns all bytes in one piece. The bytes are copied only if they are in several pieces.
    pub fn into_bytes(mut self) -> Bytes {
        if self.pieces.len() <= 1 {
            return self.pop().unwrap_or_default();
        }
        let mut joined = BytesMut::with_capacity(self.len);
        for piece in &self.pieces {
            joined.extend_from_slice(piece);
        }
        joined.freeze()
    }

    /// Removes the first `count` bytes.
    ///
    /// # Panics
    /// Panics if the rope has fewer bytes.
    pub(crate) fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "the rope has {} bytes", self.len);
        while count > 0 {
            let first = self.pieces.front_mut().expect("the rope has more bytes");
            if first.len() > count {
                first.advance(count);
                self.len -= count;
                return;
            }
            count -= self.pop().expect("the rope has a first piece").len();
        }
    }

    /// Fills `target` with the first bytes, and returns whether the rope has enough bytes.
    pub(crate) fn peek(&self, target: &mut [u8]) -> bool {
        if self.len < target.len() {
            return false;
        }
        let mut filled = 0;
        for piece in &self.pieces {
            let count = piece.len().min(target.len() - filled);
            target[filled..filled + count].copy_from_slice(&piece[..count]);
            filled += count;
            if filled == target.len() {
                break;
            }
        }
        true
    }
}

impl PartialEq for Rope {
    fn eq(&self, other: &Self) -> bool {
        let bytes = |rope: &Self| rope.pieces.clone().into_iter().flatten();
        self.len == other.len && bytes(self).eq(bytes(other))
    }
}

impl Eq for Rope {}

impl From<Bytes> for Rope {
    fn from(bytes: Bytes) -> Self {
        let mut rope = Self::new();
        rope.push(bytes);
        rope
    }
}

impl From<Vec<u8>> for Rope {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl FromIterator<Bytes> for Rope {
    fn from_iter<T: IntoIterator<Item = Bytes>>(pieces: T) -> Self {
        let mut rope = Self::new();
        pieces.into_iter().for_each(|piece| rope.push(piece));
        rope
    }
}

impl IntoIterator for Rope {
    type Item = Bytes;
    type IntoIter = std::collections::vec_deque::IntoIter<Bytes>;

    fn into_iter(self) -> Self::IntoIter {
        self.pieces.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cuts_keep_the_bytes(pieces: Vec<Vec<u8>>, cut: usize) {
            let whole: Vec<u8> = pieces.concat();
            let mut rope: Rope = pieces.into_iter().map(Bytes::from).collect();
            prop_assert_eq!(rope.len(), whole.len());
            let cut = cut % (whole.len() + 1);
            let mut peeked = vec![0; cut];
            prop_assert!(rope.peek(&mut peeked));
            let mut other = rope.clone();
            let front = rope.split_to(cut);
            prop_assert_eq!(&front.clone().into_bytes()[..], &whole[..cut]);
            prop_assert_eq!(&peeked, &whole[..cut]);
            prop_assert_eq!(&other.split_to_bytes(cut)[..], &whole[..cut]);
            prop_assert_eq!(&rope, &other);
            let mut joined = front;
            joined.append(rope);
            prop_assert_eq!(joined, Rope::from(whole));
        }
    }
}
