//! Test that kills a process with a store at a random moment.
#![allow(
    clippy::disallowed_methods,
    reason = "stores have a thread and a clock of their own"
)]

#[path = "all/store/common.rs"]
mod common;

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use common::{MIB, chunk, count_of, fresh, gettable, put, settings};
use optimiser::store::{self, Store, StoreSettings};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tempfile::tempdir;

#[test]
fn after_kills_what_is_returned_is_right_and_the_store_works() {
    let folder = tempdir().expect("a folder");
    let seed = 11;
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let (mut survived, mut unsealed) = (0, 0);
    for kill in 0..count_of("LONGHAUL_STORE_KILLS", 30) {
        let mut child = Command::new(env::current_exe().expect("a test"))
            .args(["the_child_that_is_killed", "--exact", "--nocapture"])
            .env(CHILD, folder.path())
            .env(CHILD_SEED, kill.to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("a child");
        thread::sleep(Duration::from_millis(random.random_range(1..80)));
        assert_eq!(child.try_wait().expect("ours"), None, "it goes on for ever");
        child.kill().expect("ours");
        child.wait().expect("ours");

        unsealed += store::list(folder.path()).map_or(0, |listing| listing.unsealed);
        let store = open(folder.path());
        store.settle();
        survived += gettable(&store, 0..CHUNKS);
        // The store does not write a known chunk again. The chunk may be in the segment that is
        // removed next.
        for n in CHUNKS..CHUNKS + 5 {
            store.forget(&chunk(n).0);
        }
        put(&store, CHUNKS..CHUNKS + 5);
        store.settle();
        assert_eq!(
            gettable(&store, CHUNKS..CHUNKS + 5),
            5,
            "kill {kill}, seed {seed}"
        );
        assert!(store.counts().disk_bytes <= SIZE_MAX_BYTES);
    }
    assert!(survived > 0 && unsealed > 0, "kills must hit writing");
}

#[test]
fn the_child_that_is_killed() {
    let (Some(folder), Ok(seed)) = (env::var_os(CHILD), env::var(CHILD_SEED)) else {
        return;
    };
    let mut random = Pcg64Mcg::seed_from_u64(seed.parse().expect("a number"));
    let store = open(Path::new(&folder));
    loop {
        let n = random.random_range(0..CHUNKS);
        put(&store, n..n + 5);
        gettable(&store, [random.random_range(0..CHUNKS)]);
        if random.random_bool(0.001) {
            store
                .clear(fresh(random.random_range(0..100)))
                .expect("ours");
        }
    }
}

fn open(folder: &Path) -> Store {
    let settings = StoreSettings {
        size_max_bytes: SIZE_MAX_BYTES,
        ..settings(folder)
    };
    Store::open(settings, fresh(1)).expect("nobody has it any more")
}

const CHILD: &str = "LONGHAUL_STORE_CHILD";
const CHILD_SEED: &str = "LONGHAUL_STORE_CHILD_SEED";
const CHUNKS: u64 = 500;
const SIZE_MAX_BYTES: u64 = 4 * MIB;
