//! READs that the near half answers without the server, and READs that it passes on.

use std::ops::Range;

use sftp::EarlyReplies;

use crate::{
    client::{Client, Job, RequestPattern, Task},
    rng::{Rng, content},
    server::{Server, ServerTraits, text},
    world::{Outcome, Setup, World},
};

const SIZE: u64 = 5_000_000;

/// Downloads a file. Returns the counters, and the number of READs at the server.
fn download(
    start: u64,
    pattern: RequestPattern,
    traits: ServerTraits,
    setup: Setup,
) -> (Outcome, u64) {
    let task = Task::Download {
        path: text("/file"),
        seed: 1,
        size: SIZE,
        start,
        closes_after: None,
    };
    run(task, pattern, traits, setup)
}

fn run(task: Task, pattern: RequestPattern, traits: ServerTraits, setup: Setup) -> (Outcome, u64) {
    let job = Job::new(task, pattern, &mut Rng::new(2));
    let client = Client::new(vec![job], 1);
    let mut server = Server::new(traits);
    server
        .files
        .insert(text("/file"), content(1, SIZE as usize));
    let mut world = World::new(setup, client, server, 3);
    let outcome = world.run().expect("the session keeps the invariants");
    assert!(world.client.is_done() && !world.client.jobs[0].failed);
    (outcome, world.server.reads)
}

fn traits() -> ServerTraits {
    ServerTraits {
        has_limits: true,
        read_max: 261_120,
        delay_max: 5,
        ..ServerTraits::default()
    }
}

fn good() -> Setup {
    Setup::good(EarlyReplies::Held, 50)
}

#[test]
fn clients_in_sequence_read_from_read_ahead_alone() {
    for pattern in RequestPattern::PROGRAMS {
        let (outcome, _) = download(0, pattern, traits(), good());
        assert_eq!(outcome.relayed_reads, 0, "{pattern:?}");
    }
}

#[test]
fn window_below_the_size_of_the_file_serves_clients_in_sequence() {
    for pattern in RequestPattern::PROGRAMS {
        let mut setup = good();
        setup.near.read_ahead_max = 2 << 20;
        let (outcome, _) = download(0, pattern, traits(), setup);
        assert_eq!(outcome.relayed_reads, 0, "{pattern:?}");
    }
}

#[test]
fn short_answers_of_the_server_do_not_reach_clients_in_sequence() {
    let traits = ServerTraits {
        has_short_reads: true,
        ..traits()
    };
    let (outcome, _) = download(0, RequestPattern::PROGRAMS[0], traits, good());
    assert_eq!(outcome.relayed_reads, 0);
}

#[test]
fn resumed_download_reads_ahead_from_its_start() {
    for pattern in RequestPattern::PROGRAMS
        .into_iter()
        .filter(|it| it.reordered == 1)
    {
        let (outcome, _) = download(SIZE / 2, pattern, traits(), good());
        assert_eq!(outcome.relayed_reads, 0, "{pattern:?}");
    }
}

#[test]
fn without_memory_for_read_ahead_reads_are_passed_on() {
    let mut setup = good();
    setup.near.read_ahead_max = 0;
    let (outcome, reads) = download(0, RequestPattern::PROGRAMS[4], traits(), setup);
    assert!(outcome.relayed_reads > SIZE / 32_768);
    assert_eq!(reads, outcome.relayed_reads);
}

#[test]
fn random_access_stops_read_ahead() {
    let task = Task::Random {
        path: text("/file"),
        seed: 1,
        size: SIZE,
        count: 40,
        seeks: false,
    };
    let mut setup = good();
    setup.near.read_ahead_max = 4 << 20;
    let pattern = RequestPattern::new(0, 1);
    let (outcome, reads) = run(task, pattern, traits(), setup);
    assert!(outcome.relayed_reads > 10, "{outcome:?}");
    // The whole file has about 20 READs.
    assert!(reads < 100, "{reads} READs");
}

/// Length of a READ in the tests of ranges.
const RANGE_READ: u64 = 32_768;

/// Downloads ranges of a file, each with its own handle. The file ends with the last range. At most
/// `jobs_max` handles are open at once, with `reads_max` READs each. Returns the server.
fn read_ranges(ranges: Range<u64>, range_bytes: u64, jobs_max: usize, reads_max: usize) -> Server {
    let size = ranges.end * range_bytes;
    let jobs = ranges.map(|range| {
        let task = Task::Download {
            path: text("/file"),
            seed: 1,
            size,
            start: range * range_bytes,
            closes_after: Some(range_bytes / RANGE_READ),
        };
        let pattern = RequestPattern::new(RANGE_READ, reads_max);
        Job::new(task, pattern, &mut Rng::new(2))
    });
    let client = Client::new(jobs.collect(), jobs_max);
    let mut server = Server::new(traits());
    let content = content(1, size as usize);
    server.files.insert(text("/file"), content);
    let mut world = World::new(good(), client, server, 3);
    world.run().expect("the session keeps the invariants");
    assert!(world.client.is_done());
    world.server
}

#[test]
fn ranges_of_a_file_are_read_once_except_for_the_first() {
    const RANGE: u64 = 2_000_000;
    const READ_AHEAD: u64 = 261_120;
    let reads = read_ranges(10..20, RANGE, 1, 8).reads;
    // At the first range, the far half reads ahead from the start of the file and from the range.
    let at_first_range = (20 * RANGE + 10 * RANGE) / READ_AHEAD;
    let ranges = 9 * RANGE / READ_AHEAD;
    assert!(reads < at_first_range + 3 * ranges, "{reads} READs");
}

#[test]
fn ranges_of_a_file_at_the_same_time_are_read_to_their_ends() {
    const RANGES: u64 = 4;
    const RANGE: u64 = 640 * RANGE_READ;
    let read_bytes = read_ranges(0..RANGES, RANGE, RANGES as usize, 64).read_bytes;
    // The client sends 64 READs behind the end of each range but the last. Before the first READ of
    // each range but the first, the far half reads a little of the start of the file.
    let behind = (RANGES - 1) * 64 * RANGE_READ;
    let before = (RANGES - 1) * (1 << 20);
    let bytes_max = RANGES * RANGE + behind + before;
    assert!(read_bytes <= bytes_max, "{read_bytes} bytes");
}
