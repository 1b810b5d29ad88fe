//! Tests of removing the part files that an interrupted run has left at a server.
#![allow(clippy::disallowed_methods, reason = "plays a server that is busy")]

use std::collections::BTreeMap;

use crate::common::{FakeServerExt as _, World, write};
use fake_ftp::{Behaviour, FakeServer};
use mover::{
    job::Job,
    names::join,
    run::{CleanResult, clean},
};

const OLD: &str = "20200102030405";

/// Two files, `a` and one below `b`. An earlier run has left their part files at a server.
struct LeftParts {
    world: World,
    server: FakeServer,
    job: Job,
}

impl LeftParts {
    fn new(behaviour: Behaviour, modified: &str) -> Self {
        let (world, server) = (World::new(), FakeServer::start(behaviour));
        for name in ["a", "b/c"] {
            write(&world.here("from").join(name), b"whole");
        }
        let job = world.upload_by(server.dial(), &world.here("from"), "to");
        for directory in ["to", "to/b"] {
            server.state().directories.insert(directory.to_owned());
        }
        let left = Self { world, server, job };
        for below in ["a", "b/c"] {
            let part = left.part(below);
            let file = (b"half".to_vec(), modified.to_owned());
            left.server.state().files.insert(part, file);
        }
        left
    }

    fn part(&self, below: &str) -> String {
        let source = join(&self.job.roots[0].source, below.as_bytes());
        let path = format!("to/{below}");
        let part = self.job.moving.partial(&source, path.as_bytes());
        String::from_utf8(part).expect("text")
    }

    fn is_there(&self, below: &str) -> bool {
        self.server.content(&self.part(below)).is_some()
    }

    fn clean(&self) -> CleanResult {
        let _ = &self.world;
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(clean(&self.job, None)).expect("cleaned")
    }
}

#[test]
fn old_parts_at_a_server_are_removed() {
    let left = LeftParts::new(Behaviour::default(), OLD);
    let cleaned = left.clean();
    assert_eq!((cleaned.removed, cleaned.kept, cleaned.failed), (2, 0, 0));
    assert!(!left.is_there("a") && !left.is_there("b/c"));
}

#[test]
fn young_parts_at_a_server_stay() {
    let left = LeftParts::new(Behaviour::default(), "20990102030405");
    let cleaned = left.clean();
    assert_eq!((cleaned.removed, cleaned.kept, cleaned.failed), (0, 2, 0));
    assert!(left.is_there("a") && left.is_there("b/c"));
}

#[test]
fn a_part_at_a_server_that_grows_stays() {
    let left = LeftParts::new(Behaviour::default(), OLD);
    let (server, part) = (left.server.clone(), left.part("a"));
    let grower = std::thread::spawn(move || {
        for _ in 0..80 {
            std::thread::sleep(std::time::Duration::from_millis(100));
            if let Some(file) = server.state().files.get_mut(&part) {
                file.0.push(0);
            }
        }
    });
    let cleaned = left.clean();
    assert_eq!((cleaned.removed, cleaned.kept), (1, 1));
    assert!(left.is_there("a") && !left.is_there("b/c"));
    grower.join().expect("no panic");
}

#[test]
fn a_part_whose_size_a_server_does_not_tell_stays() {
    let behaviour = Behaviour {
        replies: BTreeMap::from([("SIZE", "502 no")]),
        ..Behaviour::default()
    };
    let left = LeftParts::new(behaviour, OLD);
    let cleaned = left.clean();
    assert_eq!((cleaned.removed, cleaned.kept), (0, 2));
    assert!(left.is_there("a") && left.is_there("b/c"));
}

#[test]
fn parts_stay_where_a_server_lists_no_precise_times() {
    let behaviour = Behaviour {
        hides: Some("nothing"),
        replies: BTreeMap::from([("MDTM", "502 no"), ("MLSD", "502 no"), ("MLST", "502 no")]),
        ..Behaviour::default()
    };
    let left = LeftParts::new(behaviour, OLD);
    let cleaned = left.clean();
    assert_eq!((cleaned.removed, cleaned.kept), (0, 2));
    assert!(cleaned.failures[0].contains("precise times"), "{cleaned:?}");
    assert!(left.is_there("a") && left.is_there("b/c"));
}

#[test]
fn a_part_that_a_server_does_not_delete_is_named() {
    let behaviour = Behaviour {
        replies: BTreeMap::from([("DELE", "550 not you")]),
        ..Behaviour::default()
    };
    let left = LeftParts::new(behaviour, OLD);
    let cleaned = left.clean();
    assert_eq!((cleaned.removed, cleaned.failed), (0, 2));
    assert!(cleaned.failures[0].contains(&left.part("a")), "{cleaned:?}");
}

#[test]
fn a_directory_that_cannot_be_read_keeps_no_other_from_being_cleaned() {
    let behaviour = Behaviour {
        unreadable: Some("to/b"),
        ..Behaviour::default()
    };
    let left = LeftParts::new(behaviour, OLD);
    let cleaned = left.clean();
    assert_eq!((cleaned.removed, cleaned.failed), (1, 1));
    assert!(cleaned.failures[0].contains("to/b"), "{cleaned:?}");
    assert!(!left.is_there("a") && left.is_there("b/c"));
}

#[test]
fn a_directory_that_lists_itself_is_followed_to_a_bound() {
    let behaviour = Behaviour {
        has_loops: true,
        ..Behaviour::default()
    };
    let left = LeftParts::new(behaviour, OLD);
    // With `b`, the directories would form an endless binary tree.
    left.server.state().directories.remove("to/b");
    let cleaned = left.clean();
    assert_eq!((cleaned.removed, cleaned.failed), (1, 1));
    assert!(!left.is_there("a"));
}
