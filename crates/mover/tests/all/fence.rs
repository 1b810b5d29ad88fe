//! Tests of jobs whose fence reports that another process has taken over the job.

use std::{
    fs,
    os::unix::ffi::OsStrExt as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use fake_ftp::{Behaviour, FakeServer};
use mover::{
    fence::Fence,
    job::{Job, JobSite, RootTarget},
};

use crate::common::{FakeServerExt as _, World, content, tree, write};

/// Direction of a copy. The source, the destination, or neither of them is on the server.
struct CopyDirection {
    name: &'static str,
    is_from_server: bool,
    is_to_server: bool,
}

const WAYS: [CopyDirection; 3] = [
    CopyDirection {
        name: "up",
        is_from_server: false,
        is_to_server: true,
    },
    CopyDirection {
        name: "down",
        is_from_server: true,
        is_to_server: false,
    },
    CopyDirection {
        name: "here",
        is_from_server: false,
        is_to_server: false,
    },
];

/// Files of two kinds. Several small files move at the same time, and the large file moves alone.
const FILES: [(&str, usize); 5] = [
    ("a", 300),
    ("b", 0),
    ("c", 4000),
    ("d", 30_000),
    ("large", 3_000_000),
];

impl CopyDirection {
    fn paths(&self, world: &World) -> (std::path::PathBuf, std::path::PathBuf) {
        let from = format!("{}-from", self.name);
        let to = format!("{}-to", self.name);
        let from = match self.is_from_server {
            true => world.at_server(&from),
            false => world.here(&from),
        };
        let to = match self.is_to_server {
            true => world.at_server(&to),
            false => world.here(&to),
        };
        (from, to)
    }

    fn job(&self, world: &World) -> Job {
        let (from, to) = self.paths(world);
        let mut job = match (self.is_from_server, self.is_to_server) {
            (false, true) => world.upload(&from, &format!("{}-to", self.name)),
            (true, false) => world.download(&format!("{}-from", self.name), &to),
            _ => {
                let mut job = world.upload(&from, "");
                job.destination = JobSite::Local;
                let target = to.as_os_str().as_bytes().to_vec();
                job.roots[0].destination = RootTarget::new(target, b"from".to_vec());
                job
            }
        };
        job.plan.removes_source = true;
        job
    }
}

/// Writes the source files, and the files that another process has written to the destination.
fn write_files(way: &CopyDirection, world: &World) {
    let (from, to) = way.paths(world);
    for (name, bytes) in FILES {
        write(&from.join(name), &content(bytes));
        write(&to.join(name), b"newer, by another process");
    }
}

#[test]
fn a_job_that_was_taken_over_replaces_nothing_and_removes_no_source() {
    let world = World::new();
    for way in &WAYS {
        write_files(way, &world);
        let (from, to) = way.paths(&world);
        let before = (tree(&from), tree(&to));
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let mut job = way.job(&world);
        job.fence = Some(Fence::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { false })
        }));
        let copied = world.run(job);
        let failures = copied.failures();
        assert_eq!(failures.len(), FILES.len(), "{}: {failures:?}", way.name);
        let is_fenced = |it: &&str| it.contains("another process has taken over this work");
        assert!(failures.iter().all(is_fenced), "{failures:?}");
        assert!(asked.load(Ordering::Relaxed) > 0);
        assert_eq!(tree(&from), before.0, "{}: no source is removed", way.name);
        let mut after = tree(&to);
        after.retain(|name, _| !name.ends_with(b".part"));
        assert_eq!(after, before.1, "{}: nothing is replaced", way.name);
    }
}

#[test]
fn a_job_that_still_has_its_work_moves_everything() {
    let world = World::new();
    for way in &WAYS {
        write_files(way, &world);
        let (from, to) = way.paths(&world);
        let wanted = tree(&from);
        let mut job = way.job(&world);
        job.fence = Some(Fence::new(|| {
            Box::pin(async {
                // The server with the answer is remote.
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                true
            })
        }));
        let copied = world.run(job);
        assert_eq!(copied.failures(), [""; 0], "{}", way.name);
        assert_eq!(tree(&to), wanted, "{}", way.name);
        assert_eq!(
            fs::read_dir(&from).expect("a folder").count(),
            0,
            "{}",
            way.name
        );
    }
}

/// In this test, the fence permits the rename of the copy, and refuses the removal of its source.
#[test]
fn a_source_stays_where_the_work_is_taken_over_after_the_copy() {
    let world = World::new();
    for way in &WAYS {
        let (from, to) = way.paths(&world);
        write(&from.join("only"), &content(5_000));
        fs::create_dir_all(&to).expect("room");
        let asked = Arc::new(AtomicUsize::new(0));
        let mut job = way.job(&world);
        job.fence = Some(Fence::new(move || {
            let is_first = asked.fetch_add(1, Ordering::Relaxed) == 0;
            Box::pin(async move { is_first })
        }));
        let copied = world.run(job);
        assert_eq!(
            copied.failures().len(),
            1,
            "{}: {:?}",
            way.name,
            copied.failures()
        );
        assert!(from.join("only").exists(), "{}", way.name);
        assert!(to.join("only").exists(), "{}", way.name);
    }
}

/// A query of a fence takes a round trip to a remote server. An upload may have many small files.
#[test]
fn one_question_serves_all_small_files_that_are_complete() {
    const FILES: usize = 120;
    let world = World::new();
    // A gateway accepts pipelined commands of many files.
    let server = FakeServer::start(Behaviour {
        is_gateway: true,
        ..Behaviour::default()
    });
    for number in 0..FILES {
        write(
            &world.here("many").join(format!("f{number}")),
            &content(100 + number),
        );
    }
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let mut job = world.upload_by(server.dial(), &world.here("many"), "many");
    job.plan.lanes_max = 1;
    job.fence = Some(Fence::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            true
        })
    }));
    let copied = world.run(job);
    assert_eq!(copied.failures(), [""; 0]);
    for number in 0..FILES {
        let there = server.content(&format!("many/f{number}"));
        assert_eq!(there, Some(content(100 + number)), "f{number}");
    }
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked < FILES / 2, "{asked} questions for {FILES} files");
}

/// A fence may query a server. Connecting to the server needs threads, which disk operations use as
/// well.
#[test]
fn files_that_wait_for_the_fence_leave_threads_to_others() {
    const FILES: usize = 60;
    const THREADS: usize = 4;
    let world = World::with_blocking_threads(THREADS);
    let server = FakeServer::start(Behaviour {
        is_gateway: true,
        ..Behaviour::default()
    });
    server.state().directories.insert("many".to_owned());
    for number in 0..FILES {
        server.put(&format!("many/f{number}"), &content(100 + number));
    }
    let (to, asked) = (world.here("many"), Arc::new(AtomicUsize::new(0)));
    let (mut job, count) = (world.download_by(server.dial(), "many", &to), asked.clone());
    job.plan.lanes_max = 1;
    job.fence = Some(Fence::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            // Meanwhile all files reach the fence.
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            let look_up = tokio::task::spawn_blocking(|| ());
            let reply_timeout = std::time::Duration::from_secs(20);
            matches!(
                tokio::time::timeout(reply_timeout, look_up).await,
                Ok(Ok(()))
            )
        })
    }));
    let copied = world.run(job);
    assert_eq!(copied.failures(), [""; 0]);
    assert_eq!(tree(&to).len(), FILES);
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked < FILES / 2, "{asked} questions for {FILES} files");
}
