//! Hash tables with connection IDs or stream numbers as keys. Several look-ups are needed for each
//! packet, so the hash function is a single multiplication.
//!
//! The standard library's hash function takes a tenth of the processing time of a packet. It also
//! protects against attackers who select keys with equal hashes. This protection is not needed
//! here: this gateway generates the connection IDs, and an authenticated peer may open only a
//! limited number of streams. Do not use these tables for keys that a stranger can select.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// Hash table with keys that this gateway generates, or that peers select within their limits.
pub(crate) type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Fast hash function for short keys.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        // The table uses the low bits as the position of an entry, and the high bits to distinguish
        // entries at neighbouring positions.
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(ODD);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

/// 2^64 divided by the golden ratio. Multiplication by this number distributes consecutive numbers
/// evenly (D. Knuth, vol. 3, section 6.4).
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use std::hash::Hash;

    use super::*;

    #[test]
    fn numbers_as_streams_have_them_spread_over_a_table() {
        for step in [1, 2, 4, 1 << 16] {
            let mut places = [0u32; 256];
            let mut tags = [0u32; 128];
            for number in 0..4096u32 {
                let mut hasher = IdHasher::default();
                (number * step).hash(&mut hasher);
                let hash = hasher.finish();
                places[hash as usize % 256] += 1;
                tags[(hash >> 57) as usize] += 1;
            }
            let (places, tags) = (places.iter().max(), tags.iter().max());
            assert!(places <= Some(&48), "{step}: {places:?} of 16 on average");
            assert!(tags <= Some(&96), "{step}: {tags:?} of 32 on average");
        }
    }
}
