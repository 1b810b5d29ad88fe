//! Tests with power cuts, full disks and read errors while a job runs. The job moves files, removes
//! their sources, and writes its journal.

use std::{collections::BTreeMap, sync::Arc};

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::{
    JobProgress, JobSummary,
    clean::{CleanResult, clean_on},
    job_context::JobContext,
    run_with,
};
use crate::{
    disk::faulty::FaultyDisk,
    job::{CopyOptions, CopyVerification, Job, JobSite, RESUME_LEAST, Root, RootTarget},
    journal::{Journal, PartOrigin, PartRecord},
    plan::{FileEvent, FileOutcome, JobPurpose, PlanOptions},
};

/// Source files of a job, and older files at its destination.
struct World {
    disk: FaultyDisk,
    sources: BTreeMap<String, Vec<u8>>,
    replaced: BTreeMap<String, Vec<u8>>,
    verify: CopyVerification,
}

/// Returns bytes that count from 1 to 255 again and again. The first byte follows from `first`. No
/// byte is zero, because bytes that a power cut has destroyed are zero.
fn content(first: u64, length: u64) -> Vec<u8> {
    let period: Vec<u8> = (first..first + 255)
        .map(|it| (it % 255) as u8 + 1)
        .collect();
    let mut content = period.repeat(length as usize / period.len() + 1);
    content.truncate(length as usize);
    content
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let disk = FaultyDisk::new(seed ^ 0x5eed);
        let mut sources = BTreeMap::new();
        let mut replaced = BTreeMap::new();
        disk.put_folder("/from");
        disk.put_folder("/there");
        for number in 0..random.random_range(1..8) {
            let folder = ["", "/a", "/a/b", "/c"][random.random_range(0..4)];
            let path = format!("{folder}/{number}");
            // The journal records parts of large files only.
            let is_large = random.random_range(0..16) == 0;
            let least = if is_large { RESUME_LEAST.bytes() } else { 0 };
            let length = least + random.random_range(0..20_000);
            let first = random.random_range(0..255_u64);
            let content = content(first, length);
            disk.put(&format!("/from{path}"), &content, 1_000_000);
            if random.random_range(0..3) == 0 {
                let old = vec![b'o'; random.random_range(0..9_000)];
                disk.put(&format!("/there/to{path}"), &old, 5);
                replaced.insert(path.clone(), old);
            }
            sources.insert(path, content);
        }
        Self {
            disk,
            sources,
            replaced,
            verify: [
                CopyVerification::None,
                CopyVerification::Size,
                CopyVerification::ReadBack,
            ][random.random_range(0..3)],
        }
    }

    /// Returns the job that moves the directory tree `/from`.
    fn job(&self) -> Job {
        let target = RootTarget::new(b"/there/to".to_vec(), b"from".to_vec());
        Job {
            source: JobSite::Local,
            destination: JobSite::Local,
            roots: vec![Root {
                source: b"/from".to_vec(),
                destination: target,
            }],
            files: None,
            plan: PlanOptions {
                purpose: JobPurpose::Copy,
                removes_source: true,
                retries: 0,
                ..PlanOptions::default()
            },
            moving: CopyOptions {
                verify: self.verify,
                ..CopyOptions::default()
            },
            sharing: None,
            session_pool: None,
            fence: None,
        }
    }

    fn journal(&self) -> Option<Journal> {
        let journal = Journal::open_on(&self.disk, b"/home/state/jobs", "job").ok();
        journal.map(Journal::one_off)
    }

    /// Removes the part files that interrupted runs have left.
    fn clean(&self) -> Option<CleanResult> {
        let (job, system) = (self.job(), Arc::new(self.disk.clone()));
        let journal = self.journal()?;
        let runtime = runtime();
        runtime
            .block_on(clean_on(system, &job, Some(&journal)))
            .ok()
    }

    /// Returns the paths of part files that have no record in the journal.
    fn parts_without_entry(&self) -> Vec<String> {
        let journal = self.journal();
        let left = journal.and_then(|it| it.left().ok()).unwrap_or_default();
        let names: Vec<_> = left.into_iter().flat_map(|it| it.names).collect();
        let parts = self.disk.files("/there").into_iter();
        let parts = parts.filter(|(path, content)| {
            let is_large = content.len() as u64 >= RESUME_LEAST.bytes() / 2;
            let path = format!("/there{path}").into_bytes();
            path.ends_with(b".part") && is_large && !names.contains(&path)
        });
        parts.map(|(path, _)| path).collect()
    }

    /// Moves the directory tree. Returns the job's summary, and the paths that the job reported as
    /// done.
    fn run(&self) -> (JobSummary, Vec<String>) {
        let (job, system) = (self.job(), Arc::new(self.disk.clone()));
        // A run whose journal cannot be used works without one.
        let journal = self.journal();
        let progress = Arc::new(JobProgress::new(None));
        let shared = JobContext::new(Arc::new(job), journal, progress, system);
        let mut done = Vec::new();
        let tell = |note: Option<FileEvent>, _| {
            if let Some(FileEvent {
                path,
                result: FileOutcome::Moved(..) | FileOutcome::Same(_),
                ..
            }) = note
            {
                done.push(format!("/{path}"));
            }
        };
        let summary = runtime().block_on(run_with(shared, std::future::pending(), tell));
        (summary, done)
    }

    /// Checks three conditions. Each reported file exists. Each missing source has a copy. No file
    /// mixes two versions of its source.
    fn check(&self, done: &[String], seed: u64) {
        let (from, to) = (self.disk.files("/from"), self.disk.files("/there/to"));
        for path in done {
            let there = to.get(path);
            assert_eq!(
                there,
                Some(&self.sources[path]),
                "seed {seed}: {path} is lost"
            );
        }
        for (path, content) in &self.sources {
            let there = to.get(path);
            let is_moved = there == Some(content);
            let is_old = there == self.replaced.get(path);
            assert!(is_moved || is_old, "seed {seed}: {path} is half of each");
            let is_source = from.get(path) == Some(content);
            assert!(is_moved || is_source, "seed {seed}: {path} is gone");
        }
    }
}

#[test]
fn a_thousand_power_cuts_lose_nothing_that_was_done() {
    let (mut cut_short, mut with_some_done, mut resumed) = (0, 0, 0);
    for seed in 0..1_000 {
        let world = World::new(seed);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let most = 100 + 60 * world.sources.len() as u64;
        world.disk.cut_after(random.random_range(0..most));
        let (summary, done) = world.run();
        if summary.tally.failed > 0 {
            cut_short += 1;
            with_some_done += usize::from(!done.is_empty());
        }
        world.disk.restart();
        world.check(&done, seed);
        let had_journal = !world.disk.files("/home").is_empty();
        // Another run moves the rest.
        let (summary, _) = world.run();
        assert_eq!(summary.tally.failed, 0, "seed {seed}");
        let all: Vec<_> = world.sources.keys().cloned().collect();
        world.check(&all, seed);
        assert_eq!(world.disk.files("/from").len(), 0, "seed {seed}");
        resumed += usize::from(had_journal);
        let left = world.disk.files("/home");
        assert!(left.is_empty(), "seed {seed}: {:?}", left.keys());
        let is_part = |it: &&String| it.ends_with(".part");
        let parts = world.disk.files("/there");
        let part = parts.keys().find(is_part);
        assert_eq!(part, None, "seed {seed}: a part is left");
    }
    assert!(resumed > 100, "{resumed} runs found a journal");
    assert!(cut_short > 300, "{cut_short} cuts hit a run");
    assert!(
        with_some_done > 100,
        "{with_some_done} hit one that had done something"
    );
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

#[test]
fn a_cleaning_that_is_cut_or_fails_leaves_no_part_without_an_entry() {
    let mut had_parts = 0;
    for seed in 0..200 {
        let mut world = World::new(seed);
        let content = content(0, RESUME_LEAST.bytes() * 2);
        world.disk.put("/from/large", &content, 1_000_000);
        world.sources.insert("/large".to_owned(), content);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        world.disk.cut_after(random.random_range(20..160));
        world.run();
        world.disk.restart();
        let parts = world.disk.files("/there").into_keys();
        had_parts += usize::from(parts.into_iter().any(|it| it.ends_with(".part")));
        match seed % 2 {
            0 => world.disk.cut_after(random.random_range(0..60)),
            _ => world.disk.fail_one_in(6),
        }
        world.clean();
        world.disk.restart();
        let parts = world.parts_without_entry();
        assert!(parts.is_empty(), "seed {seed}: {parts:?} have no entry");
        let cleaned = world.clean().expect("the disk works");
        assert_eq!(cleaned.failed, 0, "seed {seed}: {cleaned:?}");
        let mut parts = world.disk.files("/there").into_keys();
        let part = parts.find(|it| it.ends_with(".part"));
        assert_eq!(part, None, "seed {seed}: a part is left");
        assert!(world.disk.files("/home").is_empty(), "seed {seed}");
    }
    assert!(had_parts > 15, "{had_parts} runs left a part");
}

/// The journal has the record of a part file, and the disk with that part was removed.
#[test]
fn entries_of_parts_stay_while_their_disk_is_not_mounted() {
    let mut world = World::new(1);
    let key = b"/there/to/gone.0123abcd.part";
    let (relative, named) = (
        b"there/to/x.0123abcd.part",
        b"/there/to/named.0123abcd.part",
    );
    let origin = PartOrigin {
        size_bytes: 5,
        modified_unix_s: 7,
        modified_ns: 0,
    };
    let journal = world.journal().expect("a journal");
    for key in [&key[..], relative, named] {
        journal
            .begin(key, PartRecord::new(origin, None))
            .expect("room");
    }
    drop(journal);
    world.sources.insert("/named".to_owned(), b"whole".to_vec());
    world.disk.put("/from/named", b"whole", 7);
    world.run();
    let keys = || -> Vec<Vec<u8>> {
        let journal = world.journal().expect("a journal");
        let left = journal.left().expect("read");
        left.into_iter().map(|it| it.key).collect()
    };
    assert_eq!(keys(), [key.to_vec(), relative.to_vec()]);
    // The disk is mounted again. The other record has a relative path, whose meaning depends on the
    // working directory.
    world.disk.put("/there/to/gone.0123abcd.part", b"half", 7);
    world.disk.put("/there/to/x.0123abcd.part", b"half", 7);
    let cleaned = world.clean().expect("the disk works");
    assert_eq!((cleaned.removed, cleaned.kept), (1, 1));
    assert_eq!(keys(), [relative.to_vec()]);
    let parts = world.disk.files("/there/to");
    assert!(parts.contains_key("/x.0123abcd.part") && !parts.contains_key("/gone.0123abcd.part"));
}

#[test]
fn disks_that_are_full_or_fail_lose_nothing_that_was_done() {
    let mut failed = 0;
    for seed in 0..300 {
        let world = World::new(seed);
        world.disk.fail_one_in(30);
        let (summary, done) = world.run();
        failed += usize::from(summary.tally.failed > 0);
        world.disk.restart();
        world.check(&done, seed);
        let (summary, _) = world.run();
        assert_eq!(summary.tally.failed, 0, "seed {seed}");
    }
    assert!(failed > 100, "{failed} runs met an error");
}

#[test]
fn a_folder_is_synced_once_for_many_files() {
    let world = World {
        disk: FaultyDisk::new(1),
        sources: BTreeMap::new(),
        replaced: BTreeMap::new(),
        verify: CopyVerification::None,
    };
    for number in 0..200 {
        world.disk.put(&format!("/from/{number}"), b"x", 7);
    }
    world.disk.put_folder("/there");
    let (summary, done) = world.run();
    assert_eq!((summary.tally.failed, done.len()), (0, 200));
    assert!(
        world.disk.folder_syncs() < 200,
        "{}",
        world.disk.folder_syncs()
    );
}

#[test]
fn a_source_stays_until_a_copy_of_another_program_is_synced() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.replaced.clear();
        for (path, content) in &world.sources {
            let path = format!("/there/to{path}");
            world.disk.put(&path, content, 1_000_000);
            world.disk.forget_syncs(&path);
        }
        for folder in ["/there/to/a/b", "/there/to/a", "/there/to"] {
            if world
                .disk
                .files("/there/to")
                .keys()
                .any(|it| format!("/there/to{it}").starts_with(folder))
            {
                world.disk.forget_syncs(folder);
            }
        }
        let (summary, done) = world.run();
        assert_eq!((summary.tally.failed, summary.tally.moved), (0, 0));
        world.disk.restart();
        world.check(&done, seed);
    }
}

/// The journal has a record of a part file from the same source, but the part is missing or
/// shortened. When the job writes the part again, the new bytes must not count as synced.
#[test]
fn bytes_of_a_lost_or_cut_part_do_not_count_as_synced() {
    let mut cut_short = 0;
    for seed in 0..60 {
        let mut world = World::new(seed);
        let content = content(0, RESUME_LEAST.bytes() * 3);
        world.disk = FaultyDisk::new(seed);
        world.disk.put_folder("/there/to");
        world.disk.put("/from/large", &content, 1_000_000);
        world.sources = [("/large".to_owned(), content)].into();
        world.replaced.clear();
        world.verify = CopyVerification::Size;
        let origin = PartOrigin {
            size_bytes: world.sources["/large"].len() as u64,
            modified_unix_s: 1_000_000,
            modified_ns: 0,
        };
        let lost = PartRecord {
            synced_bytes: origin.size_bytes,
            ..PartRecord::new(origin, Some(0))
        };
        let key = world
            .job()
            .moving
            .partial(b"/from/large", b"/there/to/large");
        let journal = world.journal().expect("a journal");
        journal.begin(&key, lost).expect("room");
        drop(journal);
        if seed % 2 == 1 {
            let part = String::from_utf8(key).expect("a name of ours");
            world
                .disk
                .put(&part, &world.sources["/large"][..100_000], 7);
        }
        world.disk.cut_after(20 + 2 * seed);
        let (summary, _) = world.run();
        cut_short += usize::from(summary.tally.failed > 0);
        world.disk.restart();
        let (summary, done) = world.run();
        assert_eq!(summary.tally.failed, 0, "seed {seed}");
        world.check(&done, seed);
    }
    assert!(cut_short > 10, "{cut_short} cuts hit a run");
}
