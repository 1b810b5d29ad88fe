//! Content-defined chunks, and their names.
//!
//! Only the bytes themselves determine where a chunk ends. Equal bytes are therefore cut into equal
//! chunks at any position in a file. FastCDC (Xia et al., USENIX ATC 2016; normalised, in the form
//! of the year 2020) finds the ends of chunks. It uses a secret table of 256 random numbers, which
//! only the two gateways have.
//!
//! An attacker without the table cannot prepare bytes that are cut only into the smallest or the
//! largest chunks. The secret table also prevents the sizes of chunks from revealing their content
//! (eprint 2025/558).

use fastcdc::v2020::{MASKS, cut_gear};

/// Name of a chunk: the BLAKE3 hash of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkName(pub [u8; NAME_BYTES]);

impl ChunkName {
    /// Computes the name of `content`.
    pub fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }
}

impl std::fmt::Debug for ChunkName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for byte in &self.0[..8] {
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Cutter of a byte stream into chunks, with the secret table of two gateways.
#[derive(Clone)]
pub struct Cutter {
    gear: Box<[u64; 256]>,
    /// The secret table with each number shifted left by one. The search reads two bytes per step,
    /// and needs this table for one of the two bytes.
    gear_shifted: Box<[u64; 256]>,
}

impl std::fmt::Debug for Cutter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Cutter(***)")
    }
}

impl Cutter {
    /// Creates a cutter whose table is derived from `secret`.
    pub fn new(secret: &[u8; 32]) -> Self {
        let mut numbers = blake3::Hasher::new_keyed(secret)
            .update(b"longhaul gear table 1")
            .finalize_xof();
        let mut gear = Box::new([0; 256]);
        for number in gear.iter_mut() {
            let mut bytes = [0; 8];
            numbers.fill(&mut bytes);
            *number = u64::from_le_bytes(bytes);
        }
        let gear_shifted = Box::new(gear.map(|number| number << 1));
        Self { gear, gear_shifted }
    }

    /// Returns the length of the chunk at the start of `bytes`. Returns `None` if the end of the
    /// chunk has not arrived yet.
    ///
    /// If `is_end` is true, the stream ends after `bytes`, and the remaining bytes are a chunk.
    pub fn cut(&self, bytes: &[u8], is_end: bool) -> Option<usize> {
        let (_, length) = cut_gear(
            bytes,
            CHUNK_MIN,
            CHUNK_MEAN,
            CHUNK_MAX,
            MASKS[MEAN_BITS + 1],
            MASKS[MEAN_BITS - 1],
            MASKS[MEAN_BITS + 1] << 1,
            MASKS[MEAN_BITS - 1] << 1,
            &self.gear[..],
            &self.gear_shifted[..],
        );
        // A cut at the last byte has one of two causes: the content, or a lack of further bytes.
        let is_cut = length < bytes.len() || length == CHUNK_MAX || is_end;
        (is_cut && length > 0).then_some(length)
    }
}

/// Number that stands for the cutting algorithm, its version and the chunk sizes. This number and
/// the secret determine where chunks end.
///
/// Gateways with different numbers cut differently, and therefore send no references to each other.
pub const CUTTER_ID: u8 = 1;

/// Number of bytes in the name of a chunk.
pub const NAME_BYTES: usize = 32;

/// Minimum number of bytes of a chunk. Only the last chunk of a stream may be shorter.
pub const CHUNK_MIN: usize = 4 * 1024;

/// Average number of bytes of a chunk.
///
/// If 1 % of the 4 KiB blocks of a disk image have changed, one byte in 18 is in a changed chunk.
/// With an average of 64 KiB, one byte in six would be in a changed chunk.
pub const CHUNK_MEAN: usize = 1 << MEAN_BITS;

/// Maximum number of bytes of a chunk.
pub const CHUNK_MAX: usize = 64 * 1024;

/// Minimum number of bytes of a stored chunk. Sending a shorter chunk costs about as much as
/// sending a reference to it.
pub const KEPT_LEAST: usize = 1024;

const MEAN_BITS: usize = 14;

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_pcg::Pcg64;

    use super::*;

    fn cuts(cutter: &Cutter, mut bytes: &[u8]) -> Vec<ChunkName> {
        let mut names = Vec::new();
        while let Some(length) = cutter.cut(bytes, true) {
            names.push(ChunkName::of(&bytes[..length]));
            bytes = &bytes[length..];
        }
        names
    }

    fn random(count: usize, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0; count];
        Pcg64::seed_from_u64(seed).fill(&mut bytes[..]);
        bytes
    }

    #[test]
    fn shifted_bytes_have_the_same_chunks() {
        let cutter = Cutter::new(&[7; 32]);
        let bytes = random(4_000_000, 1);
        let mut shifted = vec![1, 2, 3, 4, 5, 6, 7];
        shifted.extend_from_slice(&bytes);
        let (before, after) = (cuts(&cutter, &bytes), cuts(&cutter, &shifted));
        let same = after.iter().filter(|name| before.contains(name)).count();
        assert!(before.len() > 150 && before.len() < 350, "{}", before.len());
        assert!(same + 4 >= before.len(), "{same} of {}", before.len());
    }

    #[test]
    fn another_secret_cuts_elsewhere() {
        let bytes = random(1_000_000, 2);
        let one = cuts(&Cutter::new(&[1; 32]), &bytes);
        let other = cuts(&Cutter::new(&[2; 32]), &bytes);
        assert!(one.iter().filter(|name| other.contains(name)).count() < 3);
    }

    #[test]
    fn a_chunk_ends_where_it_would_with_all_bytes_there() {
        let cutter = Cutter::new(&[3; 32]);
        let bytes = random(600_000, 3);
        let whole = cuts(&cutter, &bytes);
        let (mut names, mut buffer) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(1_000) {
            buffer.extend_from_slice(piece);
            while let Some(length) = cutter.cut(&buffer, false) {
                names.push(ChunkName::of(&buffer[..length]));
                buffer.drain(..length);
            }
        }
        names.extend(cuts(&cutter, &buffer));
        assert_eq!(names, whole);
    }

    #[test]
    fn sizes_are_bounded() {
        let cutter = Cutter::new(&[4; 32]);
        assert_eq!(cutter.cut(&[], true), None);
        assert_eq!(cutter.cut(&[0; 100], false), None);
        assert_eq!(cutter.cut(&[0; 100], true), Some(100));
        let length = cutter.cut(&vec![0; 1_000_000], false);
        assert!(length.is_some_and(|n| (CHUNK_MIN..=CHUNK_MAX).contains(&n)));
    }
}
