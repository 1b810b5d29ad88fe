//! Destinations that treat different names as equal, or that store names in another form. The tests
//! check that no file is lost and that each affected file is reported.

use unicode_normalization::UnicodeNormalization as _;

use super::{
    trees::{Tree, TreeEntry, Trees, tree},
    *,
};

fn deleting(removes_source: bool) -> PlanOptions {
    let deletion = Deletion {
        max: DeletionMax::Share(1.0),
        takes_excluded: false,
        trusts_empty: true,
    };
    PlanOptions {
        purpose: JobPurpose::Sync {
            deletion: Some(deletion).filter(|_| !removes_source),
        },
        removes_source,
        ..PlanOptions::default()
    }
}

/// Returns the path that the destination stores. Each name is converted by `form`, unless the
/// directory already has an entry with the same `key`.
fn stored(tree: &Tree, path: &str, form: fn(&str) -> String, key: fn(&str) -> String) -> String {
    let mut stored = String::new();
    for name in path.split('/') {
        let above = if stored.is_empty() {
            String::new()
        } else {
            format!("{stored}/")
        };
        let is_it = |it: &&String| {
            it.strip_prefix(&above)
                .is_some_and(|it| !it.contains('/') && key(it) == key(name))
        };
        let there = tree.keys().find(is_it).cloned();
        stored = there.unwrap_or_else(|| format!("{above}{}", form(name)));
    }
    stored
}

fn without_case(tree: &Tree, path: &str) -> String {
    stored(tree, path, str::to_owned, str::to_lowercase)
}

fn decomposed(tree: &Tree, path: &str) -> String {
    let form = |name: &str| name.nfd().collect();
    stored(tree, path, form, form)
}

fn without_blanks(tree: &Tree, path: &str) -> String {
    let form = |name: &str| match name.strip_suffix(' ') {
        Some(rest) => format!("{rest}_"),
        None => name.to_owned(),
    };
    stored(tree, path, form, form)
}

/// Runs three syncs one after another. Returns the last run.
fn synced(
    source: &[&str],
    destination: Tree,
    options: &PlanOptions,
    stored: fn(&Tree, &str) -> String,
    seed: u64,
) -> Trees {
    let mut destination = destination;
    for _ in 0..2 {
        let mut trees = Trees::of(tree(source), destination, options.clone(), seed);
        trees.stored = stored;
        trees.run();
        destination = trees.destination;
    }
    let mut trees = Trees::of(tree(source), destination, options.clone(), seed);
    trees.stored = stored;
    trees.run();
    trees
}

#[test]
fn a_sync_deletes_nothing_that_a_server_stores_decomposed() {
    let source = ["Café", "Übung/a", "Übung/é", "plain"];
    for seed in 0..20 {
        let trees = synced(&source, tree(&[]), &deleting(false), decomposed, seed);
        assert_eq!(trees.failures(), [""; 0], "seed {seed}");
        assert_eq!((trees.moved, trees.deleted.len()), (0, 0), "seed {seed}");
        assert_eq!(trees.destination.len(), tree(&source).len());
    }
}

#[test]
fn a_name_that_differs_in_case_alone_keeps_its_file() {
    for seed in 0..20 {
        let trees = synced(
            &["DSC1.jpg", "b"],
            tree(&["dsc1.JPG", "b", "c"]),
            &deleting(false),
            without_case,
            seed,
        );
        assert_eq!(trees.failures(), [""; 0]);
        let there: Vec<_> = trees.destination.keys().map(String::as_str).collect();
        assert_eq!(there, ["", "b", "dsc1.JPG"], "seed {seed}");
        // A destination that distinguishes the two names has only the new name after the syncs.
        let identity = |_: &Tree, path: &str| path.to_owned();
        let trees = synced(
            &["DSC1.jpg", "b"],
            tree(&["dsc1.JPG", "b", "c"]),
            &deleting(false),
            identity,
            seed,
        );
        let there: Vec<_> = trees.destination.keys().map(String::as_str).collect();
        assert_eq!(there, ["", "DSC1.jpg", "b"], "seed {seed}");
    }
}

#[test]
fn of_sources_that_fall_together_one_stays_and_is_named() {
    for (source, names) in [
        (&["Readme", "README", "readme", "x"][..], 2),
        (&["Sub/a", "sub/a", "sub/b"], 1),
        (&["é", "e\u{301}", "É"], 2),
        (&["a", "A/b"], 1),
    ] {
        for seed in 0..20 {
            let mut trees = Trees::of(tree(source), tree(&[]), deleting(true), seed);
            trees.stored = |tree, path| {
                let key = |name: &str| name.nfc().collect::<String>().to_lowercase();
                stored(tree, path, str::to_owned, key)
            };
            // All sources have different contents.
            for (number, thing) in trees.source.values_mut().enumerate() {
                if let TreeEntry::File(_, _, content) = thing {
                    *content = number as u8;
                }
            }
            let before = trees.source.clone();
            trees.run();
            assert_eq!(
                trees.failures().len(),
                names,
                "{source:?} {:?}",
                trees.failures()
            );
            for (path, thing) in &before {
                let is_there = trees.destination.values().any(|it| it == thing);
                assert!(
                    trees.source.contains_key(path) || is_there,
                    "{path} is lost"
                );
            }
        }
    }
}

#[test]
fn sources_that_look_alike_are_all_moved_where_the_destination_tells_them_apart() {
    let source = [
        "Readme", "README", "Sub/a", "sub/a", "é", "e\u{301}", "a ", "a_",
    ];
    for seed in 0..20 {
        let mut trees = Trees::of(
            tree(&source),
            tree(&["README", "Sub/"]),
            deleting(true),
            seed,
        );
        trees.loss = if seed % 2 == 0 { 0.0 } else { 0.1 };
        trees.run();
        assert_eq!(trees.failures(), [""; 0], "seed {seed}");
        assert_eq!(trees.destination, tree(&source), "seed {seed}");
        let files = trees
            .source
            .values()
            .filter(|it| matches!(it, TreeEntry::File(..)));
        assert_eq!(files.count(), 0, "all are removed");
    }
}

#[test]
fn a_name_that_the_server_changes_is_reported_and_its_file_is_kept() {
    for seed in 0..20 {
        let source = ["take 1 ", "b"];
        let mut trees = Trees::of(tree(&source), tree(&[]), deleting(true), seed);
        trees.stored = without_blanks;
        trees.run();
        let [failure] = &trees.failures()[..] else {
            panic!("{:?}", trees.failures());
        };
        assert!(
            failure.contains("stored \"take 1 \" as \"take 1_\""),
            "{failure}"
        );
        assert!(trees.source.contains_key("take 1 "), "its source stays");
        let trees = synced(
            &source,
            tree(&["gone"]),
            &deleting(false),
            without_blanks,
            seed,
        );
        assert!(trees.destination.contains_key("take 1_"), "seed {seed}");
        assert_eq!(
            trees.failures().len(),
            2,
            "it is told again, and nothing is deleted"
        );
    }
}

#[test]
fn one_listing_shows_that_a_server_keeps_names() {
    let source: Vec<String> = (0..200).map(|it| format!("é {it} ")).collect();
    let source: Vec<&str> = source.iter().map(String::as_str).collect();
    let mut trees = Trees::of(tree(&source), tree(&[]), PlanOptions::default(), 1);
    assert_eq!(trees.run().moved, 200);
    assert_eq!(trees.listings, 2);
}

#[test]
fn parts_are_neither_sources_nor_surplus() {
    let part = "film.0123abcd.part";
    let other = "film.crdownload";
    let mut trees = Trees::new(
        &["a", part, other],
        &["a", "film.89abcdef.part", "d/x.01234567.part"],
        deleting(false),
    );
    let tally = trees.run();
    assert_eq!(
        (tally.failed, tally.deleted, tally.doomed),
        (0, 0, 0),
        "{:?}",
        trees.failures()
    );
    assert!(!trees.destination.contains_key(part));
    assert!(trees.destination.contains_key(other));
    assert!(trees.destination.contains_key("d/x.01234567.part"));
    let options = PlanOptions {
        leaves_partial: true,
        ..PlanOptions::default()
    };
    let mut trees = Trees::new(&["a", "b~", other, "c.filepart"], &[], options);
    assert_eq!(trees.run().moved, 1);
}
