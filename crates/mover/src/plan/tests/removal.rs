//! Sources that are removed once the destination has them.

use super::{trees::Trees, *};

const FILES: [&str; 3] = ["a", "in/b", "in/c"];

fn removing() -> Options {
    Options {
        removes_source: true,
        ..Options::default()
    }
}

#[test]
fn sources_go_when_the_destination_has_them() {
    for there in [&[][..], &["in/b"], &FILES] {
        let mut trees = Trees::new(&FILES, there, removing());
        let tally = trees.run();
        let expected = (3 - there.len() as u64, there.len() as u64, 3, 0);
        let found = (tally.moved, tally.same, tally.removed, tally.failed);
        assert_eq!(found, expected, "{there:?}");
        assert!(FILES.iter().all(|it| trees.destination.contains_key(*it)));
        assert!(!FILES.iter().any(|it| trees.source.contains_key(*it)));
    }
}

/// Somebody takes a file from the destination, and brings it to the source once more: the destination was listed before.
#[test]
fn a_file_that_the_destination_has_lost_since_its_listing_is_moved_again() {
    for loss in [0.0, 0.2] {
        let mut trees = Trees::new(&FILES, &FILES, removing());
        trees.vanishing.insert("in/b".to_owned());
        trees.loss = loss;
        let tally = trees.run();
        let found = (tally.moved, tally.same, tally.removed, tally.failed);
        assert_eq!(found, (1, 2, 3, 0), "{loss}");
        assert!(trees.destination.contains_key("in/b"));
    }
}

#[test]
fn a_dry_run_looks_at_nothing_again_and_removes_nothing() {
    let options = Options {
        is_dry_run: true,
        ..removing()
    };
    let mut trees = Trees::new(&FILES, &FILES, options);
    assert_eq!((trees.run().same, trees.run().removed), (3, 0));
    assert_eq!(trees.source.len(), 5);
}
