//! Simulates one hour of an agent in virtual time. Files appear, commands are called, and the agent
//! is killed between random steps.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use ftp::listing::{ModifiedTime, TimePrecision};
use jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::plan::{File, FileStanding, RelativePath, RunMemory as _, TakenFile};

/// Files of the source by path. Each value is the size in bytes and the time of the last change.
type Files = BTreeMap<Vec<u8>, (u64, i64)>;

struct World {
    folder: tempfile::TempDir,
    start: Instant,
    /// Seconds since the start of the simulation.
    now_s: u64,
    random: Pcg64Mcg,
    jobs: Vec<JobState>,
    agent: Option<Agent>,
    kills: u32,
    /// Probability that the agent is killed at a step.
    kill: f64,
}

/// State of a job that survives a kill of the agent.
struct JobState {
    times: JobTimes,
    source: Files,
    destination: Files,
    /// Call numbers for which a mark exists.
    marks: BTreeSet<u64>,
    moves: BTreeMap<Vec<u8>, u32>,
    calls: BTreeMap<Vec<u8>, u32>,
}

/// State of the agent's process. A kill destroys this state.
struct Agent {
    table: Timetable,
    memories: Vec<JobMemory>,
}

/// Error that reports a kill of the agent.
struct AgentKill;

impl World {
    fn new(seed: u64, times: Vec<JobTimes>) -> Self {
        let place = |times| JobState {
            times,
            source: Files::new(),
            destination: Files::new(),
            marks: BTreeSet::new(),
            moves: BTreeMap::new(),
            calls: BTreeMap::new(),
        };
        Self {
            folder: tempfile::tempdir().expect("room"),
            #[allow(clippy::disallowed_methods, reason = "a moment to count from")]
            start: Instant::now(),
            now_s: 0,
            random: Pcg64Mcg::seed_from_u64(seed),
            jobs: times.into_iter().map(place).collect(),
            agent: None,
            kills: 0,
            kill: 0.0,
        }
    }

    fn clock(&self) -> Zoned {
        let start: Timestamp = "2026-10-25T00:00:00Z".parse().expect("a time");
        let now = start + SignedDuration::from_secs(self.now_s.cast_signed());
        now.to_zoned(TimeZone::UTC)
    }

    /// Returns the running agent. Starts an agent if none is running.
    fn agent(&mut self) -> &mut Agent {
        if self.agent.is_none() {
            let open = |(number, job): (usize, &JobState)| {
                let name = format!("job-{number}");
                let settle = job.times.settle;
                JobMemory::open(self.folder.path(), &name, "from to", settle, true).expect("room")
            };
            let memories: Vec<JobMemory> = self.jobs.iter().enumerate().map(open).collect();
            let times = self.jobs.iter().zip(&memories).map(|(job, memory)| {
                let last = memory.last_start_unix_ms().expect("read");
                let last = last.and_then(|it| Timestamp::from_millisecond(it).ok());
                (job.times.clone(), last.map(|it| it.to_zoned(TimeZone::UTC)))
            });
            let table = Timetable::new(times.collect(), &self.clock());
            self.agent = Some(Agent { table, memories });
        }
        self.agent.as_mut().expect("made above")
    }

    /// Kills the agent at random between two steps.
    fn step(&mut self) -> Result<(), AgentKill> {
        if self.random.random_bool(self.kill) {
            self.kills += 1;
            self.agent = None;
            return Err(AgentKill);
        }
        Ok(())
    }

    /// Advances the simulation by one second.
    fn second(&mut self) {
        self.now_s += 1;
        let clock = self.clock();
        while let Some(job) = self.agent().table.poll(&clock) {
            if self.run(job).is_err() {
                break;
            }
        }
    }

    /// Makes one run of a job, and then calls the command for each moved file.
    fn run(&mut self, job: usize) -> Result<(), AgentKill> {
        let (clock, now) = (self.clock(), self.start + Duration::from_secs(self.now_s));
        let started = clock.timestamp().as_millisecond();
        self.agent().memories[job].started(started).expect("room");
        let mut is_unsettled = false;
        let listing: Vec<_> = self.jobs[job].source.clone().into_iter().collect();
        for (name, (size_bytes, unix_s)) in listing {
            let file = file(&name, size_bytes, unix_s);
            match self.agent().memories[job].standing(&file, now) {
                FileStanding::New => self.take(job, &file)?,
                FileStanding::Taken => {}
                FileStanding::Unsettled => is_unsettled = true,
            }
        }
        self.call(job)?;
        let outcome = RunOutcome {
            unsettled: is_unsettled,
            failures: false,
        };
        if outcome.is_nothing() {
            self.agent().memories[job].ended().expect("room");
        }
        self.agent().table.ended(job, outcome, &clock);
        Ok(())
    }

    /// Processes one file of a run.
    fn take(&mut self, job: usize, file: &File) -> Result<(), AgentKill> {
        let name = file.path.to_bytes();
        let content = self.jobs[job].source[&name];
        let is_there = self.jobs[job].destination.get(&name) == Some(&content);
        if !is_there {
            self.agent().memories[job]
                .begin(std::slice::from_ref(file))
                .expect("room");
            self.step()?;
            let place = &mut self.jobs[job];
            place.destination.insert(name.clone(), content);
            *place.moves.entry(name.clone()).or_default() += 1;
            self.step()?;
        }
        let taken = TakenFile {
            path: file.path.clone(),
            version: file.version(),
            is_moved: !is_there,
        };
        self.agent().memories[job].took(&[taken]).expect("room");
        // A program at the destination removes files after its work.
        self.jobs[job].destination.remove(&name);
        self.step()
    }

    fn call(&mut self, job: usize) -> Result<(), AgentKill> {
        let calls = self.agent().memories[job].calls(0, usize::MAX);
        for call in calls.expect("read") {
            self.step()?;
            let place = &mut self.jobs[job];
            if place.marks.insert(call.number) {
                *place.calls.entry(call.path).or_default() += 1;
            }
            self.step()?;
            let called = self.agent().memories[job].called(call.number);
            called.expect("room");
            self.jobs[job].marks.remove(&call.number);
        }
        Ok(())
    }

    fn put(&mut self, job: usize, name: &str) {
        let content = (
            self.random.random_range(0..1_000_000),
            self.clock().timestamp().as_second(),
        );
        self.jobs[job].source.insert(name.into(), content);
        let clock = self.clock();
        self.agent().table.noticed(job, &clock);
    }
}

fn file(name: &[u8], size_bytes: u64, unix_s: i64) -> File {
    let precision = TimePrecision::Second;
    File {
        link: None,
        root: 0,
        path: RelativePath::default().join(name),
        size_bytes: Some(size_bytes),
        modified: Some(ModifiedTime { unix_s, precision }),
    }
}

fn every(text: &str) -> JobTimes {
    JobTimes {
        schedule: Schedule::every(text).expect("a time"),
        is_watched: false,
        settle: Duration::ZERO,
    }
}

#[test]
fn in_an_hour_with_kills_nothing_is_taken_twice_nothing_is_missed_and_each_file_is_called_for_once()
{
    let mut kills = 0;
    for seed in 0..4 {
        let watched = JobTimes {
            settle: Duration::from_secs(10),
            is_watched: true,
            ..every("10 min")
        };
        let cron = JobTimes {
            schedule: Schedule::cron("*/15 * * * *").expect("cron"),
            is_watched: false,
            settle: Duration::ZERO,
        };
        let mut world = World::new(seed, vec![every("1 min"), every("7 min"), cron, watched]);
        world.kill = 0.03;
        let mut count = 0;
        for second in 0..3_600 {
            if world.random.random_bool(0.02) {
                let job = world.random.random_range(0..4);
                world.put(job, &format!("{count}"));
                count += 1;
            }
            // A file of the watched folder grows for a while.
            if second % 300 < 25 && second % 5 == 0 {
                world.put(3, &format!("slow {}", second / 300));
            }
            world.second();
        }
        world.kill = 0.0;
        for _ in 0..1_000 {
            world.second();
        }
        kills += world.kills;
        for (number, job) in world.jobs.iter().enumerate() {
            let what = format!("seed {seed}, job {number}");
            let names: BTreeSet<_> = job.source.keys().collect();
            assert_eq!(job.moves.keys().collect::<BTreeSet<_>>(), names, "{what}");
            assert_eq!(job.calls.keys().collect::<BTreeSet<_>>(), names, "{what}");
            assert!(
                job.moves.values().all(|it| *it == 1),
                "{what}: {:?}",
                job.moves
            );
            assert!(
                job.calls.values().all(|it| *it == 1),
                "{what}: {:?}",
                job.calls
            );
        }
        assert!(count > 40, "files came");
    }
    println!("{kills} kills");
    assert!(kills > 40, "the agent was killed");
}

#[test]
fn a_file_that_has_changed_is_taken_anew_and_one_that_came_back_as_it_was_is_not() {
    let mut world = World::new(1, vec![every("1 s")]);
    world.put(0, "a");
    let first = world.jobs[0].source[&b"a"[..]];
    world.second();
    world.jobs[0].source.clear();
    world.second();
    world.jobs[0].source.insert(b"a".to_vec(), first);
    world.second();
    assert_eq!(world.jobs[0].moves[&b"a"[..]], 1);
    world.jobs[0]
        .source
        .insert(b"a".to_vec(), (first.0, first.1 + 60));
    world.second();
    world.second();
    assert_eq!(world.jobs[0].moves[&b"a"[..]], 2);
    assert_eq!(world.jobs[0].calls[&b"a"[..]], 2);
}

#[test]
fn what_the_destination_had_before_is_no_reason_for_a_call() {
    let mut world = World::new(1, vec![every("1 s")]);
    world.put(0, "a");
    let content = world.jobs[0].source[&b"a"[..]];
    world.jobs[0].destination.insert(b"a".to_vec(), content);
    world.second();
    assert_eq!(
        (world.jobs[0].moves.len(), world.jobs[0].calls.len()),
        (0, 0)
    );
}

#[test]
fn a_job_that_moves_something_else_begins_with_an_empty_memory() {
    let folder = tempfile::tempdir().expect("room");
    let open = |identity| {
        JobMemory::open(folder.path(), "job", identity, Duration::ZERO, false).expect("room")
    };
    let memory = open("a b");
    assert!(matches!(
        JobMemory::open(folder.path(), "job", "a b", Duration::ZERO, false),
        Err(MemoryError::Running(_))
    ));
    let taken = TakenFile {
        path: RelativePath::default().join(b"x"),
        version: file(b"x", 1, 2).version(),
        is_moved: true,
    };
    memory.took(&[taken]).expect("room");
    drop(memory);
    let lens = ["a b", "a c", "a c"].map(|it| open(it).files().expect("read"));
    assert_eq!(lens, [1, 0, 0]);
}

#[test]
fn what_is_gone_from_the_source_is_forgotten_in_time() {
    let folder = tempfile::tempdir().expect("room");
    let memory = JobMemory::open(folder.path(), "job", "a b", Duration::ZERO, false).expect("room");
    let world = World::new(1, Vec::new());
    let taken = |name: &[u8]| TakenFile {
        path: RelativePath::default().join(name),
        version: file(name, 1, 2).version(),
        is_moved: true,
    };
    memory
        .took(&[taken(b"stays"), taken(b"goes")])
        .expect("room");
    memory.started(0).expect("room");
    memory.standing(&file(b"stays", 1, 2), world.start);
    memory.forget(0).expect("room");
    assert_eq!(memory.files().expect("read"), 2, "nothing is old");
    memory.forget(i64::MAX).expect("room");
    assert_eq!(memory.files().expect("read"), 1);
    let standing = memory.standing(&file(b"stays", 1, 2), world.start);
    assert_eq!(standing, FileStanding::Taken);
}
