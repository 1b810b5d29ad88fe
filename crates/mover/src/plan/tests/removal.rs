//! Tests of jobs that remove source files once the destination has them.

use super::{
    trees::{TreeEntry, Trees},
    *,
};

const FILES: [&str; 3] = ["a", "in/b", "in/c"];

fn removing() -> PlanOptions {
    PlanOptions {
        removes_source: true,
        ..PlanOptions::default()
    }
}

/// Creates two equal trees. As soon as the destination has listed `in/b`, `thing` replaces that
/// entry at the destination.
fn changing(thing: Option<TreeEntry>, options: PlanOptions) -> Trees {
    let mut trees = Trees::new(&FILES, &FILES, options);
    trees.meanwhile.insert("in/b".to_owned(), thing);
    trees
}

/// Returns four counts of files: moved, already at the destination, removed at the source, and
/// failed.
fn counts(tally: &JobCounts) -> (u64, u64, u64, u64) {
    (tally.moved, tally.same, tally.removed, tally.failed)
}

#[test]
fn sources_go_when_the_destination_has_them() {
    for there in [&[][..], &["in/b"], &FILES] {
        let mut trees = Trees::new(&FILES, there, removing());
        let had = there.len() as u64;
        assert_eq!(counts(&trees.run()), (3 - had, had, 3, 0), "{there:?}");
        assert_eq!(trees.looks, had, "one look for each that was listed");
        assert!(FILES.iter().all(|it| trees.destination.contains_key(*it)));
        assert!(!FILES.iter().any(|it| trees.source.contains_key(*it)));
    }
}

/// In this test, a program moves a file from the destination back to the source. The destination
/// has listed the file before.
#[test]
fn a_file_that_the_destination_has_lost_since_its_listing_is_moved_again() {
    for loss in [0.0, 0.2] {
        let mut trees = changing(None, removing());
        trees.loss = loss;
        assert_eq!(counts(&trees.run()), (1, 2, 3, 0), "{loss}");
        assert!(trees.destination.contains_key("in/b"));
    }
}

#[test]
fn a_file_that_another_one_has_replaced_since_is_moved_or_kept_as_the_job_says() {
    let newer = Some(TreeEntry::File(4, 2_000, 1));
    let mut trees = changing(newer, removing());
    assert_eq!(counts(&trees.run()), (1, 2, 3, 0));
    assert_eq!(trees.destination["in/b"], TreeEntry::File(4, 1_000, 0));
    let options = PlanOptions {
        keeps_newer: true,
        ..removing()
    };
    let mut trees = changing(newer, options);
    assert_eq!(counts(&trees.run()), (0, 2, 2, 0));
    assert_eq!(Some(trees.destination["in/b"]), newer);
    assert!(trees.source.contains_key("in/b"), "nobody else has it");
}

#[test]
fn what_a_look_does_not_tell_is_as_it_was_listed() {
    let mut trees = Trees::new(&FILES, &FILES, removing());
    trees.looks_without_time = true;
    assert_eq!(counts(&trees.run()), (0, 3, 3, 0));
    let mut trees = changing(Some(TreeEntry::File(5, 1_000, 1)), removing());
    trees.looks_without_time = true;
    assert_eq!(counts(&trees.run()), (1, 2, 3, 0), "another size");
}

#[test]
fn a_source_stays_where_the_look_is_refused() {
    let mut trees = Trees::new(&FILES, &FILES, removing());
    trees.refused.insert("in/b".to_owned());
    assert_eq!(counts(&trees.run()), (0, 2, 2, 1));
    assert!(trees.source.contains_key("in/b"));
}

#[test]
fn a_job_that_removes_nothing_looks_at_nothing_again() {
    let dry = PlanOptions {
        is_dry_run: true,
        ..removing()
    };
    for options in [dry, PlanOptions::default()] {
        let mut trees = Trees::new(&FILES, &FILES, options);
        assert_eq!(counts(&trees.run()), (0, 3, 0, 0));
        assert_eq!((trees.source.len(), trees.looks), (5, 0));
    }
}
