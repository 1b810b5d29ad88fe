//! Positions of chunks, in memory: eight bytes for each.
//!
//! A name is hashed with a secret of this process, since a sender of content can search for names
//! that agree in some bits. The hash is the upper half of Σ kᵢwᵢ + k₀ modulo 2¹²⁸, over the four
//! words wᵢ of a name and random kᵢ. Any two names have the same hash with probability 2⁻⁶⁴
//! (Dietzfelbinger 1996). The upper part of the hash selects the shard, and 28 bits of it are the
//! tag. An entry is the tag, 16 bits of the segment's number, and 20 bits of the position in units
//! of 64 bytes.
//!
//! A shard is a sorted array of about 512 entries. It needs no free space, unlike an
//! open-addressing table, and a removed entry leaves no trace. Growth copies 4 KiB of one shard,
//! and the other shards stay available. An absent name matches an entry with a probability of 512 /
//! 2²⁸, which is 1 in 500,000. This costs one needless round trip in a minute at 1 Gbit/s of new
//! content.
//!
//! The module is public for its bench only.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{format::UNIT_BYTES, lock};
use crate::chunk::ChunkName;

/// Index of the positions of chunks by name.
pub struct ChunkIndex {
    keys: [u128; 5],
    shards: Box<[Mutex<Vec<u64>>]>,
    entries: AtomicU64,
    /// Number of entries that fit the allocated memory.
    capacity: AtomicU64,
}

/// Possible position of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordLocation {
    /// Last bits of the segment's number.
    pub segment: u16,
    /// Offset of the record, a multiple of 64. Never 0, the offset of the segment's header.
    pub offset: u32,
}

impl ChunkIndex {
    /// Creates an empty index that works best with about `entries` entries.
    pub fn new(seed: &[u8; 16], entries: u64) -> Self {
        let shards = (entries / SHARD_ENTRIES).clamp(1, SHARDS_MAX);
        let mut hasher = blake3::Hasher::new_derive_key(SEED_CONTEXT);
        hasher.update(seed);
        let mut bytes = [0; 80];
        hasher.finalize_xof().fill(&mut bytes);
        let (keys, _) = bytes.as_chunks();
        let mut next = keys.iter();
        let mut key = || next.next().map_or(0, |bytes| u128::from_le_bytes(*bytes));
        Self {
            keys: [key(), key(), key(), key(), key()],
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            entries: AtomicU64::new(0),
            capacity: AtomicU64::new(0),
        }
    }

    /// Whether the index may contain a chunk. Another chunk with the same tag also counts.
    pub fn contains(&self, name: &ChunkName) -> bool {
        let (shard, tag) = self.place(name);
        let shard = lock(shard);
        let at = first(&shard, tag);
        shard.get(at).is_some_and(|entry| tag_of(*entry) == tag)
    }

    /// Yields up to four possible positions of a chunk. The newest segment is not necessarily
    /// first.
    pub fn find(&self, name: &ChunkName) -> impl Iterator<Item = RecordLocation> + use<> {
        let (shard, tag) = self.place(name);
        let shard = lock(shard);
        let at = first(&shard, tag);
        let mut found = [None; FOUND_MAX];
        let same = shard[at..]
            .iter()
            .take_while(|entry| tag_of(**entry) == tag);
        for (found, entry) in found.iter_mut().zip(same) {
            *found = Some(location_of(*entry));
        }
        found.into_iter().flatten()
    }

    /// Adds the position of a chunk.
    pub fn insert(&self, name: &ChunkName, location: RecordLocation) {
        let (shard, tag) = self.place(name);
        let mut shard = lock(shard);
        let entry = entry(tag, location);
        let Err(at) = shard.binary_search(&entry) else {
            return;
        };
        if shard.len() == shard.capacity() {
            let before = shard.capacity();
            let more = (before / GROWTH).max(GROWTH);
            shard.reserve_exact(more);
            let grown = shard.capacity() - before;
            self.capacity.fetch_add(grown as u64, Relaxed);
        }
        shard.insert(at, entry);
        self.entries.fetch_add(1, Relaxed);
    }

    /// Removes the entry from `name` to `location`, if there is one.
    pub fn remove(&self, name: &ChunkName, location: RecordLocation) {
        let (shard, tag) = self.place(name);
        let mut shard = lock(shard);
        if let Ok(at) = shard.binary_search(&entry(tag, location)) {
            shard.remove(at);
            self.entries.fetch_sub(1, Relaxed);
        }
    }

    /// Removes all entries of a segment, in a pass over the whole index. Other threads can use
    /// shards during the pass.
    pub fn remove_segment(&self, segment: u16) {
        self.retain(|location| location.segment != segment);
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.retain(|_| false);
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u64 {
        self.entries.load(Relaxed)
    }

    /// Returns the bytes of memory of the index.
    pub fn memory_bytes(&self) -> u64 {
        let shards = size_of_val(&*self.shards) as u64;
        shards + self.capacity.load(Relaxed) * size_of::<u64>() as u64
    }

    fn retain(&self, keep: impl Fn(RecordLocation) -> bool) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let before = shard.len();
            shard.retain(|entry| keep(location_of(*entry)));
            let removed = before - shard.len();
            self.entries.fetch_sub(removed as u64, Relaxed);
        }
    }

    fn place(&self, name: &ChunkName) -> (&Mutex<Vec<u64>>, u64) {
        let [first, keys @ ..] = &self.keys;
        let (words, _) = name.0.as_chunks();
        let mut sum = *first;
        for (word, key) in words.iter().zip(keys) {
            let word = u128::from(u64::from_le_bytes(*word));
            sum = sum.wrapping_add(key.wrapping_mul(word));
        }
        let hash = (sum >> 64) as u64;
        let shard = (u128::from(hash) * self.shards.len() as u128) >> 64;
        (&self.shards[shard as usize], hash & TAG_MASK)
    }
}

/// Returns the index of the first entry with this tag.
fn first(shard: &[u64], tag: u64) -> usize {
    let least = tag << LOCATION_BITS;
    shard.partition_point(|entry| *entry < least)
}

fn entry(tag: u64, location: RecordLocation) -> u64 {
    let segment = u64::from(location.segment) << UNIT_BITS;
    let unit = u64::from(location.offset / UNIT_BYTES);
    (tag << LOCATION_BITS) | segment | unit
}

fn tag_of(entry: u64) -> u64 {
    entry >> LOCATION_BITS
}

fn location_of(entry: u64) -> RecordLocation {
    let unit = entry as u32 & ((1 << UNIT_BITS) - 1);
    RecordLocation {
        segment: (entry >> UNIT_BITS) as u16,
        offset: unit * UNIT_BYTES,
    }
}

const SEED_CONTEXT: &str = "longhaul 2026-11-27 index of a chunk store";

/// Entries of a shard when the index has its planned number of entries.
const SHARD_ENTRIES: u64 = 512;

/// Maximum number of shards: enough for 4 TB of chunks of 16 KiB. Beyond that 16 bits do not
/// distinguish the segments. 16 MiB.
const SHARDS_MAX: u64 = 1 << 19;

/// Divisor of a full shard's growth, and least number of added entries.
const GROWTH: usize = 16;

/// Maximum number of positions tried for a name.
const FOUND_MAX: usize = 4;

const TAG_MASK: u64 = (1 << (64 - LOCATION_BITS)) - 1;
const LOCATION_BITS: u32 = 16 + UNIT_BITS;

/// Bits of a position in a segment, in units.
const UNIT_BITS: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: u64) -> ChunkName {
        ChunkName::of(&n.to_le_bytes())
    }

    fn location(n: u64) -> RecordLocation {
        RecordLocation {
            segment: (n >> 12) as u16,
            offset: (n as u32 % 4096 + 1) * 256,
        }
    }

    #[test]
    fn what_is_inserted_is_found_until_it_is_removed() {
        let index = ChunkIndex::new(&[7; 16], 4_096);
        for n in 0..20_000 {
            index.insert(&name(n), location(n));
        }
        assert_eq!(index.entries(), 20_000);
        for n in 0..20_000 {
            assert!(index.contains(&name(n)));
            assert!(index.find(&name(n)).any(|found| found == location(n)));
        }
        let unknown = (20_000..1_020_000).filter(|n| index.contains(&name(*n)));
        assert!(unknown.count() < 100, "2,500 / 2^28 of a million is 10");
        for n in 0..10_000 {
            index.remove(&name(n), location(n));
        }
        assert_eq!(index.entries(), 10_000);
        assert!((0..10_000).filter(|n| index.contains(&name(*n))).count() < 3);
        assert!((10_000..20_000).all(|n| index.contains(&name(n))));
    }

    #[test]
    fn a_segment_goes_with_all_its_entries() {
        let index = ChunkIndex::new(&[7; 16], 4_096);
        for n in 0..12_288 {
            index.insert(&name(n), location(n));
        }
        index.remove_segment(1);
        assert_eq!(index.entries(), 8_192);
        assert!(index.find(&name(5_000)).next().is_none());
        assert_eq!(index.find(&name(9_000)).next(), Some(location(9_000)));
        index.clear();
        assert_eq!(index.entries(), 0);
    }

    #[test]
    fn the_same_place_twice_is_one_entry_and_two_places_are_two() {
        let index = ChunkIndex::new(&[7; 16], 0);
        for place in [1, 1, 5_000] {
            index.insert(&name(1), location(place));
        }
        assert_eq!(index.find(&name(1)).count(), 2);
        assert_eq!(index.entries(), 2);
    }

    #[test]
    fn the_extreme_places_survive() {
        let index = ChunkIndex::new(&[7; 16], 0);
        let last = RecordLocation {
            segment: u16::MAX,
            offset: ((1 << UNIT_BITS) - 1) * UNIT_BYTES,
        };
        index.insert(&name(1), last);
        assert_eq!(index.find(&name(1)).next(), Some(last));
    }
}
