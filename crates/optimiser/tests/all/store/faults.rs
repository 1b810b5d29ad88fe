//! Tests with power cuts, errors and a full disk. Returned chunks must be correct, and the store
//! must work afterwards.

use std::{path::Path, sync::Arc, time::Duration};

use optimiser::store::{Store, StoreCounts, StoreOpenError, StoreSettings};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::{
    store::common::{MIB, count_of, fresh, gettable, put, settings},
    store::faulty::{Faults, FaultyFiles},
};

#[test]
fn after_power_cuts_what_is_returned_is_right_and_the_store_works() {
    let mut seen = Seen::default();
    for seed in 0..count_of("LONGHAUL_STORE_POWER_CUTS", 1_000) {
        power_cuts(seed, &mut seen);
    }
    assert!(
        seen.survived > 0 && seen.lost > 0 && seen.damaged > 0,
        "{seen:?}"
    );
    assert!(seen.same_again > 0 && seen.evicted > 0, "{seen:?}");
    println!("{seen:?}");
}

/// Number of events over all seeds.
#[derive(Debug, Default)]
struct Seen {
    /// Number of chunks that a store still had after a power cut.
    survived: usize,
    lost: usize,
    damaged: u64,
    evicted: u64,
    /// Number of stores that kept their identity after a power cut.
    same_again: usize,
}

/// Runs a store during several power cuts, and once more without a power cut.
fn power_cuts(seed: u64, seen: &mut Seen) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let files = FaultyFiles::new(seed);
    let mut id = None;
    for life in 1..=random.random_range(2..=4) {
        files.cut_power_after(random.random_range(1..120));
        if let Ok(store) = open(&files, life) {
            seen.same_again += usize::from(id == Some(store.id()));
            assert!(id.is_none() || id == Some(store.id()), "seed {seed}");
            let begun_as = store.id();
            let mut was_cleared = false;
            while !files.is_off() {
                was_cleared |= act(&store, &mut random);
            }
            // A store that was being cleared may have either id.
            id = (!was_cleared).then_some(begun_as);
            seen.evicted += store.counts().evicted;
        }
        files.restart();
        if random.random_bool(0.1) {
            files.flip_bit();
            id = None;
        }
    }
    let store = open(&files, 9).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
    store.settle();
    let before = store.counts().entries as usize;
    let survived = gettable(&store, 0..CHUNKS);
    seen.survived += survived;
    seen.lost += before - before.min(survived);
    seen.damaged += store.counts().damaged;
    works(&store, seed);
    drop(store);
    let store = open(&files, 10).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
    store.settle();
    assert_eq!(gettable(&store, CHUNKS..CHUNKS + 10), 10, "seed {seed}");
    assert!(!files.is_off());
}

#[test]
fn with_errors_and_flipped_bits_what_is_returned_is_right_and_the_store_works_afterwards() {
    let mut happened = StoreCounts::default();
    for seed in 0..count_of("LONGHAUL_STORE_FAULTS", 100) {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let files = FaultyFiles::new(seed);
        for life in 0..3 {
            files.set_faults(Faults {
                error: 0.03,
                short: 0.2,
                flip: 0.02,
            });
            if let Ok(store) = open(&files, life) {
                for _ in 0..60 {
                    act(&store, &mut random);
                }
                files.set_faults(Faults::default());
                store.settle();
                gettable(&store, 0..CHUNKS);
                works(&store, seed);
                let counts = store.counts();
                happened.damaged += counts.damaged;
                happened.write_errors += counts.write_errors;
                happened.hits += counts.hits;
            }
        }
    }
    assert!(happened.damaged > 0 && happened.write_errors > 0 && happened.hits > 0);
}

#[test]
fn on_a_full_disk_the_oldest_chunks_make_room_for_new_ones() {
    let files = FaultyFiles::new(1);
    let store = open(&files, 1).expect("a store");
    put(&store, 0..30);
    store.settle();
    // Other programs seem to have filled the disk.
    files.set_capacity(620 * 1024);
    for n in 30..90 {
        put(&store, n..=n);
        store.settle();
    }
    let counts = store.counts();
    assert!(counts.evicted > 0, "{counts:?}");
    assert_eq!(store.trouble(), None, "{counts:?}");
    assert_eq!(gettable(&store, 0..10), 0, "the oldest ones have gone");
    assert_eq!(gettable(&store, 85..90), 5, "the newest ones are there");
    drop(store);
    let store = open(&files, 1).expect("a store");
    store.settle();
    assert!(gettable(&store, 0..90) > 5);
}

#[test]
fn a_full_disk_is_reported_until_space_is_free() {
    let files = FaultyFiles::new(1);
    let patient = StoreSettings {
        pause: Duration::from_secs(1),
        ..small()
    };
    let store = Store::open_with(patient, fresh(1), Arc::new(files.clone())).expect("a store");
    files.set_capacity(100);
    put(&store, 10..40);
    store.settle();
    let counts = store.counts();
    assert!(counts.write_errors > 0 && counts.dropped > 0, "{counts:?}");
    assert!(store.trouble().is_some_and(|it| it.contains("space")));
    files.set_capacity(usize::MAX);
    std::thread::sleep(Duration::from_millis(1_100));
    put(&store, 50..60);
    store.settle();
    assert_eq!(gettable(&store, 50..60), 10);
    assert_eq!(store.trouble(), None);
}

#[test]
fn an_identity_that_cannot_be_written_is_an_error_and_the_lock_is_let_go() {
    let files = FaultyFiles::new(1);
    files.set_capacity(10);
    let opened = open(&files, 1);
    assert!(matches!(opened, Err(StoreOpenError::Folder { .. })));
    files.set_capacity(usize::MAX);
    open(&files, 1).expect("a store");
}

/// Performs one random action of a gateway on a store. Returns whether the action was a call of
/// `Store::clear`.
fn act(store: &Store, random: &mut Pcg64Mcg) -> bool {
    let n = random.random_range(0..CHUNKS);
    match random.random_range(0..100) {
        0..60 => put(store, n..n + 5),
        60..85 => {
            gettable(store, n..n + 3);
        }
        85..97 => store.settle(),
        97 => store.forget(&crate::store::common::chunk(n).0),
        98 => {
            // The call fails without power.
            let _ = store.clear(fresh(random.random_range(20..60)));
            return true;
        }
        _ => std::thread::yield_now(),
    }
    false
}

/// Asserts that the store stores new chunks.
fn works(store: &Store, seed: u64) {
    for n in CHUNKS..CHUNKS + 10 {
        store.forget(&crate::store::common::chunk(n).0);
    }
    put(store, CHUNKS..CHUNKS + 10);
    assert_eq!(gettable(store, CHUNKS..CHUNKS + 10), 10, "seed {seed}");
    store.settle();
    let counts = store.counts();
    assert_eq!(
        gettable(store, CHUNKS..CHUNKS + 10),
        10,
        "seed {seed}, {counts:?}"
    );
    assert!(counts.disk_bytes <= MIB, "seed {seed}");
}

fn open(files: &FaultyFiles, life: u8) -> Result<Store, StoreOpenError> {
    Store::open_with(small(), fresh(life), Arc::new(files.clone()))
}

fn small() -> StoreSettings {
    StoreSettings {
        size_max_bytes: MIB,
        pause: Duration::ZERO,
        ..settings(Path::new("/store"))
    }
}

/// Number of chunks put into a store before a fault. With an average of 16 KiB they exceed the
/// store's size.
const CHUNKS: u64 = 120;
