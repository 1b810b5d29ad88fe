//! Simulated power cuts, full disks and disk errors while the agent writes its memory file and the
//! marks of its command calls.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant},
};

use ftp::listing::{ModifiedTime, TimePrecision};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::{mark::mark_called_on, memory::JobMemory};
use crate::{
    disk::{
        faulty::FaultyDisk,
        system::{FileSystem as _, OpenMode},
    },
    plan::{File, FileStanding, RelativePath, RunMemory as _, TakenFile},
};

const FILES: u8 = 6;

/// A job of the agent, with the effects that an observer has seen so far.
struct World {
    disk: FaultyDisk,
    random: Pcg64Mcg,
    /// Time that the test passes to each query of the memory file.
    now: Instant,
    /// Files at the destination. Power cuts do not affect these files, because the destination is
    /// on another machine.
    there: BTreeSet<u8>,
    /// Files that the memory file has confirmed as moved. The job may remove these files at the
    /// source.
    taken: BTreeSet<u8>,
    /// Files whose sources were removed.
    removed: BTreeSet<u8>,
    /// Number of calls for each file.
    calls: BTreeMap<Vec<u8>, u32>,
    /// Files whose mark could not be synced. If such a mark is on the disk after a restart, the
    /// command is not called for the file.
    unmarked: BTreeSet<Vec<u8>>,
    /// Numbers of the command calls that the memory file has confirmed as finished.
    over: BTreeSet<u64>,
    /// Start times that the memory file may return as the job's last start.
    starts: BTreeSet<i64>,
}

/// A failure of the disk or of the power.
struct PowerFailure;

impl World {
    fn new(seed: u64) -> Self {
        let disk = FaultyDisk::new(seed ^ 0xa9e7);
        disk.put_folder("/state/memory");
        disk.put_folder("/state/calls/job");
        Self {
            disk,
            random: Pcg64Mcg::seed_from_u64(seed),
            #[allow(clippy::disallowed_methods, reason = "a moment to count from")]
            now: Instant::now(),
            there: BTreeSet::new(),
            taken: BTreeSet::new(),
            removed: BTreeSet::new(),
            calls: BTreeMap::new(),
            unmarked: BTreeSet::new(),
            over: BTreeSet::new(),
            starts: BTreeSet::new(),
        }
    }

    fn open(&self) -> Result<JobMemory, PowerFailure> {
        let folder = Path::new("/state/memory");
        let job = ("job", "from to");
        JobMemory::open_on(&self.disk, folder, job, Duration::ZERO, true).map_err(|_| PowerFailure)
    }

    /// Runs the agent until no work remains or the disk fails.
    fn work(&mut self) -> Result<(), PowerFailure> {
        let memory = self.open()?;
        let start = self.random.random_range(1..i64::MAX / 2);
        if memory.started(start).is_err() {
            // After the failure, the disk may hold either this start or the previous start.
            let is_first = self.starts.is_empty();
            self.starts.extend((!is_first).then_some(start));
            return Err(PowerFailure);
        }
        self.starts = BTreeSet::from([start]);
        let files: Vec<File> = (0..FILES)
            .filter(|it| !self.removed.contains(it))
            .map(file)
            .collect();
        for some in files.chunks(self.random.random_range(1..4)) {
            let stands_new = |it: &&File| memory.standing(it, self.now) == FileStanding::New;
            let new: Vec<File> = some.iter().filter(stands_new).cloned().collect();
            let moved: Vec<File> = new
                .iter()
                .filter(|it| !self.there.contains(&number(it)))
                .cloned()
                .collect();
            memory.begin(&moved).map_err(|_| PowerFailure)?;
            self.there.extend(moved.iter().map(number));
            let taken = new.iter().map(|it| TakenFile {
                path: it.path.clone(),
                version: it.version(),
                is_moved: moved.iter().any(|moved| moved.path == it.path),
            });
            memory
                .took(&taken.collect::<Vec<_>>())
                .map_err(|_| PowerFailure)?;
            self.taken.extend(new.iter().map(number));
            if self.random.random_range(0..2) == 0 {
                self.call(&memory)?;
            }
            for file in &new {
                if self.random.random_range(0..3) == 0 {
                    self.removed.insert(number(file));
                }
            }
        }
        self.call(&memory)?;
        memory.ended().map_err(|_| PowerFailure)
    }

    /// Calls the command once for each due call.
    fn call(&mut self, memory: &JobMemory) -> Result<(), PowerFailure> {
        let folder = self
            .disk
            .open_folder(b"/state/calls/job")
            .map_err(|_| PowerFailure)?;
        for call in memory.calls(0, usize::MAX).map_err(|_| PowerFailure)? {
            let (facts, mark) = (
                format!("{}.json", call.number),
                format!("{}.called", call.number),
            );
            // An earlier attempt may have left the facts file.
            let _ = folder.remove_file(facts.as_bytes());
            let new = OpenMode::New;
            let written = folder.open(facts.as_bytes(), new);
            written
                .and_then(|it| it.write_at(b"{}", 0))
                .map_err(|_| PowerFailure)?;
            let path = |name: &str| Path::new("/state/calls/job").join(name);
            match mark_called_on(&self.disk, &path(&facts), &path(&mark)) {
                Ok(true) => *self.calls.entry(call.path).or_default() += 1,
                Ok(false) => {}
                Err(_) => {
                    self.unmarked.insert(call.path);
                    return Err(PowerFailure);
                }
            }
            memory.called(call.number).map_err(|_| PowerFailure)?;
            self.over.insert(call.number);
            let _ = folder.remove_file(facts.as_bytes());
            let _ = folder.remove_file(mark.as_bytes());
        }
        Ok(())
    }

    /// Checks after a restart that the memory file still contains each change that it confirmed
    /// before the power cut.
    fn check(&self, seed: u64) {
        let Ok(memory) = self.open() else {
            panic!("seed {seed}: the memory does not open");
        };
        for taken in &self.taken {
            let file = file(*taken);
            let standing = memory.standing(&file, self.now);
            assert_eq!(
                standing,
                FileStanding::Taken,
                "seed {seed}: {taken} is forgotten"
            );
        }
        let started = memory.last_start_unix_ms().expect("read");
        assert!(
            self.starts.is_empty() || started.is_some_and(|it| self.starts.contains(&it)),
            "seed {seed}"
        );
        let open = memory.calls(0, usize::MAX).expect("read");
        for call in &open {
            assert!(
                !self.over.contains(&call.number),
                "seed {seed}: call {} is made again",
                call.number
            );
        }
        // For each file in `taken`, the command has been called, or the call is still due.
        for taken in &self.taken {
            let path = file(*taken).path.to_bytes();
            let is_open = open.iter().any(|it| it.path == path);
            let is_called = self.is_called(&path);
            assert!(is_open || is_called, "seed {seed}: no call for {taken}");
        }
    }

    fn is_called(&self, path: &Vec<u8>) -> bool {
        self.calls.contains_key(path) || self.unmarked.contains(path)
    }

    fn check_end(&self, seed: u64) {
        let Ok(memory) = self.open() else {
            panic!("seed {seed}: the memory does not open");
        };
        for file in (0..FILES).map(file) {
            let standing = memory.standing(&file, self.now);
            assert_eq!(standing, FileStanding::Taken, "seed {seed}");
        }
        let mut paths = (0..FILES).map(|it| file(it).path.to_bytes());
        assert!(paths.all(|it| self.is_called(&it)), "seed {seed}");
        let is_once = self.calls.values().all(|it| *it == 1);
        assert!(is_once, "seed {seed}: {:?}", self.calls);
    }
}

fn file(number: u8) -> File {
    File {
        link: None,
        root: 0,
        path: RelativePath::default().join(&[b'a' + number]),
        size_bytes: Some(u64::from(number)),
        modified: Some(ModifiedTime {
            unix_s: 7,
            precision: TimePrecision::Second,
        }),
    }
}

fn number(file: &File) -> u8 {
    file.path.to_bytes()[0] - b'a'
}

#[test]
fn power_cuts_lose_no_file_that_was_taken_and_call_no_command_twice() {
    let (mut cut_short, mut with_some_taken, mut with_some_called) = (0, 0, 0);
    for seed in 0..400 {
        let mut world = World::new(seed);
        for _ in 0..2 {
            let operations = world.random.random_range(0..250);
            world.disk.cut_after(operations);
            if world.work().is_err() {
                cut_short += 1;
                with_some_taken += u32::from(!world.taken.is_empty());
                with_some_called += u32::from(!world.calls.is_empty());
            }
            world.disk.restart();
            world.check(seed);
        }
        assert!(world.work().is_ok(), "seed {seed}");
        world.check(seed);
        world.check_end(seed);
    }
    println!("{cut_short} cuts, {with_some_taken} with files taken, {with_some_called} with calls");
    assert!(cut_short > 300, "{cut_short} cuts hit the agent");
    assert!(with_some_taken > 100 && with_some_called > 100);
}

#[test]
fn disk_errors_lose_no_file_that_was_taken_and_call_no_command_twice() {
    let mut failed = 0;
    for seed in 0..200 {
        let mut world = World::new(seed);
        world.disk.fail_one_in(100);
        failed += u32::from(world.work().is_err());
        world.disk.restart();
        world.check(seed);
        assert!(world.work().is_ok(), "seed {seed}");
        world.check_end(seed);
    }
    assert!(failed > 50, "{failed} agents met an error");
}

#[test]
fn a_mark_outlives_a_power_cut_once_the_command_may_be_called() {
    let (mut marked, mut failed) = (0, 0);
    for seed in 0..300 {
        let disk = FaultyDisk::new(seed);
        let folder = disk.put_new_folder("/state/calls/job");
        let new = OpenMode::New;
        let facts = folder.open(b"0.json", new).expect("room");
        facts.write_at(b"{}", 0).expect("room");
        disk.cut_after(seed % 12);
        let (facts, mark) = (
            Path::new("/state/calls/job/0.json"),
            Path::new("/state/calls/job/0.called"),
        );
        let called = mark_called_on(&disk, facts, mark);
        disk.restart();
        match called {
            Ok(true) => {
                marked += 1;
                let files = disk.files("/state/calls/job");
                assert!(files.contains_key("/0.called"), "seed {seed}: {files:?}");
            }
            Ok(false) => panic!("seed {seed}: nobody has called it"),
            Err(_) => failed += 1,
        }
    }
    assert!(
        marked > 50 && failed > 50,
        "{marked} marked, {failed} failed"
    );
}
