//! Tests of a large file that several connections download. Each connection downloads one piece.

use std::{fs, time::Duration};

use fake_ftp::{Behaviour, FakeServer};
use mover::job::Job;

use crate::common::{FakeServerExt as _, World, content};

const SIZE: usize = 72 << 20;

/// Time for half a megabyte on each connection. At this rate, one connection would need 9 s for the
/// file.
const SLOW_STEP: Duration = Duration::from_millis(60);

/// Time that the slow connection needs for half of the file. The connection sends this half in 72
/// steps.
const SLOW_HALF: Duration = Duration::from_secs(16);

fn download(world: &World, server: &FakeServer) -> Job {
    world.download_by(server.dial(), "film", &world.here("film"))
}

fn rests(server: &FakeServer) -> usize {
    let state = server.state();
    state.verbs.iter().filter(|it| *it == "REST").count()
}

/// Repeats a test run until a second connection has joined. On a busy machine, some runs do not
/// show that the path has unused capacity.
fn until_one_joins(mut run: impl FnMut() -> bool) {
    let has_joined = (0..ATTEMPTS_MAX).any(|_| run());
    assert!(has_joined, "no connection has joined");
}

const ATTEMPTS_MAX: usize = 8;

#[test]
fn a_large_file_comes_by_several_connections_where_one_is_slow() {
    until_one_joins(|| {
        let world = World::new();
        let server = FakeServer::start(Behaviour {
            download_step_delay: SLOW_STEP,
            ..Behaviour::default()
        });
        let film = content(SIZE);
        server.put("film", &film);
        let copied = world.run(download(&world, &server));
        assert_eq!(copied.summary.tally.moved, 1, "{:?}", copied.notes);
        assert!(fs::read(world.here("film")).expect("it is there") == film);
        assert_eq!(copied.moved_bytes, SIZE as u64);
        let left = fs::read_dir(world.here("")).expect("a folder");
        assert_eq!(left.count(), 1, "no part is left");
        rests(&server) >= 1
    });
}

/// In this test, the first connection must continue alone.
#[test]
fn a_server_that_refuses_a_second_download_gives_the_file_by_one() {
    let film = content(SIZE);
    for reply in ["451 one at a time", "550 one at a time", "421 full"] {
        until_one_joins(|| {
            let world = World::new();
            let server = FakeServer::start(Behaviour {
                download_step_delay: SLOW_STEP,
                refuses_parallel_download: Some(reply),
                ..Behaviour::default()
            });
            server.put("film", &film);
            let copied = world.run(download(&world, &server));
            assert_eq!(copied.summary.tally.moved, 1, "{reply}: {:?}", copied.notes);
            assert!(fs::read(world.here("film")).expect("it is there") == film);
            assert_eq!(
                copied.moved_bytes, SIZE as u64,
                "{reply}: nothing came twice"
            );
            assert_eq!(server.state().downloads, 1, "{reply}");
            server.state().refused >= 1
        });
    }
}

/// In one case of this test, the lane that began the piece fails. In the other case, a helping lane
/// fails.
#[test]
fn a_download_that_breaks_off_is_gone_on_with_beside_the_others() {
    for (number, steps) in [(1, 40), (2, 2)] {
        until_one_joins(|| {
            let world = World::new();
            let server = FakeServer::start(Behaviour {
                download_step_delay: SLOW_STEP,
                breaks_download: Some((number, steps)),
                ..Behaviour::default()
            });
            let film = content(SIZE);
            server.put("film", &film);
            let copied = world.run(download(&world, &server));
            assert_eq!(
                copied.summary.tally.moved, 1,
                "{number}: {:?}",
                copied.notes
            );
            assert!(fs::read(world.here("film")).expect("it is there") == film);
            assert_eq!(copied.moved_bytes, SIZE as u64, "nothing came twice");
            server.state().downloads >= 3
        });
    }
}

#[test]
fn an_interrupted_run_of_several_connections_is_gone_on_with_by_its_gaps() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        download_step_delay: SLOW_STEP * 3,
        ..Behaviour::default()
    });
    let film = content(SIZE);
    server.put("film", &film);
    let mut job = download(&world, &server);
    job.plan.lanes_max = 2;
    let first = world.run_until(job, SIZE as u64 * 3 / 4);
    assert!(first.summary.is_interrupted);
    println!("{} connections have joined", rests(&server));
    let second = world.run(download(&world, &server));
    assert_eq!(second.summary.tally.moved, 1, "{:?}", second.notes);
    assert!(fs::read(world.here("film")).expect("it is there") == film);
    assert!(second.moved_bytes < SIZE as u64, "some of it was there");
    assert!(first.moved_bytes + second.moved_bytes >= SIZE as u64);
}

/// In this test, the server refuses the command `REST`.
#[test]
fn a_server_that_refuses_offsets_gives_the_file_by_one() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        download_step_delay: SLOW_STEP,
        replies: [("REST", "502 not here")].into(),
        ..Behaviour::default()
    });
    let film = content(SIZE);
    server.put("film", &film);
    let copied = world.run(download(&world, &server));
    assert_eq!(copied.summary.tally.moved, 1, "{:?}", copied.notes);
    assert!(fs::read(world.here("film")).expect("it is there") == film);
    assert_eq!(copied.moved_bytes, SIZE as u64, "the first lane goes on");
}

/// In this test, the server ignores the offset of a range, so the bytes downloaded earlier are
/// useless.
#[test]
fn a_server_that_ignores_offsets_gives_the_file_by_one() {
    until_one_joins(|| {
        let world = World::new();
        let server = FakeServer::start(Behaviour {
            download_step_delay: SLOW_STEP,
            ignores_offsets: true,
            ..Behaviour::default()
        });
        let film = content(SIZE);
        server.put("film", &film);
        let mut job = download(&world, &server);
        job.plan.retries = 1;
        let copied = world.run(job);
        assert_eq!(copied.summary.tally.moved, 1, "{:?}", copied.notes);
        assert!(fs::read(world.here("film")).expect("it is there") == film);
        rests(&server) >= 1
    });
}

#[test]
fn a_server_that_refuses_the_facts_of_a_file_for_now_is_asked_again() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        // The queries after the download fail, and so do the queries of two further attempts.
        refused_questions: 6,
        ..Behaviour::default()
    });
    let film = content(SIZE);
    server.put("film", &film);
    let copied = world.run(download(&world, &server));
    assert_eq!(copied.summary.tally.moved, 1, "{:?}", copied.notes);
    assert!(fs::read(world.here("film")).expect("it is there") == film);
    assert_eq!(copied.moved_bytes, SIZE as u64, "nothing came twice");
    assert_eq!(
        server.state().refused_questions,
        0,
        "the server has refused"
    );
}

/// In this test, one of two connections is slow. The slow connection must transfer less than half
/// of the file.
#[test]
fn a_lane_that_is_done_takes_from_a_slow_one() {
    until_one_joins(|| {
        let world = World::new();
        let server = FakeServer::start(Behaviour {
            download_step_delay: SLOW_STEP,
            // 36 MB in steps of half a megabyte.
            second_download_step_delay: SLOW_HALF / 72,
            ..Behaviour::default()
        });
        let film = content(SIZE);
        server.put("film", &film);
        let mut job = download(&world, &server);
        job.plan.lanes_max = 2;
        let copied = world.run(job);
        assert_eq!(copied.summary.tally.moved, 1, "{:?}", copied.notes);
        assert!(fs::read(world.here("film")).expect("it is there") == film);
        assert_eq!(copied.moved_bytes, SIZE as u64, "nothing came twice");
        let sent = server.state().sent.get(&2).copied();
        if let Some(sent) = sent {
            assert!(sent < SIZE / 2, "the slow one has sent {sent} bytes");
        }
        sent.is_some()
    });
}

#[test]
fn an_interrupted_run_is_gone_on_with_by_what_is_missing() {
    let world = World::new();
    let server = FakeServer::start(Behaviour::default());
    let film = content(SIZE);
    server.put("film", &film);
    let mut job = download(&world, &server);
    job.moving.rate_max = Some("400 Mbit/s".parse().expect("a limit"));
    let first = world.run_until(job, SIZE as u64 / 2);
    assert!(first.summary.is_interrupted);
    assert!(!world.here("film").exists());
    // A job with another number of connections also continues the download.
    let mut job = download(&world, &server);
    job.plan.lanes_max = 1;
    let second = world.run(job);
    assert_eq!(second.summary.tally.moved, 1, "{:?}", second.notes);
    assert!(fs::read(world.here("film")).expect("it is there") == film);
    println!("{} and {}", first.moved_bytes, second.moved_bytes);
}

#[test]
fn a_source_that_has_changed_meanwhile_is_fetched_anew() {
    let world = World::new();
    let server = FakeServer::start(Behaviour::default());
    server.put("film", &content(SIZE));
    let mut job = download(&world, &server);
    job.moving.rate_max = Some("400 Mbit/s".parse().expect("a limit"));
    let first = world.run_until(job, SIZE as u64 / 2);
    assert!(first.summary.is_interrupted);
    let mut other = content(SIZE);
    other.reverse();
    let file = (other.clone(), "20260607080910".to_owned());
    server.state().files.insert("film".to_owned(), file);
    let second = world.run(download(&world, &server));
    assert_eq!(second.summary.tally.moved, 1, "{:?}", second.notes);
    assert!(fs::read(world.here("film")).expect("it is there") == other);
    assert_eq!(second.moved_bytes, SIZE as u64);
}

/// In this test, the file is replaced by a shorter file. A lane finds that the file ends before the
/// lane's range.
#[test]
fn a_source_that_shrinks_while_its_pieces_come_is_fetched_anew() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        download_step_delay: SLOW_STEP,
        second_download_step_delay: SLOW_HALF / 72,
        replaces_after_download: Some("film"),
        ..Behaviour::default()
    });
    server.put("film", &content(SIZE));
    let mut job = download(&world, &server);
    job.plan.lanes_max = 2;
    let copied = world.run(job);
    assert_eq!(copied.summary.tally.moved, 1, "{:?}", copied.notes);
    let film = fs::read(world.here("film")).expect("it is there");
    assert_eq!(film, b"another content");
    let left = fs::read_dir(world.here("")).expect("a folder");
    assert_eq!(left.count(), 1, "no part is left");
}

/// In this test, another process removes the part file while its pieces are being downloaded.
#[test]
#[allow(clippy::disallowed_methods, reason = "waits for a part beside the run")]
fn a_part_that_is_removed_while_its_pieces_come_is_fetched_anew() {
    let world = World::new();
    let server = FakeServer::start(Behaviour::default());
    let film = content(SIZE);
    server.put("film", &film);
    let mut job = download(&world, &server);
    job.moving.rate_max = Some("400 Mbit/s".parse().expect("a limit"));
    let folder = world.here("");
    let remover = std::thread::spawn(move || {
        for _ in 0..60_000 {
            let entries = fs::read_dir(&folder).expect("a folder").flatten();
            let names = entries.map(|it| it.path());
            let part = names.into_iter().find(|it| it.extension().is_some());
            if let Some(part) = part {
                std::thread::sleep(Duration::from_millis(300));
                fs::remove_file(part).expect("it is there");
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let copied = world.run(job);
    remover.join().expect("a part was removed");
    assert_eq!(copied.summary.tally.moved, 1, "{:?}", copied.notes);
    assert!(copied.moved_bytes > SIZE as u64, "some of it came twice");
    assert!(fs::read(world.here("film")).expect("it is there") == film);
}

#[test]
fn a_small_file_and_one_of_a_single_lane_come_as_one() {
    let world = World::new();
    let server = FakeServer::start(Behaviour::default());
    server.put("film", &content(SIZE));
    server.put("short", &content(8 << 20));
    let mut job = download(&world, &server);
    job.plan.lanes_max = 1;
    assert_eq!(world.run(job).summary.tally.moved, 1);
    let job = world.download_by(server.dial(), "short", &world.here("short"));
    assert_eq!(world.run(job).summary.tally.moved, 1);
    assert_eq!(rests(&server), 0);
}
