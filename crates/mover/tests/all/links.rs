//! Tests of symbolic links where a job reads, writes and removes files. A path that the user names
//! may be a link. Links below that path are not followed.

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
    },
    path::Path,
    sync::Arc,
};

use mover::{
    job::{CopyOptions, Job, JobSite, Root, RootTarget},
    plan::{
        Deletion, DeletionMax, File, FileEvent, FileOutcome, JobPurpose, PlanOptions, RelativePath,
    },
    run::{JobProgress, run},
};
use tokio::runtime::Runtime;

use crate::common::{self, World, content, tree, write};

/// Creates a job that copies between two local paths.
fn copy(from: &Path, to: &Path) -> Job {
    let name = from.file_name().unwrap_or_default().as_bytes().to_vec();
    Job {
        source: JobSite::Local,
        destination: JobSite::Local,
        roots: vec![Root {
            source: from.as_os_str().as_bytes().to_vec(),
            destination: RootTarget::new(to.as_os_str().as_bytes().to_vec(), name),
        }],
        files: None,
        plan: PlanOptions::default(),
        moving: CopyOptions::default(),
        sharing: None,
        session_pool: None,
        fence: None,
    }
}

fn run_job(job: Job) -> Vec<FileEvent> {
    let mut notes = Vec::new();
    let progress = Arc::new(JobProgress::new(None));
    let running = run(job, None, progress, std::future::pending(), |note, _| {
        notes.extend(note);
    });
    Runtime::new().expect("a runtime").block_on(running);
    notes
}

fn failures(notes: &[FileEvent]) -> Vec<&str> {
    let failures = notes.iter().filter_map(|it| match &it.result {
        FileOutcome::Failed(reason) => Some(reason.as_str()),
        _ => None,
    });
    failures.collect()
}

fn file(names: &[&str], size_bytes: u64) -> File {
    let path = names.iter().fold(RelativePath::default(), |path, name| {
        path.join(name.as_bytes())
    });
    File {
        root: 0,
        path,
        size_bytes: Some(size_bytes),
        modified: None,
        link: None,
    }
}

#[test]
fn a_link_under_the_name_of_a_part_is_not_written_through() {
    let folder = tempfile::tempdir().expect("room");
    let here = |name: &str| folder.path().join(name);
    write(&here("victim"), b"secret");
    write(&here("from/report"), b"chosen by another user");
    fs::create_dir(here("to")).expect("room");
    let (source, path) = (here("from/report"), here("to/report"));
    let part =
        CopyOptions::default().partial(source.as_os_str().as_bytes(), path.as_os_str().as_bytes());
    symlink(here("victim"), common::name(&part)).expect("room");
    assert_eq!(
        failures(&run_job(copy(&here("from"), &here("to")))),
        [""; 0]
    );
    // Predictable names of parts do not help an attacker either.
    let mut job = copy(&here("from"), &here("again"));
    job.moving.has_random_parts = false;
    let path = here("again/report");
    fs::create_dir(here("again")).expect("room");
    let part = job
        .moving
        .partial(source.as_os_str().as_bytes(), path.as_os_str().as_bytes());
    symlink(here("victim"), common::name(&part)).expect("room");
    assert_eq!(failures(&run_job(job)), [""; 0]);
    for copied in ["to/report", "again/report"] {
        assert!(
            !fs::symlink_metadata(here(copied))
                .expect("there")
                .is_symlink()
        );
        assert_eq!(
            fs::read(here(copied)).expect("there"),
            b"chosen by another user"
        );
    }
    assert_eq!(fs::read(here("victim")).expect("there"), b"secret");
}

#[test]
fn what_became_a_link_after_the_listing_is_neither_read_nor_removed() {
    let folder = tempfile::tempdir().expect("room");
    let here = |name: &str| folder.path().join(name);
    write(&here("secret/key"), b"mine");
    write(&here("hot/plain"), b"fine");
    symlink(here("secret/key"), here("hot/key")).expect("room");
    symlink(here("secret"), here("hot/folder")).expect("room");
    let mut job = copy(&here("hot"), &here("out"));
    job.plan.removes_source = true;
    job.plan.retries = 0;
    // The listing found the files in this state.
    job.files = Some(vec![
        file(&["key"], 4),
        file(&["folder", "key"], 4),
        file(&["plain"], 4),
    ]);
    let notes = run_job(job);
    assert_eq!(failures(&notes).len(), 2, "{notes:?}");
    assert_eq!(fs::read(here("out/plain")).expect("there"), b"fine");
    assert!(!here("out/key").exists() && !here("out/folder/key").exists());
    assert_eq!(fs::read(here("secret/key")).expect("there"), b"mine");
    assert!(!here("hot/plain").exists());
}

#[test]
fn a_folder_that_is_a_link_at_the_destination_is_not_written_into() {
    let folder = tempfile::tempdir().expect("room");
    let here = |name: &str| folder.path().join(name);
    write(&here("from/sub/a"), b"a");
    write(&here("elsewhere/a"), b"mine");
    fs::create_dir(here("to")).expect("room");
    symlink(here("elsewhere"), here("to/sub")).expect("room");
    let mut job = copy(&here("from"), &here("to"));
    job.plan.retries = 0;
    // The destination was listed before the link existed.
    job.files = Some(vec![file(&["sub", "a"], 1)]);
    assert_eq!(failures(&run_job(job)).len(), 2);
    assert_eq!(tree(&here("elsewhere")).len(), 1);
    assert_eq!(fs::read(here("elsewhere/a")).expect("there"), b"mine");
    // If a deleted entry is a link, the link is removed, and its target stays.
    write(&here("from/b"), b"b");
    let mut job = copy(&here("from"), &here("to"));
    fs::remove_dir_all(here("from/sub")).expect("there");
    job.plan.purpose = JobPurpose::Sync {
        deletion: Some(Deletion {
            max: DeletionMax::Share(1.0),
            takes_excluded: false,
            trusts_empty: false,
        }),
    };
    assert_eq!(failures(&run_job(job)), [""; 0]);
    assert!(fs::symlink_metadata(here("to/sub")).is_err());
    assert_eq!(fs::read(here("elsewhere/a")).expect("there"), b"mine");
}

#[test]
fn what_a_user_names_may_be_a_link() {
    let folder = tempfile::tempdir().expect("room");
    let here = |name: &str| folder.path().join(name);
    write(&here("disk/from/sub/a"), b"a");
    write(&here("disk/film"), &content(2_000_000));
    fs::create_dir(here("disk/to")).expect("room");
    for name in ["from", "to", "film"] {
        symlink(here("disk").join(name), here(name)).expect("room");
    }
    for from in ["from", "film"] {
        assert_eq!(failures(&run_job(copy(&here(from), &here("to")))), [""; 0]);
    }
    assert_eq!(fs::read(here("disk/to/sub/a")).expect("there"), b"a");
    assert_eq!(
        fs::read(here("disk/to/film")).expect("there"),
        content(2_000_000)
    );
    assert!(
        fs::symlink_metadata(here("to"))
            .expect("there")
            .is_symlink()
    );
}

#[test]
fn a_file_that_is_replaced_keeps_its_mode() {
    let world = World::new();
    let modes = |from: &Path, to: &Path, job: Job| {
        for name in ["small", "large"] {
            let replaced = to.join(name);
            write(&replaced, b"old");
            fs::set_permissions(&replaced, fs::Permissions::from_mode(0o640)).expect("ours");
        }
        let notes = run_job(job);
        assert_eq!(failures(&notes), [""; 0]);
        for name in ["small", "large"] {
            let replaced = fs::metadata(to.join(name)).expect("there");
            let new = fs::metadata(from.join(name)).expect("there");
            assert_eq!(replaced.len(), new.len());
            assert_eq!(replaced.mode() & 0o7777, 0o640, "{name}");
        }
    };
    for folder in [world.here("from"), world.at_server("from")] {
        write(&folder.join("small"), b"new content");
        write(&folder.join("large"), &content(3_000_000));
    }
    let (here, to) = (world.here("from"), world.here("to"));
    modes(&here, &to, copy(&here, &to));
    let down = world.here("down");
    modes(
        &world.at_server("from"),
        &down,
        world.download("from", &down),
    );
}

#[test]
fn nothing_is_removed_through_a_link_that_is_followed() {
    let folder = tempfile::tempdir().expect("room");
    let here = |name: &str| folder.path().join(name);
    write(&here("disk/a"), b"a");
    write(&here("disk/sub/b"), b"b");
    write(&here("from/c"), b"c");
    symlink(here("disk/a"), here("from/a")).expect("room");
    symlink(here("disk/sub"), here("from/sub")).expect("room");
    let mut job = copy(&here("from"), &here("to"));
    job.plan.removes_source = true;
    job.plan.links = mover::plan::Links::Follow;
    assert_eq!(failures(&run_job(job)), [""; 0]);
    assert_eq!(tree(&here("to")).len(), 4);
    assert_eq!(tree(&here("disk")).len(), 3);
    assert!(!here("from/c").exists());
}
