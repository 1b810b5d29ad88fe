//! Tests of syncs and checks. A sync makes both trees equal and deletes nothing after a failure. A
//! check changes no file.

use std::sync::Arc;

use super::{
    trees::{Tree, TreeEntry, Trees, tree},
    *,
};
use crate::filter::{Bounds, Filter, Rule};

fn deletion(max: DeletionMax) -> Deletion {
    Deletion {
        max,
        takes_excluded: false,
        trusts_empty: false,
    }
}

fn sync() -> PlanOptions {
    PlanOptions {
        purpose: JobPurpose::Sync { deletion: None },
        ..PlanOptions::default()
    }
}

/// Returns the options of a sync without a limit on deletions.
fn deleting() -> PlanOptions {
    PlanOptions {
        purpose: JobPurpose::Sync {
            deletion: Some(deletion(DeletionMax::Share(1.0))),
        },
        ..PlanOptions::default()
    }
}

fn limited(max: &str) -> PlanOptions {
    let max = max.parse().expect("a limit");
    PlanOptions {
        purpose: JobPurpose::Sync {
            deletion: Some(deletion(max)),
        },
        ..PlanOptions::default()
    }
}

fn check(compares_content: bool) -> PlanOptions {
    PlanOptions {
        purpose: JobPurpose::Check { compares_content },
        ..PlanOptions::default()
    }
}

fn excluding(options: PlanOptions, pattern: &str) -> PlanOptions {
    let rule = Rule::exclude(pattern).expect("a pattern");
    let filter = Filter::new(vec![rule], Bounds::default()).expect("a filter");
    PlanOptions {
        filter: Arc::new(filter),
        ..options
    }
}

/// Creates a random tree from a small set of names, so that two random trees have many names in
/// common.
fn random_tree(random: &mut Pcg64Mcg) -> Tree {
    let mut tree = tree(&[]);
    let mut directories = vec![String::new()];
    for _ in 0..random.random_range(1..25) {
        let above = &directories[random.random_range(..directories.len())];
        let name = ["a", "b", "c", "d"][random.random_range(..4_usize)];
        let path = match above.as_str() {
            "" => name.to_owned(),
            above => format!("{above}/{name}"),
        };
        if tree.contains_key(&path) {
            continue;
        }
        let thing = match random.random_range(0..10) {
            0..5 => TreeEntry::File(random.random_range(..3), random.random_range(0..2) * 100, 0),
            _ => TreeEntry::Directory,
        };
        if thing == TreeEntry::Directory {
            directories.push(path.clone());
        }
        tree.insert(path, thing);
    }
    tree
}

#[test]
fn whatever_two_trees_are_a_sync_makes_them_equal() {
    let (mut lost, mut deleted, mut replaced) = (0, 0, 0);
    for seed in 0..1_000 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let (source, mut destination) = (random_tree(&mut random), random_tree(&mut random));
        for thing in destination.values_mut() {
            if matches!(thing, TreeEntry::File(..)) && random.random_bool(0.1) {
                *thing = TreeEntry::Link;
            }
        }
        let mut options = deleting();
        options.retries = 50;
        if let JobPurpose::Sync { deletion: Some(it) } = &mut options.purpose {
            it.trusts_empty = true;
        }
        let mut trees = Trees::of(source.clone(), destination.clone(), options.clone(), seed);
        trees.loss = if seed % 2 == 0 { 0.0 } else { 0.1 };
        let tally = trees.run();
        assert_eq!(trees.failures(), [""; 0], "seed {seed}");
        assert_eq!(trees.destination, source, "seed {seed}");
        let gone = destination
            .keys()
            .filter(|it| !source.contains_key(*it))
            .count();
        assert!(tally.deleted as usize >= gone, "seed {seed}");
        let is_other = |path: &String| {
            let is_directory = |tree: &Tree| tree.get(path) == Some(&TreeEntry::Directory);
            source.contains_key(path) && is_directory(&source) != is_directory(&destination)
        };
        replaced += destination.keys().filter(|it| is_other(it)).count();
        (lost, deleted) = (lost + trees.lost, deleted + tally.deleted);
        let mut again = Trees::of(source.clone(), trees.destination, options, seed);
        let tally = again.run();
        assert_eq!(
            (tally.moved, tally.deleted, tally.doomed),
            (0, 0, 0),
            "seed {seed}"
        );
        let mut checked = Trees::of(source, again.destination, check(false), seed);
        let tally = checked.run();
        assert_eq!(
            (tally.differing, tally.missing, tally.surplus),
            (0, 0, 0),
            "seed {seed}"
        );
    }
    assert!(
        lost > 500 && deleted > 1_000 && replaced > 500,
        "{lost} {deleted} {replaced}"
    );
}

#[test]
fn a_dry_run_tells_what_a_run_does_and_changes_nothing() {
    for seed in 0..300 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let (source, destination) = (random_tree(&mut random), random_tree(&mut random));
        let mut options = deleting();
        if let JobPurpose::Sync { deletion: Some(it) } = &mut options.purpose {
            it.trusts_empty = true;
        }
        let dry = PlanOptions {
            is_dry_run: true,
            ..options.clone()
        };
        let mut trees = Trees::of(source.clone(), destination.clone(), dry, seed);
        trees.run();
        assert_eq!(trees.destination, destination, "seed {seed}");
        assert_eq!((trees.moved, trees.deleted.len()), (0, 0), "seed {seed}");
        let planned = |is_it: fn(&DryRunStep) -> bool| {
            let mut told =
                trees.paths_of(|it| matches!(it, FileOutcome::Planned(step) if is_it(step)));
            told.sort();
            told
        };
        let mut real = Trees::of(source, destination.clone(), options, seed);
        real.run();
        let mut moved = real.paths_of(|it| matches!(it, FileOutcome::Moved(..)));
        moved.sort();
        assert_eq!(
            planned(|it| matches!(it, DryRunStep::Move(_))),
            moved,
            "seed {seed}"
        );
        let mut deleted = real.paths_of(|it| *it == FileOutcome::Deleted);
        deleted.sort();
        assert_eq!(
            planned(|it| *it == DryRunStep::Delete),
            deleted,
            "seed {seed}"
        );
        let made = real.destination.iter().filter(|(path, thing)| {
            **thing == TreeEntry::Directory && destination.get(*path) != Some(&TreeEntry::Directory)
        });
        let made: Vec<String> = made.map(|(path, _)| path.clone()).collect();
        assert_eq!(planned(|it| *it == DryRunStep::Make), made, "seed {seed}");
    }
}

#[test]
fn without_deletion_what_only_the_destination_has_stays_and_is_counted() {
    let mut trees = Trees::new(&["a", "new/b"], &["a", "x", "old/y"], sync());
    let tally = trees.run();
    assert_eq!((tally.moved, tally.same, tally.surplus), (1, 1, 2));
    assert_eq!(trees.paths_of(|it| *it == FileOutcome::Extra), ["old", "x"]);
    assert!(trees.deleted.is_empty());
    assert!(trees.destination.contains_key("old/y"));
}

#[test]
fn a_sync_makes_empty_directories_and_a_copy_does_not() {
    for (options, is_made) in [(sync(), true), (PlanOptions::default(), false)] {
        let mut trees = Trees::new(&["a", "empty/below/"], &[], options);
        trees.run();
        assert_eq!(trees.destination.contains_key("empty/below"), is_made);
    }
}

#[test]
fn more_than_is_allowed_is_not_deleted_at_all() {
    let names: Vec<String> = (0..20).map(|it| format!("f{it}")).collect();
    let there: Vec<&str> = names.iter().map(String::as_str).collect();
    // Two entries of twenty are ten percent.
    for (source, limit, is_deleted) in [
        (&there[2..], "10%", true),
        (&there[3..], "10%", false),
        (&there[3..], "3", true),
        (&there[4..], "3", false),
        (&there[1..], "0", false),
        (&there[1..], "5%", true),
    ] {
        let mut trees = Trees::new(source, &there, limited(limit));
        let tally = trees.run();
        let gone = 20 - source.len() as u64;
        assert_eq!(tally.doomed, gone);
        if is_deleted {
            assert_eq!((tally.deleted, tally.failed), (gone, 0), "{limit}");
            continue;
        }
        assert_eq!((tally.deleted, tally.failed), (0, 1), "{limit}");
        let expected = format!(
            ": {gone} of the 20 entries of the destination would be deleted, and --max-delete {limit} does not \
             allow that (look at them with -n, then give --max-delete {gone}): nothing is deleted"
        );
        assert_eq!(trees.failures(), [expected]);
    }
}

#[test]
fn entries_of_directories_that_only_the_destination_has_count() {
    let mut trees = Trees::new(&["a"], &["a", "old/b", "old/c", "old/d/e"], limited("4"));
    let tally = trees.run();
    assert_eq!((tally.doomed, tally.deleted), (5, 0));
    assert!(
        trees.failures()[0].starts_with(": 5 of the 6 entries"),
        "{:?}",
        trees.failures()
    );
    let mut trees = Trees::new(&["a"], &["a", "old/b", "old/c", "old/d/e"], limited("5"));
    assert_eq!(trees.run().deleted, 5);
    assert_eq!(trees.destination, tree(&["a"]));
    let at = |path: &str| {
        trees
            .deleted
            .iter()
            .position(|it| it == path)
            .expect("deleted")
    };
    assert!(at("old/d/e") < at("old/d") && at("old/d") < at("old") && at("old/b") < at("old"));
}

#[test]
fn nothing_is_deleted_after_a_failure() {
    let refused: [(&str, &[&str]); 3] = [
        ("a", &["a", "b"]),
        ("sub", &["b", "sub/c"]),
        ("sub/c", &["b", "sub/c"]),
    ];
    for (path, source) in refused {
        let mut trees = Trees::new(source, &["b", "x", "sub/", "old/y"], deleting());
        trees.refused.insert(path.to_owned());
        let tally = trees.run();
        assert!(trees.deleted.is_empty(), "{path}");
        assert!(tally.doomed > 0 && tally.failed >= 2, "{path} {tally:?}");
        let last = trees.failures().pop().expect("told");
        assert!(
            last.ends_with("and something has failed: nothing is deleted"),
            "{last}"
        );
    }
    // Only the destination has this directory, and the destination refuses to list it.
    let mut trees = Trees::new(&["b"], &["b", "x", "old/y"], deleting());
    trees.refused.insert("old".to_owned());
    trees.run();
    assert!(trees.deleted.is_empty());
}

#[test]
fn a_listing_that_is_not_understood_deletes_nothing() {
    let mut trees = Trees::new(&["a", "sub/b"], &["a", "x", "sub/y"], deleting());
    trees.strange.insert("sub".to_owned());
    let tally = trees.run();
    assert_eq!(tally.moved, 1, "what was understood is copied");
    assert!(trees.deleted.is_empty());
    let failures = trees.failures();
    assert_eq!(
        failures[0],
        "sub: 1 lines of its listing are not understood"
    );
}

#[test]
fn an_empty_source_deletes_nothing_unless_it_is_trusted() {
    for source in [&[][..], &["a", "sub/"]] {
        let mut trees = Trees::new(source, &["a", "sub/b"], deleting());
        let tally = trees.run();
        assert!(trees.deleted.is_empty());
        assert!(tally.failed > 0);
        let first = &trees.failures()[0];
        assert!(first.contains("--trust-empty"), "{first}");
        let mut options = deleting();
        if let JobPurpose::Sync { deletion: Some(it) } = &mut options.purpose {
            it.trusts_empty = true;
        }
        let mut trees = Trees::new(source, &["a", "sub/b"], options);
        assert_eq!(trees.run().failed, 0);
        assert_eq!(trees.destination, tree(source));
    }
    let mut trees = Trees::new(
        &["a", "sub/"],
        &["a", "sub/b.bak"],
        excluding(deleting(), "*.bak"),
    );
    assert_eq!(trees.run().failed, 0, "nothing would be deleted there");
}

#[test]
fn what_a_filter_leaves_out_stays_at_the_destination() {
    let source = ["a", "x.bak"];
    let there = ["a", "y.bak", "old/z.bak", "old/b", "gone/c", "x.bak"];
    let options = excluding(deleting(), "*.bak");
    let mut trees = Trees::new(&source, &there, options.clone());
    let tally = trees.run();
    assert_eq!(trees.failures(), [""; 0]);
    assert_eq!(
        trees.destination,
        tree(&["a", "y.bak", "old/z.bak", "x.bak"])
    );
    assert_eq!((tally.deleted, tally.left_out), (3, 1));
    let mut all = options;
    if let JobPurpose::Sync { deletion: Some(it) } = &mut all.purpose {
        it.takes_excluded = true;
    }
    let mut trees = Trees::new(&source, &there, all);
    trees.run();
    assert_eq!(trees.failures(), [""; 0]);
    assert_eq!(trees.destination, tree(&["a"]));
    let mut trees = Trees::new(&["a"], &["a", "cache/x/y"], excluding(deleting(), "cache/"));
    trees.run();
    assert!(
        trees.deleted.is_empty(),
        "an excluded directory is not even listed"
    );
}

#[test]
fn a_directory_in_the_place_of_a_file_goes_only_if_nothing_is_lost() {
    let mut trees = Trees::new(&["a", "b"], &["a/", "b/c"], sync());
    let tally = trees.run();
    assert_eq!((tally.moved, tally.deleted, tally.failed), (1, 1, 1));
    let failures = trees.failures();
    assert!(
        failures[0]
            .starts_with("b: the destination has a directory with this name, and only --delete")
    );
    assert!(trees.destination.contains_key("b/c"));
    let mut trees = Trees::new(&["b"], &["b/c.bak"], excluding(deleting(), "*.bak"));
    trees.run();
    assert_eq!(
        trees.failures(),
        ["b: the destination has a directory with this name, and something in it is kept"]
    );
    let mut trees = Trees::new(&["a", "b"], &["a", "b/c"], limited("1"));
    trees.run();
    assert!(trees.deleted.is_empty());
    assert_eq!(trees.failures().len(), 2, "the limit, and the file");
}

#[test]
fn a_file_that_cannot_be_deleted_harms_no_other() {
    let mut trees = Trees::new(&["a"], &["a", "old/b", "old/c", "x"], deleting());
    trees.refused.insert("old/b".to_owned());
    let tally = trees.run();
    assert_eq!((tally.deleted, tally.failed), (2, 1));
    assert_eq!(trees.destination, tree(&["a", "old/b"]));
}

#[test]
fn a_check_tells_what_differs_and_changes_nothing() {
    let source = [
        "same",
        "time",
        "size",
        "kind",
        "missing",
        "dir/",
        "new/inner",
    ];
    let mut trees = Trees::new(
        &source,
        &["same", "time", "size", "kind/", "dir/", "only", "more/x"],
        check(false),
    );
    trees
        .destination
        .insert("time".to_owned(), TreeEntry::File(4, 5_000, 0));
    trees
        .destination
        .insert("size".to_owned(), TreeEntry::File(5, 1_000, 0));
    let before = trees.destination.clone();
    let tally = trees.run();
    assert_eq!(trees.destination, before);
    assert_eq!(
        (tally.same, tally.differing, tally.missing, tally.surplus),
        (1, 3, 2, 2)
    );
    assert_eq!(tally.failed, 0);
    let mut differ = trees.paths_of(|it| matches!(it, FileOutcome::Differs(_)));
    differ.sort();
    assert_eq!(differ, ["kind", "size", "time"]);
    assert_eq!(
        trees.paths_of(|it| *it == FileOutcome::Missing).len(),
        2,
        "files, not directories"
    );
    assert_eq!(
        trees.paths_of(|it| *it == FileOutcome::Extra),
        ["more", "only"]
    );
}

#[test]
fn a_check_by_content_ignores_times() {
    let mut trees = Trees::new(&["a", "b", "c"], &["a", "b", "c"], check(true));
    trees
        .destination
        .insert("b".to_owned(), TreeEntry::File(1, 1_000, 9));
    trees
        .destination
        .insert("c".to_owned(), TreeEntry::File(7, 1_000, 0));
    let tally = trees.run();
    assert_eq!((tally.same, tally.differing), (1, 2));
    let mut trees = Trees::new(&["a", "b/"], &["a"], check(false));
    assert_eq!(trees.run().missing, 0);
    let mut options = check(false);
    options.makes_empty_directories = true;
    let mut trees = Trees::new(&["a", "b/"], &["a"], options);
    assert_eq!(trees.run().missing, 1);
}

#[test]
fn a_filter_leaves_files_out_of_a_copy() {
    let options = excluding(PlanOptions::default(), "*.tmp");
    let mut trees = Trees::new(&["a", "b.tmp", "sub/c.tmp"], &[], options);
    let tally = trees.run();
    assert_eq!((tally.moved, tally.left_out, tally.found), (1, 2, 1));
    let mut trees = Trees::new(&["a", "cache/b"], &[], excluding(sync(), "cache/"));
    trees.run();
    assert_eq!(trees.destination, tree(&["a"]));
}

#[test]
fn a_limit_is_a_number_or_a_share() {
    for (text, shown) in [
        ("50", "50"),
        ("10%", "10%"),
        ("0.5 %", "0.5%"),
        ("29%", "29%"),
        ("0", "0"),
    ] {
        let max: DeletionMax = text.parse().expect(text);
        assert_eq!(max.to_string(), shown);
    }
    for text in ["", "x", "-1", "101%", "0.5"] {
        assert!(text.parse::<DeletionMax>().is_err(), "{text}");
    }
    let usual = DeletionMax::default();
    for (deleted, there, is_allowed) in [
        (1, 5, true),
        (10, 12, true),
        (11, 12, false),
        (11, 110, true),
        (12, 110, false),
    ] {
        assert_eq!(
            usual.allows(deleted, there),
            is_allowed,
            "{deleted} of {there}"
        );
    }
    let max: DeletionMax = "29%".parse().expect("a share");
    assert!(max.allows(29, 100) && !max.allows(30, 100) && max.allows(0, 0));
}
