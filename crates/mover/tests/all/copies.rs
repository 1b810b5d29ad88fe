//! Tests of copies to and from a real FTP server on loopback.
#![allow(
    clippy::disallowed_methods,
    reason = "writes to files in real time while they are read"
)]

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{JoinHandle, sleep},
    time::{Duration, Instant},
};

use mover::job::{CopyVerification, GrowthHandling, RootTarget};
use units::BitRate;

use crate::common::{self, World, content, name, tree, write};

/// Writes a directory tree with names that cause problems for servers.
fn write_tree(world: &World) {
    let here = world.here("tree");
    for (path, bytes) in [
        (&b"a"[..], &b"one"[..]),
        (b"empty", b""),
        (b"with space ", b"two"),
        (b"-dash", b"three"),
        (b".hidden", b"four"),
        ("sub/ümlaut".as_bytes(), b"five"),
        (b"sub/deep/er/still/x", b"six"),
    ] {
        write(&here.join(name(path)), bytes);
    }
    write(&here.join("large"), &content(3_000_000));
    fs::create_dir(here.join("nothing inside")).expect("room");
}

#[test]
fn a_tree_goes_up_and_comes_down_again_and_is_not_moved_twice() {
    let world = World::new();
    write_tree(&world);
    let mut job = world.upload(&world.here("tree"), "into/copy");
    job.plan.makes_empty_directories = true;
    let up = world.run(job);
    assert_eq!(up.failures(), [""; 0]);
    assert_eq!(up.summary.tally.moved, 8);
    assert_eq!(
        tree(&world.at_server("into/copy")),
        tree(&world.here("tree"))
    );

    let mut job = world.download("into/copy", &world.here("back"));
    job.plan.makes_empty_directories = true;
    let down = world.run(job);
    assert_eq!(down.failures(), [""; 0]);
    assert_eq!(tree(&world.here("back")), tree(&world.here("tree")));
    let time = |path: &str| {
        fs::metadata(world.at_server(path))
            .expect("there")
            .modified()
    };
    let theirs = time("into/copy/large").expect("a time");
    let ours = fs::metadata(world.here("back/large"))
        .expect("there")
        .modified()
        .expect("a time");
    let difference = ours
        .duration_since(theirs)
        .unwrap_or_else(|it| it.duration());
    assert!(difference < Duration::from_secs(1), "{difference:?}");

    let again = world.run(world.download("into/copy", &world.here("back")));
    assert_eq!(
        (again.summary.tally.same, again.summary.tally.moved),
        (8, 0)
    );
    write(&world.at_server("into/copy/a"), b"other");
    let changed = world.run(world.download("into/copy", &world.here("back")));
    assert_eq!(changed.summary.tally.moved, 1);
    assert_eq!(fs::read(world.here("back/a")).expect("there"), b"other");
}

#[test]
fn a_file_goes_into_a_directory_or_under_another_name() {
    let world = World::new();
    write(&world.here("a"), b"content");
    fs::create_dir(world.at_server("there")).expect("room");
    for (to, expected) in [
        ("there", "there/a"),
        ("other", "other"),
        ("there/", "there/a"),
    ] {
        let copied = world.run(world.upload(&world.here("a"), to));
        assert_eq!(copied.failures(), [""; 0]);
        assert_eq!(
            fs::read(world.at_server(expected)).expect("there"),
            b"content"
        );
    }
    let copied = world.run(world.download("other", &world.here("")));
    assert_eq!(copied.failures(), [""; 0]);
    assert_eq!(fs::read(world.here("other")).expect("there"), b"content");
}

/// Returns the length of a part file after its length has stopped growing. When the client
/// disconnects, the server may still receive bytes in flight.
fn settled_len(path: &Path) -> u64 {
    let len = || fs::metadata(path).expect("a part").len();
    let mut before = len();
    loop {
        sleep(Duration::from_millis(200));
        let now = len();
        if now == before {
            return now;
        }
        before = now;
    }
}

#[test]
fn an_interrupted_copy_goes_on_and_shows_no_half_file() {
    let world = World::new();
    let bytes = content(20_000_000);
    write(&world.here("a"), &bytes);
    let job = || {
        let mut job = world.upload(&world.here("a"), "copy");
        job.moving.rate_max = Some(BitRate::mbit(200).into());
        job
    };
    let first = world.run_until(job(), 8_000_000);
    assert!(first.summary.is_interrupted);
    assert!(
        !world.at_server("copy").exists(),
        "nothing is there that is not whole"
    );
    let part = settled_len(&part_of(&world.at_server(""), "copy"));
    assert!(part > 1_000_000 && part < 20_000_000, "{part}");
    let second = world.run(job());
    assert_eq!(second.failures(), [""; 0]);
    assert_eq!(fs::read(world.at_server("copy")).expect("there"), bytes);
    assert_eq!(
        fs::read_dir(world.at_server("")).expect("a folder").count(),
        1
    );
    assert_eq!(
        second.moved_bytes,
        20_000_000 - part,
        "it goes on where it was"
    );

    let job = || {
        let mut job = world.download("copy", &world.here("back"));
        job.moving.rate_max = Some(BitRate::mbit(200).into());
        job
    };
    let first = world.run_until(job(), 8_000_000);
    assert!(first.summary.is_interrupted && !world.here("back").exists());
    let second = world.run(job());
    assert_eq!(second.failures(), [""; 0]);
    assert!(second.moved_bytes < 15_000_000, "{}", second.moved_bytes);
    assert_eq!(fs::read(world.here("back")).expect("there"), bytes);
}

/// Returns the path of a file's part file in a folder.
fn part_of(folder: &Path, name: &str) -> PathBuf {
    let entries = fs::read_dir(folder).expect("a folder");
    let names = entries.map(|it| it.expect("an entry").file_name());
    let part = names.map(|it| it.into_string().expect("text"));
    let mut parts = part.filter(|it| it.starts_with(name) && it.ends_with(".part"));
    folder.join(parts.next().expect("a part"))
}

#[test]
fn a_file_that_is_called_like_a_part_is_copied_too() {
    let world = World::new();
    for (path, bytes) in [
        ("tree/x", "one"),
        ("tree/x.part", "two"),
        ("tree/x.part.part", "three"),
    ] {
        write(&world.here(path), bytes.as_bytes());
    }
    let long = "n".repeat(255);
    write(&world.here("tree").join(&long), b"long");
    let mut job = world.upload(&world.here("tree"), "copy");
    job.moving.partial_suffix = Some(b".part".to_vec());
    let copied = world.run(job);
    assert_eq!(copied.failures(), [""; 0]);
    assert_eq!(tree(&world.at_server("copy")), tree(&world.here("tree")));
}

#[test]
fn a_part_of_another_content_is_not_gone_on_with() {
    let world = World::new();
    write(&world.here("a"), &content(8_000_000));
    let job = || {
        let mut job = world.upload(&world.here("a"), "copy");
        job.moving.rate_max = Some(BitRate::mbit(100).into());
        job
    };
    let first = world.run_until(job(), 4_000_000);
    assert!(first.summary.is_interrupted);
    // Size and time are equal, but the bytes differ, so only the content shows the change.
    let times = fs::metadata(world.here("a"))
        .expect("there")
        .modified()
        .expect("a time");
    let other: Vec<u8> = content(8_000_000).iter().map(|it| !it).collect();
    write(&world.here("a"), &other);
    let file = fs::File::options()
        .write(true)
        .open(world.here("a"))
        .expect("there");
    file.set_modified(times).expect("a time");
    let second = world.run(job());
    assert_eq!(second.failures(), [""; 0]);
    assert_eq!(fs::read(world.at_server("copy")).expect("there"), other);

    let first = world.run_until(
        {
            let mut job = world.upload(&world.here("a"), "again");
            job.moving.rate_max = Some(BitRate::mbit(100).into());
            job
        },
        4_000_000,
    );
    assert!(first.summary.is_interrupted);
    // The time differs, so the journal shows the change.
    write(&world.here("a"), &content(8_000_000));
    file.set_modified(times + Duration::from_secs(100))
        .expect("a time");
    let second = world.run(world.upload(&world.here("a"), "again"));
    assert_eq!(second.moved_bytes, 8_000_000);
    assert_eq!(
        fs::read(world.at_server("again")).expect("there"),
        content(8_000_000)
    );
}

#[test]
fn what_cannot_be_copied_is_named_and_harms_nothing_else() {
    let world = World::new();
    write(&world.here("tree/good"), b"good");
    write(&world.here("tree/line\nbreak"), b"bad");
    write(&world.here("tree/taken"), b"a file");
    std::os::unix::fs::symlink("good", world.here("tree/link")).expect("room");
    fs::create_dir_all(world.at_server("copy/taken")).expect("room");
    let copied = world.run(world.upload(&world.here("tree"), "copy"));
    let tally = copied.summary.tally;
    assert_eq!((tally.moved, tally.failed, tally.left_out), (1, 2, 1));
    let mut failures = copied.failures();
    failures.sort_unstable();
    assert_eq!(
        failures,
        [
            "the destination has a directory with this name",
            "the name \"line\\\\nbreak\" has a line break",
        ]
    );
    assert_eq!(
        fs::read(world.at_server("copy/good")).expect("there"),
        b"good"
    );
    let missing = world.run(world.upload(&world.here("nothing"), "copy"));
    assert_eq!(missing.failures(), ["there is no such file or directory"]);
}

#[test]
fn a_copy_reads_back_what_it_wrote() {
    let world = World::new();
    write(&world.here("a"), &content(1_000_000));
    let mut job = world.upload(&world.here("a"), "copy");
    job.moving.verify = CopyVerification::ReadBack;
    let copied = world.run(job);
    assert_eq!(copied.failures(), [""; 0]);
    assert_eq!(copied.summary.tally.moved, 1);
}

#[test]
fn several_sources_go_into_one_directory() {
    let world = World::new();
    write(&world.here("tree/x"), b"x");
    write(&world.here("a"), b"a");
    let mut job = world.upload(&world.here("tree"), "into/tree");
    job.roots.push(mover::job::Root {
        source: world.here("a").into_os_string().into_encoded_bytes(),
        destination: RootTarget::new(b"into/a".to_vec(), b"a".to_vec()),
    });
    let copied = world.run(job);
    assert_eq!(copied.failures(), [""; 0]);
    assert_eq!(
        fs::read(world.at_server("into/tree/x")).expect("there"),
        b"x"
    );
    assert_eq!(fs::read(world.at_server("into/a")).expect("there"), b"a");
}

/// Thread that appends bytes to a file until this value is dropped.
struct Appender {
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Appender {
    fn new(path: PathBuf, most: Duration) -> Self {
        let is_ended = Arc::new(AtomicBool::new(false));
        let its = is_ended.clone();
        let begun = Instant::now();
        let thread = std::thread::spawn(move || {
            let file = fs::File::options().append(true).open(path);
            let mut file = file.expect("it is there");
            while !its.load(Ordering::Relaxed) && begun.elapsed() < most {
                file.write_all(&[7; 1000]).expect("room");
                sleep(Duration::from_millis(20));
            }
        });
        Self {
            is_ended,
            thread: Some(thread),
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        self.thread
            .take()
            .expect("it runs")
            .join()
            .expect("it ends");
    }
}

fn warnings(copied: &common::CopyResult) -> Vec<String> {
    let warnings = copied.notes.iter().filter_map(|it| match &it.result {
        mover::plan::FileOutcome::Warning(message) => Some(message.clone()),
        _ => None,
    });
    warnings.collect()
}

#[test]
fn of_a_file_that_grows_the_bytes_that_it_had_are_copied_once_with_a_warning() {
    const SIZE: usize = 6_000_000;
    let world = World::new();
    for verify in [
        CopyVerification::Size,
        CopyVerification::None,
        CopyVerification::ReadBack,
    ] {
        for is_upload in [true, false] {
            let (from, to) = match is_upload {
                true => (world.here("log"), world.at_server("copy")),
                false => (world.at_server("log"), world.here("copy")),
            };
            write(&from, &content(SIZE));
            let appender = Appender::new(from.clone(), Duration::from_secs(60));
            let mut job = match is_upload {
                true => world.upload(&from, "copy"),
                false => world.download("log", &to),
            };
            job.moving.rate_max = Some(BitRate::mbit(40).into());
            job.moving.verify = verify;
            let copied = world.run(job);
            drop(appender);
            let case = format!("{verify:?}, upload: {is_upload}");
            assert_eq!(copied.failures(), [""; 0], "{case}");
            assert_eq!(copied.summary.tally.moved, 1, "{case}");
            let (ours, theirs) = (
                fs::read(&from).expect("there"),
                fs::read(&to).expect("there"),
            );
            assert!(ours.len() > theirs.len(), "it has grown: {case}");
            assert!(ours.starts_with(&theirs), "{case}");
            assert!(
                (SIZE..SIZE + 300_000).contains(&theirs.len()),
                "{case}: {}",
                theirs.len()
            );
            assert!(
                copied.moved_bytes < SIZE as u64 + 300_000,
                "once: {case}: {}",
                copied.moved_bytes
            );
            if verify != CopyVerification::None {
                let told = warnings(&copied);
                assert!(
                    told.len() == 1 && told[0].contains("the file grows"),
                    "{case}: {told:?}"
                );
            }
            fs::remove_file(&from).expect("there");
            fs::remove_file(&to).expect("there");
        }
    }
}

#[test]
fn a_file_that_is_written_anew_while_it_is_read_is_no_growing_one() {
    const SIZE: usize = 6_000_000;
    let world = World::new();
    let from = world.here("file");
    write(&from, &content(SIZE));
    let mut job = world.upload(&from, "copy");
    job.moving.rate_max = Some(BitRate::mbit(40).into());
    let other: Vec<u8> = content(SIZE + 100_000).iter().map(|it| !it).collect();
    let writer = {
        let other = other.clone();
        std::thread::spawn(move || {
            sleep(Duration::from_millis(500));
            // The inode stays the same, and the bytes change from the beginning.
            fs::write(&from, other).expect("room");
        })
    };
    let copied = world.run(job);
    writer.join().expect("it ends");
    assert_eq!(copied.failures(), [""; 0]);
    assert_eq!(fs::read(world.at_server("copy")).expect("there"), other);
}

#[test]
fn a_file_that_is_followed_is_copied_until_it_rests() {
    let world = World::new();
    let from = world.here("log");
    write(&from, b"begin");
    let appender = Appender::new(from.clone(), Duration::from_secs(3));
    let mut job = world.upload(&from, "copy");
    job.moving.growing = GrowthHandling::Follow;
    job.plan.follows_growth = true;
    let copied = world.run(job);
    drop(appender);
    assert_eq!(copied.failures(), [""; 0]);
    let ours = fs::read(&from).expect("there");
    assert!(ours.len() > 50_000, "it has grown");
    assert_eq!(fs::read(world.at_server("copy")).expect("there"), ours);
    assert_eq!(warnings(&copied), [""; 0]);
}
