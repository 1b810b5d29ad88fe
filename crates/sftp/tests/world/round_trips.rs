//! Number of round trips over the link for which a client waits.

use sftp::EarlyReplies;

use crate::{
    client::{Client, Job, RequestPattern, Task},
    rng::{Rng, content},
    server::{Server, ServerTraits, text},
    world::{Setup, World},
};

/// Delay of the link in one direction. All other delays are below a tenth of it.
const DELAY: u64 = 10_000;

/// Runs one job. Returns the round trips of the session.
fn round_trips(early: EarlyReplies, task: Task, pattern: RequestPattern) -> f64 {
    let mut server = Server::new(ServerTraits {
        has_limits: true,
        read_max: 261_120,
        ..ServerTraits::default()
    });
    server.entries = 1000;
    if let Task::Download {
        path, seed, size, ..
    } = &task
    {
        let bytes = content(*seed, *size as usize);
        server.files.insert(path.clone(), bytes);
    }
    let job = Job::new(task, pattern, &mut Rng::new(2));
    let client = Client::new(vec![job], 1);
    let mut world = World::new(Setup::good(early, DELAY), client, server, 3);
    let outcome = world.run().expect("the session keeps the invariants");
    assert!(world.client.is_done());
    outcome.ticks as f64 / (2 * DELAY) as f64
}

fn upload(size: u64) -> Task {
    Task::Upload {
        path: text("/file"),
        seed: 1,
        size,
        has_fsync: false,
        has_set_stat: false,
        closes_at_once: false,
        checks_size: false,
        renames: false,
    }
}

fn download(size: u64) -> Task {
    Task::Download {
        path: text("/file"),
        seed: 1,
        size,
        start: 0,
        closes_after: None,
    }
}

/// Checks that a session takes the expected round trips, and little more.
#[track_caller]
fn assert_round_trips(measured: f64, expected: f64) {
    let range = expected..expected + 0.6;
    assert!(range.contains(&measured), "{measured} round trips");
}

#[test]
fn download_waits_for_the_greeting_and_for_open() {
    for size in [10_000, 3_000_000] {
        for pattern in [
            RequestPattern::new(32_768, 1),
            RequestPattern::new(255 * 1024, 64),
        ] {
            let measured = round_trips(EarlyReplies::Held, download(size), pattern);
            // CLOSE is in flight when the session ends.
            assert_round_trips(measured, 2.0);
        }
    }
}

#[test]
fn upload_waits_for_the_greeting_open_the_last_write_and_close() {
    for size in [10_000, 3_000_000] {
        let pattern = RequestPattern::new(32_768, 2);
        let held = round_trips(EarlyReplies::Held, upload(size), pattern);
        assert_round_trips(held, 4.0);
        let all = round_trips(
            EarlyReplies::All,
            upload(size),
            RequestPattern::new(32_768, 1),
        );
        assert_round_trips(all, 3.0);
    }
    let off = round_trips(
        EarlyReplies::Off,
        upload(3_000_000),
        RequestPattern::new(32_768, 2),
    );
    assert!(off > 40.0, "the comparison waits: {off} round trips");
}

#[test]
fn listing_waits_for_the_greeting_and_for_opendir() {
    let task = Task::List { entries: 1000 };
    let measured = round_trips(EarlyReplies::Held, task, RequestPattern::new(0, 1));
    assert_round_trips(measured, 2.0);
}
