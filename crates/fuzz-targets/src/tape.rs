//! Bytes read as instructions.

/// Takes numbers and slices off the front of some bytes; past the end everything is zero or empty.
#[derive(Debug, Clone, Copy)]
pub struct Tape<'a>(&'a [u8]);

impl<'a> Tape<'a> {
    /// A tape with these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// The next two bytes, big endian.
    pub fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// A slice that follows its length in one byte.
    pub fn slice(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (slice, rest) = self.0.split_at(len);
        self.0 = rest;
        slice
    }

    /// An index below `count`, which is not zero.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }
}
