//! Helpers of the store's tests: numbered chunks, and stores for them.
#![allow(dead_code, reason = "each test program uses its part")]

use std::{collections::BTreeMap, env, path::Path, sync::Mutex, time::Duration};

use bytes::Bytes;
use optimiser::{
    chunk::ChunkName,
    store::{IdentitySeed, Store, StoreSettings},
};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Returns the chunk with the number `n`. A number always yields the same chunk, of 1 to 32 KiB.
pub(crate) fn chunk(n: u64) -> (ChunkName, Bytes) {
    static MADE: Mutex<BTreeMap<u64, (ChunkName, Bytes)>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().expect("no test panics with it");
    made.entry(n).or_insert_with(|| make(n)).clone()
}

fn make(n: u64) -> (ChunkName, Bytes) {
    let mut random = Pcg64Mcg::seed_from_u64(n);
    let length = 1024 + random.next_u32() as usize % (31 * 1024);
    let mut content = vec![0; length];
    random.fill_bytes(&mut content);
    (ChunkName::of(&content), content.into())
}

pub(crate) fn put(store: &Store, numbers: impl IntoIterator<Item = u64>) {
    for n in numbers {
        let (name, content) = chunk(n);
        store.put(name, content);
    }
}

/// Counts the chunks of `numbers` that the store returns.
///
/// # Panics
/// If the store returns wrong content for a chunk.
pub(crate) fn gettable(store: &Store, numbers: impl IntoIterator<Item = u64>) -> usize {
    let is_there = |n: &u64| {
        let (name, content) = chunk(*n);
        let found = store.get(&name, content.len());
        assert!(found.is_none() || found == Some(content), "chunk {n}");
        found.is_some()
    };
    numbers.into_iter().filter(is_there).count()
}

pub(crate) fn settings(folder: &Path) -> StoreSettings {
    StoreSettings {
        folder: folder.to_owned(),
        size_max_bytes: 64 * MIB,
        queue_max_bytes: 64 * MIB as usize,
        pause: Duration::from_millis(50),
        seed: [5; 16],
    }
}

pub(crate) fn fresh(n: u8) -> IdentitySeed {
    IdentitySeed {
        id: [n; 16],
        secret: [n + 100; 32],
    }
}

pub(crate) fn open(folder: &Path) -> Store {
    Store::open(settings(folder), fresh(1)).expect("a store")
}

/// Opens a store, and waits until its index is rebuilt.
pub(crate) fn reopen(folder: &Path) -> Store {
    let store = open(folder);
    store.settle();
    store
}

/// Returns the number of attempts of a test: the value of an environment variable, or `usually`.
pub(crate) fn count_of(variable: &str, usually: u64) -> u64 {
    env::var(variable).map_or(usually, |count| count.parse().expect("a number"))
}

pub(crate) const MIB: u64 = 1024 * 1024;
