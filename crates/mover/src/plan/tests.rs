//! Tests of the plan in virtual time. Files are in memory. Servers refuse and lose connections at
//! random.
#![allow(
    clippy::disallowed_methods,
    reason = "a moment to count virtual time from"
)]

use std::{
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    time::Duration,
};

use ftp::listing::{EntryKind, ListingEntry, ModifiedTime, TimePrecision};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::{queue::FILES_AHEAD, *};
use crate::job::RESUME_LEAST;

mod bounds;
mod name_matching;
mod removal;
mod shifts;
mod sync;
mod trees;

/// Files by path. Each value is the size in bytes and the modification time.
type Files = BTreeMap<Vec<u8>, (u64, i64)>;

struct World {
    planner: Planner,
    start: Instant,
    now: Duration,
    random: Pcg64Mcg,
    source: Files,
    directories: BTreeSet<Vec<u8>>,
    destination: Files,
    made: BTreeSet<Vec<u8>>,
    /// Maximum number of connections that the server accepts at the same time.
    connections_max: usize,
    open: BTreeSet<usize>,
    most_open: usize,
    /// Probability that a task loses its connection, or that a new connection is refused.
    loss: f64,
    /// Numbers of future events, sorted by time. `events` contains the lane and the content for
    /// each number.
    coming: BinaryHeap<std::cmp::Reverse<(Duration, u64)>>,
    events: BTreeMap<u64, (usize, LaneEvent)>,
    count: u64,
    /// Maximum number of small files that a lane moves at the same time.
    depth: usize,
    /// Running tasks. A task takes effect when it ends.
    doing: BTreeMap<TaskId, Task>,
    most_doing: usize,
    moves: u64,
    first_move: Option<Duration>,
    listed: Option<Duration>,
    notes: Vec<FileEvent>,
}

fn entry(name: &[u8], kind: EntryKind, size_bytes: Option<u64>, unix_s: i64) -> ListingEntry {
    let precision = TimePrecision::Second;
    ListingEntry {
        name: name.to_vec(),
        kind,
        size_bytes,
        modified: Some(ModifiedTime { unix_s, precision }),
    }
}

impl World {
    fn new(files: &[(&str, u64)], options: PlanOptions, seed: u64) -> Self {
        let source: Files = files
            .iter()
            .map(|(path, size)| (path.as_bytes().to_vec(), (*size, 1_000)))
            .collect();
        let mut directories = BTreeSet::from([Vec::new()]);
        for path in source.keys() {
            let slashes = path.iter().enumerate().filter(|(_, it)| **it == b'/');
            directories.extend(slashes.map(|(at, _)| path[..at].to_vec()));
        }
        Self {
            planner: Planner::new(1, options),
            start: Instant::now(),
            now: Duration::ZERO,
            random: Pcg64Mcg::seed_from_u64(seed),
            source,
            directories,
            destination: Files::new(),
            made: BTreeSet::new(),
            connections_max: usize::MAX,
            open: BTreeSet::new(),
            most_open: 0,
            loss: 0.0,
            coming: BinaryHeap::new(),
            events: BTreeMap::new(),
            count: 0,
            depth: 1,
            doing: BTreeMap::new(),
            most_doing: 0,
            moves: 0,
            first_move: None,
            listed: None,
            notes: Vec::new(),
        }
    }

    fn later(&mut self, after: Duration, lane: usize, event: LaneEvent) {
        self.count += 1;
        let at = self.now + after;
        self.coming.push(std::cmp::Reverse((at, self.count)));
        self.events.insert(self.count, (lane, event));
    }

    /// Runs the job until it ends, for at most one hour of virtual time.
    fn run(&mut self) -> JobCounts {
        while !self.planner.is_finished() {
            let now = self.start + self.now;
            while let Some(action) = self.planner.poll(now) {
                self.act(action);
            }
            self.notes
                .extend(std::iter::from_fn(|| self.planner.next_file_event()));
            let next = self.coming.peek().map(|it| it.0.0);
            let due = self
                .planner
                .due()
                .map(|it| it.saturating_duration_since(self.start));
            let Some(next) = next.into_iter().chain(due).min() else {
                assert!(self.planner.is_finished(), "the plan waits for nothing");
                break;
            };
            self.now = self.now.max(next);
            assert!(
                self.now < Duration::from_secs(3_600),
                "the plan does not end"
            );
            while let Some(std::cmp::Reverse((at, number))) = self.coming.peek().copied() {
                if at > self.now {
                    break;
                }
                self.coming.pop();
                // If the lane has lost its connections, its event was removed.
                let Some((lane, event)) = self.events.remove(&number) else {
                    continue;
                };
                match &event {
                    LaneEvent::Done(id, _) => self.take_effect(*id),
                    LaneEvent::Failed(..) => self.events.retain(|_, (it, _)| *it != lane),
                    _ => {}
                }
                self.planner.handle(lane, event, self.start + self.now);
            }
        }
        self.notes
            .extend(std::iter::from_fn(|| self.planner.next_file_event()));
        self.planner.tally()
    }

    fn act(&mut self, action: PlannerAction) {
        match action {
            PlannerAction::Open { lane } => {
                let is_full = self.open.len() >= self.connections_max;
                let event = if is_full {
                    LaneEvent::Refused(failure(RetryAction::FewerConnections))
                } else if self.random.random_bool(self.loss) {
                    LaneEvent::Refused(failure(RetryAction::Reconnect))
                } else {
                    assert!(self.open.insert(lane), "it is not open yet");
                    self.most_open = self.most_open.max(self.open.len());
                    LaneEvent::Opened { depth: self.depth }
                };
                self.later(Duration::from_millis(400), lane, event);
            }
            PlannerAction::Work { lane, id, task } => {
                if !self.open.contains(&lane) {
                    // The lane's failure will reach the plan later.
                    return;
                }
                if self.random.random_bool(self.loss) {
                    self.open.remove(&lane);
                    let event = LaneEvent::Failed(id, failure(RetryAction::Reconnect));
                    return self.later(Duration::from_millis(300), lane, event);
                }
                let (after, outcome) = self.work(lane, id, &task);
                self.doing.insert(id, task);
                self.most_doing = self.most_doing.max(self.doing.len());
                self.later(after, lane, LaneEvent::Done(id, outcome));
            }
        }
    }

    fn work(&mut self, lane: usize, id: TaskId, task: &Task) -> (Duration, TaskResult) {
        let moment = Duration::from_millis(200);
        match task {
            Task::Probe { .. } => {
                let is_there = self.made.contains(&Vec::new());
                (moment, TaskResult::Probed(RootKind::Directory { is_there }))
            }
            Task::Make(directory) => {
                if let Some(parent) = directory.path.parent() {
                    assert!(
                        self.made.contains(&parent.to_bytes()),
                        "the parent is first"
                    );
                }
                (moment, TaskResult::Made)
            }
            Task::ListDestination(directory) => {
                let files = self.destination.clone();
                let made = self.made.clone();
                let entries = children(&files, &made, &directory.path.to_bytes());
                (moment, TaskResult::Listed(entries))
            }
            Task::ListSource(directory) => {
                let entries = children(&self.source, &self.directories, &directory.path.to_bytes());
                // The entries arrive in two halves, and the listing takes a while.
                let (first, second) = entries.split_at(entries.len() / 2);
                self.later(moment, lane, LaneEvent::Found(id, first.to_vec()));
                self.later(moment * 9, lane, LaneEvent::Found(id, second.to_vec()));
                self.listed = Some(self.now + moment * 10);
                (moment * 10, TaskResult::Ended { not_understood: 0 })
            }
            Task::Move(file) => {
                self.first_move.get_or_insert(self.now);
                let parent = file.path.parent().expect("the root is a directory");
                assert!(
                    self.made.contains(&parent.to_bytes()),
                    "its directory is there"
                );
                let (bytes, _) = self.source[&file.path.to_bytes()];
                (
                    moment,
                    TaskResult::Moved {
                        bytes,
                        modified_unix_s: None,
                        proof: ContentProof::Size,
                    },
                )
            }
            other => unreachable!("{other:?}: nothing is in the way, and nothing is deleted"),
        }
    }

    fn take_effect(&mut self, id: TaskId) {
        match self.doing.remove(&id).expect("it is under way") {
            Task::Make(directory) => {
                assert!(self.made.insert(directory.path.to_bytes()), "once");
            }
            Task::Move(file) => {
                self.moves += 1;
                let path = file.path.to_bytes();
                let (size, time) = self.source[&path];
                self.destination.insert(path, (size, time));
            }
            _ => {}
        }
    }
}

fn failure(retry_action: RetryAction) -> TaskFailure {
    TaskFailure {
        retry_action,
        message: "it was not to be".to_owned(),
        has_moved: false,
        is_anew: false,
    }
}

/// Returns the entries of a directory.
fn children(files: &Files, directories: &BTreeSet<Vec<u8>>, path: &[u8]) -> Vec<ListingEntry> {
    let below = |it: &[u8]| -> Option<Vec<u8>> {
        let rest = if path.is_empty() {
            it
        } else {
            it.strip_prefix(path)?.strip_prefix(b"/")?
        };
        (!rest.is_empty() && !rest.contains(&b'/')).then(|| rest.to_vec())
    };
    let files = files.iter().filter_map(|(it, (size, time))| {
        Some(entry(&below(it)?, EntryKind::File, Some(*size), *time))
    });
    let directories = directories
        .iter()
        .filter_map(|it| Some(entry(&below(it)?, EntryKind::Directory, None, 0)));
    files.chain(directories).collect()
}

const TREE: [(&str, u64); 7] = [
    ("a", 1),
    ("b", 0),
    ("x/c", 3),
    ("x/y/d", 4),
    ("x/y/e", 5),
    ("z/deep/er/f", 6),
    ("z/g", 7),
];

#[test]
fn a_tree_arrives_whole_and_a_second_run_moves_nothing() {
    let mut world = World::new(&TREE, PlanOptions::default(), 1);
    let tally = world.run();
    assert_eq!(world.destination, world.source);
    assert_eq!((tally.found, tally.moved, tally.failed), (7, 7, 0));
    assert_eq!(tally.bytes_wanted, 26);
    assert!(world.most_open <= 4);
    world.planner = Planner::new(1, PlanOptions::default());
    world.open.clear();
    let tally = world.run();
    assert_eq!((tally.same, tally.moved, world.moves), (7, 0, 7));
}

#[test]
fn files_move_while_the_listing_goes_on() {
    let mut world = World::new(&TREE, PlanOptions::default(), 1);
    world.run();
    let (first, listed) = (
        world.first_move.expect("moved"),
        world.listed.expect("listed"),
    );
    assert!(first < listed, "{first:?} {listed:?}");
}

#[test]
fn one_connection_does_everything() {
    let options = PlanOptions {
        lanes_max: 1,
        ..PlanOptions::default()
    };
    let mut world = World::new(&TREE, options, 1);
    assert_eq!(world.run().moved, 7);
    assert_eq!(world.most_open, 1);
}

#[test]
fn a_lane_has_several_small_files_under_way_and_one_large_one() {
    let names: Vec<String> = (0..100).map(|it| format!("file {it}")).collect();
    for (bytes, most) in [(RESUME_LEAST.bytes() - 1, 2 * 8), (RESUME_LEAST.bytes(), 2)] {
        let files: Vec<(&str, u64)> = names.iter().map(|it| (it.as_str(), bytes)).collect();
        let options = PlanOptions {
            lanes_max: 2,
            ..PlanOptions::default()
        };
        let mut world = World::new(&files, options, 1);
        world.depth = 8;
        assert_eq!(world.run().moved, 100);
        assert_eq!(world.most_doing, most);
    }
}

#[test]
fn a_server_that_takes_two_connections_gets_two() {
    let options = PlanOptions {
        lanes_max: 16,
        ..PlanOptions::default()
    };
    let mut world = World::new(&TREE, options, 1);
    world.connections_max = 2;
    let tally = world.run();
    assert_eq!((tally.moved, tally.failed), (7, 0));
    assert_eq!(world.most_open, 2);
}

#[test]
fn whatever_connections_are_lost_everything_arrives_once_it_can() {
    let mut lost = 0;
    for seed in 0..500 {
        let options = PlanOptions {
            retries: 50,
            ..PlanOptions::default()
        };
        let mut world = World::new(&TREE, options, seed);
        world.loss = 0.3;
        world.depth = 1 + seed as usize % 3;
        let tally = world.run();
        assert_eq!((tally.moved, tally.failed), (7, 0), "seed {seed}");
        assert_eq!(world.destination, world.source, "seed {seed}");
        assert_eq!(world.moves, 7, "seed {seed}: once each");
        let again = |it: &&FileEvent| matches!(it.result, FileOutcome::Retried(_));
        lost += world.notes.iter().filter(again).count();
    }
    assert!(lost > 1_000, "connections were lost: {lost}");
}

#[test]
fn a_server_that_nobody_can_reach_ends_the_job_with_its_reason() {
    let mut world = World::new(&TREE, PlanOptions::default(), 1);
    world.loss = 1.0;
    let tally = world.run();
    assert_eq!((tally.moved, tally.failed), (0, 1));
    let reason = FileOutcome::Failed("it was not to be".to_owned());
    assert_eq!(world.notes.last().map(|it| &it.result), Some(&reason));
    // The five pauses between six attempts are 1, 2, 4, 8 and 16 s.
    assert!(world.now >= Duration::from_secs(31) && world.now < Duration::from_secs(40));
}

#[test]
fn a_refused_log_in_is_not_repeated() {
    let mut planner = Planner::new(1, PlanOptions::default());
    let now = Instant::now();
    assert_eq!(planner.poll(now), Some(PlannerAction::Open { lane: 0 }));
    planner.handle(
        0,
        LaneEvent::Refused(failure(RetryAction::GiveUpServer)),
        now,
    );
    assert!(planner.is_finished());
    assert_eq!(planner.tally().failed, 1);
}

#[test]
fn a_file_that_fails_for_good_harms_no_other() {
    let mut planner = Planner::new(1, PlanOptions::default());
    let now = Instant::now();
    let mut done = 0;
    planner.poll(now);
    planner.handle(0, LaneEvent::Opened { depth: 1 }, now);
    while !planner.is_finished() {
        let Some(PlannerAction::Work { lane, id, task }) = planner.poll(now) else {
            planner.handle(
                1,
                LaneEvent::Refused(failure(RetryAction::FewerConnections)),
                now,
            );
            continue;
        };
        let outcome = match task {
            Task::Probe { .. } => TaskResult::Probed(RootKind::Directory { is_there: true }),
            Task::ListDestination(_) => TaskResult::Listed(Vec::new()),
            Task::ListSource(_) => {
                let names = [&b"a"[..], b"b", b"line\nbreak", b"c"];
                let entries = names
                    .map(|it| entry(it, EntryKind::File, Some(1), 0))
                    .to_vec();
                planner.handle(lane, LaneEvent::Found(id, entries), now);
                TaskResult::Ended { not_understood: 0 }
            }
            Task::Move(file) if file.path.to_bytes() == b"b" => {
                planner.handle(
                    lane,
                    LaneEvent::Failed(id, failure(RetryAction::GiveUpFile)),
                    now,
                );
                continue;
            }
            Task::Move(_) => {
                done += 1;
                TaskResult::Moved {
                    bytes: 1,
                    modified_unix_s: None,
                    proof: ContentProof::Size,
                }
            }
            other => unreachable!("{other:?}: all is there"),
        };
        planner.handle(lane, LaneEvent::Done(id, outcome), now);
    }
    assert_eq!(done, 2);
    let tally = planner.tally();
    assert_eq!(
        (tally.moved, tally.failed),
        (2, 2),
        "b, and the name with a line break"
    );
}

#[test]
fn the_job_does_not_wait_for_a_lane_that_still_connects() {
    let mut planner = Planner::new(2, PlanOptions::default());
    let now = Instant::now();
    assert_eq!(planner.poll(now), Some(PlannerAction::Open { lane: 0 }));
    planner.handle(0, LaneEvent::Opened { depth: 1 }, now);
    for round in 0..2 {
        assert!(!planner.is_finished());
        let Some(PlannerAction::Work { lane: 0, id, .. }) = planner.poll(now) else {
            panic!("lane 0 is free");
        };
        if round == 0 {
            assert_eq!(planner.poll(now), Some(PlannerAction::Open { lane: 1 }));
        }
        planner.handle(
            0,
            LaneEvent::Done(id, TaskResult::Probed(RootKind::Missing)),
            now,
        );
    }
    assert!(planner.is_finished(), "lane 1 still connects");
}

#[test]
fn a_file_whose_bytes_never_arrive_fails_in_the_end() {
    let mut planner = Planner::new(1, PlanOptions::default());
    let mut now = Instant::now();
    let mut moves = 0;
    while !planner.is_finished() {
        match planner.poll(now) {
            Some(PlannerAction::Open { lane }) => {
                planner.handle(lane, LaneEvent::Opened { depth: 1 }, now)
            }
            Some(PlannerAction::Work { lane, id, task }) => {
                let event = if matches!(task, Task::Move(_)) {
                    moves += 1;
                    let failure = TaskFailure {
                        has_moved: true,
                        ..failure(RetryAction::Reconnect)
                    };
                    LaneEvent::Failed(id, failure)
                } else {
                    let probe = RootKind::File {
                        size_bytes: Some(5),
                        modified: None,
                        there: None,
                        above: None,
                    };
                    LaneEvent::Done(id, TaskResult::Probed(probe))
                };
                planner.handle(lane, event, now);
            }
            None => now = planner.due().expect("another attempt is to come"),
        }
    }
    assert_eq!(moves, 101);
    assert_eq!(planner.tally().failed, 1);
}
