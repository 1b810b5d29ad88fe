//! Tests with servers that have unusual rules for names, and tests of endless files.

use std::fs;

use fake_ftp::{Behaviour, FakeServer};
use mover::job::{CopyVerification, Job};
use mover::plan::{Deletion, DeletionMax, JobPurpose};

use crate::common::{FakeServerExt as _, World, content, write};

fn upload(world: &World, server: &FakeServer) -> Job {
    let mut job = world.upload_by(server.dial(), &world.here("from"), "to");
    job.plan.retries = 1;
    job
}

fn names(server: &FakeServer) -> Vec<String> {
    server.state().files.keys().cloned().collect()
}

#[test]
fn a_server_that_replaces_nothing_gets_the_new_file_and_keeps_the_users_old_one() {
    let world = World::new();
    for (name, bytes) in [("small", 10), ("large", 2_000_000)] {
        let server = FakeServer::start(Behaviour {
            refuses_replacing_rename: true,
            ..Behaviour::default()
        });
        let new = content(bytes);
        let _ = fs::remove_dir_all(world.here("from"));
        write(&world.here("from").join(name), &new);
        server.state().directories.insert("to".to_owned());
        server.put(&format!("to/{name}"), b"old");
        server.put(&format!("to/{name}.old"), b"precious");
        let copied = world.run(upload(&world, &server));
        assert_eq!(copied.failures(), [""; 0]);
        let mut left = names(&server);
        left.sort();
        assert_eq!(left, [format!("to/{name}"), format!("to/{name}.old")]);
        assert!(server.state().files[&format!("to/{name}")].0 == new);
        assert_eq!(
            server.state().files[&format!("to/{name}.old")].0,
            b"precious"
        );
    }
}

#[test]
fn a_file_arrives_where_the_name_of_its_part_would_be_too_long_or_no_text() {
    let world = World::new();
    let kanji = "漢".repeat(84);
    let long = "n".repeat(140);
    for (name, bytes, behaviour) in [
        (
            &kanji,
            10,
            Behaviour {
                requires_utf8: true,
                ..Behaviour::default()
            },
        ),
        (
            &kanji,
            2_000_000,
            Behaviour {
                name_bytes_max: Some(252),
                ..Behaviour::default()
            },
        ),
        (
            &long,
            10,
            Behaviour {
                name_bytes_max: Some(143),
                ..Behaviour::default()
            },
        ),
        (
            &long,
            2_000_000,
            Behaviour {
                name_bytes_max: Some(143),
                ..Behaviour::default()
            },
        ),
    ] {
        let server = FakeServer::start(behaviour);
        let _ = fs::remove_dir_all(world.here("from"));
        write(&world.here("from").join(name), &content(bytes));
        let copied = world.run(upload(&world, &server));
        assert_eq!(copied.failures(), [""; 0]);
        assert_eq!(names(&server), [format!("to/{name}")]);
    }
}

#[test]
fn a_file_without_end_fails_and_is_not_taken() {
    let world = World::new();
    for verify in [CopyVerification::Size, CopyVerification::None] {
        for bytes in [10, 2_000_000] {
            let server = FakeServer::start(Behaviour {
                has_endless_downloads: true,
                ..Behaviour::default()
            });
            server.state().directories.insert("d".to_owned());
            server.put("d/a", &content(bytes));
            let mut job = world.download_by(server.dial(), "d", &world.here("got"));
            job.plan.retries = 1;
            job.moving.verify = verify;
            let copied = world.run(job);
            assert_eq!(copied.failures().len(), 1, "{:?}", copied.notes);
            let failure = copied.failures()[0].to_owned();
            assert!(failure.contains("listed"), "{failure}");
            assert!(!world.here("got/a").exists());
            assert!(copied.moved_bytes < 9_000_000, "{}", copied.moved_bytes);
        }
    }
}

#[test]
fn a_server_that_replaces_blanks_is_reported_and_loses_nothing() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        trailing_blank: Some('_'),
        ..Behaviour::default()
    });
    write(&world.here("from/take 1 "), b"take");
    write(&world.here("from/plain"), b"plain");
    for _ in 0..2 {
        let mut job = upload(&world, &server);
        job.plan.purpose = JobPurpose::Sync {
            deletion: Some(Deletion {
                max: DeletionMax::Share(1.0),
                takes_excluded: false,
                trusts_empty: false,
            }),
        };
        let copied = world.run(job);
        let failure = copied.failures().join("; ");
        assert!(failure.contains("take 1_"), "{failure}");
        assert_eq!(names(&server), ["to/plain", "to/take 1_"]);
    }
}

#[test]
fn a_name_without_end_in_a_listing_fails_its_directory() {
    let world = World::new();
    let server = FakeServer::start(Behaviour::default());
    server.state().directories.insert("d".to_owned());
    server.put(&format!("d/{}", "x".repeat(2_000)), b"x");
    let copied = world.run(world.download_by(server.dial(), "d", &world.here("got")));
    let failure = copied.failures().join("; ");
    assert!(
        failure.contains("a name of more than 1024 bytes"),
        "{failure}"
    );
}
