//! Tests of syncs and checks with a real FTP server on loopback.

use std::{fs, sync::Arc};

use mover::{
    filter::{Bounds, Filter, Rule},
    job::Job,
    plan::{Deletion, DeletionMax, DryRunStep, FileOutcome, JobPurpose},
};

use crate::common::{CopyResult, World, content, tree, write};

fn syncing(mut job: Job, max: Option<&str>) -> Job {
    let deletion = max.map(|max| Deletion {
        max: max.parse::<DeletionMax>().expect("a limit"),
        takes_excluded: false,
        trusts_empty: false,
    });
    job.plan.purpose = JobPurpose::Sync { deletion };
    job
}

fn checking(mut job: Job, compares_content: bool) -> Job {
    job.plan.purpose = JobPurpose::Check { compares_content };
    job
}

/// Returns the sorted paths of file events whose result satisfies `is_it`.
fn paths_of(copied: &CopyResult, is_it: impl Fn(&FileOutcome) -> bool) -> Vec<String> {
    let notes = copied.notes.iter().filter(|it| is_it(&it.result));
    let mut paths: Vec<String> = notes.map(|it| it.path.to_string()).collect();
    paths.sort();
    paths
}

/// Writes two trees. The second tree has some files of the first tree, and some other files.
fn write_trees(ours: &std::path::Path, theirs: &std::path::Path) {
    for path in [
        "a",
        "sub/b",
        "sub/deep/c",
        "file or folder",
        "folder or file/x",
    ] {
        write(&ours.join(path), path.as_bytes());
    }
    fs::create_dir_all(ours.join("empty/inside")).expect("room");
    write(&theirs.join("a"), b"other");
    write(&theirs.join("extra"), b"more");
    write(&theirs.join("old/x/y"), b"old");
    write(&theirs.join("old/z"), &content(1_000));
    write(&theirs.join("file or folder/was/here"), b"a folder");
    write(&theirs.join("folder or file"), b"a file");
    fs::create_dir_all(theirs.join("old/nothing")).expect("room");
}

#[test]
fn trees_are_equal_after_a_sync_up_and_down() {
    let world = World::new();
    let (here, there) = (world.here("tree"), world.at_server("tree"));
    write_trees(&here, &there);
    let up = world.run(syncing(world.upload(&here, "tree"), Some("100%")));
    assert_eq!(up.failures(), [""; 0]);
    assert_eq!(tree(&there), tree(&here));
    assert_eq!((up.summary.tally.moved, up.summary.tally.deleted), (5, 9));
    let again = world.run(syncing(world.upload(&here, "tree"), Some("0")));
    assert_eq!(again.failures(), [""; 0]);
    assert_eq!(again.summary.tally.deleted, 0);

    let back = world.here("back");
    write_trees(&world.here("unused"), &back);
    let down = world.run(syncing(world.download("tree", &back), Some("100%")));
    assert_eq!(down.failures(), [""; 0]);
    assert_eq!(tree(&back), tree(&there));
    let checked = world.run(checking(world.download("tree", &back), true));
    let tally = checked.summary.tally;
    assert_eq!(
        (tally.same, tally.differing, tally.missing, tally.surplus),
        (5, 0, 0, 0)
    );
}

#[test]
fn without_deletion_nothing_goes_but_an_empty_directory() {
    let world = World::new();
    let (here, there) = (world.here("tree"), world.at_server("tree"));
    write_trees(&here, &there);
    write(&here.join("was empty"), b"file");
    fs::create_dir(there.join("was empty")).expect("room");
    let up = world.run(syncing(world.upload(&here, "tree"), None));
    let failures = up.failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(
        failures[0].contains("only --delete removes its entries"),
        "{failures:?}"
    );
    assert!(there.join("file or folder/was/here").exists());
    assert_eq!(fs::read(there.join("was empty")).expect("a file"), b"file");
    assert_eq!(
        paths_of(&up, |it| *it == FileOutcome::Extra),
        ["extra", "old"]
    );
    assert_eq!(
        fs::read(there.join("folder or file/x")).expect("a file"),
        b"folder or file/x"
    );
}

#[test]
fn a_limit_or_a_failure_keeps_everything() {
    let world = World::new();
    let (here, there) = (world.here("tree"), world.at_server("tree"));
    write_trees(&here, &there);
    let up = world.run(syncing(world.upload(&here, "tree"), Some("8")));
    assert_eq!(up.summary.tally.deleted, 0);
    assert!(there.join("extra").exists() && there.join("old/z").exists());
    let last = up.failures();
    assert!(
        last.iter().any(|it| it.contains("--max-delete 8")),
        "{last:?}"
    );
    assert_eq!(fs::read(there.join("a")).expect("copied"), b"a");
    write(&here.join("line\nbreak"), b"cannot be sent");
    let up = world.run(syncing(world.upload(&here, "tree"), Some("100%")));
    assert_eq!(up.summary.tally.deleted, 0);
    assert!(there.join("extra").exists());
    // An unmounted disk looks like an empty directory.
    let nothing = world.here("nothing");
    fs::create_dir(&nothing).expect("room");
    let up = world.run(syncing(world.upload(&nothing, "tree"), Some("100%")));
    assert!(there.join("extra").exists());
    assert!(
        up.failures()[0].contains("--trust-empty"),
        "{:?}",
        up.failures()
    );
}

#[test]
fn a_dry_run_changes_nothing_and_tells_all() {
    let world = World::new();
    let (here, there) = (world.here("tree"), world.at_server("tree"));
    write_trees(&here, &there);
    let before = tree(&there);
    let mut job = syncing(world.upload(&here, "tree"), Some("100%"));
    job.plan.is_dry_run = true;
    let dry = world.run(job);
    assert_eq!(tree(&there), before);
    assert_eq!(dry.moved_bytes, 0);
    assert_eq!(
        paths_of(&dry, |it| matches!(
            it,
            FileOutcome::Planned(DryRunStep::Move(_))
        ))
        .len(),
        5
    );
    let doomed = paths_of(&dry, |it| *it == FileOutcome::Planned(DryRunStep::Delete));
    assert_eq!(doomed.len(), 9, "{doomed:?}");
    let made = paths_of(&dry, |it| *it == FileOutcome::Planned(DryRunStep::Make));
    assert_eq!(
        made,
        ["empty", "empty/inside", "folder or file", "sub", "sub/deep"]
    );
    let mut job = world.upload(&here, "new/place");
    job.plan.is_dry_run = true;
    world.run(job);
    assert!(!world.at_server("new").exists());
}

#[test]
fn a_check_tells_what_differs() {
    let world = World::new();
    let (here, there) = (world.here("tree"), world.at_server("tree"));
    write_trees(&here, &there);
    let checked = world.run(checking(world.upload(&here, "tree"), false));
    let tally = checked.summary.tally;
    let differ = paths_of(&checked, |it| matches!(it, FileOutcome::Differs(_)));
    assert_eq!(differ, ["a", "file or folder", "folder or file"]);
    assert_eq!(
        paths_of(&checked, |it| *it == FileOutcome::Missing),
        ["sub/b", "sub/deep/c"]
    );
    assert_eq!(
        paths_of(&checked, |it| *it == FileOutcome::Extra),
        ["extra", "old"]
    );
    assert_eq!(tally.failed, 0);

    // The files take two reads each, and differ only in the last byte.
    let mut bytes = content(600_000);
    write(&world.here("pair/x"), &bytes);
    write(&world.here("pair/y"), &bytes);
    write(&world.at_server("pair/x"), &bytes);
    bytes[599_999] ^= 1;
    write(&world.at_server("pair/y"), &bytes);
    let checked = world.run(checking(world.upload(&world.here("pair"), "pair"), true));
    assert_eq!(
        paths_of(&checked, |it| matches!(it, FileOutcome::Same(_))),
        ["x"]
    );
    assert_eq!(
        paths_of(&checked, |it| *it == FileOutcome::Differs("the content")),
        ["y"]
    );
    assert_eq!(checked.summary.tally.failed, 0);
}

#[test]
fn what_a_filter_leaves_out_is_neither_copied_nor_deleted() {
    let world = World::new();
    let (here, there) = (world.here("tree"), world.at_server("tree"));
    write(&here.join("a"), b"a");
    write(&here.join("b.bak"), b"b");
    write(&there.join("c.bak"), b"c");
    write(&there.join("old/d.bak"), b"d");
    write(&there.join("old/e"), b"e");
    let mut job = syncing(world.upload(&here, "tree"), Some("100%"));
    let rules = vec![Rule::exclude("*.bak").expect("a pattern")];
    job.plan.filter = Arc::new(Filter::new(rules, Bounds::default()).expect("a filter"));
    let up = world.run(job);
    assert_eq!(up.failures(), [""; 0]);
    let left: Vec<Vec<u8>> = tree(&there).into_keys().collect();
    assert_eq!(left, [&b"a"[..], b"c.bak", b"old", b"old/d.bak"]);
}

#[test]
fn a_file_makes_the_directory_that_it_goes_into() {
    let world = World::new();
    write(&world.here("a"), b"content");
    for (to, expected) in [
        ("new/deep/", "new/deep/a"),
        ("other/name", "other/name"),
        ("top", "top"),
    ] {
        let up = world.run(world.upload(&world.here("a"), to));
        assert_eq!(up.failures(), [""; 0], "{to}");
        assert_eq!(
            fs::read(world.at_server(expected)).expect("there"),
            b"content"
        );
    }
    let down = world.run(world.download("top", &world.here("far/away/")));
    assert_eq!(down.failures(), [""; 0]);
    assert_eq!(
        fs::read(world.here("far/away/top")).expect("there"),
        b"content"
    );
}

#[test]
fn links_at_the_destination_are_replaced_or_deleted_and_not_followed() {
    let world = World::new();
    let (there, back) = (world.at_server("tree"), world.here("back"));
    write(&there.join("a"), b"new");
    write(&there.join("folder/b"), b"new");
    write(&world.here("precious/x"), b"precious");
    fs::create_dir(&back).expect("room");
    for name in ["a", "folder", "only here"] {
        let target = world.here(if name == "a" {
            "precious/x"
        } else {
            "precious"
        });
        std::os::unix::fs::symlink(target, back.join(name)).expect("room");
    }
    let down = world.run(syncing(world.download("tree", &back), Some("100%")));
    assert_eq!(down.failures(), [""; 0]);
    assert_eq!(tree(&back), tree(&there));
    assert!(!back.join("a").is_symlink() && !back.join("folder").is_symlink());
    assert_eq!(
        fs::read(world.here("precious/x")).expect("kept"),
        b"precious"
    );
    assert!(!world.here("precious/b").exists());
}
