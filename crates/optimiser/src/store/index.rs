//! Index of the positions of chunks, in memory, with eight bytes for each chunk.
//!
//! The index hashes names with a secret of this process. Without the secret, a sender of content
//! could search for names that agree in some bits. The hash is the upper half of Σ kᵢwᵢ + k₀ modulo
//! 2¹²⁸, over the four words wᵢ of a name and random kᵢ. Any two names have the same hash with
//! probability 2⁻⁶⁴ (Dietzfelbinger 1996).
//!
//! The upper bits of the hash select the shard, and 28 bits of the hash are the tag. An entry
//! consists of the tag, 16 bits of the segment's number, and 20 bits of the position in units of 64
//! bytes.
//!
//! A shard is a sorted array of about 512 entries. Unlike an open-addressing table, it needs no
//! free space, and a removed entry leaves no trace. When a shard grows, only its 4 KiB are copied,
//! and the other shards stay available.
//!
//! An absent name matches an entry with a probability of 512 / 2²⁸, which is 1 in 500,000. With new
//! content at 1 Gbit/s, this causes one needless round trip per minute.
//!
//! The module is public only for its bench.

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

/// Position at which a chunk may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordLocation {
    /// Last 16 bits of the segment's number.
    pub segment: u16,
    /// Offset of the record, a multiple of 64. It is never 0, since the segment's header is at
    /// offset 0.
    pub offset: u32,
}

impl ChunkIndex {
    /// Creates an empty index. Its shards have the best size when the index has about `entries`
    /// entries.
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

    /// Returns whether the index may contain a chunk. The result is also true if another chunk has
    /// the same tag.
    pub fn contains(&self, name: &ChunkName) -> bool {
        let (shard, tag) = self.place(name);
        let shard = lock(shard);
        let at = first(&shard, tag);
        shard.get(at).is_some_and(|entry| tag_of(*entry) == tag)
    }

    /// Returns up to four positions at which the chunk may be stored. The last 16 bits of the
    /// segment numbers determine the order, so the newest segment is not necessarily first.
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

    /// Removes the entry of chunk `name` at `location`, if it exists.
    pub fn remove(&self, name: &ChunkName, location: RecordLocation) {
        let (shard, tag) = self.place(name);
        let mut shard = lock(shard);
        if let Ok(at) = shard.binary_search(&entry(tag, location)) {
            shard.remove(at);
            self.entries.fetch_sub(1, Relaxed);
        }
    }

    /// Removes all entries of a segment by scanning the whole index. Other threads can use shards
    /// during the scan.
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

    /// Returns the memory of the index in bytes.
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

/// Returns the index of the first entry with this tag in the shard.
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

/// Number of entries per shard when the index has its planned number of entries.
const SHARD_ENTRIES: u64 = 512;

/// Maximum number of shards, which suffices for 4 TB of chunks of 16 KiB. In a larger store, 16
/// bits could not distinguish the segments. Without entries, the shards take 16 MiB.
const SHARDS_MAX: u64 = 1 << 19;

/// Growth of a full shard: one sixteenth of its entries, but at least 16 entries.
const GROWTH: usize = 16;

/// Maximum number of positions that a look-up of a name returns.
const FOUND_MAX: usize = 4;

const TAG_MASK: u64 = (1 << (64 - LOCATION_BITS)) - 1;
const LOCATION_BITS: u32 = 16 + UNIT_BITS;

/// Number of bits of a position in a segment. The position is in units of 64 bytes.
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
