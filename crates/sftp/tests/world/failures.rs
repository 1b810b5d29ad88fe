//! Failures of the server during an upload, and the requests that report them.

use sftp::EarlyReplies;

use crate::{
    client::{Client, Job, RequestPattern, Task},
    rng::Rng,
    server::{Server, ServerTraits, text},
    world::{Setup, World},
};

const SIZE: u64 = 700_000;

const RULES: [EarlyReplies; 3] = [EarlyReplies::Off, EarlyReplies::Held, EarlyReplies::All];

/// Uploads a file in each pattern. Returns the finished jobs with the number of failed WRITEs at
/// the server.
fn upload(early: EarlyReplies, traits: &ServerTraits) -> Vec<World> {
    let run = |pattern| {
        let task = Task::Upload {
            path: text("/file"),
            seed: 1,
            size: SIZE,
            has_fsync: false,
            has_set_stat: true,
            closes_at_once: false,
            checks_size: false,
            renames: false,
        };
        let job = Job::new(task, pattern, &mut Rng::new(2));
        let client = Client::new(vec![job], 1);
        let server = Server::new(traits.clone());
        let mut world = World::new(Setup::good(early, 50), client, server, 3);
        world.run().expect("the session keeps the invariants");
        assert!(world.client.is_done());
        world
    };
    RequestPattern::PROGRAMS.into_iter().map(run).collect()
}

fn traits() -> ServerTraits {
    ServerTraits {
        has_limits: true,
        read_max: 261_120,
        delay_max: 5,
        ..ServerTraits::default()
    }
}

#[test]
fn upload_without_a_failure_succeeds() {
    for early in RULES {
        for world in upload(early, &traits()) {
            let job = &world.client.jobs[0];
            assert!(!job.write_failed && !job.failed, "{early:?}");
        }
    }
}

#[test]
fn failed_write_is_reported_by_a_write_unless_all_are_answered_early() {
    let middle = ServerTraits {
        failing_offset: Some(SIZE / 2),
        ..traits()
    };
    let last = ServerTraits {
        failing_offset: Some(SIZE - 1),
        ..traits()
    };
    for traits in [middle, last] {
        for early in RULES {
            for world in upload(early, &traits) {
                assert!(!world.server.failed_writes.is_empty(), "a WRITE fails");
                let job = &world.client.jobs[0];
                match early {
                    EarlyReplies::Off => assert!(job.write_failed),
                    // CLOSE repeats the failure.
                    EarlyReplies::Held => assert!(job.write_failed && job.close_failed),
                    EarlyReplies::All => assert!(job.close_failed),
                }
            }
        }
    }
}

#[test]
fn failed_close_is_reported_by_close() {
    let traits = ServerTraits {
        fails_close: true,
        ..traits()
    };
    for early in RULES {
        for world in upload(early, &traits) {
            let job = &world.client.jobs[0];
            assert!(job.close_failed && !job.write_failed, "{early:?}");
        }
    }
}

#[test]
fn failed_attributes_are_reported() {
    let traits = ServerTraits {
        fails_set_stat: true,
        ..traits()
    };
    for early in RULES {
        for world in upload(early, &traits) {
            let job = &world.client.jobs[0];
            assert!(job.failed && !job.close_failed && !job.write_failed);
        }
    }
}
