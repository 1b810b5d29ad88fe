//! Tests of servers whose time zone changes, so that all times of a listing shift equally.

use super::*;

const FILES: [(&str, u64); 6] = [
    ("a", 1),
    ("b", 2),
    ("c", 3),
    ("d", 4),
    ("sub/e", 5),
    ("sub/f", 6),
];

/// Makes a first run, applies `change` to the source, and makes a second run. The destination has
/// all files before the second run.
fn second_run(
    files: &[(&str, u64)],
    seed: u64,
    change: impl FnOnce(&mut Files),
) -> (JobCounts, Vec<String>) {
    let mut first = World::new(files, PlanOptions::default(), seed);
    assert_eq!(first.run().moved, files.len() as u64);
    let mut world = World::new(files, PlanOptions::default(), seed);
    (world.destination, world.made) = (first.destination, first.made);
    change(&mut world.source);
    let tally = world.run();
    let told = world.notes.iter().filter_map(|it| match &it.result {
        FileOutcome::Warning(message) => Some(message.clone()),
        _ => None,
    });
    (tally, told.collect())
}

fn shift(source: &mut Files, by_s: i64) {
    for (_, time) in source.values_mut() {
        *time += by_s;
    }
}

#[test]
fn a_shift_of_all_times_by_quarter_hours_copies_nothing_and_is_reported_once() {
    for (by_s, words) in [
        (3600, "+1 h"),
        (-3600, "-1 h"),
        (1800, "+30 min"),
        (20_700, "+5 h 45 min"),
    ] {
        for seed in 0..5 {
            let (tally, told) = second_run(&FILES, seed, |source| shift(source, by_s));
            assert_eq!((tally.moved, tally.same), (0, 6), "{by_s}, seed {seed}");
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].contains(words), "{told:?}");
        }
    }
}

#[test]
fn a_file_that_changed_beside_a_shift_is_moved_alone() {
    let files = ["a", "b", "c", "d", "e", "f"].map(|name| (name, 4));
    let (tally, told) = second_run(&files, 1, |source| {
        shift(source, 3600);
        source.insert(b"b".to_vec(), (20, 9_999));
        source.insert(b"new".to_vec(), (7, 9_999));
        source.insert(b"d".to_vec(), (4, 9_999));
    });
    assert_eq!((tally.moved, tally.same, told.len()), (3, 4, 1));
}

#[test]
fn times_that_do_not_move_alike_are_those_of_files_that_changed() {
    let changes: [fn(&mut Files); 3] = [
        // One file has its old time.
        |source| {
            shift(source, 3600);
            source.insert(b"a".to_vec(), (1, 1_000));
            source.insert(b"sub/e".to_vec(), (5, 1_000));
        },
        |source| shift(source, 3605),
        |source| {
            for (number, (_, time)) in source.values_mut().enumerate() {
                *time += 3600 * (1 + number as i64 % 3);
            }
        },
    ];
    let moved = changes.map(|change| {
        let (tally, told) = second_run(&FILES, 1, change);
        assert!(told.is_empty(), "{told:?}");
        tally.moved
    });
    assert_eq!(moved, [4, 6, 6]);
    // Two files may have been rewritten on the hour.
    let (tally, told) = second_run(&FILES[..2], 1, |source| shift(source, 3600));
    assert_eq!((tally.moved, told.len()), (2, 0));
}

#[test]
fn a_listing_that_breaks_off_loses_no_file_whose_time_has_moved() {
    let files: Vec<(String, u64)> = (0..40).map(|it| (format!("f{it}"), it + 1)).collect();
    let files: Vec<(&str, u64)> = files
        .iter()
        .map(|(name, size)| (name.as_str(), *size))
        .collect();
    for seed in 0..10 {
        let mut first = World::new(&files, PlanOptions::default(), seed);
        first.run();
        let mut world = World::new(&files, PlanOptions::default(), seed);
        (world.destination, world.made) = (first.destination, first.made);
        world.loss = 0.1;
        shift(&mut world.source, 7200);
        let tally = world.run();
        assert_eq!(tally.same + tally.moved + tally.failed, 40, "seed {seed}");
    }
}
