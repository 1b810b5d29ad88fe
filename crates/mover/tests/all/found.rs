//! Tests of jobs whose files were listed earlier. The files are moved without another listing.

use std::{fs, path::Path};

use ftp::listing::{ModifiedTime, TimePrecision};
use mover::{
    job::Job,
    plan::{DryRunStep, File, FileEvent, FileOutcome, FileVersion, RelativePath},
    run::{BrowseError, Browser},
};
use units::BitRate;

use crate::common::{CopyResult, World, content, tree, write};

fn write_tree(folder: &Path) {
    for path in ["a", "sub/b", "sub/deep/er/c", "sub/deep/d", "other/e"] {
        write(&folder.join(path), path.as_bytes());
    }
}

/// Returns the moves that a dry run has reported.
fn planned(dry: &CopyResult) -> Vec<(usize, RelativePath, FileVersion)> {
    let step = |note: &FileEvent| match note.result {
        FileOutcome::Planned(DryRunStep::Move(version)) => {
            Some((note.root, note.path.clone(), version))
        }
        _ => None,
    };
    dry.notes.iter().filter_map(step).collect()
}

fn files(found: &[(usize, RelativePath, FileVersion)]) -> Vec<File> {
    let found = found.iter().cloned();
    let file = |(root, path, version): (usize, RelativePath, FileVersion)| File {
        root,
        path,
        size_bytes: version.size_bytes,
        modified: version.modified,
        link: None,
    };
    found.map(file).collect()
}

/// Makes a dry run of a job. Returns the planned moves, and a second job that moves exactly these
/// files.
fn found(world: &World, make: impl Fn() -> Job) -> (Vec<(usize, RelativePath, FileVersion)>, Job) {
    let mut dry = make();
    dry.plan.is_dry_run = true;
    let found = planned(&world.run(dry));
    let mut job = make();
    job.files = Some(files(&found));
    (found, job)
}

#[test]
fn files_that_a_dry_run_has_found_are_moved_without_a_listing() {
    let world = World::new();
    let here = world.here("tree");
    write_tree(&here);
    let up = || world.upload(&here, "into/copy");
    let (_, job) = found(&world, up);
    // A listing would find this file.
    write(&here.join("late"), b"late");
    let moved = world.run(job);
    assert_eq!((moved.failures(), moved.summary.tally.moved), (vec![], 5));
    assert!(!world.at_server("into/copy/late").exists());
    fs::remove_file(here.join("late")).expect("it is there");
    assert_eq!(tree(&world.at_server("into/copy")), tree(&here));

    let down = || world.download("into/copy", &world.here("back"));
    let (_, job) = found(&world, down);
    assert_eq!(world.run(job).summary.tally.moved, 5);
    assert_eq!(tree(&world.here("back")), tree(&here));
    // The directories exist now.
    let (_, mut job) = found(&world, || world.download("into/copy", &world.here("twice")));
    job.roots = down().roots;
    assert_eq!(world.run(job).failures(), [""; 0]);
}

#[test]
fn a_root_that_is_a_file_goes_where_a_copy_puts_it() {
    let world = World::new();
    write(&world.here("film"), b"film");
    fs::create_dir_all(world.at_server("folder")).expect("room");
    let (found, job) = found(&world, || world.upload(&world.here("film"), "folder"));
    assert_eq!(found.len(), 1);
    assert_eq!(world.run(job).summary.tally.moved, 1);
    assert_eq!(
        fs::read(world.at_server("folder/film")).expect("there"),
        b"film"
    );
}

#[test]
fn a_file_that_has_changed_since_it_was_found_is_moved_as_it_is_now() {
    let world = World::new();
    let here = world.here("tree");
    write_tree(&here);
    let (_, mut job) = found(&world, || world.upload(&here, "copy"));
    let files = job.files.as_mut().expect("they were found");
    files[0].size_bytes = Some(77);
    files[1].modified = Some(ModifiedTime {
        unix_s: 5,
        precision: TimePrecision::Second,
    });
    let moved = world.run(job);
    assert_eq!((moved.failures(), moved.summary.tally.moved), (vec![], 5));
    assert_eq!(tree(&world.at_server("copy")), tree(&here));
}

#[test]
fn a_job_that_was_narrowed_looks_for_what_is_there() {
    let world = World::new();
    let here = world.here("tree");
    write_tree(&here);
    let up = || world.upload(&here, "copy");
    let (found, mut job) = found(&world, up);
    job.files.as_mut().expect("they were found").truncate(2);
    assert_eq!(world.run(job).summary.tally.moved, 2);
    let mut job = up();
    let all: Vec<_> = found.into_iter().map(|it| (it.0, it.1)).collect();
    job.narrow(&all);
    let rest = world.run(job);
    assert_eq!((rest.summary.tally.same, rest.summary.tally.moved), (2, 3));
    assert_eq!(tree(&world.at_server("copy")), tree(&here));
}

#[test]
fn parts_are_called_as_a_run_calls_them() {
    let world = World::new();
    let here = world.here("tree");
    write(&here.join("a"), &content(3_000_000));
    let slow = || {
        let mut job = world.upload(&here, "copy");
        job.moving.rate_max = Some(BitRate::mbit(10).into());
        job.moving.partial_suffix = Some(b".one".to_vec());
        job
    };
    let files = [(0, RelativePath::default().join(b"a"))];
    let parts = slow().parts(&files, b".one");
    world.run_until(slow(), 1_000_000);
    let [part] = &parts[..] else {
        panic!("{parts:?}");
    };
    let part = String::from_utf8(part.clone()).expect("text");
    assert!(world.at_server(&part).exists(), "{part}");
    // A root that is a file may go into a directory.
    let film = world.upload(&world.here("film"), "folder");
    let parts = film.parts(&[(0, RelativePath::default())], b".one");
    assert_eq!(parts.len(), 2, "{parts:?}");
}

#[test]
fn a_browser_deletes_a_file_that_is_there() {
    let world = World::new();
    write(&world.at_server("x"), b"x");
    let site = world.upload(&world.here("x"), "x").destination;
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut browser = Browser::open(&site, None).await.expect("it answers");
        browser.delete(b"x").await.expect("it is there");
        let gone = browser.delete(b"x").await;
        assert!(matches!(gone, Err(BrowseError::Server(_))), "{gone:?}");
        browser.close().await;
    });
    assert!(!world.at_server("x").exists());
}
