//! Tests of each function of a store.

use std::{
    fs,
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use optimiser::{
    chunk::{CHUNK_MAX, ChunkName},
    store::{self, Store, StoreId, StoreOpenError, StoreReadError, StoreSettings},
};
use tempfile::tempdir;

use crate::store::common::{MIB, chunk, fresh, gettable, open, put, reopen, settings};

#[test]
fn a_chunk_is_there_at_once_and_after_it_is_written_and_after_a_restart() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    put(&store, 0..100);
    assert_eq!(gettable(&store, 0..200), 100);
    store.settle();
    assert_eq!(gettable(&store, 0..200), 100);
    assert!(store.has(&chunk(99).0) && !store.has(&chunk(100).0));
    drop(store);

    let store = reopen(folder.path());
    assert_eq!(gettable(&store, 0..200), 100);
    let counts = store.counts();
    assert_eq!((counts.entries, counts.segments), (100, 1));
    assert_eq!((counts.hits, counts.misses), (100, 100));
    assert!(!counts.is_rebuilding);
}

#[test]
fn what_is_known_is_not_written_again() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    put(&store, [1, 1]);
    store.settle();
    put(&store, [1]);
    store.settle();
    let counts = store.counts();
    assert_eq!((counts.written, counts.known, counts.entries), (1, 2, 1));
}

#[test]
fn chunks_of_the_wrong_size_or_name_are_never_returned() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    for length in [0, 100, CHUNK_MAX + 1] {
        let content = Bytes::from(vec![1; length]);
        store.put(ChunkName::of(&content), content.clone());
        assert_eq!(store.get(&ChunkName::of(&content), length), None);
    }
    assert_eq!(store.counts().dropped, 3);
    let (name, content) = chunk(1);
    assert_eq!(store.get(&name, usize::MAX), None);
    store.put(name, Bytes::from(vec![1; content.len()]));
    assert_eq!(store.get(&name, content.len()), None, "from the queue");
    store.settle();
    assert_eq!(store.get(&name, content.len()), None, "from the disk");
    assert!(
        !store.has(&name),
        "it is forgotten, so the right one can come"
    );
    store.put(name, content.clone());
    assert_eq!(store.get(&name, content.len() - 1), None);
    assert_eq!(store.get(&name, content.len()), Some(content));
}

#[test]
fn the_largest_chunk_is_kept() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    let content = Bytes::from(vec![1; CHUNK_MAX]);
    let name = ChunkName::of(&content);
    store.put(name, content.clone());
    store.settle();
    assert_eq!(store.get(&name, CHUNK_MAX), Some(content));
}

#[test]
fn the_oldest_chunks_go_when_the_store_is_full() {
    let folder = tempdir().expect("a folder");
    let small = StoreSettings {
        size_max_bytes: 4 * MIB,
        ..settings(folder.path())
    };
    let store = Store::open(small.clone(), fresh(1)).expect("a store");
    for n in 0..600 {
        put(&store, [n]);
        if n % 20 == 0 {
            store.settle();
            assert!(on_disk(folder.path()) <= 4 * MIB);
        }
    }
    store.settle();
    assert!(store.counts().evicted > 10);
    assert!(on_disk(folder.path()) > 3 * MIB);
    let entries = store.counts().entries;
    let kept = gettable(&store, 0..600);
    assert_eq!(entries, kept as u64, "no entry stays behind");
    assert!((150..300).contains(&kept), "{kept} of about 16 KiB");
    assert_eq!(gettable(&store, 600 - kept as u64..600), kept);
    drop(store);

    let smaller = StoreSettings {
        size_max_bytes: 2 * MIB,
        ..small
    };
    let store = Store::open(smaller, fresh(1)).expect("a store");
    store.settle();
    assert!(on_disk(folder.path()) <= 2 * MIB);
    assert!(gettable(&store, 540..600) == 60, "the newest ones stay");
}

#[test]
fn small_chunks_are_bounded_by_their_number() {
    let folder = tempdir().expect("a folder");
    let small = StoreSettings {
        size_max_bytes: 4 * MIB,
        ..settings(folder.path())
    };
    let store = Store::open(small, fresh(1)).expect("a store");
    for n in 0..3_000_u32 {
        let content = Bytes::from(n.to_le_bytes().repeat(256));
        store.put(ChunkName::of(&content), content);
    }
    store.settle();
    let counts = store.counts();
    assert_eq!(counts.written, 3_000);
    assert!(counts.entries <= 1_024, "one for each 4 KiB: {counts:?}");
    assert!(counts.entries > 900);
}

#[test]
fn a_full_queue_drops_instead_of_waiting() {
    let folder = tempdir().expect("a folder");
    let narrow = StoreSettings {
        queue_max_bytes: 40 * 1024,
        ..settings(folder.path())
    };
    let store = Store::open(narrow, fresh(1)).expect("a store");
    let chunks: Vec<_> = (0..500).map(chunk).collect();
    for (name, content) in chunks {
        store.put(name, content);
    }
    store.settle();
    let counts = store.counts();
    assert!(counts.dropped > 0 && counts.written > 0, "{counts:?}");
    assert_eq!(counts.dropped + counts.written, 500);
    assert_eq!(gettable(&store, 0..500) as u64, counts.written);
}

#[test]
fn what_is_forgotten_can_be_put_again() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    put(&store, [1, 2]);
    store.settle();
    store.forget(&chunk(1).0);
    assert_eq!(gettable(&store, [1, 2]), 1);
    put(&store, [1]);
    assert_eq!(gettable(&store, [1, 2]), 2);
}

#[test]
fn a_cleared_store_is_another_one_and_empty() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    assert_eq!((store.id(), store.secret()), (StoreId([1; 16]), [101; 32]));
    put(&store, 0..50);
    store.clear(fresh(2)).expect("it is ours");
    assert_eq!((store.id(), store.secret()), (StoreId([2; 16]), [102; 32]));
    store.settle();
    assert_eq!(gettable(&store, 0..50), 0);
    assert_eq!(store.counts().entries, 0);
    assert_eq!(
        on_disk(folder.path()),
        0,
        "also what was about to be written"
    );
    put(&store, 25..75);
    assert_eq!(gettable(&store, 0..100), 50);
    drop(store);

    let store = reopen(folder.path());
    assert_eq!((store.id(), store.secret()), (StoreId([2; 16]), [102; 32]));
    assert_eq!(gettable(&store, 0..100), 50);
}

#[test]
fn a_folder_that_is_removed_is_made_again_by_the_next_write() {
    let all = tempdir().expect("a folder");
    let folder = all.path().join("stores/one");
    let store = open(&folder);
    put(&store, 0..20);
    store.settle();
    fs::remove_dir_all(all.path().join("stores")).expect("it is there");
    put(&store, 20..40);
    store.settle();
    assert_eq!(gettable(&store, 20..40), 20);
    assert!(
        on_disk(&folder) > 20 * 1000,
        "the new chunks are on the disk"
    );
    assert_eq!(
        store.counts().entries,
        20,
        "nothing is known of lost chunks"
    );
    assert_eq!(store.trouble(), None);
    let id = store.id();
    drop(store);
    let store = open(&folder);
    store.settle();
    assert_eq!((store.id(), gettable(&store, 0..40)), (id, 20));
}

#[test]
fn a_segment_that_is_removed_while_it_is_written_is_begun_anew() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    put(&store, 0..5);
    store.settle();
    for entry in fs::read_dir(folder.path()).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|it| it == "segment") {
            fs::remove_file(path).expect("it is there");
        }
    }
    put(&store, 5..10);
    store.settle();
    drop(store);
    let store = open(folder.path());
    store.settle();
    assert_eq!(gettable(&store, 0..10), 5);
}

#[test]
fn a_folder_whose_disk_is_not_mounted_is_not_made_in_its_place() {
    let all = tempdir().expect("a folder");
    let folder = all.path().join("disk/stores/one");
    let opened = Store::open(settings(&folder), fresh(1));
    assert!(matches!(opened, Err(StoreOpenError::Folder { .. })));
    assert!(!all.path().join("disk").exists());
}

#[test]
fn only_one_store_has_a_folder() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    let second = Store::open(settings(folder.path()), fresh(2));
    assert!(matches!(second, Err(StoreOpenError::InUse { .. })));
    drop(store);
    assert_eq!(open(folder.path()).id(), StoreId([1; 16]));
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error() {
    let folder = tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    let opened = Store::open(settings(&file.join("store")), fresh(1));
    assert!(matches!(opened, Err(StoreOpenError::Folder { .. })));
}

#[test]
fn a_retired_store_reads_while_another_one_writes() {
    let folder = tempdir().expect("a folder");
    let old = open(folder.path());
    put(&old, 0..50);
    old.settle();
    old.retire();
    put(&old, 50..60);
    let new = reopen(folder.path());
    put(&new, 100..150);
    new.settle();
    assert_eq!(gettable(&old, 0..150), 50);
    assert_eq!(gettable(&new, 0..150), 100);
    assert_eq!(old.counts().dropped, 10);
    assert!(old.clear(fresh(3)).is_err());
    old.settle();
    drop(old);
    assert_eq!(gettable(&new, 0..150), 100);
    new.clear(fresh(2)).expect("it is ours");
    assert_eq!(gettable(&new, 0..150), 0);
}

#[test]
fn what_one_store_removes_is_gone_for_the_retired_one_and_nothing_else_is() {
    let folder = tempdir().expect("a folder");
    let old = open(folder.path());
    put(&old, 0..50);
    old.settle();
    old.retire();
    let new = reopen(folder.path());
    new.clear(fresh(2)).expect("it is ours");
    put(&new, 0..10);
    new.settle();
    // Open files can still be read, and others cannot. Returned chunks are right in both cases.
    let _ = gettable(&old, 0..50);
    assert_eq!(gettable(&new, 0..50), 10);
}

#[test]
fn without_its_identity_a_store_begins_anew() {
    for damage in ["remove", "flip", "cut"] {
        let folder = tempdir().expect("a folder");
        let store = open(folder.path());
        put(&store, 0..50);
        drop(store);
        let identity = folder.path().join("identity");
        let mut bytes = fs::read(&identity).expect("it is there");
        match damage {
            "remove" => fs::remove_file(&identity).expect("ours"),
            "flip" => {
                bytes[20] ^= 1;
                fs::write(&identity, bytes).expect("ours");
            }
            _ => fs::write(&identity, &bytes[..40]).expect("ours"),
        }
        let store = Store::open(settings(folder.path()), fresh(2)).expect("a store");
        store.settle();
        assert_eq!((store.id(), store.secret()), (StoreId([2; 16]), [102; 32]));
        assert_eq!(gettable(&store, 0..50), 0, "{damage}");
        assert_eq!(on_disk(folder.path()), 0);
    }
}

#[test]
fn nobody_else_can_read_a_store() {
    let folder = tempdir().expect("a folder");
    let place = folder.path().join("store");
    let store = open(&place);
    put(&store, [1]);
    drop(store);
    let mode = |path: &Path| {
        fs::metadata(path)
            .expect("it is there")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(&place), 0o700);
    let files = fs::read_dir(&place).expect("ours");
    for file in files {
        assert_eq!(mode(&file.expect("ours").path()), 0o600);
    }
}

#[test]
fn a_flipped_bit_costs_one_chunk() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    put(&store, 0..50);
    store.settle();
    flip_bit(&segments(folder.path())[0], 64 + 40 + 500);
    assert_eq!(gettable(&store, 0..50), 49);
    assert_eq!(store.counts().damaged, 1);
    assert!(!store.has(&chunk(0).0), "it is forgotten");
    put(&store, [0]);
    store.settle();
    assert_eq!(gettable(&store, 0..50), 50);
    drop(store);
    assert_eq!(gettable(&reopen(folder.path()), 0..50), 50);
}

#[test]
fn without_its_footer_a_segment_is_read_from_record_to_record() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    put(&store, 0..50);
    drop(store);
    let segment = segments(folder.path()).remove(0);
    let length = fs::metadata(&segment).expect("it is there").len();
    flip_bit(&segment, length - 10);
    assert_eq!(store::list(folder.path()).expect("a store").unsealed, 1);
    let store = reopen(folder.path());
    assert_eq!(gettable(&store, 0..50), 50);
    assert_eq!(store::list(folder.path()).expect("a store").unsealed, 0);
    assert_eq!(on_disk(folder.path()), length);
}

#[test]
fn a_torn_end_is_cut_off() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    put(&store, 0..50);
    drop(store);
    let segment = segments(folder.path()).remove(0);
    let mut bytes = fs::read(&segment).expect("it is there");
    bytes.extend_from_slice(&[0xa5; 200_000]);
    fs::write(&segment, &bytes).expect("ours");
    assert_eq!(gettable(&reopen(folder.path()), 0..50), 50);
    let listing = store::list(folder.path()).expect("a store");
    assert_eq!((listing.unsealed, listing.chunks), (0, 50));
    assert_eq!(on_disk(folder.path()), bytes.len() as u64 - 200_000);
}

#[test]
fn files_that_are_no_segments_are_removed_or_left_alone() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    put(&store, 0..50);
    drop(store);
    let file = |name: &str| folder.path().join(name);
    fs::write(file("00000000000000ff.segment"), [9; 5_000]).expect("ours");
    fs::write(file("0000000000000100.segment"), "").expect("ours");
    let huge = fs::File::create(file("0000000000000101.segment")).expect("ours");
    huge.set_len(1 << 40).expect("sparse");
    fs::copy(
        &segments(folder.path())[0],
        file("0000000000000102.segment"),
    )
    .expect("ours");
    fs::write(file("notes"), "mine").expect("ours");
    let store = reopen(folder.path());
    assert_eq!(gettable(&store, 0..50), 50);
    assert_eq!(segments(folder.path()).len(), 1);
    assert!(file("notes").exists());
    assert_eq!(store.counts().damaged, 4);
}

#[test]
fn a_store_is_listed_and_verified_while_it_is_in_use() {
    let folder = tempdir().expect("a folder");
    assert!(matches!(
        store::list(folder.path()),
        Err(StoreReadError::None { .. })
    ));
    let store = open(folder.path());
    put(&store, 0..50);
    store.settle();
    let content_bytes = (0..50).map(|n| chunk(n).1.len() as u64).sum();
    let listing = store::list(folder.path()).expect("a store");
    assert_eq!(
        (listing.segments, listing.unsealed, listing.chunks),
        (1, 1, 50)
    );
    assert_eq!(listing.content_bytes, content_bytes);
    assert_eq!(listing.disk_bytes, on_disk(folder.path()));
    let mut heard = Vec::new();
    let verified = store::verify(folder.path(), &mut |done, all| heard.push((done, all)));
    let verified = verified.expect("a store");
    assert_eq!((verified.listing, verified.damaged), (listing, 0));
    assert_eq!(heard, [(listing.disk_bytes, listing.disk_bytes)]);

    flip_bit(&segments(folder.path())[0], 64 + 40 + 500);
    let verified = store::verify(folder.path(), &mut |_, _| {}).expect("a store");
    assert_eq!(verified.damaged, 1);
    assert_eq!(verified.damage[0].name, chunk(0).0);
    assert_eq!(verified.damage[0].offset_bytes, 64);
    assert_eq!(verified.damage[0].segment, segments(folder.path())[0]);
}

#[test]
fn a_store_is_removed_unless_it_is_in_use() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    put(&store, 0..100);
    store.settle();
    let in_use = || store::is_in_use(folder.path()).expect("readable");
    assert!(in_use());
    let refused = store::remove(folder.path());
    assert!(matches!(refused, Err(StoreOpenError::InUse { .. })));
    assert_eq!(gettable(&store, 0..100), 100);
    drop(store);

    assert!(!in_use());
    fs::write(folder.path().join("notes"), "of somebody else").expect("room");
    store::remove(folder.path()).expect("nobody has it");
    let listed = store::list(folder.path());
    assert!(matches!(listed, Err(StoreReadError::None { .. })));
    assert!(segments(folder.path()).is_empty());
    assert!(folder.path().join("notes").exists());
    let store = Store::open(settings(folder.path()), fresh(2)).expect("a store");
    store.settle();
    assert_eq!(gettable(&store, 0..100), 0);
    assert_eq!(store.id(), StoreId(fresh(2).id));
}

#[test]
fn a_store_may_be_used_by_many_threads() {
    let folder = tempdir().expect("a folder");
    let small = StoreSettings {
        size_max_bytes: 4 * MIB,
        ..settings(folder.path())
    };
    let store = Store::open(small, fresh(1)).expect("a store");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = store.clone();
            scope.spawn(move || {
                for n in 0..300 {
                    put(&store, [thread * 100 + n]);
                    gettable(&store, [thread * 100 + n / 2]);
                    if n == 150 && thread == 0 {
                        store.clear(fresh(2)).expect("it is ours");
                    }
                }
            });
        }
    });
    // These chunks alone exceed the size of the store. The chunks before the clearing do not
    // matter.
    put(&store, 0..600);
    store.settle();
    let counts = store.counts();
    assert!(counts.hits > 100 && counts.evicted > 0, "{counts:?}");
    assert_eq!(counts.damaged, 0, "{counts:?}");
    assert_eq!(gettable(&store, 0..600) as u64, counts.entries);
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("ours");
    let paths = entries.map(|entry| entry.expect("ours").path());
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|end| end == "segment");
    let mut segments: Vec<_> = paths.filter(is_segment).collect();
    segments.sort();
    segments
}

fn on_disk(folder: &Path) -> u64 {
    let sizes = segments(folder).into_iter().map(fs::metadata);
    sizes
        .map(|found| found.map_or(0, |found| found.len()))
        .sum()
}

fn flip_bit(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path);
    let file = file.expect("it is there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("it is there");
    file.write_all_at(&[byte[0] ^ 4], at).expect("ours");
}
