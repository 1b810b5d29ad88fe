//! Arbitrary bytes, read as instructions.

/// Reader that removes numbers and slices from the front of a byte slice. After the last byte,
/// numbers are zero and slices are empty.
#[derive(Debug, Clone, Copy)]
pub struct Tape<'a>(&'a [u8]);

impl<'a> Tape<'a> {
    /// Creates a tape with these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns whether all bytes have been removed.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes and returns the next byte.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// Removes the next two bytes, and returns them as a big-endian number.
    pub fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// Removes and returns a slice. A byte with its length precedes the slice.
    pub fn slice(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (slice, rest) = self.0.split_at(len);
        self.0 = rest;
        slice
    }

    /// Removes a byte, and converts it to an index below `count`. `count` must not be zero.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }
}
