//! The bytes that measurements move.
//!
//! A gateway between the two ends may compress, and may leave out bytes that have crossed the link
//! before. This content therefore repeats only on demand.
//!
//! The content is a short repeated block. A few bytes of each KiB depend on the stream and the
//! position. Gateways cut chunks of 4 KiB at least, so all chunks differ. The block does not repeat
//! within one unit of compression. This costs far less time than random numbers for all bytes.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::OnceLock,
};

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Kind of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Payload {
    /// Random bytes, which do not shrink and have never been sent before: measures the path.
    #[default]
    Random,
    /// Freshly generated text that resembles log lines. Compression shrinks it to half or less.
    Text,
    /// Zeros. Compression removes nearly all of them.
    Zeros,
}

/// A stream of such bytes.
pub(crate) struct PayloadStream {
    payload: Payload,
    id: u64,
    /// How far it is ahead of the first byte.
    at: u64,
    buffer: Vec<u8>,
    /// Bytes of the buffer that have been sent.
    sent: usize,
}

impl Payload {
    /// Makes the blocks, which takes milliseconds that no measurement should count.
    pub(crate) fn prepare(self) {
        self.block();
    }

    /// The bytes of the stream `id` from `at` on.
    pub(crate) fn fill(self, id: u64, mut at: u64, mut into: &mut [u8]) {
        let block = self.block();
        while !into.is_empty() {
            let start = (at % block.len() as u64) as usize;
            let count = into.len().min(block.len() - start);
            let (piece, rest) = into.split_at_mut(count);
            piece.copy_from_slice(&block[start..start + count]);
            if self != Self::Zeros {
                self.mark(id, at, piece);
            }
            at += count as u64;
            into = rest;
        }
    }

    /// Writes bytes into each KiB that depend on this stream and position.
    fn mark(self, id: u64, at: u64, piece: &mut [u8]) {
        let end = at + piece.len() as u64;
        let mut mark = at - at % MARK_INTERVAL;
        while mark < end {
            let value = xxh3_64_with_seed(&mark.to_le_bytes(), id);
            let bytes = match self {
                Self::Text => *format!("{:08x}", value as u32)
                    .as_bytes()
                    .first_chunk()
                    .expect("eight digits"),
                Self::Random | Self::Zeros => value.to_le_bytes(),
            };
            for (place, byte) in (mark..).zip(bytes) {
                if (at..end).contains(&place) {
                    piece[(place - at) as usize] = byte;
                }
            }
            mark += MARK_INTERVAL;
        }
    }

    fn block(self) -> &'static [u8] {
        static RANDOM: OnceLock<Vec<u8>> = OnceLock::new();
        static TEXT: OnceLock<Vec<u8>> = OnceLock::new();
        static ZEROS: [u8; 4096] = [0; 4096];
        match self {
            Self::Random => RANDOM.get_or_init(|| {
                let mut block = vec![0; BLOCK_BYTES];
                Pcg64::seed_from_u64(unique()).fill_bytes(&mut block);
                block
            }),
            Self::Text => TEXT.get_or_init(text),
            Self::Zeros => &ZEROS,
        }
    }
}

impl PayloadStream {
    /// Creates a stream whose bytes differ from the bytes of all other streams.
    pub(crate) fn new(payload: Payload) -> Self {
        Self {
            payload,
            id: unique(),
            at: 0,
            buffer: Vec::new(),
            sent: 0,
        }
    }

    /// The next bytes: `most` of them, or [`STEP_MAX_BYTES`] if that is less.
    pub(crate) fn ahead(&mut self, most: u64) -> &[u8] {
        let count = most.min(STEP_MAX_BYTES as u64) as usize;
        if self.buffer.len() - self.sent < count {
            self.buffer.resize(BUFFER_BYTES, 0);
            self.payload.fill(self.id, self.at, &mut self.buffer);
            self.sent = 0;
        }
        &self.buffer[self.sent..self.sent + count]
    }

    /// Advances by `count` sent bytes.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count;
        self.at += count as u64;
    }
}

/// A number that no other run has.
pub(crate) fn unique() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn text() -> Vec<u8> {
    let mut random = Pcg64::seed_from_u64(unique());
    let mut text = Vec::with_capacity(BLOCK_BYTES + 100);
    while text.len() < BLOCK_BYTES {
        let number = random.next_u64();
        let line = format!(
            "2026-11-27 12:00:{:02} host-{} request {:08x} took {} ms\n",
            number % 60,
            number / 60 % 16,
            number >> 32,
            number / 960 % 977,
        );
        text.extend_from_slice(line.as_bytes());
    }
    text.truncate(BLOCK_BYTES);
    text
}

/// Maximum number of bytes requested at once.
pub(crate) const STEP_MAX_BYTES: usize = 128 * 1024;

/// Steps are whole though the kernel takes parts of them.
const BUFFER_BYTES: usize = 4 * STEP_MAX_BYTES;

/// More than gateways compress at once, 256 KiB, and a prime number, so that no step divides it.
const BLOCK_BYTES: usize = 524_309;

/// Less than a gateway's smallest chunk, 4 KiB.
const MARK_INTERVAL: u64 = 1024;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn taken(stream: &mut PayloadStream, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            let piece = stream.ahead((count - bytes.len()) as u64).to_vec();
            // As a kernel does that has little room.
            let some = piece.len().min(70_001);
            bytes.extend_from_slice(&piece[..some]);
            stream.advance(some);
        }
        bytes
    }

    #[test]
    fn no_4_kib_are_like_others_in_any_stream_at_any_place() {
        for payload in [Payload::Random, Payload::Text] {
            let mut seen = HashSet::new();
            for _ in 0..2 {
                let bytes = taken(&mut PayloadStream::new(payload), 3 * BLOCK_BYTES);
                // Where the block repeats, at each shift that a chunk may have.
                for start in (0..bytes.len() - 4096).step_by(97) {
                    seen.insert(xxh3_64_with_seed(&bytes[start..start + 4096], 0));
                }
            }
            let all = 2 * (3 * BLOCK_BYTES - 4096).div_ceil(97);
            assert_eq!(seen.len(), all, "{payload:?}");
        }
    }

    #[test]
    fn a_stream_is_the_same_however_it_is_taken() {
        for payload in [Payload::Random, Payload::Text, Payload::Zeros] {
            let mut stream = PayloadStream::new(payload);
            let id = stream.id;
            let bytes = taken(&mut stream, 1_000_000);
            for (at, count) in [(0, 1_000_000), (1_021, 9), (524_300, 2_000), (999_999, 1)] {
                let mut piece = vec![1; count];
                payload.fill(id, at as u64, &mut piece);
                assert!(piece == bytes[at..at + count], "{payload:?} {at}");
            }
        }
    }

    #[test]
    fn text_is_text_and_random_bytes_are_all_there_are() {
        let text = taken(&mut PayloadStream::new(Payload::Text), 1_000_000);
        assert!(
            text.iter()
                .all(|it| it.is_ascii_graphic() || b" \n".contains(it))
        );
        let random = taken(&mut PayloadStream::new(Payload::Random), 1_000_000);
        let mut counts = [0; 256];
        random.iter().for_each(|it| counts[usize::from(*it)] += 1);
        assert!(counts.iter().all(|it| (3_400..4_500).contains(it)));
    }
}
